use insta::assert_snapshot;

use super::*;
use crate::netstat::fixture::{counters, exact};

#[test]
fn protocols_and_ports() {
    assert_snapshot!(text(&ReportData { counters: Some(counters()), ..exact() }));
}

#[test]
fn bytes_that_no_driver_counts_are_not_0() {
    let stats = PortStats { rx_packets: 5, tx_packets: 0, ..PortStats::default() };
    let lines = counted(&stats);
    assert_eq!(lines[0], (5, "packets received, bytes not counted".to_owned()));
    assert_eq!(lines[1], (0, "packets sent, 0 B".to_owned()));
}
