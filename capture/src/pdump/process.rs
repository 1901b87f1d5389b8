//! Waits for processes that we have started.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Time between looks at a process that is to end.
pub(super) const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits for the end of a child, but no longer than told.
pub(super) fn wait_for(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(EXIT_POLL_INTERVAL),
            status => return Ok(status),
        }
    }
}
