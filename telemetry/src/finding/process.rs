//! Lint for the process of an app: restarts in a loop.

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::Model;

/// Returns the finding about an app that was started too often within a minute.
pub(super) fn restart_loop(model: &Model, thresholds: &Thresholds) -> Option<Finding> {
    let restarts = model.restarts.as_ref()?;
    if (restarts.starts as f64) < thresholds.restarts {
        return None;
    }
    let exits = restarts.exits.iter().map(|exit| format!("{} ({})", exit.reason, exit.count));
    let evidence = format!(
        "{} starts in {:.0} s; exit reasons: {}; the longest observed run of those that ended was {:.1} s",
        restarts.starts,
        restarts.seconds,
        exits.collect::<Vec<_>>().join(", "),
        restarts.longest_life_s
    );
    let threshold = format!("{} starts within a minute", thresholds.restarts);
    let advice = "the app crashes, exits or is killed: see journalctl -u UNIT, coredumpctl, the kernel log \
                  (dmesg: segfault, oom-kill) and the app's own log";
    let severity = Severity::Critical;
    Some(finding(
        model,
        Lint::RestartLoop,
        severity,
        FindingSubject::App,
        evidence,
        &threshold,
        advice,
    ))
}
