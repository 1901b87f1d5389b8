//! Ethernet and its tags.

use etherparse::{Ethernet2HeaderSlice, SingleVlanHeaderSlice};

use super::{Line, arp, ip};

/// Lengths up to this are no types.
const MAX_LENGTH: u16 = 1500;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

struct Mac([u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

fn name(ether_type: u16) -> &'static str {
    match ether_type {
        IPV4 => "IPv4",
        ARP => "ARP",
        IPV6 => "IPv6",
        0x8035 => "Reverse ARP",
        0x8100 => "802.1Q",
        0x88a8 => "802.1Q-QinQ",
        0x9100 => "802.1Q-9100",
        0x9200 => "802.1Q-9200",
        0x8847 => "MPLS unicast",
        0x8848 => "MPLS multicast",
        0x8863 => "PPPoE D",
        0x8864 => "PPPoE S",
        0x888e => "EAPOL",
        0x88cc => "LLDP",
        0x88f7 => "PTP",
        _ => "Unknown",
    }
}

fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// Returns the size of the header with its tags.
pub(super) fn ethernet(line: &mut Line<'_>, data: &[u8], len: u32) -> usize {
    let Ok(header) = Ethernet2HeaderSlice::from_slice(data) else {
        line.truncated("ether");
        return 0;
    };
    let (source, destination) = (Mac(header.source()), Mac(header.destination()));
    let mut ether_type = header.ether_type().0;
    let mut rest = &data[14..];
    let mut length = Some(len);
    if line.style.link_header {
        line.put(format_args!("{source} > {destination}"));
    }
    while is_tag(ether_type) {
        announce(line, ether_type, &mut length);
        let Ok(tag) = SingleVlanHeaderSlice::from_slice(rest) else {
            line.truncated("vlan");
            return data.len() - rest.len();
        };
        if line.style.link_header {
            let dei = if tag.drop_eligible_indicator() { ", DEI" } else { "" };
            let (id, priority) = (tag.vlan_identifier().value(), tag.priority_code_point().value());
            line.put(format_args!("vlan {id}, p {priority}{dei}"));
        }
        (ether_type, rest) = (tag.ether_type().0, &rest[4..]);
    }
    let size = data.len() - rest.len();
    let inner = len.saturating_sub(size as u32);
    if !line.style.link_header && !is_known(ether_type) {
        line.put(format_args!("{source} > {destination}"));
    }
    payload(line, ether_type, rest, inner, length);
    size
}

fn is_known(ether_type: u16) -> bool {
    matches!(ether_type, IPV4 | ARP | IPV6)
}

fn payload(line: &mut Line<'_>, ether_type: u16, data: &[u8], inner: u32, mut length: Option<u32>) {
    if ether_type <= MAX_LENGTH {
        line.put(format_args!(", 802.3, length {ether_type}"));
        return;
    }
    announce(line, ether_type, &mut length);
    match ether_type {
        IPV4 => ip::v4(line, data, inner),
        IPV6 => ip::v6(line, data, inner),
        ARP => arp::describe(line, data, inner),
        _ if !line.style.link_header => {
            let name = name(ether_type);
            let length = length.unwrap_or(inner);
            line.put(format_args!(", ethertype {name} (0x{ether_type:04x}), length {length}: "));
        }
        _ => {}
    }
}

/// The type, and after the first one the length of the frame.
fn announce(line: &mut Line<'_>, ether_type: u16, length: &mut Option<u32>) {
    if !line.style.link_header {
        return;
    }
    let name = name(ether_type);
    if line.style.quick {
        line.put(format_args!(", {name}"));
    } else {
        line.put(format_args!(", ethertype {name} (0x{ether_type:04x})"));
    }
    match length.take() {
        Some(length) => line.put(format_args!(", length {length}: ")),
        None => line.put(format_args!(", ")),
    }
}

/// For other layers that carry hardware addresses.
pub(super) fn mac(bytes: [u8; 6]) -> impl std::fmt::Display {
    Mac(bytes)
}
