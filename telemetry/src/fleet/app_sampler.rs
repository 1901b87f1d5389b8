//! One app: its samples, and the events of them.

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

/// Longest wait in a round of several apps for one that did not answer the last time.
const HUNG_TIMEOUT: Duration = Duration::from_millis(200);

/// After this time it is given the whole timeout again: it may be slow, and not hang.
const HUNG_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// One app, sampled again and again.
#[derive(Debug)]
pub struct AppSampler {
    collector: SampleCollector,
    evaluator: Evaluator,
    /// When it did not answer within a whole timeout, unless it has answered since.
    hung: Option<Instant>,
}

impl AppSampler {
    /// Connects at the first sample.
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

    /// The app, as it was found.
    pub fn app(&self) -> &DiscoveredApp {
        self.collector.app()
    }

    /// The app has not closed the connection since it answered last.
    pub(super) fn is_connected(&self) -> bool {
        self.collector.is_connected()
    }

    /// Calls the app otherwise from now on.
    pub(super) fn rename(&mut self, name: &str) {
        self.collector.rename(name);
    }

    /// Judges the next samples by these thresholds.
    pub(super) fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.evaluator.rules.thresholds = thresholds;
    }

    /// Asks the app once, within `timeout`; connects again by itself after it was lost. A panic on
    /// the way is an event of a lost app.
    pub fn sample(&mut self, timeout: Duration) -> FleetEvent {
        self.guarded(|sampler| sampler.ask(timeout))
    }

    /// Asks within `timeout`, or for a shorter time when the app did not answer lately.
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

    /// Where `ask` panics, the app is lost for this round, and asked anew in the next one.
    pub(super) fn guarded(&mut self, ask: impl FnOnce(&mut Self) -> FleetEvent) -> FleetEvent {
        // What a panic left half done is thrown away.
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

/// Turns the samples of one app, live or recorded, into events.
#[derive(Debug)]
pub struct Evaluator {
    tracker: ModelTracker,
    rules: LintRules,
}

impl Evaluator {
    /// One that has seen nothing yet.
    pub fn new(rules: LintRules) -> Self {
        Self { tracker: ModelTracker::default(), rules }
    }

    /// The event of a sample.
    pub fn sampled(&mut self, sample: Sample) -> FleetEvent {
        let app = sample.app.name.clone();
        let model = Arc::new(self.tracker.update(sample));
        let findings = finding::evaluate(&model, &self.rules);
        FleetEvent::Sampled { app, model, findings }
    }
}

/// An app that was found and then does not answer is as bad as one that never did.
pub(super) fn lost(app: &DiscoveredApp, error: &TelemetryError) -> FleetEvent {
    let class = error.class();
    let lost = DiscoveredApp { state: Reachability::Unreachable(class.into()), ..app.clone() };
    let reason = lost.with_activity(error.to_string());
    let finding = finding::evaluate_unqueried(&lost)
        .map(|finding| finding::Finding { evidence: reason.clone(), ..finding });
    FleetEvent::Lost { app: app.name.clone(), class, reason, finding }
}

/// Event of an app that cannot be asked; `None` when it can.
pub fn unqueried_event(app: &DiscoveredApp) -> Option<FleetEvent> {
    let (class, reason) = obstacle(app)?;
    let finding = finding::evaluate_unqueried(app);
    Some(FleetEvent::Lost { app: app.name.clone(), class, reason, finding })
}

/// Why an app that runs cannot be asked; `None` when it can.
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

/// An expected app that was not found; it may run where nothing can be read.
fn missing(app: &str, unreadable: Option<&str>) -> finding::Finding {
    let mut finding = finding::evaluate_missing(app);
    if let Some(unreadable) = unreadable {
        finding.evidence =
            format!("it is expected on this machine, and was not found: {unreadable}");
    }
    finding
}

impl FleetEvent {
    /// An expected app that does not run.
    pub(super) fn missing(app: &str, unreadable: Option<&str>) -> Self {
        Self::Lost {
            app: app.to_owned(),
            class: ErrorClass::Missing,
            reason: "is expected, and does not run".to_owned(),
            finding: Some(missing(app, unreadable)),
        }
    }

    /// The same, of an app that does not run though it is expected.
    pub(super) fn of_missing(mut self, unreadable: Option<&str>) -> Self {
        if let Self::Lost { app, finding, .. } = &mut self {
            *finding = Some(missing(app, unreadable));
        }
        self
    }

    /// The same about an app that is called otherwise by now.
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
