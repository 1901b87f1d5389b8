//! CPU time while the generator sends, and drops of the kernel.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use pmdscope_integration::machine::cpu_ns;
use pmdscope_integration::namespaces::{NamespacePair, Side};
use pmdscope_integration::pair;
use pmdscope_integration::process::Process;
use serde_json::Value;

const PERIOD: Duration = Duration::from_millis(20);

/// CPU time up to a moment, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at_ns: u64,
    generator: u64,
    reflector: u64,
    softirq: Option<u64>,
}

/// CPU time as a number of busy CPUs: 1 is a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) generator: f64,
    pub(crate) reflector: f64,
    /// Of the softirq threads (`ksoftirqd`), whatever caused the softirqs; `None`: not visible
    /// here.
    pub(crate) softirq: Option<f64>,
}

/// Reads the CPU time of a pair repeatedly.
pub(crate) struct Watch {
    generator: u32,
    reflector: u32,
    softirqs: Vec<u32>,
}

/// Readings of a [`Watch`].
pub(crate) struct Readings(Vec<Reading>);

impl Watch {
    pub(crate) fn new(generator: u32, reflector: u32) -> Self {
        Self { generator, reflector, softirqs: softirq_threads() }
    }

    /// Until the generator ends.
    pub(crate) fn until_exit(&self, generator: &mut Process) -> Result<Readings> {
        self.until(|| Ok(generator.exited()?.is_some()))
    }

    /// Until a generator that keeps the link up has sent all packets, or ends.
    pub(crate) fn until_sent(&self, generator: &mut Process) -> Result<Readings> {
        self.until(|| Ok(generator.exited()?.is_some() || pair::has_sent(generator)))
    }

    fn until(&self, mut has_ended: impl FnMut() -> Result<bool>) -> Result<Readings> {
        let mut readings = Vec::new();
        while !has_ended()? {
            // The process may end while it is read.
            if let Ok(reading) = self.read() {
                readings.push(reading);
            }
            sleep(PERIOD);
        }
        Ok(Readings(readings))
    }

    /// CPU of the reflector alone, during this time.
    pub(crate) fn idle(reflector: u32, time: Duration) -> Result<f64> {
        let (start, before) = (Instant::now(), cpu_ns(reflector)?);
        sleep(time);
        let spent = cpu_ns(reflector)?.saturating_sub(before);
        Ok(spent as f64 / start.elapsed().as_nanos() as f64)
    }

    fn read(&self) -> Result<Reading> {
        let softirqs = self.softirqs.iter().map(|&pid| cpu_ns(pid)).sum::<Result<u64>>();
        Ok(Reading {
            at_ns: u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?,
            generator: cpu_ns(self.generator)?,
            reflector: cpu_ns(self.reflector)?,
            softirq: softirqs.ok().filter(|_| !self.softirqs.is_empty()),
        })
    }
}

/// The kernel's threads for softirqs, one per CPU. None in another PID namespace.
fn softirq_threads() -> Vec<u32> {
    let tasks = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let is_softirq = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.starts_with("ksoftirqd/"))
    };
    pids.filter(is_softirq).collect()
}

impl Readings {
    /// Between the first and the last packet of a summary.
    pub(crate) fn between(&self, summary: &Value) -> Result<Window> {
        let time =
            |field: &str| summary[field].as_u64().with_context(|| format!("no {field}: {summary}"));
        let (from, to) = (time("first_send_ns")?, time("last_send_ns")?);
        let inside = |reading: &&Reading| (from..=to).contains(&reading.at_ns);
        let mut within = self.0.iter().filter(inside);
        let first = within.next().copied().unwrap_or_default();
        let last = within.next_back().copied().unwrap_or_default();
        let share =
            |first: u64, last: u64, span: u64| last.saturating_sub(first) as f64 / span as f64;
        let span = last.at_ns.saturating_sub(first.at_ns);
        Ok(Window {
            generator: share(first.generator, last.generator, span),
            reflector: share(first.reflector, last.reflector, span),
            softirq: first.softirq.zip(last.softirq).map(|(first, last)| share(first, last, span)),
        })
    }
}

/// Places where the kernel dropped packets, or messages if it had joined packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drops {
    /// At the receive buffers of UDP sockets.
    pub(crate) sockets: u64,
    /// At the queues between sender and receiver (`netdev_max_backlog`), on the whole machine.
    pub(crate) backlog: u64,
}

impl Drops {
    pub(crate) fn now(net: Option<&NamespacePair>) -> Result<Self> {
        let mut sockets = 0;
        if let Some(net) = net {
            for side in [Side::Near, Side::Far] {
                sockets += net.counter(side, "Udp", "RcvbufErrors")?;
            }
        }
        Ok(Self { sockets, backlog: backlog_drops() })
    }

    pub(crate) fn since(self, earlier: &Self) -> Self {
        Self {
            sockets: self.sockets.saturating_sub(earlier.sockets),
            backlog: self.backlog.saturating_sub(earlier.backlog),
        }
    }
}

/// The second column of each CPU's line.
fn backlog_drops() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let dropped = text
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok());
    dropped.sum()
}
