//! Control of a running capture or replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Flags that a signal handler or another thread sets to control a running capture, and what it can look at
/// meanwhile.
#[derive(Clone, Debug, Default)]
pub struct RunControl {
    /// Stop, and complete the files.
    pub stop: Arc<AtomicBool>,
    /// Complete the files without waiting for a disk or reader; `None` if there is no way to ask for that.
    pub abandon: Option<Arc<AtomicBool>>,
    /// Flush buffered packets.
    pub flush: Arc<AtomicBool>,
    /// Report the progress to the observer of the capture.
    pub report: Arc<AtomicBool>,
    /// Have apps keep one packet in this many from now on; 0 does not change it. Apps with a library
    /// that does not support this keep their sampling.
    pub sample: Arc<AtomicU32>,
    /// Bytes that a replay has read of its files, as they are on the disk: compressed or not.
    pub bytes_read: Arc<AtomicU64>,
}
