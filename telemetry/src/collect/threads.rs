//! Finds the threads that poll, whatever their names: those of lcores, in the app and in its secondary
//! processes, and others that keep a CPU busy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::arguments::EalArguments;
use crate::host::process::{self, PROC, ProcessTasks, is_control, lcore_of};
use crate::host::process_here;
use crate::sample::{LcoreRoleSample, LcoreSample};

/// Least share of the time that a thread polls which serves no known lcore: it runs, or waits for a CPU.
const POLLS: f64 = 0.5;

/// Shortest time for which such a thread is judged.
const LEAST: Duration = Duration::from_millis(200);

/// Number of threads of one process that are judged.
const MOST_JUDGED: usize = 1024;

/// Number of secondary processes whose threads are looked at.
const MOST_SECONDARIES: usize = 64;

/// Programs that attach to an app to look at it: their threads do not work for it.
const OBSERVERS: [&str; 4] = ["dpdk-dumpcap", "dpdk-pdump", "dpdk-proc-info", "pmdscope-pdump"];

/// A thread that polls or serves an lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollThread {
    /// lcore id; the thread id for a thread that serves no lcore.
    pub(super) lcore: u32,
    pub(super) tid: u32,
    /// Its process; `None` for the app itself.
    pub(super) secondary: Option<u32>,
}

/// The threads of an app, and what is not known of them.
#[derive(Debug, Default)]
pub(super) struct FoundThreads {
    /// In ascending order of lcores.
    pub(super) threads: Vec<PollThread>,
    /// Whether a control thread shares a CPU with them.
    pub(super) control_shares_cpu: Option<bool>,
    /// Threads that are not among them, and why.
    pub(super) left_out: Vec<String>,
}

/// What the app itself says about its lcores.
pub(super) struct KnownLcores<'a> {
    pub(super) arguments: Option<&'a EalArguments>,
    /// Lcores that poll through libpmdscope.
    pub(super) table: &'a [LcoreSample],
    pub(super) roles: &'a [LcoreRoleSample],
}

/// Finds the threads of one app.
#[derive(Debug)]
pub(super) struct ThreadFinder {
    app: AppProcess,
    secondaries: BTreeMap<u32, AppProcess>,
    /// CPU times of threads of no known lcore at the last look, nanoseconds.
    judged: BTreeMap<u32, (Instant, u64)>,
    /// Threads that were seen to poll.
    polling: BTreeSet<u32>,
    /// Whether the threads were judged by what they did between two looks.
    is_settled: bool,
    looked: Option<Instant>,
}

/// A process of an app.
#[derive(Debug)]
struct AppProcess {
    pid: u32,
    tasks: ProcessTasks,
    /// EAL arguments of a secondary process, which its command line has.
    arguments: EalArguments,
}

impl ThreadFinder {
    /// Returns a finder for the app with this process id; `None` if the process is not visible.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            app: AppProcess::open(pid)?,
            secondaries: BTreeMap::new(),
            judged: BTreeMap::new(),
            polling: BTreeSet::new(),
            is_settled: false,
            looked: None,
        })
    }

    /// Returns the threads of the app, or of one of its secondary processes.
    pub(super) fn tasks(&self, secondary: Option<u32>) -> Option<&ProcessTasks> {
        match secondary {
            None => Some(&self.app.tasks),
            Some(pid) => self.secondaries.get(&pid).map(|process| &process.tasks),
        }
    }

    /// Whether threads have not been judged yet, and now can be.
    pub(super) fn is_due(&self) -> bool {
        !self.is_settled && self.looked.is_some_and(|looked| looked.elapsed() >= LEAST)
    }

    /// Finds the threads; `secondaries` are process ids in the PID namespace of the app.
    pub(super) fn find(&mut self, known: &KnownLcores<'_>, secondaries: &[u32]) -> FoundThreads {
        self.is_settled = self.looked.is_some();
        self.looked = Some(Instant::now());
        let mut found = FoundThreads::default();
        self.open_secondaries(secondaries, &mut found.left_out);
        let mut lcores = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let app = self.app.pid;
        let list = self.app.tasks.list();
        let arguments = known.arguments;
        self.add_process(None, &list, known, &mut lcores);
        add_main(None, app, arguments.and_then(|it| main_lcore(&self.app, it)), &mut lcores);
        seen.extend(list.iter().map(|(tid, _)| *tid));
        let mut others = vec![(None, list)];
        for pid in self.secondaries.keys().copied().collect::<Vec<_>>() {
            let Some(process) = self.secondaries.get(&pid) else { continue };
            let (list, main) = (process.tasks.list(), main_lcore(process, &process.arguments));
            self.add_process(Some(pid), &list, known, &mut lcores);
            add_main(Some(pid), pid, main, &mut lcores);
            seen.extend(list.iter().map(|(tid, _)| *tid));
            others.push((Some(pid), list));
        }
        for (secondary, list) in &others {
            self.add_busy(*secondary, list, known, &mut lcores, &mut found.left_out);
        }
        let chosen = arguments.iter().flat_map(|arguments| &arguments.lcores);
        let unknown: Vec<_> =
            chosen.filter(|id| !lcores.contains_key(id)).map(u32::to_string).collect();
        if !unknown.is_empty() {
            let lcores = unknown.join(", ");
            found.left_out.push(format!("lcores {lcores}: no thread is known to serve them"));
        }
        self.judged.retain(|tid, _| seen.contains(tid));
        self.polling.retain(|tid| seen.contains(tid));
        found.threads = lcores.into_values().collect();
        found.control_shares_cpu = others.first().and_then(|(_, list)| self.shares(list, &found));
        found
    }

    fn open_secondaries(&mut self, own_pids: &[u32], left_out: &mut Vec<String>) {
        let mut pids = BTreeSet::new();
        for own in own_pids.iter().take(MOST_SECONDARIES) {
            let Some(pid) = process_here(*own, self.app.pid) else {
                left_out.push(format!("secondary process {own}: it is in another PID namespace"));
                continue;
            };
            pids.insert(pid);
            if !self.secondaries.contains_key(&pid)
                && let Some(process) = AppProcess::open(pid)
            {
                self.secondaries.insert(pid, process);
            }
        }
        if let Some(more) = own_pids.len().checked_sub(MOST_SECONDARIES).filter(|more| *more > 0) {
            left_out.push(format!("{more} more secondary processes"));
        }
        self.secondaries.retain(|pid, process| pids.contains(pid) && !process.observes());
    }

    /// Adds threads that libpmdscope reports, and those with names of lcores.
    fn add_process(
        &self,
        secondary: Option<u32>,
        list: &[(u32, String)],
        known: &KnownLcores<'_>,
        lcores: &mut BTreeMap<u32, PollThread>,
    ) {
        let table = known.table;
        let told = |tid: u32| {
            let own_tid = self.tasks(secondary)?.status(tid)?.own_tid;
            table.iter().find(|lcore| lcore.tid == own_tid).map(|lcore| lcore.lcore)
        };
        for (tid, name) in list {
            let told = (secondary.is_none() && !table.is_empty()).then(|| told(*tid)).flatten();
            if let Some(lcore) = told.or_else(|| lcore_of(name)) {
                let thread = PollThread { lcore, tid: *tid, secondary };
                if told.is_some() {
                    lcores.insert(lcore, thread);
                } else {
                    lcores.entry(lcore).or_insert(thread);
                }
            }
        }
    }

    /// Adds threads of no known lcore that keep a CPU busy.
    fn add_busy(
        &mut self,
        secondary: Option<u32>,
        list: &[(u32, String)],
        known: &KnownLcores<'_>,
        lcores: &mut BTreeMap<u32, PollThread>,
        left_out: &mut Vec<String>,
    ) {
        let named: BTreeSet<u32> = lcores.values().map(|thread| thread.tid).collect();
        let others = list.iter().filter(|(tid, name)| !named.contains(tid) && !is_control(name));
        let others: Vec<_> = others.collect();
        if let Some(more) = others.len().checked_sub(MOST_JUDGED).filter(|more| *more > 0) {
            left_out.push(format!("{more} more threads: whether they poll is not looked at"));
        }
        for (tid, name) in others.into_iter().take(MOST_JUDGED) {
            if !self.polls(secondary, *tid) {
                continue;
            }
            let status = self.tasks(secondary).and_then(|tasks| tasks.status(*tid));
            let Some(status) = status else { continue };
            let cpus = status.cpu_set();
            let role = known.roles.iter().find(|role| {
                !cpus.is_empty() && role.cpus.iter().copied().collect::<BTreeSet<_>>() == cpus
            });
            let lcore = role.map(|role| role.lcore).or_else(|| {
                let placed = known.arguments.and_then(|arguments| arguments.lcore_on(&cpus));
                placed.or_else(|| status.only_cpu())
            });
            let lcore = lcore.filter(|lcore| !lcores.contains_key(lcore)).unwrap_or(*tid);
            let thread = PollThread { lcore, tid: *tid, secondary };
            if *lcores.entry(lcore).or_insert(thread) != thread {
                left_out.push(format!("thread {tid} ({name}), which keeps a CPU busy"));
            }
        }
    }

    /// Whether a thread polls, or did: it is or was busy for most of the time between two looks, or of
    /// its life.
    fn polls(&mut self, secondary: Option<u32>, tid: u32) -> bool {
        if self.polling.contains(&tid) {
            return true;
        }
        let Some(tasks) = self.tasks(secondary) else { return false };
        let Some((times, (_, age))) = tasks.times(tid).zip(tasks.cpu_and_age(tid)) else {
            return false;
        };
        let busy_ns = times.run_ns.saturating_add(times.run_delay_ns);
        let now = Instant::now();
        let (time, busy_ns_of_it) = match self.judged.get(&tid) {
            Some((then, before)) => {
                (now.saturating_duration_since(*then), busy_ns.saturating_sub(*before))
            }
            None => (age, busy_ns),
        };
        let is_judged = time >= LEAST;
        if is_judged || !self.judged.contains_key(&tid) {
            self.judged.insert(tid, (now, busy_ns));
        }
        let polls = is_judged && busy_ns_of_it as f64 >= POLLS * time.as_nanos() as f64;
        if polls {
            self.polling.insert(tid);
        }
        polls
    }

    /// Whether a control thread of the app may run on a CPU of these threads; `None` if that is unknown.
    fn shares(&self, list: &[(u32, String)], found: &FoundThreads) -> Option<bool> {
        let cpus = |secondary: Option<u32>, tid: u32| {
            let status = self.tasks(secondary).and_then(|tasks| tasks.status(tid));
            status.map(|status| status.cpu_set()).unwrap_or_default()
        };
        let threads = found.threads.iter();
        let polled: BTreeSet<u32> =
            threads.flat_map(|thread| cpus(thread.secondary, thread.tid)).collect();
        let (control, _) = list.iter().find(|(_, name)| is_control(name))?;
        let control = cpus(None, *control);
        let known = !control.is_empty() && !polled.is_empty();
        known.then(|| !control.is_disjoint(&polled))
    }
}

impl AppProcess {
    fn open(pid: u32) -> Option<Self> {
        let tasks = ProcessTasks::of(Path::new(PROC), pid)?;
        let arguments = process::arguments(pid).unwrap_or_default();
        Some(Self { pid, tasks, arguments: EalArguments::parse(&arguments) })
    }

    /// Whether it only looks at the app.
    fn observes(&self) -> bool {
        self.tasks.name(self.pid).is_some_and(|name| OBSERVERS.contains(&name.as_str()))
    }
}

/// Adds the first thread of a process, which serves its main lcore.
fn add_main(
    secondary: Option<u32>,
    pid: u32,
    main: Option<u32>,
    lcores: &mut BTreeMap<u32, PollThread>,
) {
    let Some(lcore) = main.filter(|_| lcores.values().all(|thread| thread.tid != pid)) else {
        return;
    };
    lcores.entry(lcore).or_insert(PollThread { lcore, tid: pid, secondary });
}

/// Returns the main lcore. If the arguments choose no lcores, an lcore has the number of its only CPU.
fn main_lcore(process: &AppProcess, arguments: &EalArguments) -> Option<u32> {
    let by_cpu = || {
        let status = process.tasks.status(process.pid)?;
        status.only_cpu().filter(|_| !arguments.chooses_lcores)
    };
    arguments.main_lcore.or_else(by_cpu)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    const NOTHING: KnownLcores<'_> = KnownLcores { arguments: None, table: &[], roles: &[] };

    fn own_tid() -> u32 {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
    }

    /// Runs `look` with the id of a thread of this process that spins, on one CPU.
    fn while_spinning(look: impl FnOnce(u32, u32)) {
        let stop = AtomicBool::new(false);
        let (send, receive) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let spinning = thread::Builder::new().name("pmd-renamed".into());
            let spin = || {
                let mut cpus = rustix::thread::CpuSet::new();
                let allowed = rustix::thread::sched_getaffinity(None).unwrap();
                let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
                cpus.set(cpu);
                rustix::thread::sched_setaffinity(None, &cpus).unwrap();
                send.send((own_tid(), u32::try_from(cpu).unwrap())).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            spinning.spawn_scoped(scope, spin).unwrap();
            let (tid, cpu) = receive.recv().unwrap();
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(tid, cpu)));
            stop.store(true, Ordering::Relaxed);
            looked.unwrap();
        });
    }

    /// Looks until the thread with this id is found.
    fn find(finder: &mut ThreadFinder, known: &KnownLcores<'_>, tid: u32) -> PollThread {
        loop {
            let found = finder.find(known, &[]);
            if let Some(thread) = found.threads.iter().find(|thread| thread.tid == tid) {
                return *thread;
            }
            thread::sleep(LEAST);
        }
    }

    #[test]
    fn a_busy_thread_polls_whatever_its_name_and_has_the_number_of_its_cpu() {
        while_spinning(|tid, cpu| {
            let mut finder = ThreadFinder::of(std::process::id()).unwrap();
            let thread = find(&mut finder, &NOTHING, tid);
            assert_eq!(thread, PollThread { lcore: cpu, tid, secondary: None });
            let argv = ["app".to_owned(), format!("--lcores=3@4095,7@{cpu},9@4094")];
            let arguments = EalArguments::parse(&argv);
            let known = KnownLcores { arguments: Some(&arguments), ..NOTHING };
            assert_eq!(find(&mut finder, &known, tid).lcore, 7);
            let left_out = finder.find(&known, &[]).left_out;
            assert_eq!(left_out, ["lcores 9: no thread is known to serve them"]);
            let role = |lcore, cpus| LcoreRoleSample { lcore, role: "RTE".into(), cpus };
            let roles = [role(4, vec![cpu, cpu + 1]), role(5, vec![cpu])];
            let known = KnownLcores { roles: &roles, ..NOTHING };
            assert_eq!(find(&mut finder, &known, tid).lcore, 5);
        });
    }

    #[test]
    fn threads_that_sleep_and_serve_no_lcore_are_left_out() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (send, receive) = std::sync::mpsc::channel();
        let sleeper = thread::spawn(move || {
            send.send(own_tid()).unwrap();
            wait.recv()
        });
        let tid = receive.recv().unwrap();
        let mut finder = ThreadFinder::of(std::process::id()).unwrap();
        for _ in 0..2 {
            let found = finder.find(&NOTHING, &[]);
            assert!(found.threads.iter().all(|thread| thread.tid != tid), "{found:?}");
            thread::sleep(LEAST);
            assert_eq!(finder.is_due(), !finder.is_settled);
        }
        drop(done);
        let _ = sleeper.join();
        assert!(ThreadFinder::of(u32::MAX).is_none());
    }

    #[test]
    fn secondary_processes_that_are_not_seen_are_said() {
        let mut finder = ThreadFinder::of(std::process::id()).unwrap();
        let many: Vec<u32> = (0..70).map(|n| 4_000_000 + n).collect();
        let found = finder.find(&NOTHING, &many);
        assert_eq!(found.left_out, ["6 more secondary processes"]);
    }
}
