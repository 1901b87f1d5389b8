//! Prevents the tools of this project from querying one app concurrently.
//!
//! Before 26.07, the telemetry threads of a DPDK app share the state of one `strtok()`: two clients
//! that send requests at the same time may get the reply to each other's parameters, that is, the
//! counters of another port. The reply does not show it. So each tool holds an exclusive `flock()` on
//! `<runtime dir>/pmdscope.lock` for the short time of one round. The directory itself cannot be
//! used: DPDK locks it while an app starts, and a tool must not make an app wait.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::host::foreign::open_file;

/// Longest wait for other tools. They hold the lock for one round, which takes milliseconds; a
/// stopped tool holds it until it continues.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Longest wait after a wait that timed out.
const NEXT_WAIT: Duration = Duration::from_millis(20);

/// Name of the lock file in the runtime directory of an app.
pub const LOCK_FILE: &str = "pmdscope.lock";

/// The lock file of one app, not yet locked.
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
    /// Reopens the file in the next round: an app that restarts may have another runtime directory,
    /// with the lock file of the other tools.
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
    /// Opens the lock file in `dir`; creates it if it does not exist.
    ///
    /// # Errors
    /// [`TelemetryError::Permission`] or [`TelemetryError::Io`] if there is no such file and it
    /// cannot be created, for instance on a read-only mount. Callers continue without the lock, and
    /// report that.
    pub fn open(dir: &Path) -> Result<Self, TelemetryError> {
        let path = dir.join(LOCK_FILE);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let created = open_file(&path, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR);
        // An existing file can be locked even if no file can be created.
        let fd = match created {
            Err(Errno::ROFS | Errno::ACCESS) => open_file(&path, flags, Mode::empty()),
            other => other,
        };
        fd.map(Self).map_err(|errno| TelemetryError::io("cannot create the lock file", errno))
    }

    /// Takes the lock; waits until `deadline`.
    ///
    /// # Errors
    /// [`TelemetryError::Locked`] if other tools held it until the deadline.
    pub fn hold(&self, deadline: Deadline) -> Result<AppLockGuard<'_>, TelemetryError> {
        let attempt = || match flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(AppLockGuard(self))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(errno) => Err(TelemetryError::io("cannot lock the lock file", errno)),
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
    use std::os::unix::fs::PermissionsExt;
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

    #[test]
    fn the_file_is_private_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        AppLock::open(dir.path()).unwrap();
        let path = dir.path().join(LOCK_FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(AppLock::open(dir.path()).is_err());
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(AppLock::open(Path::new("/nonexistent")).is_err());
    }
}
