//! Limits of the time that requests wait for an app, which depend on its earlier answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::{ErrorClass, FleetEvent};

/// Wait of a scrape of all apps for an app that did not answer last time: long enough for an app that
/// answers again, and short enough for many that hang.
const HUNG_WAIT: Duration = Duration::from_millis(100);

/// Factor by which an app may be slower than last time.
const SLOWDOWN: u32 = 2;

/// Limits of the wait for apps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// Wait of a scrape of all apps for an app that has never answered, because it may hang.
    pub(crate) first: Duration,
    /// Wait of a scrape of all apps for each other app; longer for an app that was slow last time.
    pub(crate) answer: Duration,
    /// Time for which a query counts towards the limit of simultaneous queries.
    pub(crate) slot: Duration,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(300),
            answer: Duration::from_secs(1),
            slot: Duration::from_millis(200),
        }
    }
}

/// The response times of apps, by socket.
#[derive(Debug, Default)]
pub(super) struct ResponseTimes {
    answered: BTreeMap<PathBuf, Duration>,
    hung: BTreeMap<PathBuf, DiscoveredApp>,
}

impl ResponseTimes {
    /// Updates the response time of an app with the result of a round.
    pub(super) fn note(&mut self, app: &DiscoveredApp, news: &FleetEvent, took: Duration) {
        match news {
            FleetEvent::Lost { class: ErrorClass::Timeout, .. } => {
                self.hung.insert(app.socket.clone(), app.clone());
            }
            FleetEvent::Sampled { .. } => {
                self.hung.remove(&app.socket);
                self.answered.insert(app.socket.clone(), took);
            }
            _ => self.forget(&app.socket),
        }
    }

    /// Removes an app that has ended.
    pub(super) fn forget(&mut self, socket: &Path) {
        self.hung.remove(socket);
        self.answered.remove(socket);
    }

    /// Returns whether the app did not answer its last round.
    pub(super) fn is_hung(&self, socket: &Path) -> bool {
        self.hung.contains_key(socket)
    }

    /// Returns the apps that did not answer their last round.
    pub(super) fn hung(&self) -> impl Iterator<Item = &DiscoveredApp> {
        self.hung.values()
    }

    /// Returns the time from the start of a round for which a scrape of all apps waits for it.
    pub(super) fn limit(&self, socket: &Path, limits: WaitLimits) -> Duration {
        if self.is_hung(socket) {
            return HUNG_WAIT;
        }
        match self.answered.get(socket) {
            Some(took) => limits.answer.max(took.saturating_mul(SLOWDOWN)),
            None => limits.first,
        }
    }
}
