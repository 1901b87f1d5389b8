use super::*;
use crate::finding::{LintRules, evaluate};
use crate::model::ModelTracker;
use crate::sample::PortStats;
use crate::sample::tests::{empty_sample, port};

/// Basic counters and extended ones after a second.
type Growth<'a> = (PortStats, &'a [(&'a str, u64)]);

/// Returns the findings about a port after a second with these counters.
fn findings((stats, xstats): Growth<'_>) -> Vec<Finding> {
    let mut tracker = ModelTracker::default();
    let mut at = |second: u64| {
        let mut sample = empty_sample();
        sample.monotonic_ns += second * 1_000_000_000;
        sample.ports = vec![port(0, 0)];
        sample.ports[0].mtu = 1500;
        sample.ports[0].device = "0000:03:00.0".into();
        sample.ports[0].stats = stats.values().map(|value| value * second).into();
        let xstats = xstats.iter().map(|(name, value)| ((*name).to_owned(), value * second));
        sample.ports[0].xstats = xstats.collect();
        evaluate(&tracker.update(sample), &LintRules::default())
    };
    at(0);
    at(1)
}

fn found(growth: Growth<'_>) -> Vec<(Lint, Severity)> {
    findings(growth).iter().map(|finding| (finding.lint, finding.severity)).collect()
}

const RECEIVED: PortStats = PortStats {
    rx_packets: 1_000_000,
    tx_packets: 1_000_000,
    rx_bytes: 0,
    tx_bytes: 0,
    rx_missed: 0,
    rx_errors: 0,
    tx_errors: 0,
    rx_nombuf: 0,
};

#[test]
fn discards_of_the_nic_are_found_once_in_its_words() {
    let counters = [
        ("rx_discards_phy", 450_000),
        ("rx_phy_discard_packets", 450_000),
        ("rx_prio0_buf_discard", 450_000),
        ("rx_out_of_buffer", 0),
    ];
    let findings = findings((RECEIVED, &counters));
    let [found] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((found.lint, found.severity), (Lint::RxDiscards, Severity::Critical));
    assert!(
        found.evidence.starts_with(
            "450000.0 of 1450000.0 packets/s were discarded by the NIC before its queues (31.0 %): \
             rx_discards_phy 450000.0/s ("
        ),
        "{found:?}"
    );
    assert!(
        found.evidence.contains("PCIe") && found.evidence.ends_with("driver mlx5"),
        "{found:?}"
    );
    assert!(found.advice.contains("lspci"), "{found:?}");
}

#[test]
fn errors_of_both_directions_are_found_with_or_without_a_reason() {
    let rx = PortStats { rx_errors: 5000, ..RECEIVED };
    assert_eq!(found((rx, &[("rx_crc_errors", 5000)])), [(Lint::RxErrors, Severity::Warning)]);
    let tx = PortStats { tx_packets: 600_000, tx_errors: 400_000, ..RECEIVED };
    let findings = findings((tx, &[]));
    let [only] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((only.lint, only.severity), (Lint::TxErrors, Severity::Critical));
    assert!(only.evidence.contains("(40.0 %)"), "{only:?}");
    assert!(only.evidence.contains("no counter of the driver tells why"), "{only:?}");
}

#[test]
fn a_few_packets_are_a_note_and_many_are_not() {
    let errors = |rx_errors| PortStats { rx_errors, ..RECEIVED };
    assert_eq!(found((errors(0), &[])), []);
    assert_eq!(found((errors(1), &[])), [(Lint::RxErrors, Severity::Info)]);
    assert_eq!(found((errors(10), &[])), [(Lint::RxErrors, Severity::Warning)]);
    assert_eq!(found((errors(20_000), &[])), [(Lint::RxErrors, Severity::Critical)]);
}

#[test]
fn allowances_and_unexplained_counters_are_warnings() {
    let counters = [("pps_allowance_exceeded", 35_000), ("tx_wondrous_drops", 99)];
    assert_eq!(
        found((RECEIVED, &counters)),
        [
            (Lint::AllowanceExceeded, Severity::Warning),
            (Lint::UnexplainedCounter, Severity::Warning)
        ]
    );
}

#[test]
fn packets_that_a_basic_counter_has_are_not_told_twice() {
    let missed = PortStats { rx_missed: 300, ..RECEIVED };
    assert_eq!(
        found((missed, &[("rx_out_of_buffer", 300)])),
        [(Lint::RxMissed, Severity::Critical)]
    );
    assert_eq!(
        found((RECEIVED, &[("rx_out_of_buffer", 300)])),
        [(Lint::RxDiscards, Severity::Warning)]
    );
}
