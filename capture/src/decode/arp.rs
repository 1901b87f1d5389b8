//! Who has which address.

use std::net::Ipv4Addr;

use etherparse::ArpPacketSlice;

use super::Line;
use super::link::mac;

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

pub(super) fn describe(line: &mut Line<'_>, data: &[u8], length: u32) {
    if !line.style.link_header {
        line.put(format_args!("ARP, "));
    }
    let Ok(arp) = ArpPacketSlice::from_slice(data) else {
        line.truncated("arp");
        return;
    };
    let operation = arp.operation().0;
    let (Ok(sender_mac), Ok(target_mac), Ok(sender), Ok(target)) = (
        arp.sender_hw_addr().try_into(),
        arp.target_hw_addr().try_into(),
        <[u8; 4]>::try_from(arp.sender_protocol_addr()).map(Ipv4Addr::from),
        <[u8; 4]>::try_from(arp.target_protocol_addr()).map(Ipv4Addr::from),
    ) else {
        let (hardware, protocol) = (arp.hw_addr_type().0, arp.proto_addr_type().0);
        line.put(format_args!("hardware #{hardware}, protocol 0x{protocol:04x}, "));
        line.put(format_args!("operation #{operation}, length {length}"));
        return;
    };
    if line.style.verbose > 0 {
        line.put(format_args!("Ethernet (len 6), IPv4 (len 4), "));
    }
    match operation {
        REQUEST if target_mac == [0; 6] => {
            line.put(format_args!("Request who-has {target} tell {sender}"));
        }
        REQUEST => {
            let target_mac = mac(target_mac);
            line.put(format_args!("Request who-has {target} ({target_mac}) tell {sender}"));
        }
        REPLY => line.put(format_args!("Reply {sender} is-at {}", mac(sender_mac))),
        other => line.put(format_args!("Unknown ({other})")),
    }
    line.put(format_args!(", length {length}"));
}
