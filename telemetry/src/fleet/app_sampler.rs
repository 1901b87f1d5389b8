//! Samples one app, and turns samples into events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::FleetSettings;
use crate::collect::SampleCollector;
use crate::discover::{DiscoveredApp, Reachability};
use crate::error::{ErrorClass, TelemetryError};
use crate::finding::{self, LintRules, Thresholds};
use crate::fleet_state::FleetEvent;
use crate::model::ModelTracker;
use crate::sample::Sample;

/// Timeout, in a round of several apps, of an app that did not answer the last time.
const HUNG_TIMEOUT: Duration = Duration::from_millis(200);

/// Interval after which it gets the whole timeout again: it may be slow, and not hung.
const HUNG_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Samples one app repeatedly.
#[derive(Debug)]
pub struct AppSampler {
    collector: SampleCollector,
    evaluator: Evaluator,
    /// When it first timed out, unless it has answered since.
    hung: Option<Instant>,
}

impl AppSampler {
    /// Returns a sampler; it connects at the first sample.
    pub fn new(app: DiscoveredApp, settings: &FleetSettings) -> Self {
        Self {
            collector: SampleCollector::new(app)
                .with_tracer(settings.tracer.clone())
                .with_occupancy(settings.occupancy.clone())
                .with_scans(settings.scans.clone())
                .with_replies(settings.replies.clone())
                .with_histograms(Arc::clone(&settings.histograms)),
            evaluator: Evaluator::new(settings.rules.clone()),
            hung: None,
        }
    }

    /// Returns the app, as it was found.
    pub fn app(&self) -> &DiscoveredApp {
        self.collector.app()
    }

    /// Whether the app has kept the connection open since its last answer.
    pub(super) fn is_connected(&self) -> bool {
        self.collector.is_connected()
    }

    /// Changes the name of the app.
    pub(super) fn rename(&mut self, name: &str) {
        self.collector.rename(name);
    }

    /// Sets the thresholds for the next samples.
    pub(super) fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.evaluator.rules.thresholds = thresholds;
    }

    /// Samples the app once, within `timeout`; reconnects if the connection was lost. A panic is
    /// reported as the loss of the app.
    pub fn sample(&mut self, timeout: Duration) -> FleetEvent {
        self.guarded(|sampler| sampler.ask(timeout))
    }

    /// Calls `ask` with `timeout`, or with a shorter one if the app did not answer recently.
    pub(super) fn limited(
        &mut self,
        timeout: Duration,
        ask: impl FnOnce(&mut Self, Duration) -> FleetEvent,
    ) -> FleetEvent {
        let hung = self.hung.filter(|hung| hung.elapsed() < HUNG_RETRY_INTERVAL);
        let event = ask(self, if hung.is_some() { timeout.min(HUNG_TIMEOUT) } else { timeout });
        let timed_out = matches!(event, FleetEvent::Lost { class: ErrorClass::Timeout, .. });
        self.hung = timed_out.then(|| hung.unwrap_or_else(Instant::now));
        event
    }

    /// Calls `ask`; if it panics, the app is lost for this round, and the next one starts afresh.
    pub(super) fn guarded(&mut self, ask: impl FnOnce(&mut Self) -> FleetEvent) -> FleetEvent {
        // The state that a panic left incomplete is discarded.
        catch_unwind(AssertUnwindSafe(|| ask(self))).unwrap_or_else(|panic| {
            let event = lost(self.app(), &TelemetryError::panicked(&*panic));
            self.collector.reset();
            self.evaluator = Evaluator::new(self.evaluator.rules.clone());
            event
        })
    }

    pub(super) fn ask(&mut self, timeout: Duration) -> FleetEvent {
        match self.collector.collect(timeout) {
            Ok(sample) => self.evaluator.sampled(sample),
            Err(error) => lost(self.collector.app(), &error),
        }
    }
}

/// Converts the samples of one app, live or recorded, into events.
#[derive(Debug)]
pub struct Evaluator {
    tracker: ModelTracker,
    rules: LintRules,
}

impl Evaluator {
    /// Returns an evaluator without earlier samples.
    pub fn new(rules: LintRules) -> Self {
        Self { tracker: ModelTracker::default(), rules }
    }

    /// Returns the event for a sample.
    pub fn sampled(&mut self, sample: Sample) -> FleetEvent {
        let app = sample.app.name.clone();
        let model = Arc::new(self.tracker.update(sample));
        let findings = finding::evaluate(&model, &self.rules);
        FleetEvent::Sampled { app, model, findings }
    }
}

/// Returns the event for an app that does not answer; its finding is that of one that never did.
pub(super) fn lost(app: &DiscoveredApp, error: &TelemetryError) -> FleetEvent {
    let class = error.class();
    let lost = DiscoveredApp { state: Reachability::Unreachable(class.into()), ..app.clone() };
    let reason = lost.with_activity(error.to_string());
    let finding = finding::evaluate_unqueried(&lost)
        .map(|finding| finding::Finding { evidence: reason.clone(), ..finding });
    FleetEvent::Lost { app: app.name.clone(), class, reason, finding }
}

/// Returns the event for an app that cannot be queried; `None` if it can.
pub fn unqueried_event(app: &DiscoveredApp) -> Option<FleetEvent> {
    let (class, reason) = obstacle(app)?;
    let finding = finding::evaluate_unqueried(app);
    Some(FleetEvent::Lost { app: app.name.clone(), class, reason, finding })
}

/// Returns why an app that runs cannot be queried; `None` if it can.
pub fn obstacle(app: &DiscoveredApp) -> Option<(ErrorClass, String)> {
    let (class, reason) = match app.state {
        Reachability::Live => return None,
        Reachability::NoTelemetry => {
            (ErrorClass::TelemetryOff, "runs without telemetry; start it without --no-telemetry")
        }
        Reachability::Stale => (ErrorClass::Refused, "has ended and left its files behind"),
        Reachability::Unreachable(why) => (why.into(), why.advice()),
    };
    Some((class, app.with_activity(reason.to_owned())))
}

/// Returns the finding about an expected app that was not found; it may run where directories cannot be read.
fn missing(app: &str, unreadable: Option<&str>) -> finding::Finding {
    let mut finding = finding::evaluate_missing(app);
    if let Some(unreadable) = unreadable {
        finding.evidence =
            format!("it is expected on this machine, and was not found: {unreadable}");
    }
    finding
}

impl FleetEvent {
    /// Returns the event for an expected app that does not run.
    pub(super) fn missing(app: &str, unreadable: Option<&str>) -> Self {
        Self::Lost {
            app: app.to_owned(),
            class: ErrorClass::Missing,
            reason: "is expected, and does not run".to_owned(),
            finding: Some(missing(app, unreadable)),
        }
    }

    /// Returns the event for an app that was asked for by name and was not found, for this reason.
    pub fn not_found(app: &str, why: &str) -> Self {
        Self::Lost {
            app: app.to_owned(),
            class: ErrorClass::Missing,
            reason: "does not run".to_owned(),
            finding: Some(finding::Finding {
                evidence: why.to_owned(),
                threshold: "the app that is named runs".to_owned(),
                ..finding::evaluate_missing(app)
            }),
        }
    }

    /// Returns the same event, for an app that does not run although it is expected.
    pub(super) fn of_missing(mut self, unreadable: Option<&str>) -> Self {
        if let Self::Lost { app, finding, .. } = &mut self {
            *finding = Some(missing(app, unreadable));
        }
        self
    }

    /// Returns the same event, for an app with a new name.
    pub(super) fn renamed(mut self, name: &str) -> Self {
        let rename = |finding: &mut finding::Finding| name.clone_into(&mut finding.app);
        match &mut self {
            Self::Sampled { app, model, findings } => {
                name.clone_into(app);
                name.clone_into(&mut Arc::make_mut(model).sample.app.name);
                findings.iter_mut().for_each(rename);
            }
            Self::Lost { app, finding, .. } => {
                name.clone_into(app);
                finding.iter_mut().for_each(rename);
            }
            Self::Found { app } | Self::Gone { app } => name.clone_into(app),
            Self::NoApps { .. } | Self::Interfaces(_) => {}
        }
        self
    }
}
