//! Profiles the threads of one app.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use pmdscope_telemetry::host::maps::{self, Mapping};

use crate::app_files::{AppFiles, FileRights};
use crate::error::ProfileError;
use crate::module::Module;
use crate::ports::{PortFunction, port_functions};
use crate::profile::{AppProfile, Resolution};
use crate::sampler::ThreadSampler;
use crate::separate_files::SeparateFiles;
use crate::stay::Point;
use crate::unwind::StackUnwinder;

/// Longest interval between calls of [`AppProfiler::read`] without lost samples, with some margin.
pub const READ_INTERVAL: Duration = Duration::from_millis(25);

/// An app to profile.
#[derive(Clone, Debug, Default)]
pub struct ProfiledApp {
    /// Process id on this host.
    pub pid: u32,
    /// Lcores, and the ids of their threads on this host.
    pub threads: Vec<(u32, u32)>,
    /// Port ids of the app.
    pub ports: Vec<u16>,
}

/// Profiles the threads of one app until it is dropped.
pub struct AppProfiler {
    pub(crate) app: ProfiledApp,
    pub(crate) hz: u32,
    pub(crate) modules: Vec<Module>,
    /// Files with code that could not be read.
    pub(crate) unread_files: usize,
    pub(crate) ports: Result<Vec<PortFunction>, String>,
    pub(crate) threads: Vec<ThreadRecord>,
    pub(crate) stacks: StackTable,
    code: Vec<Mapping>,
    unwinder: StackUnwinder,
}

/// The samples of one thread.
pub(crate) struct ThreadRecord {
    pub(crate) lcore: u32,
    pub(crate) tid: u32,
    pub(crate) sampler: ThreadSampler,
    pub(crate) points: Vec<Point>,
    /// Its times at the start, and those that were last read.
    pub(crate) begin: Option<ThreadTimes>,
    pub(crate) last: Option<ThreadTimes>,
    pub(crate) started: Instant,
    /// Time when it was last seen.
    pub(crate) seen: Instant,
    pub(crate) ended: bool,
}

/// Times of a thread, as the scheduler counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTimes {
    pub(crate) at: Instant,
    pub(crate) run_ns: u64,
    pub(crate) run_delay_ns: u64,
}

/// A table of distinct stacks.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    known: HashMap<Stack, usize>,
}

/// A stack, as addresses, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    pub(crate) in_kernel: bool,
    pub(crate) frames: Vec<u64>,
}

impl AppProfiler {
    /// Starts sampling all threads of an app, each `hz` times per second of its CPU time.
    ///
    /// # Errors
    ///
    /// When threads may not be sampled, or all have ended.
    pub fn start(app: ProfiledApp, hz: u32) -> Result<Self, ProfileError> {
        let pid = app.pid;
        let maps = maps::read(pid).map_err(|source| ProfileError::Maps { pid, source })?;
        let (modules, unread_files) = modules(pid, &maps);
        let ports = port_functions(pid, &modules, &app.ports);
        let unwinder = StackUnwinder::new(&modules);
        let mut threads = Vec::new();
        let mut ended = None;
        for (lcore, tid) in &app.threads {
            match ThreadSampler::start(*tid, hz) {
                Ok(sampler) => threads.push(ThreadRecord::new(pid, *lcore, *tid, sampler)),
                Err(error @ ProfileError::Ended { .. }) => ended = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (threads.is_empty(), ended) {
            return Err(error);
        }
        let code = maps.into_iter().filter(|mapping| mapping.executable).collect();
        let stacks = StackTable::default();
        Ok(Self { app, hz, modules, unread_files, ports, threads, stacks, code, unwinder })
    }

    /// Reads the pending samples.
    pub fn read(&mut self) {
        let is_code = |address| self.code.iter().any(|mapping| mapping.contains(address));
        for thread in &mut self.threads {
            while let Some(sample) = thread.sampler.next() {
                let frames = self.unwinder.frames(&sample, is_code);
                let stack = Stack { in_kernel: sample.in_kernel, frames };
                let point = Point { time_ns: sample.time_ns, stack: self.stacks.index(stack) };
                thread.points.push(point);
            }
            thread.read_times(self.app.pid);
        }
    }

    /// Returns whether all threads have ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.ended)
    }

    /// Ends sampling, and returns the profile.
    pub fn finish(mut self) -> AppProfile {
        self.read();
        Resolution::of(&self).profile(&self)
    }
}

impl ThreadRecord {
    fn new(pid: u32, lcore: u32, tid: u32, sampler: ThreadSampler) -> Self {
        let (now, begin) = (Instant::now(), times(pid, tid).unwrap_or_default());
        Self {
            lcore,
            tid,
            sampler,
            points: Vec::new(),
            begin,
            last: None,
            started: now,
            seen: now,
            ended: false,
        }
    }

    fn read_times(&mut self, pid: u32) {
        if self.ended {
            return;
        }
        match times(pid, self.tid) {
            Ok(times) => (self.last, self.seen) = (times.or(self.last), Instant::now()),
            Err(_) => self.ended = true,
        }
    }

    /// Returns for how long it was sampled.
    pub(crate) fn duration(&self) -> Duration {
        self.seen.saturating_duration_since(self.started)
    }

    /// Returns the shares of that time that it ran, and that it waited for a CPU; `None` if the
    /// kernel does not count them.
    pub(crate) fn shares(&self) -> Option<(f64, f64)> {
        let (begin, last) = (self.begin?, self.last?);
        let wall_ns = last.at.saturating_duration_since(begin.at).as_nanos() as f64;
        let share = |ns: u64| (ns as f64 / wall_ns).min(1.0);
        let run = last.run_ns.saturating_sub(begin.run_ns);
        let delay = last.run_delay_ns.saturating_sub(begin.run_delay_ns);
        (wall_ns > 0.0).then(|| (share(run), share(delay)))
    }
}

impl StackTable {
    fn index(&mut self, stack: Stack) -> usize {
        let next = self.known.len();
        *self.known.entry(stack).or_insert(next)
    }

    /// Returns all stacks, by index.
    pub(crate) fn list(&self) -> Vec<&Stack> {
        let mut list: Vec<(&Stack, usize)> =
            self.known.iter().map(|(stack, at)| (stack, *at)).collect();
        list.sort_unstable_by_key(|(_, at)| *at);
        list.into_iter().map(|(stack, _)| stack).collect()
    }
}

/// Returns the times of a thread; `None` if the kernel does not count them.
fn times(pid: u32, tid: u32) -> io::Result<Option<ThreadTimes>> {
    let path = format!("/proc/{pid}/task/{tid}");
    fs::metadata(&path)?;
    let text = fs::read_to_string(format!("{path}/schedstat")).unwrap_or_default();
    let mut fields = text.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok());
    let times = fields.next().zip(fields.next()).filter(|(run_ns, _)| *run_ns > 0);
    let at = Instant::now();
    Ok(times.map(|(run_ns, run_delay_ns)| ThreadTimes { at, run_ns, run_delay_ns }))
}

/// Opens the files with code; returns also the number of files that could not be read.
fn modules(pid: u32, maps: &[Mapping]) -> (Vec<Module>, usize) {
    let executable = fs::metadata(format!("/proc/{pid}/exe")).map_or(0, |exe| exe.ino());
    let mut files: BTreeMap<(&str, u64), Vec<&Mapping>> = BTreeMap::new();
    for mapping in maps.iter().filter(|mapping| mapping.inode != 0) {
        files.entry((&mapping.path, mapping.inode)).or_default().push(mapping);
    }
    files.retain(|_, mappings| mappings.iter().any(|mapping| mapping.executable));
    let open = || {
        let (of_app, separate) = (AppFiles::new(Some(pid)), SeparateFiles::of_process(Some(pid)));
        let module = |maps: &Vec<&Mapping>| Module::open(&of_app, &separate, maps, executable);
        files.values().filter_map(module).collect::<Vec<_>>()
    };
    let rights = FileRights::of_process(pid).ok();
    let modules = rights.and_then(|rights| rights.run(open)).unwrap_or_default();
    let unread = files.len() - modules.len();
    (modules, unread)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[inline(never)]
    fn busy_function(stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            std::hint::black_box(0);
        }
    }

    fn own_thread() -> u32 {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
    }

    /// Starts a profiler; `None`, with a report, if that is not permitted.
    fn start(app: ProfiledApp) -> Option<AppProfiler> {
        match AppProfiler::start(app, 997) {
            Err(error @ (ProfileError::NotAllowed { .. } | ProfileError::NotOffered)) => {
                println!("SKIP: {error}");
                None
            }
            other => Some(other.unwrap()),
        }
    }

    #[test]
    fn a_busy_function_of_this_process_is_named() {
        let stop = AtomicBool::new(false);
        let (send, receive) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                send.send(own_thread()).unwrap();
                busy_function(&stop);
            });
            let threads = vec![(3, receive.recv().unwrap())];
            let app = ProfiledApp { pid: std::process::id(), threads, ports: Vec::new() };
            let profiler = start(app);
            let profile = profiler.map(|mut profiler| {
                let deadline = Instant::now() + Duration::from_secs(30);
                while profiler.threads[0].points.len() < 50 && Instant::now() < deadline {
                    thread::sleep(READ_INTERVAL);
                    profiler.read();
                }
                profiler.finish()
            });
            stop.store(true, Ordering::Relaxed);
            let Some(profile) = profile else { return };
            let lcore = &profile.lcores[0];
            assert!(lcore.samples >= 50 && lcore.lcore == 3, "{profile:#?}");
            let busy = |stack: &&crate::StackSamples| {
                stack.frames.iter().any(|frame| frame.contains("busy_function"))
            };
            let samples: u64 = lcore.stacks.iter().filter(busy).map(|stack| stack.samples).sum();
            assert!(samples * 2 > lcore.samples, "{profile:#?}");
            assert!(lcore.functions[0].samples > 0, "{profile:#?}");
            let whole = lcore.stacks.iter().any(|stack| stack.frames.len() > 3);
            assert!(whole, "{:?}", lcore.stacks);
        });
    }

    #[test]
    fn threads_that_have_ended_are_told() {
        let tid = thread::spawn(own_thread).join().unwrap();
        let app = ProfiledApp { pid: std::process::id(), threads: vec![(0, tid)], ports: vec![] };
        let error = AppProfiler::start(app, 97).err().unwrap();
        let ended = matches!(error, ProfileError::Ended { .. });
        let refused = matches!(error, ProfileError::NotAllowed { .. } | ProfileError::NotOffered);
        assert!(ended || refused, "{error}");
    }

    #[test]
    fn a_process_that_has_ended_is_told() {
        let app = ProfiledApp { pid: u32::MAX, threads: vec![(0, u32::MAX)], ports: vec![] };
        assert!(matches!(AppProfiler::start(app, 97), Err(ProfileError::Maps { .. })));
    }
}
