//! What was found in the time that was watched, and when.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_render::number::plural;
use pmdscope_telemetry::finding::{self, Finding, FindingSubject, Lint};
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};
use serde::{Serialize, Serializer};

/// What two findings have in common that are the same at different times.
type FindingKey = (String, Lint, FindingSubject);

/// Findings of earlier samples, of each app, lint and subject the newest of the worst: a lesser gap or
/// loss does not replace a greater one.
#[derive(Default)]
pub(super) struct SeenFindings(BTreeMap<FindingKey, SeenFinding>);

struct SeenFinding {
    worst: Finding,
    occurrence: FindingOccurrence,
    /// It is among the findings of the last sample, and of the one before; maybe as one that is over.
    is_told: bool,
    was_told: bool,
}

/// Times at which a finding was present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FindingOccurrence {
    /// Wall clock of the first sample with the finding.
    #[serde(serialize_with = "rfc3339")]
    #[cfg_attr(test, schemars(with = "String"))]
    since: Timestamp,
    /// Wall clock of the last sample with the finding.
    #[serde(serialize_with = "rfc3339")]
    #[cfg_attr(test, schemars(with = "String"))]
    until: Timestamp,
    /// Number of times that the finding began.
    times: u64,
    /// Whether the last sample has the finding.
    present: bool,
}

/// When findings were there, and the local time of that.
pub(super) struct FindingTimes {
    occurrences: BTreeMap<FindingKey, FindingOccurrence>,
    zone: TimeZone,
}

impl SeenFindings {
    /// Takes in the findings of a moment.
    pub(super) fn note(&mut self, fleet: &FleetState) {
        let now = Timestamp::from_nanosecond(fleet.realtime_ns.into()).unwrap_or(Timestamp::MAX);
        for seen in self.0.values_mut() {
            (seen.was_told, seen.is_told) = (seen.is_told, false);
            seen.occurrence.present = false;
        }
        let of_apps = fleet.apps.iter().flat_map(|app| &app.findings);
        for finding in fleet.interfaces.findings().chain(of_apps) {
            let seen = self.0.entry(key(finding)).or_insert_with(|| SeenFinding {
                worst: finding.clone(),
                occurrence: FindingOccurrence { since: now, until: now, times: 0, present: false },
                is_told: false,
                was_told: false,
            });
            seen.note(finding, now);
        }
    }

    /// Trouble that has passed is still trouble of the time that was watched.
    pub(super) fn add_to(&self, fleet: &mut FleetState) {
        for (past, ..) in self.0.keys() {
            if !past.is_empty() && fleet.find(past).is_none() {
                let reason = "ended before the recording did".to_owned();
                let (app, class) = (past.clone(), ErrorClass::Refused);
                fleet.apply(FleetEvent::Lost { app, class, reason, finding: None });
            }
        }
        for app in &mut fleet.apps {
            let past = self.0.values().map(|seen| &seen.worst);
            let past: Vec<_> = past.filter(|past| past.app == app.name).cloned().collect();
            app.findings.retain(|now| !past.iter().any(|past| key(now) == key(past)));
            app.findings.extend(past);
            finding::sort(&mut app.findings);
        }
        let of_host = self.0.values().map(|seen| &seen.worst).filter(|past| past.app.is_empty());
        let of_host: Vec<Finding> = of_host.cloned().collect();
        if !of_host.is_empty() {
            Arc::make_mut(&mut fleet.interfaces).set_findings(of_host);
        }
    }

    /// When they were there, in local time of this zone.
    pub(super) fn times(self, zone: TimeZone) -> FindingTimes {
        let occurrences = self.0.into_iter().map(|(key, seen)| (key, seen.occurrence)).collect();
        FindingTimes { occurrences, zone }
    }
}

impl SeenFinding {
    fn note(&mut self, finding: &Finding, now: Timestamp) {
        // A less severe finding does not replace a worse one. One without an explanation does not
        // replace one with it.
        let explains = finding.is_explained() || !self.worst.is_explained();
        let is_newly_explained = finding.is_explained() && !self.worst.is_explained();
        let is_lesser = finding.weight < self.worst.weight && !is_newly_explained;
        let (now_is, was) = (finding.severity, self.worst.severity);
        if now_is > was || (now_is == was && explains && !is_lesser) {
            self.worst.clone_from(finding);
        }
        if !self.was_told {
            self.occurrence.times += 1;
        }
        if !finding.is_over() {
            (self.occurrence.until, self.occurrence.present) = (now, true);
        }
        (self.is_told, self.was_told) = (true, true);
    }
}

impl FindingTimes {
    pub(super) fn of(&self, finding: &Finding) -> Option<&FindingOccurrence> {
        self.occurrences.get(&key(finding))
    }

    /// From when to when, and how often.
    pub(super) fn text(&self, finding: &Finding) -> Option<String> {
        let FindingOccurrence { since, until, times, present } = self.of(finding)?;
        let local = |time: &Timestamp| time.to_zoned(self.zone.clone());
        let (since, until) = (local(since), local(until));
        let mut text = since.strftime("%Y-%m-%d %H:%M:%S").to_string();
        if since.date() == until.date() {
            let _ = write!(text, " to {}", until.strftime("%H:%M:%S"));
        } else {
            let _ = write!(text, " to {}", until.strftime("%Y-%m-%d %H:%M:%S"));
        }
        let _ = write!(text, " {}, {}", until.offset(), plural(*times, "time"));
        if *present {
            text += ", still there at the end";
        }
        Some(text)
    }
}

fn rfc3339<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn key(finding: &Finding) -> FindingKey {
    (finding.app.clone(), finding.lint, finding.subject.clone())
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::finding::{FindingCause, Severity};
    use pmdscope_telemetry::fixture::filtered_interface;
    use pmdscope_telemetry::missed::MissedCause;
    use pmdscope_telemetry::{InterfaceEvaluator, Thresholds};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn finding(evidence: &str) -> Finding {
        Finding {
            lint: Lint::RxMissed,
            severity: Severity::Warning,
            app: "fwd".to_owned(),
            subject: FindingSubject::App,
            evidence: evidence.to_owned(),
            threshold: String::new(),
            advice: String::new(),
            causes: Vec::new(),
            weight: 0.0,
        }
    }

    /// A finding with this evidence in each of these seconds, or none.
    fn seen(seconds: &[Option<&str>]) -> SeenFindings {
        let mut seen = SeenFindings::default();
        let mut fleet = FleetState { realtime_ns: 1_795_251_360 * SECOND, ..FleetState::default() };
        for evidence in seconds {
            let (app, class) = ("fwd".to_owned(), ErrorClass::Timeout);
            let (reason, finding) = (String::new(), evidence.map(finding));
            fleet.apply(FleetEvent::Lost { app, class, reason, finding });
            seen.note(&fleet);
            fleet.realtime_ns += SECOND;
        }
        seen
    }

    fn text(seconds: &[Option<&str>], zone: TimeZone) -> String {
        seen(seconds).times(zone).text(&finding("")).unwrap()
    }

    #[test]
    fn a_moment_without_a_cause_does_not_undo_an_explanation() {
        let of = |evidence: &str, cause| Finding {
            causes: vec![FindingCause { cause, share: None, evidence: String::new() }],
            ..finding(evidence)
        };
        let mut fleet = FleetState::default();
        let mut seen = SeenFindings::default();
        let mut told = |found: Finding| {
            let lost = FleetEvent::Lost {
                app: found.app.clone(),
                class: ErrorClass::Refused,
                reason: String::new(),
                finding: Some(found),
            };
            fleet.apply(lost);
            seen.note(&fleet);
            let mut now = fleet.clone();
            seen.add_to(&mut now);
            now.apps[0].findings[0].evidence.clone()
        };
        assert_eq!(told(of("unknown", MissedCause::Unknown)), "unknown");
        assert_eq!(told(of("pool", MissedCause::PoolEmpty)), "pool");
        assert_eq!(told(of("unknown", MissedCause::Unknown)), "pool");
        assert_eq!(told(of("stall", MissedCause::StalledLcore)), "stall");
    }

    #[test]
    fn a_lesser_gap_does_not_replace_a_greater_one() {
        let mut seen = SeenFinding {
            worst: Finding { weight: 200.0, ..finding("200 ms: a lock") },
            occurrence: seen(&[Some("x")]).0.into_values().next().unwrap().occurrence,
            is_told: false,
            was_told: false,
        };
        let now = Timestamp::UNIX_EPOCH;
        seen.note(&Finding { weight: 5.0, ..finding("5 ms: the kernel") }, now);
        assert_eq!(seen.worst.evidence, "200 ms: a lock");
        seen.note(&Finding { weight: 201.0, ..finding("201 ms: a lock") }, now);
        assert_eq!(seen.worst.evidence, "201 ms: a lock");
        let critical = Finding { severity: Severity::Critical, ..finding("critical") };
        seen.note(&critical, now);
        assert_eq!(seen.worst.evidence, "critical");
    }

    #[test]
    fn a_flood_that_is_over_is_told_under_its_interface_that_may_be_gone() {
        let mut fleet = FleetState { realtime_ns: 1_795_251_360 * SECOND, ..FleetState::default() };
        let mut evaluator = InterfaceEvaluator::new(Thresholds::default());
        let mut seen = SeenFindings::default();
        for (second, interfaces) in [
            (1, vec![filtered_interface(1)]),
            (2, vec![filtered_interface(2)]),
            (3, vec![filtered_interface(2)]),
            (4, Vec::new()),
        ] {
            fleet.apply(evaluator.event(Ok(interfaces), second * SECOND));
            fleet.realtime_ns += SECOND;
            seen.note(&fleet);
            if second > 1 {
                let mut now = fleet.clone();
                seen.add_to(&mut now);
                assert!(now.apps.is_empty());
                let [interface] = &now.interfaces.interfaces[..] else { panic!("{second}") };
                assert_eq!(interface.sample.name, "eth0");
                assert_eq!(interface.findings.len(), 1, "{second}");
            }
        }
        let mut now = fleet.clone();
        seen.add_to(&mut now);
        let flood = now.interfaces.findings().next().unwrap();
        let text = seen.times(TimeZone::UTC).text(flood).unwrap();
        assert_eq!(text, "2026-11-21 08:56:02 to 08:56:02 +00, 1 time");
    }

    #[test]
    fn it_is_told_from_when_to_when_and_how_often() {
        let (there, over) = (Some("5 packets"), Some("5 packets; last seen at 08:56:01"));
        assert_eq!(
            text(&[None, there, there, None, there, None], TimeZone::UTC),
            "2026-11-21 08:56:01 to 08:56:04 +00, 2 times"
        );
        assert_eq!(
            text(&[there, over, over], TimeZone::UTC),
            "2026-11-21 08:56:00 to 08:56:00 +00, 1 time"
        );
        assert_eq!(
            text(&[None, there], TimeZone::UTC),
            "2026-11-21 08:56:01 to 08:56:01 +00, 1 time, still there at the end"
        );
        assert_eq!(
            text(&[there, over, there, over, None], TimeZone::UTC),
            "2026-11-21 08:56:00 to 08:56:02 +00, 1 time"
        );
        let midnight = jiff::tz::Offset::from_seconds(15 * 3600 + 239).unwrap().to_time_zone();
        let text = text(&[there, there], midnight);
        assert!(text.starts_with("2026-11-21 23:59:59 to 2026-11-22 00:00:00 +15"), "{text}");
    }

    #[test]
    fn json_has_times_for_programs() {
        let times = seen(&[Some("x"), None]).times(TimeZone::UTC);
        let json = serde_json::to_value(times.of(&finding(""))).unwrap();
        let at = "2026-11-21T08:56:00Z";
        let expected = serde_json::json!({"since": at, "until": at, "times": 1, "present": false});
        assert_eq!(json, expected);
    }
}
