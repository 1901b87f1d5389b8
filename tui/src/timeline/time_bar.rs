//! The shown moment, and what it is part of.

use super::TimeSpan;
use super::marks::FindingMark;

/// The shown moment, and what it is part of.
#[derive(Clone, Debug)]
pub struct TimeBar {
    /// The shown moment, on the clock of `span`.
    pub at: u64,
    /// Wall clock at that moment, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// What can be shown.
    pub span: TimeSpan,
    /// Moments in which a finding began, oldest first.
    pub marks: Vec<FindingMark>,
    /// What the moment is part of.
    pub place: TimeBarKind,
    /// What is wrong with the recording, or what is being done.
    pub remark: Option<String>,
}

/// What the moment is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBarKind {
    /// The history of a running machine.
    Past {
        /// Nanoseconds before the present.
        ago_ns: u64,
    },
    /// A recording.
    Replay {
        /// Whether it plays, is held, or has ended.
        motion: PlaybackState,
        /// Seconds of the recording per second.
        speed: u32,
    },
}

/// Whether a recording plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaybackState {
    /// It plays.
    Playing,
    /// It is held.
    Held,
    /// Its end was reached.
    Ended,
}
