//! Signals that end a collection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::capture::is_ignored;

/// The first signal ends the collection, and what there is becomes a bundle; the second ends everything.
#[derive(Debug)]
pub(super) struct StopRequests(Arc<AtomicUsize>);

impl StopRequests {
    /// Handles signals from now on.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub(super) fn register() -> Result<Self> {
        // A collection under nohup(1) must survive its terminal.
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up));
        let mut signals = signals.context("cannot handle signals")?;
        let count = Arc::new(AtomicUsize::new(0));
        let received = Arc::clone(&count);
        thread::spawn(move || {
            for _ in signals.forever() {
                received.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self(count))
    }

    /// Signals so far.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
