//! Tracefs, which has the tracepoints: where it is mounted, or mounted for one thread only.
//!
//! Where nobody has mounted it, it is mounted in a mount namespace of its own: the machine stays as it
//! is, and the mount ends with the thread or process that uses it.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, open};

/// Usual mount points, in order of preference.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// For each of them, a directory that bpftrace does not use, the list of all tracepoints, and a file in that directory.
const LISTS: [(&str, &str, &str); 2] = [
    (
        "/sys/kernel/tracing/per_cpu",
        "/sys/kernel/tracing/available_events",
        "/sys/kernel/tracing/per_cpu/available_events",
    ),
    (
        "/sys/kernel/debug/tracing/per_cpu",
        "/sys/kernel/debug/tracing/available_events",
        "/sys/kernel/debug/tracing/per_cpu/available_events",
    ),
];

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
    separate_mounts()?;
    mount(Some("tracefs"), MOUNTS[0], Some("tracefs"), MsFlags::empty(), None::<&str>)?;
    Ok(())
}

/// Lets the calling thread, and processes that it starts, mount what nobody else sees. Only system calls.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`.
pub(crate) fn separate_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Later mounts of the machine are seen, and these are not.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

/// Puts a list with only these tracepoints, one a line, in the place of that of all, for a thread with separate mounts:
/// bpftrace reads the list again for each probe and step, which takes half of its start. Only system calls. Without
/// such a list, it only takes longer.
pub(crate) fn list_only(tracepoints: &[u8]) {
    for (place, list, copy) in LISTS {
        let _ = replace_list(tracepoints, place, list, copy);
    }
}

fn replace_list(tracepoints: &[u8], place: &str, list: &str, copy: &str) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, None::<&str>)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(copy, flags, Mode::RUSR)?;
    let mut rest = tracepoints;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(mount(Some(copy), list, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
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
    fn a_list_of_some_tracepoints_is_seen_by_its_thread_only() {
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let read = || std::fs::read_to_string(LISTS[0].1).unwrap();
        let seen = with_private(|_| {
            let all = read();
            list_only(b"irq:irq_handler_entry\nsched:sched_switch\n");
            (all, read())
        });
        match seen {
            Ok((all, some)) => {
                assert_eq!(some, "irq:irq_handler_entry\nsched:sched_switch\n");
                assert!(all.len() > 10 * some.len(), "{all}");
            }
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
