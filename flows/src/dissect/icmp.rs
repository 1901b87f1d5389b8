//! Packets that ICMP errors quote.

use super::ip::{self, IpFields};
use super::wire_bytes::WireBytes;
use super::{ICMP, ICMP6, NetworkLayer};
use crate::IcmpKind;

/// Length of an ICMP header, which the quoted packet follows.
const HEADER: usize = 8;

/// Returns the addresses and ports of a packet that an error quotes, as of an answer to it. An error goes
/// to the sender of the packet that it quotes; any other text after the header quotes nothing.
pub(super) fn quoted(ip: &IpFields, payload: WireBytes<'_>) -> Option<IpFields> {
    let IcmpKind { kind, .. } = ip.icmp?;
    let is_error = match ip.protocol {
        ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        ICMP6 => matches!(kind, 1..=4),
        _ => false,
    };
    let payload = payload.after(HEADER).filter(|_| is_error)?;
    let (NetworkLayer::Ip(quoted), _) = ip::either(payload)? else { return None };
    (quoted.v6 == ip.v6 && quoted.source == ip.destination).then_some(IpFields {
        source: quoted.destination,
        destination: quoted.source,
        source_port: quoted.destination_port,
        destination_port: quoted.source_port,
        tcp: None,
        ..quoted
    })
}
