//! Lint for failed requests: problems of what they would show stay undetected.

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::Model;
use crate::sample::{CUT_LIST, Sample};

/// Requests without which most findings are impossible. Others may fail permanently, for instance
/// because a driver does not report the state of its link.
const NEEDED: [&str; 3] = ["/:", "/mempool/", "/pmdscope"];

/// The table of captures: no finding depends on it.
const NOT_NEEDED: &str = "/pmdscope/tee";

/// Number of failed requests that are named in addition to the first.
const MOST_NAMED: usize = 3;

/// Longest reply or reason that is shown, in characters.
const LONGEST: usize = 200;

/// Returns one finding about the failed requests of this sample: a warning if ports, pools or tables
/// of libpmdscope are missing.
pub(super) fn evaluate(model: &Model) -> Option<Finding> {
    let sample = &model.sample;
    let mut unread: Vec<&str> = sample.unread().collect();
    // The most important request is named first.
    unread.sort_by_key(|part| !is_needed(part, sample));
    let (first, others) = unread.split_first()?;
    let severity = if is_needed(first, sample) { Severity::Warning } else { Severity::Info };
    let threshold = "every request is answered as DPDK documents it";
    let advice = "problems of unread parts stay undetected: check the reply (dpdk-telemetry.py -f FILE-PREFIX), \
                  close other telemetry clients of the app, and check its log; a driver may fail \
                  permanently";
    let evidence = format!("cannot read {}{}", shortened(first), more(others));
    let subject = FindingSubject::App;
    Some(finding(model, Lint::PartlySeen, severity, subject, evidence, threshold, advice))
}

fn is_needed(part: &str, sample: &Sample) -> bool {
    if part.starts_with("/ethdev/") {
        return !sample.ports_are_complete() && !part.starts_with("/ethdev/link_status");
    }
    let needed = NEEDED.iter().any(|command| part.starts_with(command));
    needed && !part.starts_with(NOT_NEEDED) && !part.contains(CUT_LIST)
}

/// Returns the other requests, without their reasons.
fn more(others: &[&str]) -> String {
    let request = |part: &&str| part.split(": ").next().unwrap_or_default().to_owned();
    let named: Vec<String> = others.iter().take(MOST_NAMED).map(request).collect();
    match (named.len(), others.len().saturating_sub(MOST_NAMED)) {
        (0, _) => String::new(),
        (_, 0) => format!("; nor {}", named.join(", ")),
        (_, rest) => format!("; nor {} and {rest} more", named.join(", ")),
    }
}

fn shortened(part: &str) -> String {
    match part.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", part.get(..end).unwrap_or_default()),
        None => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};

    fn found(partial: &[&str], ports: &[u16]) -> Option<(Severity, String)> {
        let mut sample = empty_sample();
        sample.ports = ports.iter().map(|id| port(*id, 0)).collect();
        sample.partial = partial.iter().map(|part| (*part).to_owned()).collect();
        let found = evaluate(&ModelTracker::default().update(sample))?;
        Some((found.severity, found.evidence))
    }

    #[test]
    fn an_app_whose_ports_cannot_be_read_is_not_fine() {
        let warning = |text: &str| Some((Severity::Warning, text.to_owned()));
        for (part, ports) in [
            ("/ethdev/list: malformed reply: x", &[][..]),
            ("/ethdev/info,0: the reply is about \"another object\"", &[]),
            ("/ethdev/stats,1: null", &[0]),
            ("/ethdev/xstats,1: timed out", &[0]),
            ("/: malformed reply: x", &[0]),
            ("/mempool/info,mb: null", &[0]),
            ("/pmdscope/queues: malformed reply: x", &[0]),
        ] {
            assert_eq!(found(&[part], ports), warning(&format!("cannot read {part}")));
        }
    }

    #[test]
    fn what_a_driver_may_never_tell_is_worth_knowing_only() {
        for part in [
            "/ethdev/link_status,0: null",
            "/ethdev/xstats,0: malformed reply: x",
            "/mempool/list: DPDK may have cut the list after 512 entries",
            "/pmdscope/tee: the table changed while it was read, 2 times",
            "/ring/info,r: null",
        ] {
            let info = Some((Severity::Info, format!("cannot read {part}")));
            assert_eq!(found(&[part], &[0]), info);
        }
    }

    #[test]
    fn remarks_are_no_failed_requests() {
        let ledger = "/pmdscope/leaks: the ledger of pool adds up to 1005 of 1000 mbufs";
        assert_eq!(found(&[], &[0]), None);
        assert_eq!(found(&["lock: permission denied", ledger], &[0]), None);
    }

    #[test]
    fn the_worst_is_named_with_its_reason_and_the_rest_is_counted() {
        let parts = ["/ring/list: a", "/eal/heap_list: b", "/: c", "/eal/params: d", "/x: e"];
        let (severity, evidence) = found(&parts, &[0]).unwrap();
        assert_eq!(severity, Severity::Warning);
        assert_eq!(
            evidence,
            "cannot read /: c; nor /ring/list, /eal/heap_list, /eal/params and 1 more"
        );
        let long = format!("/x: {}", "é".repeat(500));
        assert_eq!(found(&[&long], &[0]).unwrap().1.chars().count(), 12 + LONGEST + 3);
    }
}
