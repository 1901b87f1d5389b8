//! Reads what the host knows about an app, without querying it: PCI devices, threads, secondary processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arguments::EalArguments;
use crate::clock::monotonic_ns;
use crate::host::device::PciDevices;
use crate::host::frequency::{CpuClock, CpuClocks};
use crate::host::process::{PROC, ProcessTasks, is_control, lcore_of, stolen_ms};
use crate::host::secondaries;
use crate::sample::{DeviceSample, LcoreSample, PcieLinkSample, Sample, ThreadSample};

use super::SLOW;
use super::cached::Cached;

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
    pid: u32,
    pci: PciDevices,
    /// `None` until the app has reported them.
    arguments: Option<EalArguments>,
    devices: Cached<Vec<DeviceSample>>,
    pcie_links: Cached<Vec<PcieLinkSample>>,
    /// PCI ids of the ports that have some, by device name.
    pci_ids: Cached<BTreeMap<String, String>>,
    clocks: CpuClocks,
    /// Clocks by CPU.
    clock: Cached<BTreeMap<u32, CpuClock>>,
    /// Packets that all ports had missed when the clocks were read last.
    missed: u64,
    secondaries: Cached<u32>,
    tasks: Option<ProcessTasks>,
    lcores: Cached<Lcores>,
    threads: Cached<Vec<ThreadSample>>,
}

/// The threads of lcores, and whether a control thread shares a CPU with them.
#[derive(Debug, Default)]
struct Lcores {
    threads: Vec<(u32, u32)>,
    control_shares_cpu: Option<bool>,
}

impl HostReader {
    /// Returns a reader for the app with this runtime directory and process id; 0 if the process is
    /// not visible.
    pub(super) fn new(dir: &Path, pid: u32) -> Self {
        Self {
            dir: dir.into(),
            pid,
            pci: PciDevices::default(),
            arguments: None,
            devices: Cached::default(),
            pcie_links: Cached::default(),
            pci_ids: Cached::default(),
            clocks: CpuClocks::default(),
            clock: Cached::default(),
            missed: 0,
            secondaries: Cached::default(),
            tasks: ProcessTasks::of(Path::new(PROC), pid),
            lcores: Cached::default(),
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
        sample.secondaries = *self.secondaries.get(now, SLOW, || count(&self.dir));
        self.read_threads(sample, now);
        self.read_clocks(sample, now);
        let library = sample.library.as_ref().map(|library| library.control_shares_poll_cpu);
        let seen = self.lcores.value().control_shares_cpu;
        sample.control_shares_poll_cpu = library.or(seen);
    }

    fn read_threads(&mut self, sample: &mut Sample, now: Instant) {
        let Some(tasks) = &self.tasks else { return };
        let known = |lcore: &LcoreSample, lcores: &Lcores| {
            lcores.threads.iter().any(|(known, _)| *known == lcore.lcore)
        };
        let new = !sample.lcores.iter().all(|lcore| known(lcore, self.lcores.value()));
        if new && self.lcores.is_older(now, THREADS_RETRY_INTERVAL) {
            self.lcores.forget();
        }
        let arguments = self.arguments.as_ref();
        let listing = || lcores(tasks, self.pid, arguments, &sample.lcores);
        let lcores = self.lcores.get(now, SLOW, listing);
        let threads =
            self.threads.get(now, SWITCHES_MAX_AGE, || read_threads(tasks, &lcores.threads));
        sample.threads.clone_from(threads);
        // A thread that has ended may have a successor.
        if sample.threads.len() < lcores.threads.len() {
            self.lcores.forget();
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

fn count(dir: &Path) -> u32 {
    u32::try_from(secondaries(dir).len()).unwrap_or(u32::MAX)
}

/// Reads these threads, given by lcore and thread id.
fn read_threads(tasks: &ProcessTasks, threads: &[(u32, u32)]) -> Vec<ThreadSample> {
    if threads.is_empty() {
        return Vec::new();
    }
    let mut shared = STOLEN.lock().unwrap_or_else(PoisonError::into_inner);
    let stolen_ms =
        Arc::clone(shared.get(Instant::now(), SWITCHES_MAX_AGE, || Arc::new(stolen_ms())));
    drop(shared);
    threads.iter().filter_map(|(lcore, tid)| thread(tasks, *lcore, *tid, &stolen_ms)).collect()
}

fn thread(
    tasks: &ProcessTasks,
    lcore: u32,
    tid: u32,
    stolen_ms: &BTreeMap<u32, u64>,
) -> Option<ThreadSample> {
    let status = tasks.status(tid)?;
    let times = tasks.times(tid);
    let cpu = tasks.cpu(tid)?;
    Some(ThreadSample {
        lcore,
        tid,
        read_ns: monotonic_ns(),
        run_ns: times.map(|times| times.run_ns),
        run_delay_ns: times.map(|times| times.run_delay_ns),
        cpu_stolen_ms: stolen_ms.get(&cpu).copied(),
        cpus: status.cpus,
        cpu,
        voluntary_switches: status.voluntary_switches,
        involuntary_switches: status.involuntary_switches,
        asleep: status.asleep,
        ..ThreadSample::default()
    })
}

/// Identifies threads by the table of libpmdscope, by their names, and the main thread by its id.
fn lcores(
    tasks: &ProcessTasks,
    pid: u32,
    arguments: Option<&EalArguments>,
    table: &[LcoreSample],
) -> Lcores {
    let list = tasks.list();
    let mut threads: BTreeMap<u32, u32> = BTreeMap::new();
    let told = |own_tid: u64| table.iter().find(|lcore| lcore.tid == own_tid).map(|l| l.lcore);
    for (tid, name) in &list {
        let told =
            if table.is_empty() { None } else { tasks.status(*tid).and_then(|s| told(s.own_tid)) };
        if let Some(lcore) = told.or_else(|| lcore_of(name)) {
            threads.insert(lcore, *tid);
        }
    }
    if !threads.values().any(|tid| *tid == pid) {
        let main = arguments.and_then(|arguments| main_lcore(tasks, pid, arguments));
        if let Some(main) = main.filter(|main| !threads.contains_key(main)) {
            threads.insert(main, pid);
        }
    }
    let cpus = |tid: &u32| tasks.status(*tid).map(|status| status.cpu_set()).unwrap_or_default();
    let polled: BTreeSet<u32> = threads.values().flat_map(cpus).collect();
    let control = list.iter().find(|(_, name)| is_control(name)).map(|(tid, _)| cpus(tid));
    let control = control.filter(|control| !control.is_empty() && !polled.is_empty());
    Lcores {
        threads: threads.into_iter().collect(),
        control_shares_cpu: control.map(|control| !control.is_disjoint(&polled)),
    }
}

/// Returns the main lcore. If the arguments choose no lcores, an lcore has the number of its only CPU.
fn main_lcore(tasks: &ProcessTasks, pid: u32, arguments: &EalArguments) -> Option<u32> {
    let by_cpu = || {
        let cpus = tasks.status(pid)?.cpu_set();
        cpus.first().copied().filter(|_| cpus.len() == 1 && !arguments.chooses_lcores)
    };
    arguments.main_lcore.or_else(by_cpu)
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
            host.lcores.forget();
        }
        drop(done);
        let _ = worker.join();
        while has(&mut host) {}
        has(&mut host);
        assert!(host.lcores.value().threads.iter().all(|(lcore, _)| *lcore != 31));
    }
}
