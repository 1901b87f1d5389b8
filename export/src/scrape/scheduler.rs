//! The state of all apps and queries. Only one discovery, and one round per app, runs at a time.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability, UnreachableReason};
use pmdscope_telemetry::fleet::{AppSampler, Fleet, FleetSettings};
use pmdscope_telemetry::interface::InterfaceSample;
use pmdscope_telemetry::{AppState, AppStatus, ErrorClass, FleetEvent, TelemetryError, finding};
use tokio::sync::watch;

use super::scope::ScrapeScope;
use super::wait_limits::{ResponseTimes, WaitLimits};
use crate::journal;
use crate::metrics::ExporterCounters;
use crate::snapshot::{RenderOptions, ScrapeSnapshot};

/// Shortest time between two discoveries, which connect to each app.
pub(super) const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Nothing is sent: the channel is closed when the operation has ended, successfully or not.
pub(super) type Completion = watch::Receiver<()>;

/// The state of an app after one round; `None` until then.
type Answer = Option<Arc<AppState>>;

/// Sends the answer of a round.
pub(super) type AnswerSender = watch::Sender<Answer>;

/// A round that a request waits for or has waited for.
#[derive(Clone, Debug)]
pub(super) struct PendingRound {
    socket: PathBuf,
    /// Time until which a scrape of all apps waits for it.
    pub(super) wait_until: Instant,
    /// Changes once, or is closed after a round that has failed.
    pub(super) answered: watch::Receiver<Answer>,
}

/// One query of an app, which several requests may wait for.
#[derive(Debug)]
struct AppRound {
    answered: watch::Receiver<Answer>,
    wait_until: Instant,
    /// A request stopped waiting for it, and counted a timeout.
    timed_out: bool,
}

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) fleet: Fleet,
    /// The running discovery.
    pub(super) discovery: Option<Completion>,
    discovered: Option<Instant>,
    /// The running read of the interfaces.
    pub(super) interfaces: Option<Completion>,
    /// By the socket of the app, because names may change.
    rounds: BTreeMap<PathBuf, AppRound>,
    response_times: ResponseTimes,
    limits: WaitLimits,
    counters: ExporterCounters,
    render_options: Arc<RenderOptions>,
    /// The newest snapshot, while it is in use and nothing has changed.
    snapshot: Weak<ScrapeSnapshot>,
}

impl Scheduler {
    pub(super) fn new(
        settings: FleetSettings,
        render_options: RenderOptions,
        limits: WaitLimits,
    ) -> Self {
        Self {
            fleet: Fleet::new(settings),
            discovery: None,
            discovered: None,
            interfaces: None,
            rounds: BTreeMap::new(),
            response_times: ResponseTimes::default(),
            limits,
            counters: ExporterCounters::default(),
            render_options: Arc::new(render_options),
            snapshot: Weak::new(),
        }
    }

    /// Returns the settings of the output.
    pub(super) fn render_options(&self) -> Arc<RenderOptions> {
        Arc::clone(&self.render_options)
    }

    /// Returns the names of the apps that can be queried.
    pub(super) fn askable(&self) -> Vec<String> {
        self.fleet.asked().map(str::to_owned).collect()
    }

    /// Returns whether a request needs a discovery; one for a known app that can be queried does not.
    pub(super) fn needs_discovery(&self, scope: &ScrapeScope) -> bool {
        match scope {
            ScrapeScope::All | ScrapeScope::Names => true,
            ScrapeScope::App(name) => !self.fleet.asked().any(|app| app == name),
        }
    }

    /// Starts a discovery, if one is due and none is running; returns a sender to drop at its end.
    pub(super) fn begin_discovery(&mut self) -> Option<watch::Sender<()>> {
        let due = self.discovered.is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL);
        (due && self.discovery.is_none()).then(|| {
            let (running, finished) = watch::channel(());
            self.discovery = Some(finished);
            running
        })
    }

    /// Updates the running apps. After a failed discovery, the next request starts another.
    pub(super) fn end_discovery(&mut self, found: Option<Vec<DiscoveredApp>>) {
        self.discovery = None;
        if let Some(apps) = found {
            self.fleet.see(apps);
            self.discovered = Some(Instant::now());
            self.snapshot = Weak::new();
        }
    }

    /// Starts to read the interfaces of the kernel, unless this is running; returns a sender to drop at
    /// the end.
    pub(super) fn begin_interfaces(&mut self) -> Option<watch::Sender<()>> {
        self.interfaces.is_none().then(|| {
            let (running, finished) = watch::channel(());
            self.interfaces = Some(finished);
            running
        })
    }

    /// Updates the interfaces.
    pub(super) fn end_interfaces(&mut self, read: Result<Vec<InterfaceSample>, String>) {
        self.interfaces = None;
        let before = self.fleet.state.interfaces.error.clone();
        self.fleet.take_interfaces(read);
        let error = &self.fleet.state.interfaces.error;
        if let Some(error) = error.as_ref().filter(|error| before.as_ref() != Some(*error)) {
            journal::warn(&format!("interfaces: {error}"));
        }
        self.snapshot = Weak::new();
    }

    /// Starts the round of an app that can be queried and has none running; returns its sampler, and
    /// the sender for its answer.
    pub(super) fn begin_round(&mut self, app: &str) -> Option<(AppSampler, AnswerSender)> {
        let sampler = self.fleet.check_out(app)?;
        let (running, answered) = watch::channel(None);
        let socket = sampler.app().socket.clone();
        let wait_until = Instant::now() + self.response_times.limit(&socket, self.limits);
        self.rounds.insert(socket, AppRound { answered, wait_until, timed_out: false });
        Some((sampler, running))
    }

    /// Returns the running round of an app.
    pub(super) fn round_of(&self, app: &str) -> Option<PendingRound> {
        let socket = self.being_asked().find(|asked| asked.name == app)?.socket;
        let round = self.rounds.get(&socket)?;
        let (answered, wait_until) = (round.answered.clone(), round.wait_until);
        Some(PendingRound { socket, wait_until, answered })
    }

    /// Returns whether the app did not answer its last round.
    pub(super) fn is_hung(&self, app: &DiscoveredApp) -> bool {
        self.response_times.is_hung(&app.socket)
    }

    /// Returns the apps that a discovery need not connect to: those that are connected, and those that
    /// did not answer their last round and would not answer a discovery.
    pub(super) fn connected(&self) -> Vec<DiscoveredApp> {
        let mut connected = self.fleet.connected();
        let known = |app: &&DiscoveredApp| !connected.iter().any(|c| c.socket == app.socket);
        let hung: Vec<_> = self.response_times.hung().filter(known).cloned().collect();
        connected.extend(hung);
        connected
    }

    /// Updates the state with the result of a round, and sends it to those who wait. A failed round has
    /// lost the sampler of its app.
    pub(super) fn end_round(
        &mut self,
        app: &DiscoveredApp,
        outcome: Result<(AppSampler, FleetEvent, Duration), TelemetryError>,
        running: &AnswerSender,
    ) {
        let round = self.rounds.remove(&app.socket);
        match outcome {
            Ok((sampler, event, took)) => {
                self.response_times.note(app, &event, took);
                if round.is_some_and(|round| round.timed_out) {
                    self.uncount(&event);
                }
                self.fleet.check_in(sampler, event);
            }
            Err(error) => {
                self.response_times.forget(&app.socket);
                self.fleet.replace_lost(app, &error);
            }
        }
        // The name of the app may have changed.
        let name = self.fleet.name_of(&app.socket);
        let state = name.and_then(|name| self.fleet.state.find(name)).cloned();
        running.send_replace(state.map(Arc::new));
        self.snapshot = Weak::new();
    }

    /// Returns the apps with a running round, by their current names.
    fn being_asked(&self) -> impl Iterator<Item = DiscoveredApp> {
        let apps = self.fleet.connected().into_iter();
        apps.filter(|app| self.rounds.contains_key(&app.socket))
    }

    /// Subtracts a timeout that was already counted when a request stopped waiting.
    fn uncount(&mut self, event: &FleetEvent) {
        let FleetEvent::Lost { app, class: ErrorClass::Timeout, .. } = event else { return };
        let member = self.fleet.state.apps.iter_mut().find(|member| member.name == *app);
        let count = member.and_then(|member| member.errors.get_mut(&ErrorClass::Timeout));
        if let Some(count) = count {
            *count = count.saturating_sub(1);
        }
    }

    /// Called when a request stops waiting: apps that have not answered these rounds yet count as lost
    /// until they answer. If the request was not at its deadline, apps that never answered stay
    /// unknown, because their first answer may be slow.
    pub(super) fn time_out(&mut self, rounds: &[PendingRound], in_time: bool) {
        let runs = |app: &DiscoveredApp| {
            let mut pending = rounds.iter().filter(|round| round.socket == app.socket);
            pending.any(|round| round.answered.borrow().is_none())
        };
        let late: Vec<DiscoveredApp> = self.being_asked().filter(runs).collect();
        for app in late {
            let state = self.fleet.state.find(&app.name);
            if in_time && state.is_some_and(|state| state.status == AppStatus::Waiting) {
                continue;
            }
            let round = self.rounds.get_mut(&app.socket);
            if round.is_none_or(|round| mem::replace(&mut round.timed_out, true)) {
                continue;
            }
            let app = DiscoveredApp {
                state: Reachability::Unreachable(UnreachableReason::Timeout),
                ..app
            };
            let finding = finding::evaluate_unqueried(&app);
            let reason = "did not answer before this request had to be".to_owned();
            let class = ErrorClass::Timeout;
            self.fleet.state.apply(FleetEvent::Lost { app: app.name, class, reason, finding });
            self.snapshot = Weak::new();
        }
    }

    /// Counts a request that started rounds.
    pub(super) fn count_collection(&mut self) {
        self.counters.collections += 1;
        self.snapshot = Weak::new();
    }

    /// Counts a request that waits for rounds that others started.
    pub(super) fn count_shared(&mut self) {
        self.counters.shared_scrapes += 1;
        self.snapshot = Weak::new();
    }

    /// Returns the current state, with the answers of these rounds. Requests at the same time share one
    /// snapshot, so that it is encoded once.
    pub(super) fn snapshot(&mut self, rounds: &[PendingRound]) -> Arc<ScrapeSnapshot> {
        let earlier: Vec<Arc<AppState>> = rounds
            .iter()
            .filter_map(|round| round.answered.borrow().clone())
            .filter(|answer| self.is_outdated(answer))
            .collect();
        if let Some(snapshot) = self.snapshot.upgrade().filter(|_| earlier.is_empty()) {
            return snapshot;
        }
        let mut state = self.fleet.state.clone();
        for app in &mut state.apps {
            if let Some(answer) = earlier.iter().find(|answer| answer.name == app.name) {
                *app = AppState::clone(answer);
            }
        }
        let options = Arc::clone(&self.render_options);
        let snapshot = Arc::new(ScrapeSnapshot::new(state, self.counters, options));
        if earlier.is_empty() {
            self.snapshot = Arc::downgrade(&snapshot);
        }
        snapshot
    }

    /// Returns whether the app was queried again since this answer.
    fn is_outdated(&self, answer: &AppState) -> bool {
        self.fleet.state.find(&answer.name).is_some_and(|now| {
            let model = |state: &AppState| state.model.as_ref().map(Arc::as_ptr);
            model(now) != model(answer) || now.status != answer.status
        })
    }
}
