//! Queries apps on request only: there is no timer and no cache.
//!
//! At most one thread queries an app at a time; requests that arrive meanwhile share the answer. A
//! request waits only for its apps, and only until its deadline: apps that have not answered by then
//! are reported as late. It gets the answers of the rounds that it waited for, not those of later
//! rounds that other requests started meanwhile.
//!
//! The number of apps that are queried at the same time is limited, so that hundreds of apps need few
//! threads. An app that does not answer stops counting towards this limit soon, and scrapes of all apps
//! wait for it only briefly.

mod scheduler;
mod scope;
#[cfg(test)]
mod tests;
mod wait_limits;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::finding::Thresholds;
use pmdscope_telemetry::fleet::{AppSampler, FleetSettings};
use pmdscope_telemetry::{FleetEvent, TelemetryError};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, spawn_blocking};

use crate::journal;
use crate::snapshot::{RenderOptions, ScrapeSnapshot};
use scheduler::{AnswerSender, Completion, PendingRound, Scheduler};
pub(crate) use scope::ScrapeScope;
pub(crate) use wait_limits::WaitLimits;

/// Answers requests about apps.
#[derive(Debug)]
pub(crate) struct Scraper {
    scheduler: Mutex<Scheduler>,
    settings: Arc<FleetSettings>,
    /// Timeout of the query of one app. A request with less time does not cancel the query: closing the
    /// connection would cost the app a new one, and other requests their answer.
    timeout: Duration,
    limits: WaitLimits,
    /// One permit for each app that is queried at the same time; apps that did not answer last time
    /// have their own.
    slots: Semaphore,
    hung_slots: Semaphore,
    queries: BlockingQueries,
}

/// Apps that are queried at the same time.
const AT_ONCE: usize = 16;

/// Apps that did not answer last time, and are queried at the same time.
const HUNG_AT_ONCE: usize = 8;

/// Blocking operations, which run in a thread.
#[derive(Clone, Copy, Debug)]
struct BlockingQueries {
    /// Discovers the running apps, without connecting again to those that are connected.
    discover: fn(&FleetSettings, &[DiscoveredApp]) -> Vec<DiscoveredApp>,
    /// Queries one app.
    sample: fn(&mut AppSampler, Duration) -> FleetEvent,
}

impl Scraper {
    /// Returns a scraper without results; the query of an app has `timeout`, independent of the
    /// deadlines of requests.
    pub(crate) fn new(
        settings: FleetSettings,
        render_options: RenderOptions,
        timeout: Duration,
        limits: WaitLimits,
    ) -> Arc<Self> {
        let queries =
            BlockingQueries { discover: FleetSettings::running_beside, sample: AppSampler::sample };
        Self::with_queries(settings, render_options, timeout, limits, queries)
    }

    fn with_queries(
        settings: FleetSettings,
        render_options: RenderOptions,
        timeout: Duration,
        limits: WaitLimits,
        queries: BlockingQueries,
    ) -> Arc<Self> {
        Arc::new(Self {
            scheduler: Mutex::new(Scheduler::new(settings.clone(), render_options, limits)),
            settings: Arc::new(settings),
            timeout,
            limits,
            slots: Semaphore::new(AT_ONCE),
            hung_slots: Semaphore::new(HUNG_AT_ONCE),
            queries,
        })
    }

    /// Returns the settings of the output.
    pub(crate) fn render_options(&self) -> Arc<RenderOptions> {
        self.lock().render_options()
    }

    /// Sets the thresholds of findings; each app uses them from its next round on.
    pub(crate) fn set_thresholds(&self, thresholds: Thresholds) {
        self.lock().fleet.set_thresholds(thresholds);
    }

    /// Returns the known state at `deadline`, or as soon as everything in `scope` is known.
    pub(crate) async fn snapshot(
        self: &Arc<Self>,
        scope: ScrapeScope,
        deadline: Instant,
    ) -> Arc<ScrapeSnapshot> {
        let mut rounds = Vec::new();
        let query = self.query(&scope, &mut rounds);
        let in_time = tokio::time::timeout_at(deadline.into(), query).await.is_ok();
        let mut scheduler = self.lock();
        scheduler.time_out(&rounds, in_time);
        scheduler.snapshot(&rounds)
    }

    /// Waits until everything in `scope` is known, and stores its rounds in `rounds`. Discovers new
    /// apps, and queries known ones at the same time.
    async fn query(self: &Arc<Self>, scope: &ScrapeScope, rounds: &mut Vec<PendingRound>) {
        let interfaces = self.read_interfaces(scope);
        let (discovery, known, begun) = self.start(scope);
        *rounds = begun;
        if let Some(mut discovery) = discovery {
            let _ = discovery.changed().await;
            let mut scheduler = self.lock();
            let apps = scheduler.askable().into_iter().filter(|app| !known.contains(app));
            let (more, begun) = self.sample_all(&mut scheduler, apps, scope);
            if begun {
                scheduler.count_collection();
            }
            rounds.extend(more);
        }
        for round in rounds {
            let answered = round.answered.changed();
            // A request for one app has no wait limit other than its deadline.
            if *scope == ScrapeScope::All {
                let _ = tokio::time::timeout_at(round.wait_until.into(), answered).await;
            } else {
                let _ = answered.await;
            }
        }
        if let Some(mut interfaces) = interfaces {
            let _ = interfaces.changed().await;
        }
    }

    /// Starts queries that are not running yet. Returns the discovery to wait for, the known apps, and
    /// the rounds to wait for.
    fn start(
        self: &Arc<Self>,
        scope: &ScrapeScope,
    ) -> (Option<Completion>, Vec<String>, Vec<PendingRound>) {
        let mut scheduler = self.lock();
        let discovery = scheduler.needs_discovery(scope).then(|| self.discover(&mut scheduler));
        let known = scheduler.askable();
        let (rounds, begun) = self.sample_all(&mut scheduler, known.iter().cloned(), scope);
        if begun {
            scheduler.count_collection();
        } else if !rounds.is_empty() {
            scheduler.count_shared();
        }
        (discovery.flatten(), known, rounds)
    }

    /// Starts to read the interfaces of the kernel, unless this is running or there is no reader.
    /// Returns what to wait for.
    fn read_interfaces(self: &Arc<Self>, scope: &ScrapeScope) -> Option<Completion> {
        let reader = self.settings.interfaces.clone().filter(|_| scope.includes_interfaces())?;
        let mut scheduler = self.lock();
        if let Some(running) = scheduler.begin_interfaces() {
            let scraper = Arc::clone(self);
            tokio::spawn(async move {
                let read = blocking(move || reader.read()).await;
                let read =
                    read.unwrap_or_else(|error| Err(format!("cannot read interfaces: {error}")));
                scraper.lock().end_interfaces(read);
                drop(running);
            });
        }
        scheduler.interfaces.clone()
    }

    /// Starts a discovery, unless one is running or was recent. Returns what to wait for.
    fn discover(self: &Arc<Self>, scheduler: &mut Scheduler) -> Option<Completion> {
        if let Some(running) = scheduler.begin_discovery() {
            let (scraper, connected) = (Arc::clone(self), scheduler.connected());
            tokio::spawn(scraper.run_discovery(connected, running));
        }
        scheduler.discovery.clone()
    }

    async fn run_discovery(
        self: Arc<Self>,
        connected: Vec<DiscoveredApp>,
        _running: watch::Sender<()>,
    ) {
        let (discover, settings) = (self.queries.discover, Arc::clone(&self.settings));
        let found = blocking(move || discover(&settings, &connected)).await;
        if let Err(error) = &found {
            journal::warn(&format!("cannot discover apps: {error}"));
        }
        self.lock().end_discovery(found.ok());
    }

    /// Starts to query those of the apps that are in scope, unless their queries are running. Returns
    /// the rounds to wait for, and whether one of them is new.
    fn sample_all(
        self: &Arc<Self>,
        scheduler: &mut Scheduler,
        apps: impl Iterator<Item = String>,
        scope: &ScrapeScope,
    ) -> (Vec<PendingRound>, bool) {
        let (mut rounds, mut begun) = (Vec::new(), false);
        for app in apps.filter(|app| scope.includes(app)) {
            if let Some((sampler, running)) = scheduler.begin_round(&app) {
                begun = true;
                tokio::spawn(Arc::clone(self).run_round(sampler, running));
            }
            rounds.extend(scheduler.round_of(&app));
        }
        (rounds, begun)
    }

    async fn run_round(self: Arc<Self>, mut sampler: AppSampler, running: AnswerSender) {
        let (app, sample, timeout) = (sampler.app().clone(), self.queries.sample, self.timeout);
        let hung = self.lock().is_hung(&app);
        let slots = if hung { &self.hung_slots } else { &self.slots };
        let mut slot = slots.acquire().await.ok();
        let mut outcome = pin!(blocking(move || {
            let began = Instant::now();
            let event = sample(&mut sampler, timeout);
            (sampler, event, began.elapsed())
        }));
        let answered = tokio::time::timeout(self.limits.slot, &mut outcome).await;
        let outcome = if let Ok(outcome) = answered {
            outcome
        } else {
            // The app may hang, so it must not block others.
            slot = slot.filter(|_| hung);
            outcome.await
        };
        drop(slot);
        if let Err(error) = &outcome {
            journal::warn(&format!("{}: {error}", app.name));
        }
        self.lock().end_round(&app, outcome, &running);
    }

    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a job in a thread in which it may block.
///
/// # Errors
/// Fails if the job panics, or if no thread can be started.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TelemetryError> {
    // The runtime panics if it cannot start its first thread; in a task, this is an error as well.
    let task = tokio::spawn(async { spawn_blocking(job).await });
    let failed = |error: JoinError| match error.try_into_panic() {
        Ok(panic) => TelemetryError::panicked(&*panic),
        Err(cancelled) => TelemetryError::panicked(&cancelled.to_string()),
    };
    task.await.and_then(|joined| joined).map_err(failed)
}
