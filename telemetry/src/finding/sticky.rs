//! Keeps findings that look only at the last two samples for some time.
//!
//! Several clients may request the state of an app: one that comes right after another would see an
//! interval of a few milliseconds, and not what the other one was shown. So recent findings are shown
//! to all.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Finding, Lint, sort};
use crate::model::Model;

/// How long a finding is kept after it was last seen, nanoseconds: the usual scrape interval.
const STAND_NS: u64 = 15_000_000_000;

/// The lints that look only at the last two samples.
const LINTS: [Lint; 14] = [
    Lint::AllowanceExceeded,
    Lint::CounterImplausible,
    Lint::DeviceEvents,
    Lint::LcoreStolen,
    Lint::PauseFrames,
    Lint::QueueImbalance,
    Lint::RxDiscards,
    Lint::RxErrors,
    Lint::RxFiltered,
    Lint::RxMissed,
    Lint::RxNombuf,
    Lint::Stall,
    Lint::TxErrors,
    Lint::UnexplainedCounter,
];

/// Suffix of the evidence of a kept finding, before the time when it was last seen.
const LAST_SEEN: &str = "; last seen at ";

impl Finding {
    /// Whether the finding was last seen in an earlier sample, and is kept for some time.
    pub fn is_over(&self) -> bool {
        self.evidence.contains(LAST_SEEN)
    }
}

/// The sticky findings of one app, and when each was last seen, by the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StickyFindings(Vec<(u64, Arc<Finding>)>);

impl StickyFindings {
    /// Returns the findings of a model, and earlier ones that are kept.
    pub(crate) fn update(&mut self, model: &Model, mut findings: Vec<Finding>) -> Vec<Finding> {
        let now_ns = model.sample.monotonic_ns;
        let stands = |seen_ns: u64| now_ns.checked_sub(seen_ns).is_some_and(|ago| ago <= STAND_NS);
        self.0.retain(|(seen_ns, old)| {
            // Findings about a previous process do not apply to this one.
            !model.restarted && stands(*seen_ns) && !findings.iter().any(|new| replaces(new, old))
        });
        findings.retain(|new| !self.0.iter().any(|(_, old)| same(new, old)));
        let fresh = findings.len();
        findings.extend(self.0.iter().map(|(_, old)| Finding::clone(old)));
        let judged = findings[..fresh].iter().filter(|finding| LINTS.contains(&finding.lint));
        self.0.extend(judged.map(|finding| (now_ns, Arc::new(past(finding, model)))));
        sort(&mut findings);
        findings
    }
}

/// Returns the finding as it will be shown when it is no longer seen.
fn past(finding: &Finding, model: &Model) -> Finding {
    let at = Timestamp::from_nanosecond(model.sample.realtime_ns.into()).unwrap_or(Timestamp::MAX);
    Finding { evidence: format!("{}{LAST_SEEN}{at:.0}", finding.evidence), ..finding.clone() }
}

/// Whether a new finding replaces an old one; a less severe one does not.
fn replaces(new: &Finding, old: &Finding) -> bool {
    same(new, old) && new.severity >= old.severity
}

fn same(one: &Finding, other: &Finding) -> bool {
    (one.lint, &one.subject) == (other.lint, &other.subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::LintRules;
    use crate::fleet::Evaluator;
    use crate::fleet_state::{FleetEvent, FleetState};
    use crate::sample::Sample;
    use crate::sample::tests::{empty_sample, port, queue};

    /// The state of one app, updated at given times with the sample of that time.
    struct Asked(FleetState, Evaluator);

    impl Asked {
        fn new() -> Self {
            Self(FleetState::default(), Evaluator::new(LintRules::default()))
        }

        fn at(&mut self, ms: u64, change: impl FnOnce(&mut Sample)) -> &[Finding] {
            let mut sample = empty_sample();
            sample.monotonic_ns = 1_000_000_000 + ms * 1_000_000;
            sample.realtime_ns = 1_795_251_360_000_000_000 + ms * 1_000_000;
            sample.ports = vec![port(0, ms)];
            change(&mut sample);
            self.0.apply(self.1.sampled(sample));
            &self.0.apps[0].findings
        }

        /// Updates the state after this number of packets was missed.
        fn missed(&mut self, ms: u64, packets: u64) -> Vec<&str> {
            let findings = self.at(ms, |sample| sample.ports[0].stats.rx_missed = packets);
            findings.iter().map(|finding| finding.evidence.as_str()).collect()
        }
    }

    #[test]
    fn a_probe_before_a_scrape_does_not_hide_findings() {
        let mut asked = Asked::new();
        assert!(asked.missed(0, 7).is_empty());
        for scrape in 1..=20 {
            let (ms, packets) = (scrape * 15_000, 7 + scrape * 150);
            let probe = asked.missed(ms - 20, packets).concat();
            assert!(probe.contains("packets/s missed") && !probe.contains("last seen"), "{probe}");
            assert_eq!(asked.missed(ms, packets).len(), 1, "scrape {scrape}");
        }
    }

    #[test]
    fn past_findings_are_kept_for_a_while_with_their_time() {
        let mut asked = Asked::new();
        asked.missed(0, 0);
        let now = asked.missed(1000, 5).concat();
        assert!(now.starts_with("5.0 packets/s missed by the NIC, 1000.0/s received; "), "{now}");
        let past = format!("{now}; last seen at 2026-11-21T08:56:01Z");
        assert_eq!(asked.missed(1100, 5), [past.as_str()]);
        assert_eq!(asked.missed(16_000, 5), [past.as_str()]);
        assert!(asked.missed(16_001, 5).is_empty());
        assert!(asked.missed(17_001, 9).concat().starts_with("4.0 packets/s"), "it is back");
    }

    #[test]
    fn findings_of_an_interval_are_kept_and_those_of_a_state_are_not() {
        let mut asked = Asked::new();
        let uneven = |packets: u64| {
            move |sample: &mut Sample| {
                sample.queues = vec![queue(0, [9, 3, packets]), queue(1, [9, 3, 0])];
            }
        };
        asked.at(0, uneven(0));
        asked.at(1000, uneven(5000));
        let findings = asked.at(1020, |sample| {
            uneven(5000)(sample);
            sample.ports[0].link_up = Some(false);
        });
        let lints: Vec<_> = findings.iter().map(|finding| finding.lint).collect();
        assert_eq!(lints, [Lint::LinkDown, Lint::QueueImbalance]);
        let lints: Vec<_> = asked.at(1040, uneven(5000)).iter().map(|f| f.lint).collect();
        assert_eq!(lints, [Lint::QueueImbalance]);
    }

    #[test]
    fn kept_findings_of_a_silent_or_restarted_app() {
        let mut asked = Asked::new();
        asked.missed(0, 0);
        asked.missed(1000, 5);
        asked.0.apply(FleetEvent::Lost {
            app: "app".into(),
            class: crate::error::ErrorClass::Timeout,
            reason: "silent".into(),
            finding: None,
        });
        assert_eq!(asked.missed(2000, 5).len(), 1);
        let restarted = asked.at(3000, |sample| sample.app.start_ticks += 1);
        assert_eq!(restarted, []);
    }

    #[test]
    fn triggers_of_a_recorder_are_not_kept() {
        let mut evaluator = Evaluator::new(LintRules::default());
        let mut found = |ms, missed| {
            let mut sample = empty_sample();
            sample.monotonic_ns = ms * 1_000_000;
            sample.ports = vec![port(0, ms)];
            sample.ports[0].stats.rx_missed = missed;
            let FleetEvent::Sampled { findings, .. } = evaluator.sampled(sample) else {
                panic!("sampled")
            };
            findings.len()
        };
        assert_eq!([found(1, 0), found(200, 1), found(400, 1), found(600, 2)], [0, 1, 0, 1]);
    }
}
