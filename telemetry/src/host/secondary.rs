//! Secondary processes of an app, found by their sockets in its runtime directory.

use std::path::{Path, PathBuf};

use rustix::net::SocketType;

use super::foreign::is_served;
use super::process::{PROC, ProcessTasks};

/// Prefix of their sockets; a process id and a time follow.
const SOCKET: &str = "mp_socket_";

/// Returns the process ids of running secondary processes, in their own PID namespace: the kernel
/// refuses to connect to the socket of one that has ended. Nothing is sent, so that they do not
/// notice.
pub fn secondaries(dir: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let running = |path: PathBuf| {
        pid_of(&path).filter(|_| is_served(&path, SocketType::DGRAM).unwrap_or(true))
    };
    let mut pids: Vec<_> = entries.flatten().filter_map(|entry| running(entry.path())).collect();
    pids.sort_unstable();
    pids
}

/// Returns the id in this namespace of a process with another one in the PID namespace of an app.
/// `None` if it is not visible.
pub fn process_here(own: u32, app: u32) -> Option<u32> {
    let namespace = |pid: &str| std::fs::read_link(format!("{PROC}/{pid}/ns/pid")).ok();
    let theirs = namespace(&app.to_string())?;
    if namespace("self").as_ref() == Some(&theirs) {
        return Some(own);
    }
    let is_meant = |pid: &u32| {
        let id = || ProcessTasks::of(Path::new(PROC), *pid)?.status(*pid).map(|it| it.own_tid);
        namespace(&pid.to_string()).as_ref() == Some(&theirs) && id() == Some(own.into())
    };
    let entries = std::fs::read_dir(PROC).into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_meant)
}

fn pid_of(path: &Path) -> Option<u32> {
    let (pid, _) = path.file_name()?.to_str()?.strip_prefix(SOCKET)?.split_once('_')?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn ids_are_the_same_in_one_namespace() {
        let me = std::process::id();
        assert_eq!(process_here(4711, me), Some(4711));
        assert_eq!(process_here(4711, u32::MAX), None);
    }

    #[test]
    fn only_secondaries_with_a_listening_socket_are_running() {
        let dir = tempfile::tempdir().unwrap();
        let bind = |name: &str| UnixDatagram::bind(dir.path().join(name)).unwrap();
        let _primary = bind("mp_socket");
        let _running = [bind("mp_socket_17_2d3f"), bind("mp_socket_5_1"), bind("mp_socket_x_1")];
        drop(bind("mp_socket_4711_abc"));
        assert_eq!(secondaries(dir.path()), [5, 17]);
        assert_eq!(secondaries(Path::new("/nonexistent")), [0; 0]);
    }
}
