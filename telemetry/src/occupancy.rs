//! Occupancy of pools and rings, for apps that do not report it.

use std::fmt::Debug;

use crate::deadline::Deadline;
use crate::discover::DiscoveredApp;
use crate::sample::Sample;

/// Counts the objects in mempools and rings of apps without libpmdscope, from outside. Shared by the
/// threads that sample.
pub trait OccupancyReader: Debug + Send + Sync {
    /// Completes [`Sample::pools`] and [`Sample::rings`] of `app` with present counts; counts that
    /// the app reported are kept. Sets [`Sample::xray`]. Returns at `deadline` at the latest, and
    /// never waits for another app.
    fn complete(&self, app: &DiscoveredApp, sample: &mut Sample, deadline: Deadline);
}
