//! Facts about the apps: from their telemetry, and from the configuration.

use std::collections::BTreeMap;

use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::{Sample, ThreadSample};
use pmdscope_telemetry::{AppInventory, ExpectedApp};
use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::eal::EalMemory;

/// Least share of the time in which a thread runs or waits for its CPU; a thread with less does not poll.
const POLLING_SHARE: f64 = 0.5;

/// Facts about one app.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AppFacts {
    /// Its name.
    pub name: String,
    /// Why it cannot be queried; `None` for an app that answers.
    pub unreachable: Option<String>,
    /// Whether the configuration expects it, and it does not run.
    #[serde(default)]
    pub absent: bool,
    /// Its last sample; `None` for an app that does not answer.
    pub sample: Option<Sample>,
    /// Packets received per second by port id; ports without a known rate are absent.
    #[serde(default)]
    pub rx_pps: BTreeMap<u16, f64>,
    /// Its lcores that poll.
    #[serde(default)]
    pub poll_threads: Vec<PollThread>,
    /// Devices that must be among its ports.
    #[serde(default)]
    pub expected_devices: Vec<String>,
    /// Least number of ports.
    #[serde(default)]
    pub min_ports: usize,
    /// Whether packets can be captured from it; `None` if that was not checked.
    #[serde(default)]
    pub capture: Option<CaptureFact>,
}

/// Whether packets can be captured from an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureFact {
    /// Packets can be captured, by libpmdscope or by a helper.
    Possible {
        /// `library` or `pdump`.
        via: String,
    },
    /// Packets cannot be captured.
    Impossible {
        /// The obstacle, and what to do about it.
        reason: String,
    },
}

/// A thread that polls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollThread {
    /// lcore id.
    pub lcore: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// CPUs that it may run on.
    pub allowed: CpuSet,
    /// CPU that it ran on last.
    pub cpu: u32,
}

impl AppFacts {
    /// Returns the facts about an app that answers. `first` is an earlier sample than that of
    /// `model`: for a stock app, it tells threads that sleep from threads that poll; without it, all
    /// its lcores count as polling.
    pub fn of(first: Option<&Sample>, model: &Model, inventory: &AppInventory) -> Self {
        let sample = &model.sample;
        let expectation = inventory.expectation(sample);
        let rates = model.ports.iter().filter_map(|port| Some((port.id, port.rx_pps?)));
        Self {
            name: sample.app.name.clone(),
            rx_pps: rates.collect(),
            poll_threads: poll_threads(first, sample),
            expected_devices: expectation.devices,
            min_ports: expectation.min_ports,
            sample: Some(sample.clone()),
            ..Self::default()
        }
    }

    /// Returns the facts about an app that runs and cannot be queried.
    pub fn unreachable(name: &str, reason: &str) -> Self {
        let unreachable = Some(reason.to_owned());
        Self { name: name.to_owned(), unreachable, ..Self::default() }
    }

    /// Returns the facts about an app that should run, and does not.
    pub fn absent(expected: &ExpectedApp) -> Self {
        Self {
            name: expected.name.clone(),
            absent: true,
            expected_devices: expected.ports.clone(),
            min_ports: expected.min_ports.unwrap_or(expected.ports.len().max(1)),
            ..Self::default()
        }
    }

    /// Returns its name, and the container that it runs in, for people.
    pub(crate) fn label(&self) -> String {
        let container = self.sample.as_ref().and_then(|sample| sample.app.container.as_ref());
        let Some(container) = container else { return self.name.clone() };
        let pod = container.pod.as_ref().map(|pod| format!(", pod {pod}")).unwrap_or_default();
        format!("{} (container {}{pod})", self.name, container.short_id())
    }

    /// Returns its process id on the host; `None` where the process is not visible.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.sample.as_ref().map(|sample| sample.app.pid).filter(|pid| *pid > 0)
    }

    /// Returns the CPUs that it polls on.
    pub(crate) fn poll_cpus(&self) -> CpuSet {
        self.poll_threads.iter().flat_map(|thread| thread.cpus().0).collect()
    }

    /// Returns how it uses memory.
    pub(crate) fn memory(&self) -> EalMemory {
        self.sample
            .as_ref()
            .map(|sample| EalMemory::parse(&sample.app.eal_args))
            .unwrap_or_default()
    }
}

impl PollThread {
    /// Returns its CPU; for a thread that may run on several, the CPU that it ran on last.
    pub(crate) fn cpus(&self) -> CpuSet {
        if self.is_pinned() { self.allowed.clone() } else { [self.cpu].into_iter().collect() }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.allowed.len() == 1
    }
}

/// Returns the threads that poll. libpmdscope reports which lcores poll; for a stock app, the kernel
/// reports which threads sleep.
fn poll_threads(first: Option<&Sample>, sample: &Sample) -> Vec<PollThread> {
    let before = |thread: &ThreadSample| {
        let threads = first.into_iter().flat_map(|first| &first.threads);
        threads.into_iter().find(|other| (other.lcore, other.tid) == (thread.lcore, thread.tid))
    };
    let polls = |thread: &&ThreadSample| {
        let share = before(thread).and_then(|before| ready_share(before, thread));
        if sample.lcores.is_empty() {
            share.is_none_or(|share| share >= POLLING_SHARE)
        } else {
            // Secondary processes and threads of no lcore may poll without libpmdscope.
            sample.lcores.iter().any(|lcore| lcore.lcore == thread.lcore)
                || share.is_some_and(|share| share >= POLLING_SHARE)
        }
    };
    let thread = |thread: &ThreadSample| PollThread {
        lcore: thread.lcore,
        tid: thread.tid,
        allowed: CpuSet::of_list(&thread.cpus),
        cpu: thread.cpu,
    };
    sample.threads.iter().filter(polls).map(thread).collect()
}

/// Returns the share of the time between two samples in which a thread ran or waited for its CPU.
fn ready_share(before: &ThreadSample, now: &ThreadSample) -> Option<f64> {
    let passed = now.read_ns.checked_sub(before.read_ns).filter(|passed| *passed > 0)?;
    let ran = now.run_ns?.checked_sub(before.run_ns?)?;
    let waited = now.run_delay_ns?.checked_sub(before.run_delay_ns?)?;
    Some((ran + waited) as f64 / passed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(lcore: u32, read_ns: u64, run_ns: Option<u64>) -> ThreadSample {
        let cpus = lcore.to_string();
        ThreadSample {
            lcore,
            tid: lcore,
            cpus,
            read_ns,
            run_ns,
            run_delay_ns: Some(0),
            ..ThreadSample::default()
        }
    }

    fn sample(threads: &[ThreadSample]) -> Sample {
        Sample { threads: threads.to_vec(), ..Sample::default() }
    }

    #[test]
    fn threads_of_a_stock_app_that_sleep_do_not_poll() {
        let first = sample(&[thread(1, 0, Some(0)), thread(2, 0, Some(5)), thread(3, 0, None)]);
        let now =
            sample(&[thread(1, 100, Some(1)), thread(2, 100, Some(105)), thread(3, 100, None)]);
        let lcores = |first| poll_threads(first, &now).iter().map(|t| t.lcore).collect::<Vec<_>>();
        assert_eq!(lcores(Some(&first)), [2, 3]);
        assert_eq!(lcores(None), [1, 2, 3], "nothing tells that they sleep");
    }

    #[test]
    fn a_thread_without_a_cpu_of_its_own_polls_where_it_ran_last() {
        let wide = PollThread { allowed: CpuSet::of_list("0-7"), cpu: 3, ..PollThread::default() };
        assert_eq!((wide.cpus().to_string(), wide.is_pinned()), ("3".into(), false));
    }
}
