//! Running apps, and what they report about themselves.

use std::time::Duration;

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability};
use pmdscope_telemetry::sample::{PortSample, Sample};
use pmdscope_telemetry::{FleetSettings, SampleCollector};

/// How long an app may take to report about itself.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// An app and what it reports about itself.
#[derive(Clone, Debug)]
pub(crate) struct RunningApp {
    pub(crate) app: DiscoveredApp,
    /// `None` when it cannot be asked.
    pub(crate) sample: Option<Sample>,
}

impl RunningApp {
    /// Asks an app that was found.
    pub(crate) fn ask(app: DiscoveredApp) -> Self {
        let live = app.state == Reachability::Live;
        let collected = || SampleCollector::new(app.clone()).collect(SAMPLE_TIMEOUT).ok();
        let sample = live.then(collected).flatten();
        Self { app, sample }
    }

    /// Its ports, as far as it reports them.
    pub(super) fn ports(&self) -> &[PortSample] {
        self.sample.as_ref().map_or(&[], |sample| &sample.ports)
    }
}

/// All running apps.
pub(crate) fn running(settings: &FleetSettings) -> Vec<RunningApp> {
    settings.running().into_iter().map(RunningApp::ask).collect()
}
