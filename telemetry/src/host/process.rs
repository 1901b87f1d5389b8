//! Processes and their threads, as the kernel shows them in `/proc`.
//!
//! No function returns an error: what cannot be read (another PID namespace, `hidepid`, an app that
//! just ended) is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{Dir, Mode, OFlags, open, openat};
use rustix::io::read;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use super::cpu_list::cpu_list;

/// The mount point of proc.
pub(crate) const PROC: &str = "/proc";

/// Size limit of the files of threads; `status` and `stat` have less than half of it.
const FILE_BYTES: usize = 8192;

/// Returns the start time of a process, clock ticks since boot; `None` if `/proc` does not report it.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("{PROC}/{pid}/stat")).ok()?;
    // Field 22 is the 20th after the name.
    stat_field(&stat, 19)
}

/// Returns the CPU time of a process, in user and kernel mode.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("{PROC}/{pid}/stat")).ok()?;
    // utime and stime: fields 14 and 15.
    let ticks = stat_field::<u64>(&stat, 11)?.checked_add(stat_field(&stat, 12)?)?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Returns how long a process has run.
pub(crate) fn age(pid: u32) -> Option<Duration> {
    since_start(start_ticks(pid)?)
}

/// Returns the time since this number of clock ticks after boot, suspended time included.
pub fn since_start(ticks: u64) -> Option<Duration> {
    let started = ticks as f64 / clock_ticks_per_second() as f64;
    let started = Duration::try_from_secs_f64(started).ok()?;
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    Some(now.saturating_sub(started))
}

/// Returns the arguments of a process; the first is its program.
pub(crate) fn arguments(pid: u32) -> Option<Vec<String>> {
    let line = std::fs::read(format!("{PROC}/{pid}/cmdline")).ok()?;
    let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
    Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Returns what a process does, to follow its id: "is stopped by a signal ...".
pub(crate) fn activity(pid: u32) -> Option<&'static str> {
    let stat = std::fs::read_to_string(format!("{PROC}/{pid}/stat")).ok()?;
    Some(match stat_field::<char>(&stat, 0)? {
        'T' => "is stopped by a signal (kill -CONT continues it)",
        't' => "is stopped by a debugger",
        'D' => "waits in the kernel (state D)",
        'Z' | 'X' => "has ended and was not waited for by its parent",
        'R' => "runs (state R)",
        _ => "sleeps (state S)",
    })
}

/// Returns the executable of a process.
pub(crate) fn exe(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("{PROC}/{pid}/exe")).ok()
}

/// Returns the wall clock, nanoseconds since the epoch, at this number of clock ticks after boot.
pub(crate) fn realtime_ns(ticks: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("{PROC}/stat")).ok()?;
    let boot_s: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    let per_second = u128::from(clock_ticks_per_second()).max(1);
    let since_boot = u64::try_from(u128::from(ticks) * 1_000_000_000 / per_second).ok()?;
    boot_s.checked_mul(1_000_000_000)?.checked_add(since_boot)
}

/// Parses a field of `stat` after the name, which may contain spaces and parentheses; the first is 0.
fn stat_field<T: FromStr>(stat: &str, field: usize) -> Option<T> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(field)?.parse().ok()
}

/// The threads of one process. The directory is kept open, so that a later process with the same id
/// is never taken for this one.
#[derive(Debug)]
pub(crate) struct ProcessTasks(OwnedFd);

/// The status of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadStatus {
    /// Its id in the innermost PID namespace, which the process itself sees.
    pub(crate) own_tid: u64,
    /// CPUs it may run on, as the kernel writes them.
    pub(crate) cpus: String,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// State, as one letter: `R` runs or waits for a CPU, `S` sleeps, `D` waits in the kernel, ...
    pub(crate) state: char,
}

/// Times of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadTimes {
    /// Time on a CPU, nanoseconds.
    pub(crate) run_ns: u64,
    /// Time ready to run but without a CPU, nanoseconds.
    pub(crate) run_delay_ns: u64,
}

impl ProcessTasks {
    /// Opens the threads of a process, by its id on this host.
    pub(crate) fn of(proc: &Path, pid: u32) -> Option<Self> {
        let path = proc.join(pid.to_string()).join("task");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty()).ok().map(Self)
    }

    /// Returns ids and names of the threads.
    pub(crate) fn list(&self) -> Vec<(u32, String)> {
        let Ok(entries) = Dir::read_from(&self.0) else { return Vec::new() };
        let tid = |name: &[u8]| str::from_utf8(name).ok()?.parse::<u32>().ok();
        let mut tasks: Vec<_> = entries
            .filter_map(|entry| tid(entry.ok()?.file_name().to_bytes()))
            .filter_map(|tid| Some((tid, self.name(tid)?)))
            .collect();
        tasks.sort_unstable();
        tasks
    }

    /// Reads the status of a thread.
    pub(crate) fn status(&self, tid: u32) -> Option<ThreadStatus> {
        status(&self.file(tid, "status")?)
    }

    /// Reads the name of a thread.
    pub(crate) fn name(&self, tid: u32) -> Option<String> {
        Some(self.file(tid, "comm")?.trim_end().to_owned())
    }

    /// Reads the CPU that a thread ran on last, and its age.
    pub(crate) fn cpu_and_age(&self, tid: u32) -> Option<(u32, Duration)> {
        let stat = self.file(tid, "stat")?;
        // Field 39 is the 37th after the name, field 22 the 20th.
        Some((stat_field(&stat, 36)?, since_start(stat_field(&stat, 19)?)?))
    }

    /// Reads the function of the kernel in which a thread sleeps; `None` if the kernel does not tell.
    pub(crate) fn wait_channel(&self, tid: u32) -> Option<String> {
        let name = self.file(tid, "wchan")?;
        let name = name.trim();
        (!name.is_empty() && name != "0").then(|| name.to_owned())
    }

    /// Reads how long ago a thread that sleeps had a CPU, by the clock of the scheduler; `None` if the
    /// kernel does not tell. CPUs differ by the time that interrupts and hypervisors took from them.
    pub(crate) fn since_run(&self, tid: u32) -> Option<Duration> {
        let now = std::fs::read_to_string(format!("{PROC}/thread-self/sched")).ok()?;
        let ms = last_run_ms(&now)? - last_run_ms(&self.file(tid, "sched")?)?;
        Duration::try_from_secs_f64(ms.max(0.0) / 1e3).ok()
    }

    /// Reads the times of a thread; `None` if the kernel does not count them.
    pub(crate) fn times(&self, tid: u32) -> Option<ThreadTimes> {
        times(&self.file(tid, "schedstat")?)
    }

    /// Whether a thread runs, or waits for a CPU.
    pub(crate) fn is_ready(&self, tid: u32) -> bool {
        let state = self.file(tid, "stat").and_then(|stat| stat_field::<char>(&stat, 0));
        state == Some('R')
    }

    fn file(&self, tid: u32, name: &str) -> Option<String> {
        let path = format!("{tid}/{name}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.0, OsStr::new(&path), flags, Mode::empty()).ok()?;
        let mut buffer = [0; FILE_BYTES];
        let bytes = read(&file, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(buffer.get(..bytes)?).into_owned())
    }
}

fn status(text: &str) -> Option<ThreadStatus> {
    let mut fields = BTreeMap::new();
    fields.extend(text.lines().filter_map(|line| line.split_once(":\t")));
    let number = |field: &str| fields.get(field)?.parse().ok();
    Some(ThreadStatus {
        own_tid: match fields.get("NSpid") {
            Some(ids) => ids.rsplit('\t').next()?.parse().ok()?,
            None => 0,
        },
        cpus: (*fields.get("Cpus_allowed_list")?).to_owned(),
        voluntary_switches: number("voluntary_ctxt_switches")?,
        involuntary_switches: number("nonvoluntary_ctxt_switches")?,
        state: fields.get("State")?.chars().next()?,
    })
}

/// Parses the time at which a thread had a CPU last, milliseconds, of `sched`.
fn last_run_ms(sched: &str) -> Option<f64> {
    let line = sched.lines().find(|line| line.starts_with("se.exec_start"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Parses `schedstat`. Zeros mean that the kernel does not count: a running thread has run for some time.
fn times(schedstat: &str) -> Option<ThreadTimes> {
    let mut fields = schedstat.split_ascii_whitespace().map(|field| field.parse().ok());
    let (run_ns, run_delay_ns) = (fields.next()??, fields.next()??);
    (run_ns > 0).then_some(ThreadTimes { run_ns, run_delay_ns })
}

/// Returns the time that a hypervisor took from each CPU since boot, milliseconds.
pub(crate) fn stolen_ms() -> BTreeMap<u32, u64> {
    let stat = std::fs::read_to_string(format!("{PROC}/stat")).unwrap_or_default();
    let per_second = clock_ticks_per_second().max(1);
    stat.lines()
        .filter_map(stolen_ticks)
        .map(|(cpu, ticks)| (cpu, ticks.saturating_mul(1000) / per_second))
        .collect()
}

/// Parses a line such as `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`.
fn stolen_ticks(line: &str) -> Option<(u32, u64)> {
    let mut fields = line.strip_prefix("cpu")?.split(' ');
    let cpu = fields.next()?.parse().ok()?;
    Some((cpu, fields.nth(7)?.parse().ok()?))
}

impl ThreadStatus {
    /// Returns the CPUs it may run on.
    pub(crate) fn cpu_set(&self) -> BTreeSet<u32> {
        cpu_list(&self.cpus)
    }

    /// Returns its CPU, if it may run on one only.
    pub(crate) fn only_cpu(&self) -> Option<u32> {
        self.cpus.parse().ok()
    }

    /// Whether it neither runs nor waits for a CPU.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state != 'R'
    }
}

/// Returns the lcore that a thread of this name serves. DPDK has named its threads `lcore-worker-3`
/// (before 22.11), `rte-worker-3` (22.11, 23.03, 23.07) and `dpdk-worker3` (since); SPDK renames them
/// to `reactor_3`; those of Open vSwitch are `pmd-c03/id:8`.
pub(crate) fn lcore_of(name: &str) -> Option<u32> {
    let prefixes = ["rte-worker-", "dpdk-worker", "lcore-worker-", "reactor_"];
    if let Some(rest) = name.strip_prefix("pmd-c") {
        return rest.split_once("/id:")?.0.parse().ok();
    }
    let number = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    number.trim_start_matches(['-', '/']).parse().ok()
}

/// Whether the EAL gave a thread its name.
pub(crate) fn is_eal_worker(name: &str) -> bool {
    lcore_of(name).is_some() && !name.starts_with("pmd-c") && !name.starts_with("reactor_")
}

/// Whether a thread of this name answers telemetry requests, or shares its CPUs with those that do.
pub(crate) fn is_control(name: &str) -> bool {
    let control =
        ["telemetry-v", "dpdk-telem", "rte_mp_handle", "dpdk-mp-msg", "eal-intr-thre", "dpdk-intr"];
    control.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATUS: &str = "Name:\trte-worker-1\nState:\tR (running)\nNSpid:\t17489\t12\nCpus_allowed:\t2\n\
        Cpus_allowed_list:\t1,4-5\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t41\n";

    #[test]
    fn fields_of_stat_are_found_whatever_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 4711 1000 99";
        assert_eq!(stat_field(stat, 19), Some(4711_u64));
        assert_eq!(stat_field::<u64>(stat, 99), None);
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
    }

    #[test]
    fn a_process_started_before_now_and_after_boot() {
        let start = start_ticks(std::process::id()).and_then(realtime_ns).unwrap();
        let now = crate::clock::realtime_ns();
        let boot = realtime_ns(0).unwrap();
        // The kernel reports the time of boot in seconds.
        assert!(boot < start && start < now + 1_000_000_000, "{boot} {start} {now}");
        assert!(now - start < 3_600_000_000_000, "{start} {now}");
        assert_eq!(realtime_ns(u64::MAX), None);
    }

    #[test]
    fn a_status_is_read_by_field() {
        let read = status(STATUS).unwrap();
        assert_eq!((read.own_tid, read.cpus.as_str()), (12, "1,4-5"));
        assert_eq!((read.voluntary_switches, read.involuntary_switches), (7, 41));
        assert_eq!(read.cpu_set(), [1, 4, 5].into());
        assert!(!read.is_asleep());
        assert_eq!((read.only_cpu(), read.state), (None, 'R'));
        for state in ["S (sleeping)", "D (disk sleep)", "T (stopped)"] {
            assert!(status(&STATUS.replace("R (running)", state)).unwrap().is_asleep(), "{state}");
        }
        assert_eq!(status("Cpus_allowed_list:\t1\n"), None);
        assert_eq!(status(&STATUS.replace("41", "-1")), None);
    }

    #[test]
    fn the_last_run_is_a_time_of_the_scheduler() {
        let sched = "app (7111, #threads: 1)\n----\nse.exec_start        :      15787800.879909\n";
        assert_eq!(last_run_ms(sched), Some(15_787_800.879_909));
        assert_eq!(last_run_ms("se.vruntime : 1.0\n"), None);
    }

    #[test]
    fn times_of_threads_and_cpus_are_read_by_field() {
        assert_eq!(
            times("386074 487274 3\n"),
            Some(ThreadTimes { run_ns: 386_074, run_delay_ns: 487_274 })
        );
        assert_eq!((times("0 0 0\n"), times("386074"), times("")), (None, None, None));
        assert_eq!(stolen_ticks("cpu1 42396 0 10656 65155 1189 0 204 72 0 0"), Some((1, 72)));
        for other in ["cpu  83284 0 20313 133953 1545 0 222 140 0 0", "cpu1 1 2", "intr 7", ""] {
            assert_eq!(stolen_ticks(other), None, "{other}");
        }
        let tasks = ProcessTasks::of(Path::new(PROC), std::process::id()).unwrap();
        let (here, age) = tasks.cpu_and_age(std::process::id()).unwrap();
        assert!(stolen_ms().contains_key(&here));
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn threads_of_lcores_and_control_threads_are_known_by_name() {
        for name in [
            "rte-worker-17",
            "dpdk-worker17",
            "lcore-worker-17",
            "dpdk-worker-17",
            "dpdk-worker/17",
        ] {
            assert_eq!(lcore_of(name), Some(17), "{name}");
        }
        for (name, lcore) in [("pmd-c01/id:8", 1), ("pmd-c103/id:12", 103), ("reactor_7", 7)] {
            assert_eq!(lcore_of(name), Some(lcore), "{name}");
            assert!(!is_eal_worker(name), "{name}");
        }
        let others = ["worker-1", "rte-worker-", "rte-worker-x", "dpdk-testpmd", "lcore-worker-1x"];
        for name in others.into_iter().chain(["pmd-c/id:1", "pmd-c01", "reactor_", "pmd-cx/id:1"]) {
            assert_eq!(lcore_of(name), None, "{name}");
        }
        assert!(is_eal_worker("dpdk-worker3"));
        assert!(is_control("telemetry-v2") && is_control("dpdk-telem-v2"));
        assert!(!is_control("rte-worker-1") && !is_control("dpdk-worker1"));
    }

    #[test]
    fn threads_of_this_process_are_read() {
        let named = std::thread::Builder::new().name("rte-worker-9".into());
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = named.spawn(move || wait.recv()).unwrap();
        let tasks = ProcessTasks::of(Path::new(PROC), std::process::id()).unwrap();
        let worker = || tasks.list().into_iter().find(|(_, name)| lcore_of(name) == Some(9));
        while worker().is_none() {
            std::thread::yield_now();
        }
        let (tid, _) = worker().unwrap();
        let status = tasks.status(tid).unwrap();
        let (cpu, _) = tasks.cpu_and_age(tid).unwrap();
        assert!(status.own_tid > 0 && status.cpu_set().contains(&cpu));
        drop(done);
        let _ = thread.join();
        while tasks.status(tid).is_some() {
            std::thread::yield_now();
        }
        assert!(ProcessTasks::of(Path::new(PROC), u32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text: String, field in 0_usize..60) {
            let _ = stat_field::<u64>(&text, field);
            let _ = status(&text);
            let _ = status(&format!("{STATUS}NSpid:\t{text}"));
            let _ = lcore_of(&text);
            let _ = last_run_ms(&text);
        }
    }
}
