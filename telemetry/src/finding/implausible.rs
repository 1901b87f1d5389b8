//! Lint for counters that cannot be right: losses that they count stay unknown.

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::{Implausibility, ImplausibleCounter, Model};
use crate::sample::PortSample;

/// Counters of traffic, which say nothing about losses.
const TRAFFIC: [&str; 4] = ["rx_good_packets", "tx_good_packets", "rx_good_bytes", "tx_good_bytes"];

/// Number of counters that one finding names.
const NAMED: usize = 3;

/// Returns the ports with counters that cannot be right.
pub(super) fn evaluate(model: &Model) -> impl Iterator<Item = Finding> {
    let ports = model.sample.ports.iter().zip(&model.ports);
    ports.filter_map(|(port, rates)| of_port(model, port, &rates.counters.implausible))
}

fn of_port(model: &Model, port: &PortSample, found: &[ImplausibleCounter]) -> Option<Finding> {
    if found.is_empty() {
        return None;
    }
    let texts: Vec<_> = found.iter().take(NAMED).map(|counter| words(port, counter)).collect();
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let evidence = format!("{}{more}; no rates are computed from them", texts.join("; "));
    // Losses may be hidden by a counter that is wrong; after a wrap or zeros the next sample is right again.
    let hides = |counter: &ImplausibleCounter| {
        let passes = matches!(counter.why, Implausibility::Wrapped | Implausibility::Zeros);
        !passes && !TRAFFIC.contains(&counter.counter.as_str())
    };
    let severity = if found.iter().any(hides) { Severity::Warning } else { Severity::Info };
    let advice = "losses that these counters count are unknown: check the driver's log for a reset of the device \
                  or of its counters, and the counter in a newer release of DPDK; another tool may reset \
                  counters (rte_eth_stats_reset)";
    Some(finding(
        model,
        Lint::CounterImplausible,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        "counters only grow, by no more than the link carries",
        advice,
    ))
}

fn words(port: &PortSample, counter: &ImplausibleCounter) -> String {
    let ImplausibleCounter { counter: name, before, now, .. } = counter;
    match counter.why {
        Implausibility::BelowZero => {
            format!("{name} went from {before} to {now}: the driver let it fall below 0")
        }
        Implausibility::Wrapped => {
            format!(
                "{name} went from {before} to {now}: the register of the NIC is too narrow and began again at 0"
            )
        }
        Implausibility::Zeros => {
            format!(
                "{name} was 0 in the previous reply and is {now} now: that reply had zeros in place of counters"
            )
        }
        Implausibility::TooFast => {
            let link = match port.link_mbps {
                Some(mbps) => format!("a link of {} Gbit/s", mbps as f64 / 1000.0),
                None => "any link".to_owned(),
            };
            format!("{name} went from {before} to {now}: more than {link} carries")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::PortStats;
    use crate::sample::tests::{empty_sample, port};

    /// Returns the findings about each of these readings of a port, a second apart.
    fn findings(readings: &[PortStats]) -> Vec<Vec<Finding>> {
        let mut tracker = ModelTracker::default();
        let judged = |(second, stats): (u64, &PortStats)| {
            let mut sample = empty_sample();
            sample.monotonic_ns += second * 1_000_000_000;
            sample.ports = vec![port(0, 0)];
            sample.ports[0].stats = *stats;
            evaluate(&tracker.update(sample), &LintRules::default())
        };
        (1..).zip(readings).map(judged).collect()
    }

    fn stats(packets: u64, missed: u64) -> PortStats {
        PortStats { rx_packets: packets, rx_missed: missed, ..PortStats::default() }
    }

    #[test]
    fn a_counter_below_zero_is_told_in_place_of_its_rate() {
        let found =
            findings(&[stats(9000, 0), stats(18_000, u64::MAX - 9), stats(27_000, u64::MAX - 9)]);
        let [only] = &found[1][..] else { panic!("{found:?}") };
        assert_eq!((only.lint, only.severity), (Lint::CounterImplausible, Severity::Warning));
        assert!(
            only.evidence.starts_with("rx_missed_errors went from 0 to 18446744073709551606: ")
        );
        assert_eq!(found[2], [], "it stands still");
    }

    #[test]
    fn zeros_in_place_of_counters_are_no_traffic() {
        let real = |n: u64| stats(n * 9_000_000, 77);
        let found = findings(&[real(1), stats(0, 0), real(3), real(4)]);
        assert_eq!(found[1], [], "it may be a reset");
        let [only] = &found[2][..] else { panic!("{found:?}") };
        assert_eq!((only.lint, only.severity), (Lint::CounterImplausible, Severity::Info));
        assert!(only.evidence.contains("had zeros in place of counters"), "{only:?}");
        assert_eq!(found[3], []);
        let anew = |n: u64| stats(n * 9_000_000, 0);
        let reset = findings(&[anew(9), stats(0, 0), anew(1), anew(2)]);
        assert!(reset.iter().all(Vec::is_empty), "{reset:?}");
    }
}
