//! Reads what the host knows about an app, without querying it: PCI devices, threads, secondary processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arguments::EalArguments;
use crate::clock::monotonic_ns;
use crate::host::device::PciDevices;
use crate::host::frequency::{CpuClock, CpuClocks};
use crate::host::hugepages;
use crate::host::process::{ProcessTasks, stolen_ms};
use crate::host::secondaries;
use crate::sample::{
    DeviceSample, LcoreSample, NetdevSample, PcieLinkSample, Sample, ThreadSample,
};

use super::cached::Cached;
use super::foreign_captures::foreign_captures;
use super::netdevs::NetdevLookup;
use super::threads::{FoundThreads, KnownLcores, PollThread, ThreadFinder};
use super::{FACTS_AGE, SLOW};

/// Maximum age of the counters of threads: short enough for ten samples per second.
const SWITCHES_MAX_AGE: Duration = Duration::from_millis(90);

/// Stolen time by CPU, milliseconds.
type StolenTimes = Arc<BTreeMap<u32, u64>>;

/// The time that the hypervisor took from each CPU. All apps share it: the list is long on hosts with
/// many CPUs.
static STOLEN: LazyLock<Mutex<Cached<StolenTimes>>> = LazyLock::new(Mutex::default);

/// Interval between searches for threads while a thread that libpmdscope reports is not found.
const THREADS_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Reads what the host knows about one app.
#[derive(Debug)]
pub(super) struct HostReader {
    dir: PathBuf,
    pci: PciDevices,
    /// `None` until the app has reported them.
    arguments: Option<EalArguments>,
    devices: Cached<Vec<DeviceSample>>,
    pcie_links: Cached<Vec<PcieLinkSample>>,
    lookup: NetdevLookup,
    netdevs: Cached<Vec<NetdevSample>>,
    /// PCI ids of the ports that have some, by device name.
    pci_ids: Cached<BTreeMap<String, String>>,
    clocks: CpuClocks,
    /// Clocks by CPU.
    clock: Cached<BTreeMap<u32, CpuClock>>,
    /// Packets that all ports had missed when the clocks were read last.
    missed: u64,
    /// Process ids in the PID namespace of the app.
    secondaries: Cached<Vec<u32>>,
    /// `None` if the process is not visible.
    finder: Option<ThreadFinder>,
    found: Cached<FoundThreads>,
    threads: Cached<Vec<ThreadSample>>,
}

impl HostReader {
    /// Returns a reader for the app with this runtime directory and process id; 0 if the process is
    /// not visible.
    pub(super) fn new(dir: &Path, pid: u32) -> Self {
        Self {
            dir: dir.into(),
            pci: PciDevices::default(),
            arguments: None,
            devices: Cached::default(),
            pcie_links: Cached::default(),
            lookup: NetdevLookup::default(),
            netdevs: Cached::default(),
            pci_ids: Cached::default(),
            clocks: CpuClocks::default(),
            clock: Cached::default(),
            missed: 0,
            secondaries: Cached::default(),
            finder: ThreadFinder::of(pid),
            found: Cached::default(),
            threads: Cached::default(),
        }
    }

    /// Adds the facts of the host to `sample`.
    pub(super) fn complete(&mut self, sample: &mut Sample) {
        let now = Instant::now();
        if self.arguments.is_none() && !sample.app.eal_args.is_empty() {
            self.arguments = Some(EalArguments::parse(&sample.app.eal_args));
        }
        if let Some(arguments) = &self.arguments {
            let devices = self.devices.get(now, SLOW, || self.pci.read(&arguments.allowed));
            sample.devices.clone_from(devices);
            let (lookup, vdevs) = (&mut self.lookup, &arguments.vdevs);
            let read = || lookup.read(sample.app.pid, vdevs, &sample.ports);
            sample.netdevs = self.netdevs.get(now, FACTS_AGE, read).clone();
        }
        let pci = &self.pci;
        let ports = sample.ports.iter().map(|port| port.device.as_str());
        sample.pcie_links.clone_from(self.pcie_links.get(now, SLOW, || pci.links(ports)));
        let names = sample.ports.iter().map(|port| &port.device);
        let ids = || names.filter_map(|name| Some((name.clone(), pci.ids(name)?))).collect();
        let ids = self.pci_ids.get(now, SLOW, ids);
        for port in &mut sample.ports {
            port.pci_id = ids.get(&port.device).cloned();
        }
        let running = self.secondaries.get(now, SLOW, || secondaries(&self.dir));
        sample.secondaries = u32::try_from(running.len()).unwrap_or(u32::MAX);
        sample.foreign_captures = foreign_captures(&sample.pools, running, sample.app.pid);
        for heap in &mut sample.heaps {
            heap.growable = growable(&heap.name, &sample.app.eal_args);
        }
        self.read_threads(sample, now);
        self.read_clocks(sample, now);
        let library = sample.library.as_ref().map(|library| library.control_shares_poll_cpu);
        let seen = self.found.value().control_shares_cpu;
        sample.control_shares_poll_cpu = library.or(seen);
    }

    fn read_threads(&mut self, sample: &mut Sample, now: Instant) {
        let Some(finder) = &mut self.finder else { return };
        let is_known = |lcore: &LcoreSample, found: &FoundThreads| {
            found.threads.iter().any(|known| known.lcore == lcore.lcore)
        };
        let new = !sample.lcores.iter().all(|lcore| is_known(lcore, self.found.value()));
        if finder.is_due() || new && self.found.is_older(now, THREADS_RETRY_INTERVAL) {
            self.found.forget();
        }
        let known = KnownLcores {
            arguments: self.arguments.as_ref(),
            table: &sample.lcores,
            roles: &sample.roles,
        };
        let secondaries = self.secondaries.value();
        let found = self.found.get(now, SLOW, || finder.find(&known, secondaries));
        let threads =
            self.threads.get(now, SWITCHES_MAX_AGE, || read_threads(finder, &found.threads));
        sample.threads.clone_from(threads);
        sample.threads_left_out.clone_from(&found.left_out);
        // A thread that has ended may have a successor.
        if sample.threads.len() < found.threads.len() {
            self.found.forget();
        }
    }

    /// Adds the clocks of the CPUs of lcores. Older kernels interrupt a CPU to read its clock, so it
    /// is read when packets were missed, and otherwise rarely.
    fn read_clocks(&mut self, sample: &mut Sample, now: Instant) {
        let missed = sample.ports.iter().map(|port| port.stats.rx_missed);
        let missed = missed.fold(0, u64::saturating_add);
        let clocks = &self.clocks;
        let cpus: Vec<u32> = sample.threads.iter().map(|thread| thread.cpu).collect();
        let read = || cpus.iter().filter_map(|cpu| Some((*cpu, clocks.read(*cpu)?))).collect();
        let age = if missed == self.missed { SLOW } else { SWITCHES_MAX_AGE };
        if self.clock.is_older(now, age) {
            self.missed = missed;
        }
        let clock = self.clock.get(now, age, read);
        for thread in &mut sample.threads {
            let clock = clock.get(&thread.cpu);
            thread.cpu_khz = clock.map(|clock| clock.khz);
            thread.cpu_max_khz = clock.map(|clock| clock.max_khz);
        }
    }
}

/// Returns the free memory from which a heap can grow: that of its NUMA node, unless the app has fixed its
/// memory or the heap is one that it made itself.
fn growable(heap: &str, eal_args: &[String]) -> Option<u64> {
    let own = eal_args.iter().take_while(|arg| *arg != "--");
    let is_fixed = own.into_iter().any(|arg| arg == "--legacy-mem" || arg == "--no-huge");
    let node = heap.strip_prefix("socket_").and_then(|node| node.parse().ok());
    match node {
        _ if is_fixed => Some(0),
        Some(node) => hugepages::free_bytes(Path::new("/sys"), node),
        None => Some(0),
    }
}

/// Reads these threads.
fn read_threads(finder: &ThreadFinder, threads: &[PollThread]) -> Vec<ThreadSample> {
    if threads.is_empty() {
        return Vec::new();
    }
    let mut shared = STOLEN.lock().unwrap_or_else(PoisonError::into_inner);
    let stolen_ms =
        Arc::clone(shared.get(Instant::now(), SWITCHES_MAX_AGE, || Arc::new(stolen_ms())));
    drop(shared);
    let read =
        |thread: &PollThread| read_thread(finder.tasks(thread.secondary)?, *thread, &stolen_ms);
    threads.iter().filter_map(read).collect()
}

fn read_thread(
    tasks: &ProcessTasks,
    PollThread { lcore, tid, secondary }: PollThread,
    stolen_ms: &BTreeMap<u32, u64>,
) -> Option<ThreadSample> {
    let status = tasks.status(tid)?;
    let times = tasks.times(tid);
    let (cpu, age) = tasks.cpu_and_age(tid)?;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut sample = ThreadSample {
        lcore,
        tid,
        secondary,
        name: tasks.name(tid)?,
        read_ns: monotonic_ns(),
        run_ns: times.map(|times| times.run_ns),
        run_delay_ns: times.map(|times| times.run_delay_ns),
        cpu_stolen_ms: stolen_ms.get(&cpu).copied(),
        asleep: status.is_asleep(),
        state: Some(status.state),
        age_ns: nanos(age),
        cpus: status.cpus,
        cpu,
        voluntary_switches: status.voluntary_switches,
        involuntary_switches: status.involuntary_switches,
        ..ThreadSample::default()
    };
    if sample.asleep {
        sample.wait_channel = tasks.wait_channel(tid);
        sample.since_run_ns = tasks.since_run(tid).map(nanos);
    }
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::device::tests::plug;
    use crate::sample::LibrarySample;
    use crate::sample::tests::empty_sample;

    fn me() -> (tempfile::TempDir, HostReader) {
        let dir = tempfile::tempdir().unwrap();
        let host = HostReader::new(dir.path(), std::process::id());
        (dir, host)
    }

    fn complete(host: &mut HostReader, args: &[&str]) -> Sample {
        let mut sample = empty_sample();
        sample.app.eal_args = args.iter().map(|arg| (*arg).to_owned()).collect();
        host.complete(&mut sample);
        sample
    }

    #[test]
    fn devices_of_the_arguments_are_read_once_these_are_known() {
        let (dir, mut host) = me();
        host.pci = PciDevices::at(dir.path());
        plug(dir.path(), "0000:03:00.0", "0x020000", Some("ixgbe"));
        assert_eq!(complete(&mut host, &[]).devices, []);
        let devices = complete(&mut host, &["app", "-a", "3:0.0"]).devices;
        assert_eq!(devices[0].driver.as_deref(), Some("ixgbe"));
        plug(dir.path(), "0000:03:00.0", "0x028000", None);
        assert_eq!(complete(&mut host, &["app"]).devices, devices, "for ten seconds");
    }

    #[test]
    fn a_process_that_cannot_be_seen_is_not_known() {
        let mut host = HostReader::new(Path::new("/nonexistent"), 0);
        let sample = complete(&mut host, &["app", "-l", "0"]);
        assert_eq!((sample.threads.len(), sample.secondaries), (0, 0));
        assert_eq!((sample.control_shares_poll_cpu, sample.partial.len()), (None, 0));
    }

    #[test]
    fn libpmdscope_knows_best_which_thread_serves_which_lcore() {
        let (_dir, mut host) = me();
        let mut sample = empty_sample();
        sample.app.eal_args = vec!["app".into(), "-l".into(), "3".into()];
        sample.library =
            Some(LibrarySample { control_shares_poll_cpu: true, ..Default::default() });
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let own_tid: u64 = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
        sample.lcores = vec![LcoreSample { lcore: 12, tid: own_tid, ..LcoreSample::default() }];
        host.complete(&mut sample);
        let mut threads: Vec<_> =
            sample.threads.iter().map(|t| (t.lcore, u64::from(t.tid))).collect();
        threads.retain(|(lcore, _)| *lcore == 12);
        assert_eq!(threads, [(12, own_tid)]);
        assert_eq!(sample.control_shares_poll_cpu, Some(true));
    }

    #[test]
    fn a_thread_that_ends_is_looked_for_again() {
        let (_dir, mut host) = me();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("rte-worker-31".into());
        let worker = worker.spawn(move || wait.recv()).unwrap();
        let has = |host: &mut HostReader| {
            std::thread::sleep(SWITCHES_MAX_AGE);
            let threads = complete(host, &["app"]).threads;
            threads.iter().any(|thread| thread.lcore == 31)
        };
        while !has(&mut host) {
            host.found.forget();
        }
        drop(done);
        let _ = worker.join();
        while has(&mut host) {}
        has(&mut host);
        assert!(host.found.value().threads.iter().all(|thread| thread.lcore != 31));
    }
}
