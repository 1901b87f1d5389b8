//! Prevents the tools of this project from querying one app concurrently.
//!
//! Before 26.07, the telemetry threads of a DPDK app share the state of one `strtok()`: two clients
//! that send requests at the same time may get the reply to each other's parameters, that is, the
//! counters of another port. The reply does not show it. So each tool holds an exclusive `flock()` for
//! the short time of one round. Nothing is created for it: the owner of a runtime directory could
//! replace that by a link, and a tool of root would create a file wherever the link leads.
//!
//! The lock is on `config` in the runtime directory, on which DPDK uses locks of fcntl(2) only, which
//! do not conflict with flock(2). Only an app without that file, which runs in memory, is locked by the
//! directory itself: DPDK locks the directory while an app with a `config` starts, and when it sends
//! messages to other processes, and a tool must not make an app wait.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::host::foreign::open_file;

/// Longest wait for other tools. They hold the lock for one round, which takes milliseconds; a
/// stopped tool holds it until it continues.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Longest wait after a wait that timed out.
const NEXT_WAIT: Duration = Duration::from_millis(20);

/// Name of the file with the configuration that the processes of an app share.
const CONFIG: &str = "config";

/// The lock of one app, not yet taken.
#[derive(Debug)]
pub struct AppLock(OwnedFd);

/// A held lock; released when dropped.
#[derive(Debug)]
pub struct AppLockGuard<'a>(&'a AppLock);

/// The lock of one app, as a tool takes it for each of its rounds.
#[derive(Debug, Default)]
pub(crate) struct RoundLock {
    lock: Option<AppLock>,
    /// Whether the last wait timed out.
    is_held_by_others: bool,
}

impl RoundLock {
    /// Reopens the lock in the next round: an app that restarts may have another runtime directory,
    /// with the lock of the other tools.
    pub(crate) fn reset(&mut self) {
        self.lock = None;
    }

    /// Takes the lock in `dir` for a round that ends at `deadline`; waits for at most half of that
    /// time. Without the guard the round continues nevertheless, and the error has the reason.
    pub(crate) fn hold(
        &mut self,
        dir: &Path,
        deadline: Deadline,
    ) -> (Option<AppLockGuard<'_>>, Option<TelemetryError>) {
        if self.lock.is_none() {
            match AppLock::open(dir) {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => return (None, Some(error)),
            }
        }
        let Some(lock) = &self.lock else { return (None, None) };
        let longest = if self.is_held_by_others { NEXT_WAIT } else { LONGEST_WAIT };
        let held = lock.hold(Deadline::after(longest.min(deadline.remaining() / 2)));
        self.is_held_by_others = matches!(held, Err(TelemetryError::Locked));
        match held {
            Ok(guard) => (Some(guard), None),
            Err(error) => (None, Some(error)),
        }
    }
}

impl AppLock {
    /// Opens what is locked in `dir`: its `config`, or the directory if there is none. Neither may be a
    /// link.
    ///
    /// # Errors
    /// [`TelemetryError::Permission`] or [`TelemetryError::Io`] if it cannot be read. Callers continue
    /// without the lock, and report that.
    pub fn open(dir: &Path) -> Result<Self, TelemetryError> {
        // Non-blocking, in case it is a FIFO.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let failed = |errno| TelemetryError::io("cannot open what tools lock", errno);
        let dir = open_file(dir, flags | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        match openat(&dir, CONFIG, flags, Mode::empty()) {
            Ok(config) => Ok(Self(config)),
            Err(Errno::NOENT) => Ok(Self(dir)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Takes the lock; waits until `deadline`.
    ///
    /// # Errors
    /// [`TelemetryError::Locked`] if other tools held it until the deadline.
    pub fn hold(&self, deadline: Deadline) -> Result<AppLockGuard<'_>, TelemetryError> {
        let attempt = || match flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(AppLockGuard(self))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(errno) => Err(TelemetryError::io("cannot lock", errno)),
        };
        deadline.retry(attempt)?.ok_or(TelemetryError::Locked)
    }
}

impl Drop for AppLockGuard<'_> {
    fn drop(&mut self) {
        // This cannot fail on an open file; and the kernel unlocks it when the process ends.
        let _ = flock(&self.0.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, Instant};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(30))
    }

    #[test]
    fn one_tool_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (AppLock::open(dir.path()).unwrap(), AppLock::open(dir.path()).unwrap());
        let held = a.hold(soon()).unwrap();
        let began = Instant::now();
        assert!(matches!(b.hold(soon()), Err(TelemetryError::Locked)));
        assert!(began.elapsed() >= Duration::from_millis(30));
        drop(held);
        assert!(b.hold(soon()).is_ok());
    }

    #[test]
    fn a_tool_that_never_lets_go_costs_half_of_one_round() {
        let dir = tempfile::tempdir().unwrap();
        let stopped = AppLock::open(dir.path()).unwrap();
        let held = stopped.hold(soon()).unwrap();
        let mut lock = RoundLock::default();
        let deadline = Deadline::after(Duration::from_secs(3600));
        for waits_for_long in [true, false] {
            let began = Instant::now();
            let (guard, error) = lock.hold(dir.path(), deadline);
            assert!(guard.is_none() && matches!(error, Some(TelemetryError::Locked)), "{error:?}");
            assert!(!waits_for_long || began.elapsed() >= LONGEST_WAIT);
            drop(guard);
            assert!(lock.is_held_by_others);
        }
        let (_, error) = lock.hold(dir.path(), Deadline::after(Duration::ZERO));
        assert!(matches!(error, Some(TelemetryError::Locked)));
        drop(held);
        assert!(lock.hold(dir.path(), deadline).0.is_some() && !lock.is_held_by_others);
    }

    /// Two tools exclude each other by what is in this directory, and leave nothing in it.
    fn exclude_each_other(dir: &Path) {
        let names = || std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let before: Vec<_> = names().collect();
        let (a, b) = (AppLock::open(dir).unwrap(), AppLock::open(dir).unwrap());
        let held = a.hold(soon()).unwrap();
        assert!(matches!(b.hold(soon()), Err(TelemetryError::Locked)));
        drop(held);
        assert!(b.hold(soon()).is_ok());
        assert_eq!(names().collect::<Vec<_>>(), before);
    }

    #[test]
    fn nothing_is_created_whatever_there_is() {
        let dir = tempfile::tempdir().unwrap();
        exclude_each_other(dir.path());
        std::fs::write(dir.path().join(CONFIG), "").unwrap();
        exclude_each_other(dir.path());
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
        exclude_each_other(dir.path());
    }

    #[test]
    fn an_app_that_locks_its_directory_does_not_wait_for_a_tool() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CONFIG), "").unwrap();
        let tool = AppLock::open(dir.path()).unwrap();
        let _held = tool.hold(soon()).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let app = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        flock(&app, FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = dir.path().join("link");
        symlink(elsewhere.path(), &link).unwrap();
        assert!(AppLock::open(&link).is_err());
        symlink("/etc/hostname", dir.path().join(CONFIG)).unwrap();
        assert!(AppLock::open(dir.path()).is_err());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(AppLock::open(Path::new("/nonexistent")).is_err());
    }
}
