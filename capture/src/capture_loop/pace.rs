//! How long a capture pauses between two reads of its rings.

use std::thread;
use std::time::Duration;

use super::READ_MAX;

/// Pauses between reads of rings that have been read to their end. During the longest, packets of
/// 1500 bytes at 8 Mpps fill three quarters of a ring of 16 MiB. One of 500 us costs 1.5 % of a CPU
/// more while nothing arrives.
const PAUSE_MIN: Duration = Duration::from_micros(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Fraction of a ring (1 / this) that may fill during a pause, so that pauses are long when little
/// arrives.
const SHARE_PER_PAUSE: u32 = 64;

/// Result of one round over all rings.
#[derive(Debug, Default)]
pub(super) struct RoundStats {
    /// Bytes read from the fullest ring, relative to those that a pause may bring.
    filled: f64,
    /// Whether a ring holds more.
    pub(super) behind: bool,
}

impl RoundStats {
    /// Adds what was read from a ring.
    pub(super) fn add(&mut self, read: usize, ring_size: u32, behind: bool) {
        let wanted = ((ring_size / SHARE_PER_PAUSE) as usize).min(READ_MAX);
        self.merge(&Self { filled: read as f64 / wanted as f64, behind });
    }

    /// Adds other rings of the same round.
    pub(super) fn merge(&mut self, other: &Self) {
        self.filled = self.filled.max(other.filled);
        self.behind |= other.behind;
    }
}

/// The pauses of a thread that reads rings.
#[derive(Debug)]
pub(super) struct ReadPace {
    pause: Duration,
    /// As in [`RoundStats`], since the last pause.
    filled: f64,
}

impl Default for ReadPace {
    fn default() -> Self {
        Self { pause: PAUSE_MIN, filled: 0.0 }
    }
}

impl ReadPace {
    /// Adds a round.
    pub(super) fn add(&mut self, round: &RoundStats) {
        self.filled += round.filled;
    }

    /// Pauses; the next pause depends on how much was read since the one before.
    pub(super) fn sleep(&mut self) {
        thread::sleep(self.pause);
        let filled = std::mem::take(&mut self.filled).max(0.5);
        self.pause = self.pause.div_f64(filled).clamp(PAUSE_MIN, PAUSE_MAX);
    }
}
