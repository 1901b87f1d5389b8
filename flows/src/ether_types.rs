//! Packets that are not IP, by ethertype.

use crate::{OtherEtherType, PacketCounts};

/// Most ethertypes that are counted: real networks have few, made-up packets may have all.
const MOST: usize = 32;

/// Counts by ethertype, in the order of their first packet.
#[derive(Debug, Default)]
pub(super) struct EtherTypeTable(Vec<(u16, PacketCounts)>);

impl EtherTypeTable {
    /// Counts a packet, unless there are too many ethertypes. Frames without one are counted as one.
    pub(super) fn count(&mut self, ether_type: u16, counts: PacketCounts) {
        let ether_type = if ether_type < FIRST { 0 } else { ether_type };
        if let Some((_, sum)) = self.0.iter_mut().find(|(known, _)| *known == ether_type) {
            *sum = sum.plus(counts);
        } else if self.0.len() < MOST {
            self.0.push((ether_type, counts));
        }
    }

    /// Returns the counts for a snapshot.
    pub(super) fn snapshot(&self) -> Vec<OtherEtherType> {
        let named = |(ether_type, counts): &(u16, PacketCounts)| OtherEtherType {
            ether_type: *ether_type,
            name: name(*ether_type),
            counts: *counts,
        };
        self.0.iter().map(named).collect()
    }
}

/// The smallest ethertype: smaller numbers are lengths.
const FIRST: u16 = 0x0600;

/// Returns the name of an ethertype, or its number.
fn name(ether_type: u16) -> String {
    let name = match ether_type {
        ..FIRST => "without ethertype",
        0x0806 => "ARP",
        0x0842 => "Wake-on-LAN",
        0x22ea => "SRP",
        0x22f3 => "TRILL",
        0x4305 => "batman-adv",
        0x8021 => "PPP IPCP",
        0x8035 => "RARP",
        0x8057 => "PPP IPV6CP",
        0x80fd => "PPP CCP",
        0x8137 => "IPX",
        0x8809 => "LACP",
        0x8847 | 0x8848 => "MPLS",
        0x8863 => "PPPoE discovery",
        0x8864 => "PPPoE",
        0x888e => "802.1X",
        0x8892 => "PROFINET",
        0x88a2 => "AoE",
        0x88a4 => "EtherCAT",
        0x88b8 => "GOOSE",
        0x88ba => "sampled values",
        0x88cc => "LLDP",
        0x88e5 => "MACsec",
        0x88e7 => "PBB",
        0x88f5 => "MVRP",
        0x88f7 => "PTP",
        0x88fb => "PRP",
        0x8902 => "CFM",
        0x8906 => "FCoE",
        0x8914 => "FIP",
        0x8915 => "RoCE",
        0x894f => "NSH",
        0x9000 => "loopback",
        0xc021 => "PPP LCP",
        0xc023 => "PPP PAP",
        0xc025 => "PPP LQR",
        0xc223 => "PPP CHAP",
        other => return format!("{other:#06x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_ethertypes_take_little_memory() {
        let mut table = EtherTypeTable::default();
        let counts = PacketCounts { packets: 1, bytes: 60 };
        (0..=u16::MAX).for_each(|ether_type| table.count(ether_type, counts));
        let all = table.snapshot();
        assert_eq!(all.len(), MOST);
        let first = (all[0].name.as_str(), all[0].counts.packets, all[1].ether_type);
        assert_eq!(first, ("without ethertype", 0x0600, 0x0600));
    }

    #[test]
    fn what_cannot_be_read_has_a_name() {
        assert_eq!([0x88e5, 0x88cc, 0x1234].map(name), ["MACsec", "LLDP", "0x1234"]);
    }
}
