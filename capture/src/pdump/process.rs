//! Waits for processes that this process has started.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of checks whether a process has ended.
pub(super) const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits for the end of a child, at most until the timeout; `None` if it still runs.
pub(super) fn wait_for(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(EXIT_POLL_INTERVAL),
            status => return Ok(status),
        }
    }
}
