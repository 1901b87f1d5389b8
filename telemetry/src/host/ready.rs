//! Threads that are ready to run but get no CPU.

use std::path::Path;

use super::process::{PROC, ProcessTasks};

/// The threads of a process that were ready to run at one time, with the CPU time that they had used by then.
#[derive(Debug)]
pub struct ReadyThreads {
    tasks: ProcessTasks,
    threads: Vec<ReadyThread>,
}

#[derive(Debug)]
struct ReadyThread {
    tid: u32,
    name: String,
    run_ns: u64,
}

impl ReadyThreads {
    /// Returns the threads that are ready now; `None` if `/proc` does not show the process.
    pub fn of(pid: u32) -> Option<Self> {
        Self::within(Path::new(PROC), pid)
    }

    fn within(proc: &Path, pid: u32) -> Option<Self> {
        let tasks = ProcessTasks::of(proc, pid)?;
        let ready = tasks.list().into_iter().filter(|(tid, _)| tasks.is_ready(*tid));
        let threads = ready
            .filter_map(|(tid, name)| {
                let run_ns = tasks.times(tid)?.run_ns;
                Some(ReadyThread { tid, name, run_ns })
            })
            .collect();
        Some(Self { tasks, threads })
    }

    /// Returns the names of the threads that have not run since then, though they are still ready.
    pub fn not_run(&self) -> Vec<&str> {
        let has_not_run = |thread: &&ReadyThread| {
            let times = self.tasks.times(thread.tid);
            times.is_some_and(|times| times.run_ns == thread.run_ns)
                && self.tasks.is_ready(thread.tid)
        };
        self.threads.iter().filter(has_not_run).map(|thread| thread.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Writes the files of one thread.
    fn show(task: &Path, state: char, run_ns: u64) {
        fs::create_dir_all(task).unwrap();
        fs::write(task.join("comm"), "rte-worker-1\n").unwrap();
        fs::write(task.join("stat"), format!("8 (rte-worker-1) {state} 1 7 7 0 -1")).unwrap();
        fs::write(task.join("schedstat"), format!("{run_ns} 99 3\n")).unwrap();
    }

    #[test]
    fn a_thread_has_run_when_its_time_has_grown_or_it_waits_for_something_else() {
        let proc = tempfile::tempdir().unwrap();
        let task = proc.path().join("7/task/8");
        show(&task, 'R', 1000);
        let ready = ReadyThreads::within(proc.path(), 7).unwrap();
        assert_eq!(ready.not_run(), ["rte-worker-1"]);
        show(&task, 'R', 1001);
        assert_eq!(ready.not_run(), [""; 0]);
        show(&task, 'S', 1000);
        assert_eq!(ready.not_run(), [""; 0]);
        fs::remove_dir_all(&task).unwrap();
        assert_eq!(ready.not_run(), [""; 0], "it has ended");
    }

    #[test]
    fn a_thread_that_spins_runs() {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let ready = ReadyThreads::of(std::process::id()).unwrap();
            while !ready.not_run().is_empty() {
                thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(ReadyThreads::of(u32::MAX).is_none());
    }
}
