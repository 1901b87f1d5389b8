//! What a running capture or replay is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// What others may tell a running capture, from a signal handler or a thread.
#[derive(Clone, Debug, Default)]
pub struct RunControl {
    /// End in order.
    pub stop: Arc<AtomicBool>,
    /// Bring out what was collected.
    pub flush: Arc<AtomicBool>,
    /// Have the observer of the capture told how far it has come.
    pub report: Arc<AtomicBool>,
    /// Have apps keep one packet in so many from now on; 0 leaves that as it is. Apps whose library is
    /// too old for that keep their sampling.
    pub sample: Arc<AtomicU32>,
}
