//! Waits for the next round, or for a signal to stop.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::capture::is_ignored;
use crate::child;

/// The first signal ends the recording gracefully, the second immediately.
pub(crate) struct StopSignal(UnixStream);

impl StopSignal {
    pub(crate) fn new() -> Result<Self> {
        Self::register().context("cannot handle signals")
    }

    fn register() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let stopped = Arc::new(AtomicBool::new(false));
        // A recorder under nohup(1) must survive its terminal.
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            if !child::may_repeat(signal) {
                flag::register_conditional_shutdown(signal, 1, Arc::clone(&stopped))?;
            }
            flag::register(signal, Arc::clone(&stopped))?;
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(reader))
    }

    /// Waits until that time; true if it must stop.
    pub(crate) fn wait(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
