//! Signals that end a collection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::iterator::Signals;

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
        let count = Arc::new(AtomicUsize::new(0));
        Self::count_in(Arc::clone(&count)).context("cannot handle signals")?;
        Ok(Self(count))
    }

    fn count_in(count: Arc<AtomicUsize>) -> io::Result<()> {
        let mut signals = Signals::new(pmdscope_signals::ending())?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        pmdscope_signals::take_over()
    }

    /// Signals so far.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
