//! Whether anybody wants the histograms of queues: they are most of what an app with libpmdscope replies.

use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by those that sample and the one that shows histograms, or does not.
#[derive(Debug)]
pub struct QueueHistograms(AtomicBool);

impl Default for QueueHistograms {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl QueueHistograms {
    /// Asks for them from the next samples on, or no longer. Libraries that cannot do without tell them all
    /// the same.
    pub fn want(&self, wanted: bool) {
        self.0.store(wanted, Ordering::Relaxed);
    }

    /// Whether they are asked for.
    pub fn wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
