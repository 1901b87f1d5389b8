//! Ports that have gone quiet: measured against their own past.

use serde::Serialize;

/// A port that receives less than 1 % of what it did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quiet {
    /// For how long, seconds, as far as that was watched.
    pub seconds: f64,
    /// Packets in that time.
    pub packets: u64,
    /// What it received before, packets per second.
    pub past_pps: f64,
    /// `past_pps` is what was watched; else the mean since the app started.
    pub watched_past: bool,
    /// It was quiet in all of the time watched.
    pub from_start: bool,
}
