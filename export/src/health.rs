//! The health of an app, for `/ready` and for the health metrics.

use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, Severity};
use pmdscope_telemetry::{AppState, AppStatus};
use serde::Serialize;

/// Whether one app is healthy, and the reasons if it is not.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct AppHealth<'a> {
    /// The app answers, and has no findings except tolerated ones.
    pub ready: bool,
    /// Name of the app.
    pub app: &'a str,
    /// Findings, the most severe first; including tolerated ones.
    pub reasons: Vec<HealthReason<'a>>,
}

/// One finding.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct HealthReason<'a> {
    /// The lint.
    pub reason: Lint,
    /// The severity.
    pub severity: Severity,
    /// The object that the finding is about.
    pub subject: &'a FindingSubject,
    /// One sentence with the values.
    pub evidence: &'a str,
    /// What to do.
    pub advice: &'a str,
    /// The finding is ignored because of the settings.
    pub tolerated: bool,
}

impl<'a> AppHealth<'a> {
    /// Returns the health of `app`; lints in `tolerate` are ignored.
    pub(crate) fn of(app: &'a AppState, tolerate: &[Lint]) -> Self {
        let bad = app.findings.iter().filter(|finding| finding.severity >= Severity::Warning);
        let mut reasons: Vec<_> = bad.map(|finding| HealthReason::of(finding, tolerate)).collect();
        // An app that has ended may have no findings.
        if app.stale() && reasons.is_empty() {
            reasons.push(HealthReason::absent(&app.status));
        }
        let ready = !app.stale() && reasons.iter().all(|reason| reason.tolerated);
        Self { ready, app: &app.name, reasons }
    }
}

impl<'a> HealthReason<'a> {
    fn of(finding: &'a Finding, tolerate: &[Lint]) -> Self {
        Self {
            reason: finding.lint,
            severity: finding.severity,
            subject: &finding.subject,
            evidence: &finding.evidence,
            advice: &finding.advice,
            tolerated: tolerate.contains(&finding.lint),
        }
    }

    fn absent(status: &'a AppStatus) -> Self {
        let evidence = match status {
            AppStatus::Lost { reason } => reason,
            AppStatus::Waiting | AppStatus::Live => "it has not answered yet",
        };
        Self {
            reason: Lint::Unreachable,
            severity: Severity::Warning,
            subject: &FindingSubject::App,
            evidence,
            advice: "check whether the app still runs",
            tolerated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};

    use super::*;

    fn finding(lint: Lint, severity: Severity) -> Finding {
        Finding {
            lint,
            severity,
            app: "fwd".to_owned(),
            subject: FindingSubject::Pool("pool".to_owned()),
            evidence: "numbers".to_owned(),
            threshold: "a line".to_owned(),
            advice: "do".to_owned(),
            causes: Vec::new(),
            weight: 0.0,
        }
    }

    fn member(status: AppStatus, findings: Vec<Finding>) -> AppState {
        let mut fleet = FleetState::default();
        let (app, reason) = ("fwd".to_owned(), "gone".to_owned());
        fleet.apply(FleetEvent::Lost { app, class: ErrorClass::Refused, reason, finding: None });
        let mut member = fleet.apps.remove(0);
        (member.status, member.findings) = (status, findings);
        member
    }

    fn lost() -> AppStatus {
        AppStatus::Lost { reason: "gone".to_owned() }
    }

    #[test]
    fn warnings_count_unless_they_are_tolerated() {
        let tolerate = [Lint::Stall];
        for (lint, severity, ready, reasons) in [
            (Lint::Stall, Severity::Warning, true, 1),
            (Lint::Stall, Severity::Critical, true, 1),
            (Lint::Leak, Severity::Warning, false, 1),
            (Lint::Leak, Severity::Info, true, 0),
        ] {
            let app = member(AppStatus::Live, vec![finding(lint, severity)]);
            let health = AppHealth::of(&app, &tolerate);
            assert_eq!((health.ready, health.reasons.len()), (ready, reasons), "{lint}");
        }
    }

    #[test]
    fn an_app_that_does_not_answer_is_never_ready_and_says_why() {
        let app = member(lost(), Vec::new());
        let health = AppHealth::of(&app, &[]);
        assert!(!health.ready);
        assert_eq!(
            (health.reasons[0].reason, health.reasons[0].evidence),
            (Lint::Unreachable, "gone")
        );
        let waiting = member(AppStatus::Waiting, Vec::new());
        assert!(!AppHealth::of(&waiting, &[Lint::Unreachable]).ready);
    }

    #[test]
    fn what_was_tolerated_does_not_hide_that_it_does_not_answer() {
        let app = member(lost(), vec![finding(Lint::Unreachable, Severity::Warning)]);
        assert!(!AppHealth::of(&app, &[Lint::Unreachable]).ready);
    }
}
