//! Whether histograms of queues are requested: they are most of what an app with libpmdscope replies.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag, shared by the threads that sample and the display that shows histograms.
#[derive(Debug)]
pub struct QueueHistograms(AtomicBool);

impl Default for QueueHistograms {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl QueueHistograms {
    /// Requests histograms from the next samples on, or no longer. Libraries that cannot omit them
    /// always send them.
    pub fn want(&self, wanted: bool) {
        self.0.store(wanted, Ordering::Relaxed);
    }

    /// Whether histograms are requested.
    pub fn wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
