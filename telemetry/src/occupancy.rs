//! Where the objects of pools and rings are, for apps that do not tell it.

use std::fmt::Debug;

use crate::deadline::Deadline;
use crate::discover::DiscoveredApp;
use crate::sample::Sample;

/// Counts the objects of mempools and rings of apps without libpmdscope, from outside. Shared by the
/// threads that sample.
pub trait OccupancyReader: Debug + Send + Sync {
    /// Completes [`Sample::pools`] and [`Sample::rings`] of `app`, as of now: what the app told itself
    /// stays. Sets [`Sample::xray`]. Returns at `deadline` at the latest, and never waits for another app.
    fn complete(&self, app: &DiscoveredApp, sample: &mut Sample, deadline: Deadline);
}
