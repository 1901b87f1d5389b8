//! Formats of conversations in which netstat differs from `top`.

use std::net::IpAddr;

use pmdscope_flows::Flow;
use pmdscope_render::conversation;
use pmdscope_render::number::{self, UNKNOWN};

/// IP protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const SCTP: u8 = 132;

/// Name of a protocol, with a 6 behind it for IPv6.
pub(super) fn protocol(proto: u8, addr: IpAddr) -> String {
    let name = conversation::protocol(proto);
    let told = name.ends_with('6') || name.parse::<u8>().is_ok();
    if addr.is_ipv6() && !told { name + "6" } else { name }
}

/// Port and queue where packets were received, and behind a `>` where they were sent.
pub(super) fn queues(flow: &Flow) -> String {
    let rx = flow.rx_place.as_ref().map(conversation::place);
    match (rx, flow.tx_place.as_ref().map(conversation::place)) {
        (None, None) => UNKNOWN.to_owned(),
        (Some(rx), None) => rx,
        (rx, Some(tx)) => format!("{}>{tx}", rx.unwrap_or_default()),
    }
}

/// The lcore, or where another one sent than received: `1>2`.
pub(super) fn lcores(flow: &Flow) -> String {
    let lcore = |place: Option<pmdscope_flows::FlowPlace>| place.and_then(|place| place.lcore);
    match (lcore(flow.rx_place), lcore(flow.tx_place)) {
        (Some(rx), Some(tx)) if rx != tx => format!("{rx}>{tx}"),
        (rx, tx) => number::known(rx.or(tx), |lcore| lcore.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_tell_the_version_as_netstat_does() {
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let names = [protocol(TCP, v4), protocol(TCP, v6), protocol(58, v6), protocol(253, v6)];
        assert_eq!(names, ["tcp", "tcp6", "icmp6", "253"]);
    }
}
