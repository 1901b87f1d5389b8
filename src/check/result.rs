//! The result of a check, as JSON and as text.

use std::collections::BTreeMap;

use pmdscope_render::number::plural;
use pmdscope_render::{TextLine, TextSpan, Tone};
use pmdscope_telemetry::finding::{Finding, FindingCause, Severity};
use pmdscope_telemetry::{AppState, AppStatus, FleetState, InterfaceState};
use serde::Serialize;

use super::checked::{self, CheckedApp, WatchedTimes};
use super::seen::{FindingOccurrence, FindingTimes};
use crate::output::{names, one_line};

/// Version of the JSON; raised when a field changes its meaning.
const CHECK_SCHEMA: u32 = 1;

/// Output of `check --json`: the findings of each app and interface.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckDocument<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = CHECK_SCHEMA)))]
    schema: u32,
    /// Whether all apps answer, `--scan` could read them, and no finding is a warning or critical; false if nothing
    /// was checked.
    pub(super) ok: bool,
    /// Interfaces of the host that have a filter or a bypass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<InterfaceResult<'a>>,
    /// Why interfaces cannot be read; left out if they can.
    #[serde(skip_serializing_if = "Option::is_none")]
    interfaces_error: Option<&'a str>,
    /// Apps with their state and findings.
    apps: Vec<AppResult<'a>>,
}

/// Findings about an interface of the host.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InterfaceResult<'a> {
    /// Name of the interface.
    interface: &'a str,
    /// Findings about the interface, including findings that ended before the last sample.
    findings: Vec<FindingResult<'a>>,
}

/// State of an app, and the findings about it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AppResult<'a> {
    /// Name of the app, by default its file-prefix.
    app: &'a str,
    #[serde(flatten)]
    status: &'a AppStatus,
    /// Findings about the app, including findings that ended before the last sample.
    findings: Vec<FindingResult<'a>>,
    /// What was looked at, and what could not be; left out for an app that never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<CheckedApp<'a>>,
}

/// A finding; in a recording, with the times at which it was present.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingResult<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    /// Times at which the finding was present; only for a recording.
    #[serde(flatten)]
    occurrence: Option<&'a FindingOccurrence>,
    /// The occurrence as text.
    #[serde(skip)]
    times: Option<String>,
}

impl<'a> FindingResult<'a> {
    fn of(finding: &'a Finding, times: Option<&'a FindingTimes>) -> Self {
        Self {
            finding,
            occurrence: times.and_then(|times| times.of(finding)),
            times: times.and_then(|times| times.text(finding)),
        }
    }
}

impl<'a> CheckDocument<'a> {
    /// Of a state; of a recording with the times of its findings.
    pub(super) fn of(fleet: &'a FleetState, times: Option<&'a FindingTimes>) -> Self {
        let bad_finding = |finding: &Finding| finding.severity >= Severity::Warning;
        let bad = |app: &AppState| app.stale() || app.findings.iter().any(bad_finding);
        let result = |app: &'a AppState| AppResult {
            app: &app.name,
            status: &app.status,
            findings: app.findings.iter().map(|f| FindingResult::of(f, times)).collect(),
            checked: None,
        };
        let interfaces = &*fleet.interfaces;
        let of_interface = |of: &'a InterfaceState| InterfaceResult {
            interface: &of.sample.name,
            findings: of.findings.iter().map(|f| FindingResult::of(f, times)).collect(),
        };
        Self {
            schema: CHECK_SCHEMA,
            ok: !fleet.apps.iter().any(bad) && !interfaces.findings().any(bad_finding),
            interfaces: interfaces.interfaces.iter().map(of_interface).collect(),
            interfaces_error: interfaces.error.as_deref(),
            apps: fleet.apps.iter().map(result).collect(),
        }
    }

    /// With what was looked at in these times.
    pub(super) fn with_checked(mut self, fleet: &'a FleetState, watched: &WatchedTimes) -> Self {
        for result in &mut self.apps {
            let model = fleet.find(result.app).and_then(|app| app.model.as_deref());
            result.checked = model.map(|model| CheckedApp::of(result.app, model, watched));
        }
        self
    }

    /// Where nothing could be checked, which is no good news.
    pub(super) fn empty(fleet: &'a FleetState) -> Self {
        Self { ok: false, ..Self::of(fleet, None) }
    }

    fn findings(&self) -> impl Iterator<Item = &FindingResult<'a>> {
        let of_host = self.interfaces.iter().flat_map(|interface| &interface.findings);
        of_host.chain(self.apps.iter().flat_map(|app| &app.findings))
    }

    /// A line per finding, for programs.
    pub(super) fn lines(&self) -> Vec<TextLine> {
        let line = |result: &FindingResult| {
            let mut line = finding_line(result.finding);
            let times = result.times.as_ref();
            line.spans.extend(times.map(|times| span(&format!(" ({times})"), Tone::Plain)));
            line
        };
        let mut lines = self.silent();
        lines.extend(self.findings().map(line));
        lines
    }

    /// Apps that do not answer, where no finding reports that.
    fn silent(&self) -> Vec<TextLine> {
        let silent = self.apps.iter().filter(|app| app.findings.is_empty());
        let silence = |app: &AppResult<'a>| match app.status {
            AppStatus::Live => None,
            AppStatus::Waiting => Some((app.app, "has not answered yet", Tone::Dim)),
            AppStatus::Lost { reason } => Some((app.app, reason.as_str(), Tone::Bad)),
        };
        let line = |(app, why, tone): (&str, &str, Tone)| TextLine {
            spans: vec![span(&format!("{app}: "), Tone::Plain), span(why, tone)],
        };
        silent.filter_map(silence).map(line).collect()
    }

    /// With threshold and advice, for people.
    pub(super) fn text(&self, fleet: &FleetState) -> Vec<TextLine> {
        let mut out = self.silent();
        out.extend(repeated(self.findings()).iter().flat_map(|same| findings_text(same)));
        if out.is_empty() {
            let ports: usize = fleet.models().map(|(_, model)| model.sample.ports.len()).sum();
            let apps = plural(self.apps.len() as u64, "app");
            let ports = plural(ports as u64, "port");
            let interfaces = match self.interfaces.len() {
                0 => String::new(),
                interfaces => format!(", {}", plural(interfaces as u64, "interface")),
            };
            let checked = checked::text(self.apps.iter().filter_map(|app| app.checked.as_ref()));
            let rest = span(&format!(": {apps}, {ports}{interfaces}: {checked}"), Tone::Plain);
            out.push(TextLine { spans: vec![span("ok", Tone::Good), rest] });
        }
        out
    }
}

/// Findings that differ only in their app together, in the order of the first of them.
fn repeated<'a, 'b>(
    findings: impl Iterator<Item = &'b FindingResult<'a>>,
) -> Vec<Vec<&'b FindingResult<'a>>>
where
    'a: 'b,
{
    let mut groups: Vec<Vec<&FindingResult>> = Vec::new();
    let mut known = BTreeMap::new();
    for result in findings {
        let Finding { lint, severity, subject, evidence, threshold, advice, .. } = result.finding;
        let causes = result.finding.causes.iter().map(FindingCause::title).collect::<Vec<_>>();
        let key = (lint, severity, subject, evidence, threshold, advice, causes, &result.times);
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(result),
            None => groups.push(vec![result]),
        }
    }
    groups
}

fn findings_text(same: &[&FindingResult<'_>]) -> Vec<TextLine> {
    match same {
        [] => Vec::new(),
        [result] => finding_text(result.finding, result.times.as_deref()),
        [result, ..] => {
            let apps: Vec<&str> = same.iter().map(|result| result.finding.app.as_str()).collect();
            let finding = Finding { app: names(&apps), ..result.finding.clone() };
            finding_text(&finding, result.times.as_deref())
        }
    }
}

fn finding_line(finding: &Finding) -> TextLine {
    let about = format!("{} {}", finding.app, finding.subject);
    let spans = vec![
        span(&format!("{}: ", about.trim()), Tone::Plain),
        span(finding.severity.word(), Tone::of(finding.severity)),
        span(&format!(": {}: {}", finding.lint, finding.evidence), Tone::Plain),
    ];
    TextLine { spans }
}

fn finding_text(finding: &Finding, times: Option<&str>) -> Vec<TextLine> {
    let below = |label: &str, text: &str| TextLine {
        spans: vec![span(&format!("    {label}: "), Tone::Dim), span(text, Tone::Plain)],
    };
    let mut lines = vec![finding_line(finding)];
    lines.extend(times.map(|times| below("when", times)));
    let cause = |of: &FindingCause| below("cause", &format!("{}: {}", of.title(), of.evidence));
    lines.extend(finding.causes.iter().map(cause));
    lines.push(below("threshold", &finding.threshold));
    lines.push(below("what to do", &finding.advice));
    lines
}

/// Makes text harmless: names and evidence come from apps.
fn span(text: &str, tone: Tone) -> TextSpan {
    TextSpan { text: one_line(text), tone }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_render::plain_text;

    use pmdscope_telemetry::InterfaceEvaluator;
    use pmdscope_telemetry::Thresholds;
    use pmdscope_telemetry::finding::{FindingSubject, Lint};
    use pmdscope_telemetry::fixture::{filtered_interface, split_interface};
    use pmdscope_telemetry::{ErrorClass, FleetEvent};

    use super::super::seen::SeenFindings;
    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding {
            lint: Lint::RxMissed,
            severity,
            app: "reflector".to_owned(),
            subject: FindingSubject::Port("net_vhost0".to_owned()),
            evidence: "412 packets/s missed".to_owned(),
            threshold: "more than 0 missed packets/s".to_owned(),
            advice: "look for stalls".to_owned(),
            causes: Vec::new(),
            weight: 0.0,
        }
    }

    fn lost(finding: Option<Finding>) -> FleetState {
        let mut fleet = FleetState::default();
        let (app, reason) = ("reflector".to_owned(), "timed out".to_owned());
        fleet.apply(FleetEvent::Lost { app, class: ErrorClass::Timeout, reason, finding });
        fleet
    }

    #[test]
    fn findings_are_printed_with_threshold_and_advice() {
        let fleet = lost(Some(finding(Severity::Critical)));
        assert_snapshot!(plain_text(&CheckDocument::of(&fleet, None).text(&fleet)));
        let lines = plain_text(&CheckDocument::of(&fleet, None).lines());
        assert_eq!(lines, "reflector net_vhost0: critical: rx_missed: 412 packets/s missed\n");
    }

    #[test]
    fn severities_have_the_tones_of_top() {
        for (severity, tone) in [
            (Severity::Critical, Tone::Bad),
            (Severity::Warning, Tone::Warn),
            (Severity::Info, Tone::Plain),
        ] {
            let fleet = lost(Some(finding(severity)));
            let document = CheckDocument::of(&fleet, None);
            for line in [&document.lines()[0], &document.text(&fleet)[0]] {
                assert_eq!(line.spans[1], span(severity.word(), tone));
            }
        }
    }

    #[test]
    fn findings_of_interfaces_come_first_and_count() {
        let mut fleet = lost(Some(finding(Severity::Info)));
        fleet.apps[0].status = AppStatus::Live;
        assert!(CheckDocument::of(&fleet, None).ok);
        let mut evaluator = InterfaceEvaluator::new(Thresholds::default());
        for second in 1..=2 {
            let read = Ok(vec![filtered_interface(second), split_interface(second)]);
            fleet.apply(evaluator.event(read, second * 1_000_000_000));
        }
        let verdict = CheckDocument::of(&fleet, None);
        assert!(!verdict.ok);
        assert_snapshot!("flood", plain_text(&verdict.text(&fleet)));
        assert!(
            plain_text(&verdict.lines())
                .starts_with("eth0: warning: flood: 9000 of 10000 packets/s")
        );
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!(json["interfaces"][0]["interface"], "eth0");
        assert_eq!(json["interfaces"][0]["findings"][0]["lint"], "flood");
        assert_eq!(json["interfaces"][0]["findings"][0].get("app"), None);
        assert_eq!(json["interfaces"][1]["findings"], serde_json::json!([]));
        fleet.apps[0].findings.clear();
        fleet.apply(evaluator.event(Ok(vec![split_interface(3)]), 3_000_000_000));
        let text = plain_text(&CheckDocument::of(&fleet, None).text(&fleet));
        assert_eq!(text, "ok: 1 app, 0 ports, 1 interface: no findings\n");
    }

    #[test]
    fn what_is_wrong_with_many_apps_is_said_once() {
        let mut fleet = FleetState::default();
        for number in 0..176 {
            let app = format!("app{number:03}");
            let about = Finding { app: app.clone(), ..finding(Severity::Warning) };
            let reason = "timed out".to_owned();
            let (class, finding) = (ErrorClass::Timeout, Some(about));
            fleet.apply(FleetEvent::Lost { app, class, reason, finding });
        }
        fleet.apps[5].findings[0].evidence = "9 packets/s missed".to_owned();
        let text = plain_text(&CheckDocument::of(&fleet, None).text(&fleet));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
        let expected = [
            "175 apps (app000, app001, app002, ...) net_vhost0: warning: rx_missed: 412 packets/s missed",
            "app005 net_vhost0: warning: rx_missed: 9 packets/s missed",
        ];
        assert_eq!(lines, expected);
        assert_eq!(
            plain_text(&CheckDocument::of(&fleet, None).lines()).lines().count(),
            176,
            "a line per finding for programs"
        );
    }

    #[test]
    fn what_others_say_makes_no_lines_of_its_own() {
        let mut fleet = lost(None);
        fleet.apps[0].name = "ev\nok: all is well\x1b[31mil".to_owned();
        let expected = "ev?ok: all is well?[31mil: timed out\n";
        assert_eq!(plain_text(&CheckDocument::of(&fleet, None).text(&fleet)), expected);
        let evidence = "one\nok: \x07two".to_owned();
        fleet.apps[0].findings = vec![Finding { evidence, ..finding(Severity::Warning) }];
        assert!(
            plain_text(&CheckDocument::of(&fleet, None).lines())
                .ends_with("rx_missed: one?ok: ?two\n")
        );
        let advice = "do\nthat".to_owned();
        fleet.apps[0].findings = vec![Finding { advice, ..finding(Severity::Warning) }];
        assert_eq!(plain_text(&CheckDocument::of(&fleet, None).text(&fleet)).lines().count(), 3);
    }

    #[test]
    fn all_is_well_only_when_every_app_answers_and_nothing_above_info_was_found() {
        let mut fleet = lost(None);
        assert!(!CheckDocument::of(&fleet, None).ok);
        assert_eq!(
            plain_text(&CheckDocument::of(&fleet, None).text(&fleet)),
            "reflector: timed out\n"
        );
        assert_eq!(plain_text(&CheckDocument::of(&fleet, None).lines()), "reflector: timed out\n");
        fleet.apps[0].status = AppStatus::Live;
        assert!(CheckDocument::of(&fleet, None).ok);
        assert_eq!(
            plain_text(&CheckDocument::of(&fleet, None).text(&fleet)),
            "ok: 1 app, 0 ports: no findings\n"
        );
        for (severity, ok) in
            [(Severity::Info, true), (Severity::Warning, false), (Severity::Critical, false)]
        {
            fleet.apps[0].findings = vec![finding(severity)];
            assert_eq!(CheckDocument::of(&fleet, None).ok, ok, "{severity:?}");
        }
    }

    #[test]
    fn trouble_that_has_passed_is_reported() {
        let mut fleet = lost(Some(finding(Severity::Warning)));
        let mut seen = SeenFindings::default();
        seen.note(&fleet);
        fleet.apps[0].status = AppStatus::Live;
        fleet.apps[0].findings =
            vec![Finding { lint: Lint::NoPolling, ..finding(Severity::Critical) }];
        seen.add_to(&mut fleet);
        let lints: Vec<_> = fleet.apps[0].findings.iter().map(|f| f.lint).collect();
        assert_eq!(lints, [Lint::NoPolling, Lint::RxMissed]);
        assert!(!CheckDocument::of(&fleet, None).ok);
    }

    #[test]
    fn json_has_schema_verdict_and_reasons() {
        let fleet = lost(Some(finding(Severity::Warning)));
        let json = serde_json::to_value(CheckDocument::of(&fleet, None)).unwrap();
        assert_eq!((&json["schema"], &json["ok"]), (&1.into(), &false.into()));
        assert_eq!(json["apps"][0]["reason"], "timed out");
        assert_eq!(json["apps"][0]["findings"][0]["severity"], "warning");
    }
}
