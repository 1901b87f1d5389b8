//! Starts of one app: successive processes of the same name.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Serialize;

use crate::sample::Sample;

/// Limit of recorded starts, above any threshold.
const MOST: usize = 1000;

/// The observed processes of one app, oldest first.
#[derive(Debug, Default)]
pub(crate) struct StartCounter(VecDeque<Start>);

/// One start of an app.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Wall clock at the start, nanoseconds since the epoch.
    realtime_ns: u64,
    pid: u32,
    /// Clock ticks since boot at the start.
    ticks: u64,
    /// Wall clock at the last answer, nanoseconds since the epoch.
    seen_ns: u64,
    /// How it ended, as in `wait(2)`, if that is known.
    wait_status: Option<i32>,
}

/// Starts of an app in a time window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppRestarts {
    /// Number of processes that were started, without those that started and ended between two samples.
    pub starts: u64,
    /// Time since the first of these starts, seconds.
    pub seconds: f64,
    /// Longest time that one of the ended processes was seen to run, seconds.
    pub longest_life_s: f64,
    /// Ended processes by exit reason, most frequent first.
    pub exits: Vec<ExitReason>,
}

/// Processes of an app with the same exit reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitReason {
    /// `exit status N`; `killed by SIGNAME` or `killed by signal N`, perhaps with `, core dumped`; or
    /// `unknown`.
    pub reason: String,
    /// Number of processes.
    pub count: u64,
}

impl StartCounter {
    /// Adds the process that answered.
    pub(crate) fn update(&mut self, sample: &Sample) {
        let app = &sample.app;
        let now_ns = sample.realtime_ns;
        if let Some(ended) = &sample.predecessor {
            let is_it =
                |start: &&mut Start| (start.pid, start.ticks) == (ended.pid, ended.start_ticks);
            if let Some(start) = self.0.iter_mut().rev().find(is_it) {
                start.wait_status = Some(ended.wait_status);
            }
        }
        let same = |last: &&mut Start| (last.pid, last.ticks) == (app.pid, app.start_ticks);
        if let Some(last) = self.0.back_mut().filter(same) {
            last.seen_ns = now_ns;
            return;
        }
        // If its start time is unknown, the first process counts as always running, and a later one
        // as just started.
        let unknown = if self.0.is_empty() { 0 } else { now_ns };
        let realtime_ns = Some(app.start_realtime_ns).filter(|ns| *ns > 0).unwrap_or(unknown);
        self.0.push_back(Start {
            realtime_ns,
            pid: app.pid,
            ticks: app.start_ticks,
            seen_ns: now_ns,
            wait_status: None,
        });
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// Discards everything: the clock changed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the starts in this last period; `None` if there were none, or no process has ever
    /// replaced another.
    pub(crate) fn within(&self, window: Duration, now_ns: u64) -> Option<AppRestarts> {
        let ago = |start: &Start| Duration::from_nanos(now_ns.saturating_sub(start.realtime_ns));
        let recent: Vec<&Start> = self.0.iter().filter(|start| ago(start) <= window).collect();
        let replaced = self.0.len() > 1;
        let first = recent.first().filter(|_| replaced)?;
        let life = |start: &Start| start.seen_ns.saturating_sub(start.realtime_ns);
        let ended = &recent[..recent.len().saturating_sub(1)];
        let longest = ended.iter().map(|start| life(start)).max().unwrap_or(0);
        Some(AppRestarts {
            starts: recent.len() as u64,
            seconds: ago(first).as_secs_f64(),
            longest_life_s: longest as f64 / 1e9,
            exits: exits(ended),
        })
    }
}

fn exits(ended: &[&Start]) -> Vec<ExitReason> {
    let mut counts = BTreeMap::<String, u64>::new();
    for start in ended {
        *counts.entry(reason(start.wait_status)).or_default() += 1;
    }
    let mut exits: Vec<_> =
        counts.into_iter().map(|(reason, count)| ExitReason { reason, count }).collect();
    exits.sort_by_key(|exit| std::cmp::Reverse(exit.count));
    exits
}

fn reason(wait_status: Option<i32>) -> String {
    let Some(status) = wait_status.map(ExitStatus::from_raw) else { return "unknown".to_owned() };
    if let Some(code) = status.code() {
        return format!("exit status {code}");
    }
    let Some(number) = status.signal() else { return "unknown".to_owned() };
    let signal = match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("signal {number}"),
    };
    let dumped = if status.core_dumped() { ", core dumped" } else { "" };
    format!("killed by {signal}{dumped}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::EndedProcess;
    use crate::sample::tests::empty_sample;

    const S: u64 = 1_000_000_000;

    /// Samples an app each second, with a new process every `life` seconds; each one ends with this status.
    fn looping(seconds: u64, life: u64, wait_status: Option<i32>) -> Option<AppRestarts> {
        let mut counter = StartCounter::default();
        let mut now_ns = 0;
        for second in 0..=seconds {
            let mut sample = empty_sample();
            now_ns = sample.realtime_ns + second * S;
            let start = second / life * life;
            sample.app.start_ticks = start * 100;
            sample.app.start_realtime_ns = sample.realtime_ns + start * S;
            sample.realtime_ns = now_ns;
            sample.predecessor = wait_status.filter(|_| start > 0).map(|wait_status| {
                let start_ticks = (start - life) * 100;
                EndedProcess { pid: sample.app.pid, start_ticks, wait_status }
            });
            counter.update(&sample);
        }
        counter.within(Duration::from_secs(60), now_ns)
    }

    #[test]
    fn starts_of_the_last_minute_are_counted() {
        assert_eq!(looping(100, 1000, None), None);
        let restarts = looping(5, 2, None).unwrap();
        assert_eq!((restarts.starts, restarts.seconds, restarts.longest_life_s), (3, 5.0, 1.0));
        assert_eq!(looping(100, 20, None).unwrap().starts, 4);
        assert_eq!(looping(100, 50, None).unwrap().starts, 2);
    }

    #[test]
    fn how_processes_ended_is_counted() {
        let exit = |reason: &str, count| ExitReason { reason: reason.to_owned(), count };
        assert_eq!(looping(5, 2, None).unwrap().exits, [exit("unknown", 2)]);
        assert_eq!(looping(5, 2, Some(3 << 8)).unwrap().exits, [exit("exit status 3", 2)]);
        // The last process may be sampled again before the parent of the previous one has waited for it.
        let mut counter = StartCounter::default();
        let mut sample = empty_sample();
        for (ticks, ended) in [(0, None), (1, Some(0)), (1, None), (2, None), (3, Some(2))] {
            sample.app.start_ticks = ticks;
            sample.app.start_realtime_ns = sample.realtime_ns + ticks;
            sample.predecessor = ended.map(|start_ticks| EndedProcess {
                pid: sample.app.pid,
                start_ticks,
                wait_status: 139,
            });
            counter.update(&sample);
        }
        let restarts = counter.within(Duration::from_secs(60), sample.realtime_ns + 9).unwrap();
        let exits = [exit("killed by SIGSEGV, core dumped", 2), exit("unknown", 1)];
        assert_eq!(restarts.exits, exits);
    }

    #[test]
    fn wait_statuses_are_named() {
        for (status, text) in [
            (0, "exit status 0"),
            (3 << 8, "exit status 3"),
            (11, "killed by SIGSEGV"),
            (6 | 0x80, "killed by SIGABRT, core dumped"),
            (40, "killed by signal 40"),
            (0x7f, "unknown"),
        ] {
            assert_eq!(reason(Some(status)), text);
        }
    }
}
