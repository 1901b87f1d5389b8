//! How long requests wait for an app, by how it has answered so far.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::{ErrorClass, FleetEvent};

/// How long a scrape of all apps waits for one that did not answer the last time: enough for one that
/// answers again, and short enough for many that do not.
const HUNG_WAIT: Duration = Duration::from_millis(100);

/// An app may take this many times as long as the last time.
const SLOWDOWN: u32 = 2;

/// How long apps are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// A scrape of all apps waits this long for an app that has never answered: it may be one that
    /// hangs.
    pub(crate) first: Duration,
    /// A scrape of all apps waits this long for each, and longer for one that has taken long before.
    pub(crate) answer: Duration,
    /// For how long an app that is being asked counts as one of those that are asked at once.
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

/// How the apps have answered so far, by socket.
#[derive(Debug, Default)]
pub(super) struct ResponseTimes {
    answered: BTreeMap<PathBuf, Duration>,
    hung: BTreeMap<PathBuf, DiscoveredApp>,
}

impl ResponseTimes {
    /// Takes in the news of a round that took so long.
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

    /// Forgets an app that has ended.
    pub(super) fn forget(&mut self, socket: &Path) {
        self.hung.remove(socket);
        self.answered.remove(socket);
    }

    /// It did not answer the last round.
    pub(super) fn is_hung(&self, socket: &Path) -> bool {
        self.hung.contains_key(socket)
    }

    /// The apps that did not answer their last round.
    pub(super) fn hung(&self) -> impl Iterator<Item = &DiscoveredApp> {
        self.hung.values()
    }

    /// How long after its beginning a scrape of all apps waits for a round.
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
