//! Lint over the process of an app: one that starts again and again.

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::Model;

/// An app that was started too often within a minute.
pub(super) fn restart_loop(model: &Model, thresholds: &Thresholds) -> Option<Finding> {
    let restarts = model.restarts?;
    if (restarts.starts as f64) < thresholds.restarts {
        return None;
    }
    let evidence = format!(
        "{} starts in {:.0} s; none of those that ended was seen to run for longer than {:.1} s; how they \
         ended is not known to others than their parent",
        restarts.starts, restarts.seconds, restarts.longest_life_s
    );
    let threshold = format!("{} starts within a minute", thresholds.restarts);
    let advice = "the app crashes or its supervisor kills it: journalctl -u UNIT, coredumpctl, the \
                  kernel log (dmesg: segfault, oom-kill), and the app's own log for why it gave up";
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
