//! Data on an app in addition to its memory: its process and its threads.

use std::fs;
use std::path::Path;

use crate::memory::Memory;
use crate::thread::AppThread;

/// Data on an app in addition to its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderSources {
    /// Process id; `None` for a core file, whose modules are opened by their paths on this host.
    pub pid: Option<u32>,
    /// Its threads.
    pub threads: Vec<AppThread>,
}

impl HolderSources {
    /// Data on a running process or a core file.
    pub(crate) fn of_memory(memory: &dyn Memory) -> Self {
        let of_core = || Self { pid: None, threads: memory.threads() };
        memory.process().map_or_else(of_core, Self::of_process)
    }

    /// Data on a running process. Threads that cannot be read are left out.
    pub fn of_process(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut threads: Vec<AppThread> =
            tasks.filter_map(|task| thread(&task.path(), pid)).collect();
        threads.sort_by_key(|thread| thread.id);
        Self { pid: Some(pid), threads }
    }
}

fn thread(task: &Path, pid: u32) -> Option<AppThread> {
    let tid: u32 = task.file_name()?.to_str()?.parse().ok()?;
    let name = fs::read(task.join("comm")).ok()?;
    let name = String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned();
    let status = fs::read(task.join("status")).ok()?;
    let id = id_of_app(&String::from_utf8_lossy(&status)).unwrap_or(tid);
    Some(AppThread { id, is_main: tid == pid, name })
}

/// `NSpid:` has the id in each PID namespace, that of the process last.
fn id_of_app(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn threads_of_this_process_have_names() {
        let ((end, wait), (ready, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let named = thread::Builder::new().name("held-by-me".to_owned());
        let worker = named.spawn(move || ready.send(()).map(|()| wait.recv())).unwrap();
        // The thread sets its own name.
        begun.recv().unwrap();
        let main = std::process::id();
        let sources = HolderSources::of_process(main);
        assert_eq!(sources.pid, Some(main));
        assert_eq!(sources.threads.iter().filter(|thread| thread.is_main).count(), 1);
        assert!(sources.threads.iter().any(|thread| thread.name == "held-by-me"), "{sources:?}");
        end.send(()).unwrap();
        worker.join().unwrap().unwrap().unwrap();
        assert_eq!(HolderSources::of_process(u32::MAX).threads, []);
    }

    #[test]
    fn ids_are_those_of_the_container() {
        assert_eq!(id_of_app("Name:\tapp\nNSpid:\t4242\t17\nThreads:\t3\n"), Some(17));
        assert_eq!(id_of_app("NSpid:\t4242\n"), Some(4242));
        assert_eq!(id_of_app("Name:\tNSpid\n"), None);
    }
}
