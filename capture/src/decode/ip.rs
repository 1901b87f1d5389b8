//! IPv4 and IPv6.

use std::net::IpAddr;

use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, LaxIpv4Slice, LaxIpv6Slice};

use super::{Line, checksum, icmp, transport};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;

/// What IP knows of its payload.
pub(super) struct Payload<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Bytes kept.
    pub(super) data: &'a [u8],
    /// Bytes there were.
    pub(super) length: u32,
    /// It is a fragment but not the first one, at this offset.
    later: Option<Later>,
    /// It is a fragment, so its checksum covers more than it.
    pub(super) fragment: bool,
}

/// Where a fragment belongs.
struct Later {
    offset: u32,
    identification: u32,
    /// Printed by IPv6 only.
    v6: bool,
}

impl Payload<'_> {
    pub(super) fn is_whole(&self) -> bool {
        !self.fragment && self.data.len() == self.length as usize
    }
}

pub(super) fn v4(line: &mut Line<'_>, data: &[u8], length: u32) {
    if !line.style.link_header {
        line.put(format_args!("IP "));
    }
    let Ok((packet, _)) = LaxIpv4Slice::from_slice(data) else {
        line.truncated("ip");
        return;
    };
    let header = packet.header();
    // A length of 0 is left to the NIC by a sender that hands it a large segment.
    let total = match u32::from(header.total_len()) {
        0 => length,
        total => total,
    };
    if line.style.verbose > 0 {
        header_v4(line, &header, total);
    }
    let size = header.slice().len();
    let offset = u32::from(header.fragments_offset().value()) * 8;
    let end = data.len().min((total as usize).max(size));
    let payload = Payload {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol: header.protocol().0,
        data: &data[size..end],
        length: total.saturating_sub(size as u32),
        later: (offset > 0).then(|| Later {
            offset,
            identification: header.identification().into(),
            v6: false,
        }),
        fragment: header.is_fragmenting_payload(),
    };
    carried(line, &payload);
}

fn header_v4(line: &mut Line<'_>, header: &Ipv4HeaderSlice<'_>, total: u32) {
    let tos = header.slice()[1];
    let ecn = ["", ",ECT(1)", ",ECT(0)", ",CE"][usize::from(tos & 3)];
    let flags = match (header.more_fragments(), header.dont_fragment()) {
        (false, false) => "none",
        (true, false) => "+",
        (false, true) => "DF",
        (true, true) => "+, DF",
    };
    let offset = u32::from(header.fragments_offset().value()) * 8;
    line.put(format_args!(
        "(tos 0x{tos:x}{ecn}, ttl {}, id {}, offset {offset}, flags [{flags}], proto {} ({}), length {total}",
        header.ttl(),
        header.identification(),
        name(header.protocol()),
        header.protocol().0,
    ));
    if !header.options().is_empty() {
        line.put(format_args!(", options ({} bytes)", header.options().len()));
    }
    let found = header.header_checksum();
    if line.style.checksums
        && let Some(right) = checksum::plain(header.slice(), 10).filter(|right| *right != found)
    {
        line.put(format_args!(", bad cksum {found:x} (->{right:x})!"));
    }
    line.put(format_args!(")\n    "));
}

pub(super) fn v6(line: &mut Line<'_>, data: &[u8], length: u32) {
    if !line.style.link_header {
        line.put(format_args!("IP6 "));
    }
    let (Ok((packet, _)), Ok(header)) =
        (LaxIpv6Slice::from_slice(data), Ipv6HeaderSlice::from_slice(data))
    else {
        line.truncated("ip6");
        return;
    };
    if line.style.verbose > 0 {
        header_v6(line, &header);
    }
    let inner = packet.payload();
    // The payload begins behind the extension headers, wherever it ends.
    let extensions = packet.extensions().slice().len();
    let announced = match u32::from(header.payload_length()) {
        0 => length.saturating_sub(40),
        announced => announced,
    };
    let payload = Payload {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol: inner.ip_number.0,
        data: inner.payload,
        length: announced.saturating_sub(extensions as u32),
        later: later_v6(&packet),
        fragment: inner.fragmented,
    };
    carried(line, &payload);
}

fn later_v6(packet: &LaxIpv6Slice<'_>) -> Option<Later> {
    let fragments =
        packet.extensions().clone().into_iter().filter_map(|extension| match extension {
            etherparse::Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
            _ => None,
        });
    let fragment = fragments.last()?;
    let offset = u32::from(fragment.fragment_offset().value()) * 8;
    (offset > 0).then(|| Later { offset, identification: fragment.identification(), v6: true })
}

fn header_v6(line: &mut Line<'_>, header: &Ipv6HeaderSlice<'_>) {
    line.put(format_args!("("));
    if header.traffic_class() > 0 {
        line.put(format_args!("class 0x{:02x}, ", header.traffic_class()));
    }
    if header.flow_label().value() > 0 {
        line.put(format_args!("flowlabel 0x{:05x}, ", header.flow_label().value()));
    }
    line.put(format_args!(
        "hlim {}, next-header {} ({}) payload length: {}) ",
        header.hop_limit(),
        name(header.next_header()),
        header.next_header().0,
        header.payload_length(),
    ));
}

fn name(protocol: IpNumber) -> &'static str {
    match protocol.0 {
        0 => "Options",
        ICMP => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        TCP => "TCP",
        UDP => "UDP",
        41 => "IPv6",
        44 => "Fragment",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        ICMP6 => "ICMPv6",
        89 => "OSPF",
        112 => "VRRP",
        SCTP => "SCTP",
        _ => "unknown",
    }
}

fn carried(line: &mut Line<'_>, payload: &Payload<'_>) {
    let Payload { source, destination, protocol, length, .. } = payload;
    match &payload.later {
        Some(Later { offset, identification, v6: true }) => {
            line.put(format_args!(
                "{source} > {destination}: frag (0x{identification:08x}:{offset}|{length})"
            ));
            return;
        }
        Some(_) => {
            line.put(format_args!("{source} > {destination}: ip-proto-{protocol}"));
            return;
        }
        None => {}
    }
    match *protocol {
        TCP => transport::tcp(line, payload),
        UDP => transport::udp(line, payload),
        SCTP => transport::sctp(line, payload),
        ICMP => icmp::v4(line, payload),
        ICMP6 => icmp::v6(line, payload),
        _ => line.put(format_args!("{source} > {destination}:  ip-proto-{protocol} {length}")),
    }
}
