//! Texts of tables, details and the banner about an app: since when it does not answer, what it
//! lacks.

use pmdscope_render::number::seconds;
use pmdscope_telemetry::AppState;
use pmdscope_telemetry::finding::{Finding, Lint};

/// For how long an app has not answered, as text.
pub(crate) fn lost(app: &AppState, now_ns: u64) -> String {
    match (app.age_s(now_ns), app.silent_s(now_ns)) {
        (Some(age), _) => format!("lost {} ago", seconds(age)),
        (None, Some(silent)) => format!("no answer for {}", seconds(silent)),
        (None, None) => "no answer".to_owned(),
    }
}

/// The devices that the app is expected to have as ports, and does not have.
pub(crate) fn missing_ports(app: &AppState) -> impl Iterator<Item = &Finding> {
    let missing = |finding: &&Finding| finding.lint == Lint::PortMissing;
    app.findings.iter().filter(missing).filter(|finding| !finding.subject.is_app())
}
