//! Data of the running and the expected apps for `doctor`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use pmdscope_doctor::{AppFacts, CaptureFact};
use pmdscope_telemetry::discover::{DiscoveredApp, Reachability};
use pmdscope_telemetry::fleet::{ROUND_TIMEOUT, obstacle};
use pmdscope_telemetry::{
    AppInventory, FleetSettings, ModelTracker, OccupancyReader, SampleCollector, TelemetryError,
    parallel,
};

use crate::attach::policy::AttachPolicy;
use crate::attach::running::RunningApp;
use crate::attach::transport::Preflight;
use crate::session;

/// Time between two samples, from which rates come, and which threads poll.
const INTERVAL: Duration = Duration::from_millis(300);

/// What is known of the app of that name, or of all, and of those that are expected and do not run.
/// Takes somewhat more than [`INTERVAL`].
///
/// # Errors
/// When no app, or several, are meant by the name, and none of it is expected.
pub(crate) fn live_apps(mut settings: FleetSettings, name: Option<&str>) -> Result<Vec<AppFacts>> {
    let found = settings.apps(name, &[])?;
    session::tell_left_out(&settings);
    if let Some(name) = name {
        settings.only(name, &found);
    }
    let expected = &settings.rules.expected;
    let absent =
        expected.apps.iter().filter(|app| found.iter().all(|other| other.name != app.name));
    let absent: Vec<AppFacts> = absent.map(AppFacts::absent).collect();
    let occupancy = &settings.occupancy;
    let mut apps = parallel::map(found, |app| {
        let name = app.name.clone();
        catch_unwind(AssertUnwindSafe(|| ask(app, expected, occupancy.clone()))).unwrap_or_else(
            |panic| AppFacts::unreachable(&name, &TelemetryError::panicked(&*panic).to_string()),
        )
    });
    apps.extend(absent);
    Ok(apps)
}

fn ask(
    app: DiscoveredApp,
    inventory: &AppInventory,
    occupancy: Option<Arc<dyn OccupancyReader>>,
) -> AppFacts {
    if let Some((_, reason)) = obstacle(&app).filter(|_| app.state != Reachability::Live) {
        return AppFacts::unreachable(&app.name, &reason);
    }
    let sampled = || {
        let mut collector = SampleCollector::new(app.clone()).with_occupancy(occupancy);
        let mut tracker = ModelTracker::default();
        let first = tracker.update(collector.collect(ROUND_TIMEOUT)?).sample;
        thread::sleep(INTERVAL);
        let model = tracker.update(collector.collect(ROUND_TIMEOUT)?);
        Ok::<_, TelemetryError>(AppFacts::of(Some(&first), &model, inventory))
    };
    let facts =
        sampled().unwrap_or_else(|error| AppFacts::unreachable(&app.name, &error.to_string()));
    let sample = facts.sample.clone();
    if let Some(sample) = &sample {
        session::tell_left_out_threads(&facts.name, sample);
    }
    let capture = sample.map(|sample| capture(&RunningApp { app, sample: Some(sample) }));
    AppFacts { capture, ..facts }
}

fn capture(running: &RunningApp) -> CaptureFact {
    match Preflight::of(running, AttachPolicy::Safe) {
        Ok(way) => CaptureFact::Possible { via: way.via().unwrap_or("library").to_owned() },
        Err(error) => CaptureFact::Impossible { reason: format!("{error:#}") },
    }
}
