//! Tracefs, which has the tracepoints: where it is mounted, or mounted for one thread only.
//!
//! Where nobody has mounted it, it is mounted in a mount namespace of its own: the machine stays as it
//! is, and the mount ends with the thread or process that uses it.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Usual mount points, in order of preference.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns the directory of tracepoints at the usual mount points, or at `dir`.
pub(crate) fn events(dir: Option<&Path>) -> Option<PathBuf> {
    let usual = MOUNTS.iter().map(Path::new);
    let mounts = dir.map_or_else(|| usual.collect(), |dir| vec![dir]);
    let mut events = mounts.into_iter().map(|dir| dir.join("events"));
    events.find(|events| events.join("sched").is_dir())
}

/// Calls `read` with the directory of tracepoints, in a thread that has tracefs mounted for itself.
///
/// # Errors
/// When it cannot be mounted.
pub(crate) fn with_private<T: Send>(read: impl FnOnce(&Path) -> T + Send) -> io::Result<T> {
    let mounted = || {
        mount_private()?;
        let events = events(None).ok_or(io::ErrorKind::NotFound)?;
        Ok(read(&events))
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("tracefs".to_owned());
        let reader = reader.spawn_scoped(scope, mounted)?;
        reader.join().map_err(|_| io::Error::other("the thread failed"))?
    })
}

/// Mounts tracefs for the calling thread, and processes that it starts, only. It makes only system calls,
/// which are async-signal-safe.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`, or in a kernel without tracefs.
pub(crate) fn mount_private() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Later mounts of the machine are seen, and this one is not.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?;
    mount(Some("tracefs"), MOUNTS[0], Some("tracefs"), MsFlags::empty(), None::<&str>)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_mount_is_seen_by_its_thread_only() {
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let seen = with_private(|events| events.join("sched/sched_switch/id").is_file());
        match seen {
            Ok(seen) => assert!(seen),
            Err(error) => println!("SKIP: tracefs cannot be mounted here: {error}"),
        }
        assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    }

    #[test]
    fn a_directory_that_is_named_is_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(events(Some(dir.path())), None);
        std::fs::create_dir_all(dir.path().join("events/sched")).unwrap();
        assert_eq!(events(Some(dir.path())), Some(dir.path().join("events")));
    }
}
