//! What a command does when a signal ends it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::{flag, low_level};

use crate::handlers::set_if;
use crate::{ending, take_over};

/// The first signal sets `stop`, and one that comes when it is set exits. Those that `may_repeat` only set
/// it.
///
/// # Errors
/// When the system refuses.
pub fn end_in_order(stop: &Arc<AtomicBool>, may_repeat: impl Fn(i32) -> bool) -> io::Result<()> {
    for signal in ending() {
        if !may_repeat(signal) {
            flag::register_conditional_shutdown(signal, 1, Arc::clone(stop))?;
        }
        flag::register(signal, Arc::clone(stop))?;
    }
    take_over()
}

/// The first signal sets `stop`, one that comes when it is set sets `abandon`, and one after that exits. Those
/// that `may_repeat` only set `stop`.
///
/// # Errors
/// When the system refuses.
pub fn end_in_steps(
    stop: &Arc<AtomicBool>,
    abandon: &Arc<AtomicBool>,
    may_repeat: impl Fn(i32) -> bool,
) -> io::Result<()> {
    for signal in ending() {
        if !may_repeat(signal) {
            flag::register_conditional_shutdown(signal, 1, Arc::clone(abandon))?;
            set_if(signal, Arc::clone(stop), Arc::clone(abandon))?;
        }
        flag::register(signal, Arc::clone(stop))?;
    }
    take_over()
}

/// Waits for the next round, or for a signal to stop. The second signal exits.
#[derive(Debug)]
pub struct StopSignal(UnixStream);

impl StopSignal {
    /// Handles signals from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn register(may_repeat: impl Fn(i32) -> bool) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        for signal in ending() {
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        end_in_order(&Arc::new(AtomicBool::new(false)), may_repeat)?;
        Ok(Self(reader))
    }

    /// Waits until that time; true if it must stop.
    ///
    /// # Errors
    /// As poll(2).
    pub fn wait(&self, until: Instant) -> io::Result<bool> {
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
