//! The content of one packet, without a table of conversations.

use crate::FlowEndpoint;
use crate::dissect::{IpFields, NetworkLayer, dissect};
use crate::key::ip_address;

/// The content of one packet, from its innermost readable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketContent {
    /// IP.
    Ip {
        /// IP protocol number.
        protocol: u8,
        /// Sender.
        source: FlowEndpoint,
        /// Receiver.
        destination: FlowEndpoint,
    },
    /// Another protocol: its ethertype, or the length of a frame without one.
    Other(u16),
    /// Truncated or malformed before the addresses.
    Unreadable,
}

impl PacketContent {
    /// Returns the content of a packet of this link type, and of this length on the wire; the packet may be
    /// truncated.
    pub fn of(linktype: u16, data: &[u8], length: u32) -> Self {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match dissect(linktype, data, length, true).net {
            NetworkLayer::Ip(ip) => Self::Ip {
                protocol: ip.protocol,
                source: endpoint(&ip, ip.source, ip.source_port),
                destination: endpoint(&ip, ip.destination, ip.destination_port),
            },
            NetworkLayer::Other(ether_type) => Self::Other(ether_type),
            NetworkLayer::Unreadable | NetworkLayer::UnknownLink => Self::Unreadable,
        }
    }
}

fn endpoint(ip: &IpFields, address: u128, port: u16) -> FlowEndpoint {
    FlowEndpoint { addr: ip_address(ip.v6, address), port }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use pmdscope_packets::ETHERNET;

    use super::*;

    #[test]
    fn both_ends_of_a_datagram_are_told() {
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .udp(1000, 53);
        packet.write(&mut frame, &[1, 2, 3]).unwrap();
        let end = |last, port| FlowEndpoint { addr: [198, 18, 0, last].into(), port };
        let (source, destination) = (end(1, 1000), end(2, 53));
        let expected = PacketContent::Ip { protocol: 17, source, destination };
        assert_eq!(PacketContent::of(ETHERNET, &frame, frame.len() as u32), expected);
        assert_eq!(PacketContent::of(ETHERNET, &frame[..20], 45), PacketContent::Unreadable);
    }

    #[test]
    fn version_6_and_what_is_not_ip_are_told() {
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfd; 16], [0xfe; 16], 64);
        packet.icmpv6_echo_request(1, 2).write(&mut frame, &[]).unwrap();
        let content = PacketContent::of(ETHERNET, &frame, frame.len() as u32);
        let end = |byte| FlowEndpoint { addr: [byte; 16].into(), port: 0 };
        let (source, destination) = (end(0xfd), end(0xfe));
        assert_eq!(content, PacketContent::Ip { protocol: 58, source, destination });
        let mut arp = vec![0xff; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(PacketContent::of(ETHERNET, &arp, 60), PacketContent::Other(0x0806));
    }
}
