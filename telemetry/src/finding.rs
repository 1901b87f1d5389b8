//! Lints over a model: problems, with evidence, threshold and advice.

pub mod balance;
mod blocked;
mod buffers;
mod cached;
mod corrupt;
mod counters;
mod flood;
mod foreign_capture;
mod heaps;
mod implausible;
mod lint;
mod load;
mod loss;
mod missed;
mod netdevs;
mod partly_seen;
mod pools;
mod ports;
mod process;
mod rings;
mod scan;
mod sending;
mod stall;
mod sticky;
mod stolen;
mod subject;
mod thresholds;
mod time;

use std::time::Duration;

use serde::Serialize;

pub use self::buffers::{most_cached, pool_users};
pub use self::lint::{Lint, UnknownLint};
pub use self::missed::FindingCause;
pub use self::sticky::StickyFindings;
pub use self::subject::FindingSubject;
pub use self::thresholds::Thresholds;
pub(crate) use self::time::duration;
use crate::discover::{DiscoveredApp, Reachability, UnreachableReason};
use crate::interface::InterfaceSample;
use crate::inventory::AppInventory;
use crate::model::{InterfaceRates, LcoreRates, Model};
use crate::sample::LcoreSample;

/// Lints that report causes, by rank: those of earlier ranks cause those of later ones.
const CAUSES: [&[Lint]; 5] = [
    &[Lint::RestartLoop],
    &[Lint::DoubleFree, Lint::Leak, Lint::PoolCorrupt, Lint::UseAfterFree],
    &[Lint::ForeignCapture, Lint::NetdevDown, Lint::NoPolling, Lint::PortFlap, Lint::TxStuck],
    &[Lint::RingFull],
    &[Lint::MbufsCached, Lint::RxNombuf],
];

/// Lints that usually report consequences of others.
const CONSEQUENCES: [Lint; 4] =
    [Lint::PoolExhausting, Lint::RxFlat, Lint::RxMissed, Lint::TxRefused];

/// The rules that findings are evaluated by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LintRules {
    /// Thresholds of the lints.
    pub thresholds: Thresholds,
    /// The apps and ports that are expected.
    pub expected: AppInventory,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information that helps to explain other problems.
    Info,
    /// Packets will be lost if it continues.
    Warning,
    /// Packets are being lost, or will be within a minute.
    Critical,
}

impl Severity {
    /// Returns the severity as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A problem of an app or of an interface of the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Name of the lint that reported the problem.
    pub lint: Lint,
    /// Severity of the problem.
    pub severity: Severity,
    /// Name of the app, by default its file-prefix; empty, and omitted in JSON, for a finding about an interface
    /// of the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app: String,
    /// Name of the port, device, pool, site, lcore or interface that has the problem; empty for the app
    /// itself.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub subject: FindingSubject,
    /// Numbers that show the problem, as one sentence.
    pub evidence: String,
    /// Threshold that was crossed, as text.
    pub threshold: String,
    /// Recommended next steps.
    pub advice: String,
    /// Causes of the problem, most likely first; empty, and omitted in JSON, for a lint that reports no
    /// causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<FindingCause>,
    /// Size of the problem in the interval, to tell the worst of several findings of one kind at different
    /// times; 0 for a kind of which the newest counts.
    #[serde(skip)]
    pub weight: f64,
}

/// Returns all findings about the app of `model`, worst first.
pub fn evaluate(model: &Model, rules: &LintRules) -> Vec<Finding> {
    let thresholds = &rules.thresholds;
    let mut findings = Vec::new();
    findings.extend(partly_seen::evaluate(model));
    let expected = rules.expected.expectation(&model.sample);
    findings.extend(ports::evaluate(model, &expected, thresholds));
    findings.extend(netdevs::unusable(model, &expected));
    findings.extend(process::restart_loop(model, thresholds));
    findings.extend(foreign_capture::captures(model));
    findings.extend(loss::losses(model));
    findings.extend(scan::lost_mbufs(model));
    findings.extend(corrupt::corrupt_pools(model));
    findings.extend(cached::cached_mbufs(model));
    findings.extend(buffers::no_mbufs(model));
    findings.extend(sending::evaluate(model, thresholds));
    findings.extend(rings::full_rings(model, &expected));
    findings.extend(pools::exhausting(model, &expected, thresholds));
    findings.extend(heaps::heaps(model, thresholds));
    findings.extend(missed::rx_missed(model, thresholds));
    findings.extend(counters::evaluate(model, thresholds));
    findings.extend(implausible::evaluate(model));
    findings.extend(no_polling(model, thresholds));
    findings.extend(blocked::blocked(model, thresholds));
    findings.extend(stall::stalls(model, thresholds));
    findings.extend(stolen::stolen(model, thresholds));
    findings.extend(load::imbalances(model, thresholds));
    drop_explained(&mut findings);
    drop_foreign(model, &mut findings);
    forget_wholes(model, &mut findings);
    sort(&mut findings);
    findings
}

/// Drops findings whose advice leads astray, as another finding names their cause: without free mbufs no port
/// receives, whatever its peer does, nor does one whose interface of the kernel is down.
fn drop_explained(findings: &mut Vec<Finding>) {
    let is_starved = |finding: &Finding| {
        finding.lint == Lint::MbufsCached && finding.severity == Severity::Critical
    };
    // Nor does one that nobody polls.
    let is_blocked = |finding: &Finding| {
        finding.lint == Lint::NoPolling && finding.severity >= Severity::Warning
    };
    if findings.iter().any(|finding| is_starved(finding) || is_blocked(finding)) {
        findings.retain(|finding| finding.lint != Lint::RxFlat);
    }
    let without_netdev: Vec<_> = findings
        .iter()
        .filter(|finding| finding.lint == Lint::NetdevDown)
        .map(|finding| finding.subject.clone())
        .collect();
    findings.retain(|finding| {
        finding.lint != Lint::RxFlat || !without_netdev.contains(&finding.subject)
    });
}

/// Drops findings about mempools that the app does not use.
fn drop_foreign(model: &Model, findings: &mut Vec<Finding>) {
    let is_foreign = |finding: &Finding| {
        let pool = finding.subject.pool().filter(|_| finding.lint != Lint::ForeignCapture);
        pool.is_some_and(|pool| foreign_capture::owns_pool(model, pool))
    };
    findings.retain(|finding| !is_foreign(finding));
}

/// Lints about packets that a port which consists of others counts once more.
const OF_PACKETS: [Lint; 9] = [
    Lint::AllowanceExceeded,
    Lint::CounterImplausible,
    Lint::RxDiscards,
    Lint::RxErrors,
    Lint::RxFiltered,
    Lint::RxMissed,
    Lint::RxNombuf,
    Lint::TxErrors,
    Lint::UnexplainedCounter,
];

/// Removes findings about a port that consists of others, if there is the same about one of its members.
fn forget_wholes(model: &Model, findings: &mut Vec<Finding>) {
    let port = |finding: &Finding| {
        let FindingSubject::Port(device) = &finding.subject else { return None };
        model.sample.ports.iter().position(|port| port.device == *device)
    };
    let of_member = |finding: &Finding| {
        let whole = model.ports.get(port(finding)?)?.member_of?;
        Some((finding.lint, model.sample.ports.iter().position(|port| port.id == whole)?))
    };
    let told: Vec<_> = findings.iter().filter_map(of_member).collect();
    findings.retain(|finding| {
        let is_told = port(finding).is_some_and(|at| told.contains(&(finding.lint, at)));
        !is_told || !OF_PACKETS.contains(&finding.lint)
    });
}

/// Returns all findings about an interface of the host.
pub(crate) fn evaluate_interface(
    interface: &InterfaceSample,
    rates: &InterfaceRates,
    thresholds: &Thresholds,
) -> Vec<Finding> {
    flood::flood(interface, rates, thresholds).into_iter().collect()
}

/// Returns the finding about an expected app that does not run.
pub fn evaluate_missing(app: &str) -> Finding {
    Finding {
        lint: Lint::AppMissing,
        severity: Severity::Critical,
        app: app.to_owned(),
        subject: FindingSubject::App,
        evidence: "it is expected on this machine, but no DPDK app of that name runs".to_owned(),
        threshold: "every expected app runs".to_owned(),
        advice:
            "start it, or check its log for why it ended; if it has another name, map it or correct the \
                 configuration (pmdscope ls lists the running apps)"
                .to_owned(),
        causes: Vec::new(),
        weight: 0.0,
    }
}

/// Returns the finding about an app that cannot be queried; `None` for an app that can, or that has ended.
pub fn evaluate_unqueried(app: &DiscoveredApp) -> Option<Finding> {
    let (lint, severity, evidence, threshold, advice) = match app.state {
        Reachability::Live | Reachability::Stale => return None,
        Reachability::NoTelemetry => (
            Lint::TelemetryOff,
            Severity::Warning,
            match app.pid {
                Some(pid) => format!("process {pid} runs without a telemetry socket"),
                None => "it has no telemetry socket: it runs without one, or is starting".into(),
            },
            "a running app has a telemetry socket",
            "start it without --no-telemetry".into(),
        ),
        Reachability::Unreachable(reason) => (
            Lint::Unreachable,
            // An app that is starting is not ready, but nothing is wrong with it.
            if reason == UnreachableReason::Starting { Severity::Info } else { Severity::Warning },
            app.with_activity(unqueried_evidence(app, reason)),
            "a running app answers on its telemetry socket",
            reason.advice().into(),
        ),
    };
    Some(Finding {
        lint,
        severity,
        app: app.name.clone(),
        subject: FindingSubject::App,
        evidence,
        threshold: threshold.into(),
        advice,
        causes: Vec::new(),
        weight: 0.0,
    })
}

fn unqueried_evidence(app: &DiscoveredApp, reason: UnreachableReason) -> String {
    match (reason, app.pid) {
        (UnreachableReason::Starting, Some(pid)) => {
            format!("process {pid} has not opened its telemetry socket yet")
        }
        (UnreachableReason::Untrusted, _) => {
            let (socket, pid) = (app.socket.display(), known_pid(app.pid));
            format!("process {pid} listens on {socket}, and not as the owner of its directory")
        }
        _ => format!("{} gives no answer", app.socket.display()),
    }
}

fn known_pid(pid: Option<u32>) -> String {
    pid.map_or_else(|| "of another PID namespace".to_owned(), |pid| pid.to_string())
}

/// Sorts findings: worst first, then by app, causes before consequences, and by lint and subject.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| {
            (std::cmp::Reverse(f.severity), f.app.clone(), cause_rank(f.lint), f.lint)
        };
        key(a).cmp(&key(b)).then_with(|| a.subject.to_string().cmp(&b.subject.to_string()))
    });
}

/// Returns the rank of a lint from cause to consequence, 0 for the first causes.
fn cause_rank(lint: Lint) -> usize {
    let cause = CAUSES.iter().position(|lints| lints.contains(&lint));
    cause.unwrap_or(CAUSES.len() + usize::from(CONSEQUENCES.contains(&lint)))
}

/// Only libpmdscope reports whether an app polls; for a stock app it is unknown.
fn no_polling(model: &Model, thresholds: &Thresholds) -> Vec<Finding> {
    let sample = &model.sample;
    let Some(library) = &sample.library else { return Vec::new() };
    if sample.failed("/pmdscope/lcores") {
        return Vec::new();
    }
    let threshold = format!("{} ms without a poll", thresholds.idle.as_millis());
    let advice = "the poll loop has ended, is blocked, or does not call pmdscope_poll(): see the stack of \
                  the thread (gdb, or /proc/PID/task/TID/stack)";
    if sample.lcores.is_empty() {
        let age_ns = sample.realtime_ns.saturating_sub(library.start_realtime_ns);
        let started = sample.ports.iter().any(|port| port.started);
        let expected = started && u128::from(age_ns) > thresholds.idle.as_nanos();
        let evidence = "ports are started, but no lcore has ever polled: pmdscope_poll() is never \
                        called, or the loop is dead";
        let critical = Severity::Critical;
        let finding = finding(
            model,
            Lint::NoPolling,
            critical,
            FindingSubject::App,
            evidence.into(),
            &threshold,
            advice,
        );
        return expected.then_some(finding).into_iter().collect();
    }
    let silent: Vec<_> = sample
        .lcores
        .iter()
        .zip(&model.lcores)
        .filter_map(|(lcore, rates)| Some((lcore, silence(model, lcore, rates, thresholds)?)))
        .collect();
    let all = silent.len() == sample.lcores.len();
    let severity = if all { Severity::Critical } else { Severity::Warning };
    let of = |(lcore, silence): (&LcoreSample, Duration)| {
        let evidence = format!(
            "lcore {} (thread {}) has not polled for {:.1} s, after {} polls",
            lcore.lcore,
            lcore.tid,
            silence.as_secs_f64(),
            lcore.polls
        );
        let subject = FindingSubject::Lcore(lcore.lcore);
        finding(model, Lint::NoPolling, severity, subject, evidence, &threshold, advice)
    };
    silent.into_iter().map(of).collect()
}

/// Returns how long an lcore has not polled, if that is too long: by its own clock, or because its
/// poll counter did not change between the two samples.
fn silence(
    model: &Model,
    lcore: &LcoreSample,
    rates: &LcoreRates,
    thresholds: &Thresholds,
) -> Option<Duration> {
    let still = rates.polls_ps.is_some_and(|rate| rate <= 0.0);
    let unmoved = model.interval_s.filter(|_| still).unwrap_or(0.0);
    let unmoved = Duration::try_from_secs_f64(unmoved).unwrap_or(Duration::MAX);
    let silence = Duration::from_micros(lcore.idle_us).max(unmoved);
    (silence > thresholds.idle).then_some(silence)
}

fn finding(
    model: &Model,
    lint: Lint,
    severity: Severity,
    subject: FindingSubject,
    evidence: String,
    threshold: &str,
    advice: &str,
) -> Finding {
    Finding {
        lint,
        severity,
        app: model.sample.app.name.clone(),
        subject,
        evidence,
        threshold: threshold.into(),
        advice: advice.into(),
        causes: Vec::new(),
        weight: 0.0,
    }
}

#[cfg(test)]
#[path = "finding_tests.rs"]
mod tests;
