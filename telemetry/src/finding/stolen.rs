//! Lint for lcores that lose their CPU to interrupts and other threads, as a tracer of the kernel reports it.

use std::fmt::Write;

use super::time::duration;
use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::{Model, StolenRates, ThiefRates};
use crate::sample::{StolenCause, TracingMethod};

/// Shortest interval for which a share is evaluated, seconds: in a shorter one, one event is a large
/// share.
const JUDGED_S: f64 = 0.1;

/// Returns the lcores that lost too much of their time since the last sample, or too much at a stretch.
pub(super) fn stolen<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    model.stolen.iter().filter_map(|rates| of_lcore(model, rates, thresholds))
}

fn of_lcore(model: &Model, rates: &StolenRates, thresholds: &Thresholds) -> Option<Finding> {
    let long_enough = rates.interval_s.is_some_and(|seconds| seconds >= JUDGED_S);
    let share = rates.ratio.filter(|ratio| long_enough && *ratio > thresholds.stolen_ratio);
    let longest = rates.longest.as_ref().filter(|thief| {
        thief.longest_ns.is_some_and(|ns| u128::from(ns) > thresholds.stolen_longest.as_nanos())
    });
    if share.is_none() && longest.is_none() {
        return None;
    }
    let mut evidence = format!("lcore {} lost its CPU", rates.lcore);
    if let Some(ratio) = rates.ratio.filter(|_| long_enough) {
        let _ = write!(evidence, " for {:.1} % of the time", ratio * 100.0);
    }
    if let Some(events) = rates.events_ps {
        let _ = write!(evidence, ", {events:.1} times/s");
    }
    if let Some(worst) = &rates.worst {
        let _ = write!(evidence, "; mostly to {}", name(worst));
    }
    if let Some(longest) = &rates.longest {
        let lasted = duration(longest.longest_ns.unwrap_or(0) as f64 / 1e3);
        let _ = write!(evidence, "; at a stretch for at least {lasted}, to {}", name(longest));
    }
    let by_proc = model.sample.tracing.as_ref().is_some_and(|of| of.method == TracingMethod::Proc);
    if by_proc {
        evidence += "; without BPF only the times of the scheduler are known";
    }
    let threshold = format!(
        "more than {} % of the time, or {} at a stretch",
        thresholds.stolen_ratio * 100.0,
        duration(thresholds.stolen_longest.as_secs_f64() * 1e6)
    );
    let culprit = longest.filter(|_| share.is_none()).or(rates.worst.as_ref());
    let advice = advice(culprit.map(|thief| thief.cause));
    let subject = FindingSubject::Lcore(rates.lcore);
    let severity = Severity::Warning;
    let found = finding(model, Lint::LcoreStolen, severity, subject, evidence, &threshold, advice);
    let longest_ns = rates.longest.as_ref().and_then(|thief| thief.longest_ns).unwrap_or(0);
    Some(Finding { weight: longest_ns as f64, ..found })
}

fn name(thief: &ThiefRates) -> String {
    format!("{} ({})", thief.thief, thief.cause)
}

fn advice(cause: Option<StolenCause>) -> &'static str {
    match cause {
        Some(StolenCause::Irq) => {
            "move the IRQ to other CPUs: /proc/irq/N/smp_affinity; stop irqbalance, or ban the CPU"
        }
        Some(StolenCause::Ipi) => {
            "look for TLB shootdowns and function calls of other CPUs: no other threads of the app that \
             map memory; isolate the CPU (isolcpus=)"
        }
        Some(StolenCause::Timer) => {
            "stop the tick: nohz_full= for the CPU, and only one runnable thread on it"
        }
        Some(StolenCause::Softirq) => {
            "move what raises the softirq: rcu_nocbs= for RCU; IRQs, RPS and XPS of kernel NICs for NET_RX \
             and NET_TX"
        }
        Some(StolenCause::Scheduler) => {
            "keep other threads off the CPU: isolcpus= or a cpuset, masks of workqueues, no two lcores on \
             one CPU"
        }
        Some(StolenCause::PageFault) => {
            "lock the memory of the app (mlockall()); turn off transparent hugepages and NUMA balancing"
        }
        Some(StolenCause::Unexplained) => {
            "firmware (SMI) or the hypervisor took it: settings of the BIOS, or pinned virtual CPUs"
        }
        _ => "see pmdscope interrupts for each thief",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::fixture::{stolen as row, tracing};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};
    use crate::sample::{Sample, StolenSample, TracingSample};

    fn at(ms: u64, tracing: TracingSample) -> Sample {
        let mut sample = empty_sample();
        sample.monotonic_ns = 1_000_000_000 + ms * 1_000_000;
        sample.ports = vec![port(0, ms)];
        sample.tracing = Some(tracing);
        sample
    }

    fn irq(count: u64, us: u64) -> StolenSample {
        row(1, StolenCause::Irq, "24 eth0", count, Some(us * 1000))
    }

    /// Returns the findings after this number of milliseconds in which this time was taken.
    fn judged(ms: u64, thefts: Vec<StolenSample>, thresholds: Thresholds) -> Vec<Finding> {
        let mut tracker = ModelTracker::default();
        tracker.update(at(0, tracing(&[1, 2], Vec::new())));
        let model = tracker.update(at(ms, tracing(&[1, 2], thefts)));
        evaluate(&model, &LintRules { thresholds, ..LintRules::default() })
    }

    #[test]
    fn a_large_share_is_a_warning_that_names_the_thief() {
        let findings = judged(1000, vec![irq(40, 20_000)], Thresholds::default());
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((finding.lint, finding.severity), (Lint::LcoreStolen, Severity::Warning));
        assert_eq!(finding.subject, FindingSubject::Lcore(1));
        assert_eq!(
            finding.evidence,
            "lcore 1 lost its CPU for 2.0 % of the time, 40.0 times/s; mostly to 24 eth0 (irq); at a \
             stretch for at least 500 us, to 24 eth0 (irq)"
        );
        assert_eq!(finding.threshold, "more than 1 % of the time, or 1.0 ms at a stretch");
        assert!(finding.advice.contains("smp_affinity"), "{}", finding.advice);
    }

    #[test]
    fn a_small_share_is_tolerated_and_a_long_event_is_not() {
        assert_eq!(judged(1000, vec![irq(100, 9_000)], Thresholds::default()), []);
        let long = row(1, StolenCause::Scheduler, "kworker/1:1", 1, Some(1_001_000));
        let findings = judged(1000, vec![irq(100, 5_000), long], Thresholds::default());
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert!(finding.evidence.contains("1.0 ms, to kworker/1:1 (scheduler)"));
        assert!(finding.advice.contains("isolcpus"), "of the long one: {}", finding.advice);
        let patient = Thresholds {
            stolen_ratio: 0.05,
            stolen_longest: Duration::from_millis(2),
            ..Thresholds::default()
        };
        assert_eq!(judged(1000, vec![irq(40, 20_000)], patient), []);
    }

    #[test]
    fn of_a_moment_no_share_is_judged() {
        assert_eq!(judged(20, vec![irq(1, 900)], Thresholds::default()), []);
        assert_eq!(judged(200, vec![irq(10, 9000)], Thresholds::default()).len(), 1);
    }

    #[test]
    fn what_is_unknown_or_the_thread_did_itself_is_no_finding() {
        let sleep = row(1, StolenCause::Sleep, "nanosleep", 9, Some(900_000_000));
        let ipi = row(1, StolenCause::Ipi, "reschedule", 9_000, None);
        assert_eq!(judged(1000, vec![sleep, ipi], Thresholds::default()), []);
    }
}
