//! Running apps, and what they report about themselves.

use std::time::Duration;

use pmdscope_telemetry::discover::{DiscoveredApp, FindError, Reachability};
use pmdscope_telemetry::sample::{PortSample, Sample};
use pmdscope_telemetry::{FleetSettings, SampleCollector, parallel};

use crate::session;

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
    pub(crate) fn ask(mut app: DiscoveredApp) -> Self {
        if app.state != Reachability::Live {
            return Self { app, sample: None };
        }
        match SampleCollector::new(app.clone()).collect(SAMPLE_TIMEOUT) {
            Ok(sample) => Self { app, sample: Some(sample) },
            Err(error) => {
                app.state = Reachability::Unreachable(error.class().into());
                Self { app, sample: None }
            }
        }
    }

    /// Its ports, as far as it reports them.
    pub(super) fn ports(&self) -> &[PortSample] {
        self.sample.as_ref().map_or(&[], |sample| &sample.ports)
    }
}

/// All running apps, asked at the same time.
///
/// # Errors
///
/// When the search was interrupted.
pub(crate) fn running(settings: &FleetSettings) -> Result<Vec<RunningApp>, FindError> {
    let apps = settings.apps(None, &[])?;
    session::tell_left_out(settings);
    Ok(parallel::map(apps, RunningApp::ask))
}
