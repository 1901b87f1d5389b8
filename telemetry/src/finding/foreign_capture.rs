//! Lint for captures of other tools, which have the app copy its packets.

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::Model;
use crate::sample::ForeignCaptureSample;

/// Returns the captures of other tools, running or left behind.
pub(super) fn captures(model: &Model) -> Vec<Finding> {
    let captures = model.sample.foreign_captures.iter();
    captures.map(|capture| of_capture(model, capture)).collect()
}

/// Whether a mempool belongs to a capture: that it is full does not concern the app.
pub(super) fn owns_pool(model: &Model, pool: &str) -> bool {
    model.sample.foreign_captures.iter().any(|capture| capture.pool.as_deref() == Some(pool))
}

fn of_capture(model: &Model, capture: &ForeignCaptureSample) -> Finding {
    let loses = model
        .ports
        .iter()
        .any(|port| port.rx_flat.is_some() || port.rx_missed_ps.is_some_and(|missed| missed > 0.0));
    let pool = capture.pool.as_ref().map(|pool| format!(" (pool {pool})")).unwrap_or_default();
    let process = match (capture.pid, &capture.program) {
        (Some(pid), Some(program)) => format!("{program} (process {pid})"),
        (Some(pid), None) => format!("process {pid}"),
        (None, _) => "dpdk-pdump".to_owned(),
    };
    let (severity, evidence, advice) = if capture.runs {
        let severity = if loses { Severity::Warning } else { Severity::Info };
        let effect =
            if loses { ", while the app loses packets or hardly receives any" } else { "" };
        let evidence =
            format!("{process} captures{pool}: the app copies each packet for it{effect}");
        (severity, evidence, RUNNING)
    } else {
        let told = match capture.pid {
            Some(_) => {
                format!("{process} captured, and has ended without ending the capture{pool}")
            }
            None => format!("{process} captured, and does not run{pool}"),
        };
        let evidence = format!(
            "{told}: its hooks stay in the app, which copies each packet until another capture takes them \
             over; its pool stays until the app ends"
        );
        (Severity::Warning, evidence, KILLED)
    };
    let subject = match &capture.pool {
        Some(pool) => FindingSubject::Pool(pool.clone()),
        None => FindingSubject::App,
    };
    let threshold = "no capture of another tool";
    finding(model, Lint::ForeignCapture, severity, subject, evidence, threshold, advice)
}

const RUNNING: &str = "end the capture (^C), and not by kill -9. If the app has become slow, the tool and the app number \
                       mempool drivers differently: use a dpdk-dumpcap that is linked as the app is, or pmdscope \
                       capture";

const KILLED: &str = "pmdscope capture -i APP:PORT -c 1 takes over the hooks of a tool that was killed, and ends \
                      them; dpdk-dumpcap fails (already exists). A restart of the app frees the pool";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::fixture::{pool, port};
    use crate::model::ModelTracker;
    use crate::sample::tests::empty_sample;

    fn found(capture: ForeignCaptureSample, missed: u64) -> Finding {
        let mut tracker = ModelTracker::default();
        let mut sample = empty_sample();
        sample.ports = vec![port(0, 0)];
        sample.pools = capture.pool.iter().map(|name| pool(name, 4095, 4095)).collect();
        sample.foreign_captures = vec![capture];
        tracker.update(sample.clone());
        sample.monotonic_ns += 1_000_000_000;
        sample.ports[0].stats.rx_packets = 1000;
        sample.ports[0].stats.rx_missed = missed;
        let findings = evaluate(&tracker.update(sample), &LintRules::default());
        assert!(
            findings.iter().all(|finding| finding.lint != Lint::PoolExhausting),
            "{findings:?}"
        );
        findings.into_iter().find(|finding| finding.lint == Lint::ForeignCapture).unwrap()
    }

    #[test]
    fn a_running_capture_is_information_until_packets_are_lost() {
        let capture = ForeignCaptureSample {
            pid: Some(4711),
            program: Some("dpdk-dumpcap".to_owned()),
            pool: Some("capture_4711".to_owned()),
            runs: true,
        };
        let idle = found(capture.clone(), 0);
        assert_eq!(idle.severity, Severity::Info);
        assert_eq!(
            idle.evidence,
            "dpdk-dumpcap (process 4711) captures (pool capture_4711): the app copies each packet for it"
        );
        assert_eq!(found(capture, 9).severity, Severity::Warning);
    }

    #[test]
    fn a_capture_whose_process_was_killed_is_a_warning_with_a_way_out() {
        let pool = Some("capture_4711".to_owned());
        let capture = ForeignCaptureSample { pid: Some(4711), pool, ..Default::default() };
        let killed = found(capture, 0);
        assert_eq!(killed.severity, Severity::Warning);
        assert!(killed.evidence.starts_with("process 4711 captured, and has ended"), "{killed:?}");
        assert!(killed.advice.contains("pmdscope capture -i APP:PORT -c 1"), "{killed:?}");
        let pdump = ForeignCaptureSample::default();
        assert!(found(pdump, 0).evidence.starts_with("dpdk-pdump captured, and does not run"));
    }
}
