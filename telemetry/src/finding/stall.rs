//! Lint for lcores: stalls of poll loops, their cause, and whether packets may be lost.

use std::fmt::Write;

use super::time::duration;
use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::missed::StallBudget;
use crate::model::{LcoreRates, Model};
use crate::sample::{LcoreSample, Sample};
use crate::stall::{LcoreStalls, StallCause};

/// Returns the poll loops that stalled since the last sample.
pub(super) fn stalls<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let budget = StallBudget::of(model, thresholds);
    let lcores = model.sample.lcores.iter().zip(&model.lcores);
    lcores.filter_map(move |(lcore, rates)| stall(model, lcore, rates, budget.as_ref(), thresholds))
}

fn stall(
    model: &Model,
    lcore: &LcoreSample,
    rates: &LcoreRates,
    budget: Option<&StallBudget>,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let rate = rates.stalls_ps.filter(|rate| *rate > thresholds.stalls_ps)?;
    let stalls = rates.stalls?;
    let cause = stalls.cause();
    let mut evidence = format!(
        "lcore {} (thread {}) stalled {rate:.1} times/s{} {}; longest gap between two polls {}, {} since \
         start",
        lcore.lcore,
        lcore.tid,
        if stalls.stands_out() && cause.is_some() { "; in the longest gap" } else { ":" },
        blame(cause),
        duration(stalls.longest_us as f64),
        duration(lcore.gap_max_us as f64)
    );
    evidence += &shares(&stalls);
    let over = budget.is_some_and(|budget| budget.is_exceeded_by(stalls.longest_us));
    let missed = |missed: f64| missed > thresholds.rx_missed_ps;
    let missing = model.ports.iter().any(|port| port.rx_missed_ps.is_some_and(missed));
    if missing {
        evidence += "; packets were missed in that time";
    }
    let severity = if over || missing { Severity::Warning } else { Severity::Info };
    let threshold = threshold(&model.sample, budget, thresholds);
    let subject = FindingSubject::Lcore(lcore.lcore);
    let found = finding(model, Lint::Stall, severity, subject, evidence, &threshold, advice(cause));
    Some(Finding { weight: stalls.longest_us as f64, ..found })
}

fn blame(cause: Option<StallCause>) -> &'static str {
    match cause {
        Some(StallCause::Kernel) => "the kernel took its CPU away",
        Some(StallCause::Hypervisor) => "the hypervisor took its CPU away",
        Some(StallCause::Sleep) => "the app's own code slept or waited",
        Some(StallCause::OwnCode) => "the app's own code kept it",
        Some(StallCause::OwnCodeAndKernel) => {
            "the app's own code kept it, and the CPU was taken away as well"
        }
        None => "the cause, the kernel or the app's own code, is unknown",
    }
}

/// Returns what used the CPU during the stalls, as far as the kernel reports it.
fn shares(stalls: &LcoreStalls) -> String {
    let mut text = String::new();
    if let Some(shares) = stalls.shares() {
        let percent = |share: f64| (share * 100.0).round();
        let (taken, asleep) = (percent(shares.taken), percent(shares.asleep));
        let own = 100.0 - taken - asleep;
        let _ = write!(text, "; of the time of all about {own} % own code, {taken} % taken away");
        if asleep > 0.0 {
            let _ = write!(text, ", {asleep} % asleep");
        }
    }
    if let Some(thread) = stalls.thread {
        let _ = write!(text, " (preempted {} times", thread.involuntary_switches);
        if let Some(ms) = thread.waiting_ms {
            let _ = write!(text, ", {ms:.1} ms without a CPU");
        }
        if let Some(ms) = thread.stolen_ms.filter(|ms| *ms > 0.0) {
            let _ = write!(text, ", {ms:.0} ms stolen by the hypervisor");
        }
        if thread.voluntary_switches > 0 {
            let _ = write!(text, ", slept {} times", thread.voluntary_switches);
        }
        text.push(')');
    }
    text
}

fn advice(cause: Option<StallCause>) -> &'static str {
    match cause {
        Some(StallCause::Kernel) => {
            "reserve its CPU: isolcpus= or a cpuset, IRQ affinity, and no second busy thread on it; \
             pmdscope interrupts names what ran"
        }
        Some(StallCause::Hypervisor) => {
            "this virtual machine shares CPUs with others: pin its CPUs to CPUs of the host that nothing \
             else uses"
        }
        Some(StallCause::Sleep) => {
            "the poll loop makes a system call, waits for a lock, or causes page faults: see pmdscope \
             interrupts; a debugger or SIGSTOP has the same effect"
        }
        Some(StallCause::OwnCode | StallCause::OwnCodeAndKernel) => {
            "the loop takes too long between two polls (including interrupts): pmdscope lcores \
             --profile names the function, pmdscope capture --trigger stall writes the packets before it"
        }
        None => {
            "the poll loop is delayed by a system call, a lock, page faults, an interrupt or another \
             thread on its CPU; isolate the CPU, and capture the packets before a stall with \
             pmdscope capture --trigger stall"
        }
    }
}

fn threshold(sample: &Sample, budget: Option<&StallBudget>, thresholds: &Thresholds) -> String {
    let stall_us = sample.library.as_ref().map_or(0, |library| library.stall_us);
    let least = duration(stall_us as f64);
    let told = format!("more than {} gaps/s of at least {least}", thresholds.stalls_ps);
    match budget {
        Some(budget) => format!("{told}; a warning from {budget}, or if packets are missed"),
        None => format!("{told}; a warning if a gap may lose packets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::tests::{port, queue};
    use crate::stall::tests::second;

    fn judged([mut before, mut now]: [Sample; 2], packets: u64) -> Vec<Finding> {
        before.ports = vec![port(0, 0)];
        now.ports = vec![port(0, packets)];
        let mut tracker = ModelTracker::default();
        tracker.update(before);
        evaluate(&tracker.update(now), &LintRules::default())
    }

    /// Returns the finding about a second with these gaps, with this time without a CPU and asleep,
    /// while a queue of so many descriptors received so many packets.
    fn stall(gaps: &[u64], off: [u64; 2], descriptors: Option<u64>, packets: u64) -> Finding {
        let [mut before, mut now] = second(gaps, off);
        before.queues = vec![queue(0, [1, 1, 0])];
        now.queues = vec![queue(0, [2, 1, packets])];
        now.queues[0].descriptors = descriptors;
        let mut findings = judged([before, now], packets);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn a_gap_that_overflows_the_queue_is_a_warning() {
        let held = stall(&[5000], [0, 0], Some(1024), 100_000);
        assert_eq!((held.lint, held.severity), (Lint::Stall, Severity::Info), "10.24 ms");
        assert_eq!(
            held.threshold,
            "more than 0 gaps/s of at least 1.0 ms; a warning from 10.2 ms on port 0 queue 0 (1024 \
             descriptors at 100000 packets/s), or if packets are missed"
        );
        assert_eq!(stall(&[11_000], [0, 0], Some(1024), 100_000).severity, Severity::Warning);
        assert_eq!(stall(&[11_000], [0, 0], Some(2048), 100_000).severity, Severity::Info);
        let assumed = stall(&[5000], [0, 0], None, 103_000);
        assert_eq!(assumed.severity, Severity::Warning, "512 descriptors hold 4.97 ms");
        assert!(assumed.threshold.contains("512 descriptors (assumed) at"), "{assumed:?}");
    }

    #[test]
    fn a_stall_without_packets_is_information_and_with_missed_ones_a_warning() {
        let idle = stall(&[5_000_000], [0, 0], Some(512), 0);
        assert_eq!(idle.severity, Severity::Info);
        let [before, mut now] = second(&[1500], [0, 0]);
        let unqueued = judged([before.clone(), now.clone()], 1_000_000);
        assert_eq!(unqueued[0].severity, Severity::Warning, "by the rate of the port");
        now.queues = vec![queue(0, [2, 1, 10])];
        let mut missed = now.clone();
        missed.ports = vec![port(0, 10)];
        missed.ports[0].stats.rx_missed = 9;
        let mut tracker = ModelTracker::default();
        tracker.update(Sample { ports: vec![port(0, 0)], ..before });
        let findings = evaluate(&tracker.update(missed), &LintRules::default());
        let stall = findings.iter().find(|found| found.lint == Lint::Stall).unwrap();
        assert_eq!(stall.severity, Severity::Warning);
        assert!(stall.evidence.ends_with("packets were missed in that time"), "{stall:?}");
    }

    #[test]
    fn the_evidence_has_the_cause_and_the_shares() {
        let own = stall(&[5123], [0, 0], Some(512), 10).evidence;
        assert_eq!(
            own,
            "lcore 1 (thread 0) stalled 1.0 times/s: the app's own code kept it; longest gap between \
             two polls 5.1 ms, 5.1 ms since start; of the time of all about 100 % own code, 0 % taken away \
             (preempted 0 times, 0.0 ms without a CPU)"
        );
        let kernel = stall(&[4000; 10], [38, 0], Some(512), 10);
        assert!(kernel.evidence.contains(": the kernel took its CPU away;"), "{kernel:?}");
        assert!(kernel.evidence.contains("(preempted 38 times, 38.0 ms without"), "{kernel:?}");
        assert!(kernel.advice.contains("isolcpus"), "{kernel:?}");
        let both = stall(&[4000; 10], [15, 0], Some(512), 10).evidence;
        assert!(both.contains("own code kept it, and the CPU was taken away as well; "), "{both}");
        assert!(both.contains("about 51 % own code, 49 % taken away"), "{both}");
        let slept = stall(&[4000; 10], [0, 38], Some(512), 10);
        assert!(slept.evidence.contains("own code slept or waited"), "{slept:?}");
        let [before, mut unseen] = second(&[5000], [0, 0]);
        unseen.threads.clear();
        let unseen = judged([before, unseen], 10);
        assert!(unseen[0].evidence.contains("own code, is unknown; longest"), "{unseen:?}");
    }
}
