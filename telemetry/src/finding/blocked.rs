//! Lint for threads that polled and do so no more, as the kernel shows them: those of apps without
//! libpmdscope.

use std::fmt::Write;

use super::time::duration;
use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::missed::{UnpolledQueues, still_threads, unpolled};
use crate::model::{Model, PortRates, StillThread};
use crate::sample::{PortSample, ThreadSample};
use crate::wait::{Wait, wait_text};

/// Number of threads that are named in one sentence.
const NAMED: usize = 3;

/// Returns the threads of lcores that polled and do not run any more, if that is no choice of the app.
pub(super) fn blocked(model: &Model, thresholds: &Thresholds) -> Vec<Finding> {
    if model.sample.library.is_some() {
        return Vec::new();
    }
    let effect = Effect::of(model, thresholds);
    let is_late = |still: &StillThread| still.seconds > thresholds.idle.as_secs_f64();
    let threads = still_threads(model).into_iter();
    let late = threads.filter(|(_, still)| still.polled && is_late(still));
    late.filter_map(|(thread, still)| of_thread(model, thread, still, &effect, thresholds))
        .collect()
}

/// What the ports show while a thread does not run.
struct Effect {
    severity: Option<Severity>,
    /// Sentences about the ports that deliver nothing.
    ports: Vec<String>,
}

impl Effect {
    fn of(model: &Model, thresholds: &Thresholds) -> Self {
        let mut effect = Self { severity: None, ports: Vec::new() };
        for (port, rates) in model.sample.ports.iter().zip(&model.ports) {
            let missed = rates.rx_missed_ps.filter(|missed| *missed > thresholds.rx_missed_ps);
            let silent = unpolled(model, port, rates).filter(|found| is_meant(found, port, rates));
            let Some(silent) = silent else { continue };
            let mut text = format!("{} delivers nothing", place(port, &silent.queues));
            if let Some(missed) = missed {
                let _ = write!(text, " and misses {missed:.1} packets/s");
            }
            effect.ports.push(text);
            let severity = if missed.is_some() { Severity::Critical } else { Severity::Warning };
            effect.severity = effect.severity.max(Some(severity));
        }
        effect
    }
}

/// Whether a port that delivers nothing received before: an idle port does not count.
fn is_meant(found: &UnpolledQueues<'_>, port: &PortSample, rates: &PortRates) -> bool {
    let missed = rates.rx_missed_ps.is_some_and(|missed| missed > 0.0);
    let is_up = port.started && port.link_up != Some(false);
    is_up && (missed || rates.rx_flat.is_some() || !found.queues.is_empty())
}

/// Returns a port, or queues of it, as text.
pub(super) fn place(port: &PortSample, queues: &[u16]) -> String {
    let of_port = format!("port {} ({})", port.id, port.device);
    match queues {
        [] => of_port,
        [queue] => format!("queue {queue} of {of_port}"),
        queues => {
            let list: Vec<_> = queues.iter().map(u16::to_string).collect();
            format!("queues {} of {of_port}", list.join(", "))
        }
    }
}

fn of_thread(
    model: &Model,
    thread: &ThreadSample,
    still: StillThread,
    effect: &Effect,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let wait = Wait::of(thread);
    // A loop that waits for packets, or whose function has returned, may do so on purpose.
    let own = match wait {
        Wait::Time | Wait::Descriptor => None,
        wait if wait.is_odd() && !is_first(model, thread) => Some(Severity::Warning),
        _ => Some(Severity::Info),
    };
    let severity = effect.severity.max(own)?;
    let mut evidence = still_text(thread, still);
    for port in effect.ports.iter().take(NAMED) {
        let _ = write!(evidence, "; {port}");
    }
    let threshold = format!(
        "a thread that polled runs at least once in {} s; critical if packets are missed",
        thresholds.idle.as_secs_f64()
    );
    let subject = FindingSubject::Lcore(thread.lcore);
    Some(finding(model, Lint::NoPolling, severity, subject, evidence, &threshold, advice(wait)))
}

/// Whether it is the first thread of its process.
fn is_first(model: &Model, thread: &ThreadSample) -> bool {
    thread.tid == thread.secondary.unwrap_or(model.sample.app.pid)
}

/// Returns a thread that does not run, for how long, and what it waits for.
pub(super) fn still_text(thread: &ThreadSample, still: StillThread) -> String {
    let how = if still.is_estimate { "about" } else { "at least" };
    format!(
        "lcore {} ({}thread {}) has not run for {how} {}: it {}{}",
        thread.lcore,
        if thread.name.is_empty() { String::new() } else { format!("{}, ", thread.name) },
        thread.tid,
        duration(still.seconds * 1e6),
        wait_text(thread),
        if still.polled { "; it polled before" } else { "" }
    )
}

/// Returns what a queue that nobody polls shows.
pub(super) fn unpolled_text(
    model: &Model,
    port: &PortSample,
    found: &UnpolledQueues<'_>,
) -> String {
    let place = place(port, &found.queues);
    let mut text = match (found.is_counted, found.queues.is_empty()) {
        (true, _) => format!("{place} was not polled, as libpmdscope counts"),
        (false, true) => format!("nobody polls {place}: it delivered no packet meanwhile"),
        (false, false) => {
            format!(
                "nobody polls {place}: no packet came from there, while other queues delivered some"
            )
        }
    };
    if !found.stopped.is_empty() {
        let list: Vec<_> = found.stopped.iter().map(u16::to_string).collect();
        let _ = write!(text, "; not started: queue {}", list.join(", "));
    }
    for (thread, still) in found.threads.iter().take(NAMED) {
        let _ = write!(text, "; {}", still_text(thread, *still));
    }
    match found.threads.len().checked_sub(NAMED) {
        Some(more @ 1..) => {
            let _ = write!(text, "; {more} more threads do not run");
        }
        _ if found.threads.is_empty() && model.sample.threads.is_empty() => {
            text += "; the threads of the app are not visible from here";
        }
        _ if found.threads.is_empty() => {
            text += "; the threads of all lcores run, so the app does not poll it";
        }
        _ => {}
    }
    text
}

/// Returns what to do about queues that nobody polls.
pub(super) fn unpolled_advice(found: &UnpolledQueues<'_>) -> &'static str {
    match found.threads.iter().find(|(_, still)| still.polled) {
        Some((thread, _)) => advice(Wait::of(thread)),
        None if !found.stopped.is_empty() => {
            "start the queue (rte_eth_dev_rx_queue_start()), or configure fewer queues: RSS gives packets to \
             each of them"
        }
        None => {
            "see whether the configuration of the app gives this port and all of its queues to an lcore, and \
             what its threads do: pmdscope lcores, gdb, or /proc/PID/task/TID/stack"
        }
    }
}

fn advice(wait: Wait) -> &'static str {
    match wait {
        Wait::Lock => {
            "see who holds the lock: gdb -p PID, thread apply all bt; a poll loop must not wait for locks of \
             slower threads"
        }
        Wait::Command => {
            "the function of the lcore has returned: see the app's log; rte_eal_remote_launch() starts it again"
        }
        Wait::Signal => {
            "kill -CONT continues a stopped process, and a debugger that is attached must continue it; a poll \
             loop must not wait for signals"
        }
        Wait::Kernel => {
            "see /proc/PID/task/TID/stack and the kernel's log (dmesg): a device, a file system or swap does \
             not answer"
        }
        Wait::Time | Wait::Descriptor | Wait::Unknown => {
            "the poll loop sleeps or waits instead of polling: see the stack of the thread (gdb, or \
             /proc/PID/task/TID/stack)"
        }
    }
}

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;
