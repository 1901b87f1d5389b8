//! The state of all apps and of queries: at most one discovery, and one round per app, at a time.

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

/// Least time between two discoveries: one connects to each app.
pub(super) const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Nothing is ever sent: it is closed when what others wait for has ended, however it ended.
pub(super) type Completion = watch::Receiver<()>;

/// The state of an app by the answer of one round; nothing until then.
type Answer = Option<Arc<AppState>>;

/// Whoever asks an app sends its answer here.
pub(super) type AnswerSender = watch::Sender<Answer>;

/// A round that a request waits for, or has waited for.
#[derive(Clone, Debug)]
pub(super) struct PendingRound {
    socket: PathBuf,
    /// When a scrape of all apps no longer waits for it.
    pub(super) wait_until: Instant,
    /// Changes once, or is closed after a round that has failed.
    pub(super) answered: watch::Receiver<Answer>,
}

/// One question to an app, which several requests may wait for.
#[derive(Debug)]
struct AppRound {
    answered: watch::Receiver<Answer>,
    wait_until: Instant,
    /// Somebody could not wait for it, and counted it as a timeout.
    timed_out: bool,
}

/// All that requests share.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) fleet: Fleet,
    /// The discovery that runs.
    pub(super) discovery: Option<Completion>,
    discovered: Option<Instant>,
    /// The read of the interfaces that runs.
    pub(super) interfaces: Option<Completion>,
    /// By the sockets of the apps; names may change meanwhile.
    rounds: BTreeMap<PathBuf, AppRound>,
    response_times: ResponseTimes,
    limits: WaitLimits,
    counters: ExporterCounters,
    render_options: Arc<RenderOptions>,
    /// The newest snapshot, as long as somebody uses it and nothing new is known.
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

    /// Names of the apps that can be asked.
    pub(super) fn askable(&self) -> Vec<String> {
        self.fleet.asked().map(str::to_owned).collect()
    }

    /// One that is known and can be asked is found without a discovery.
    pub(super) fn needs_discovery(&self, scope: &ScrapeScope) -> bool {
        match scope {
            ScrapeScope::All | ScrapeScope::Names => true,
            ScrapeScope::App(name) => !self.fleet.asked().any(|app| app == name),
        }
    }

    /// Begins a discovery, if one is due and none runs: what to drop at its end.
    pub(super) fn begin_discovery(&mut self) -> Option<watch::Sender<()>> {
        let due = self.discovered.is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL);
        (due && self.discovery.is_none()).then(|| {
            let (running, finished) = watch::channel(());
            self.discovery = Some(finished);
            running
        })
    }

    /// Takes in the apps that run. After a discovery that has failed the next request begins another.
    pub(super) fn end_discovery(&mut self, found: Option<Vec<DiscoveredApp>>) {
        self.discovery = None;
        if let Some(apps) = found {
            self.fleet.see(apps);
            self.discovered = Some(Instant::now());
            self.snapshot = Weak::new();
        }
    }

    /// Begins to read the interfaces of the kernel, unless that runs: what to drop at the end.
    pub(super) fn begin_interfaces(&mut self) -> Option<watch::Sender<()>> {
        self.interfaces.is_none().then(|| {
            let (running, finished) = watch::channel(());
            self.interfaces = Some(finished);
            running
        })
    }

    /// Takes in the interfaces that were read.
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

    /// Begins to ask an app that can be asked and is not being asked: its sampler, and what to drop at
    /// the end.
    pub(super) fn begin_round(&mut self, app: &str) -> Option<(AppSampler, AnswerSender)> {
        let sampler = self.fleet.check_out(app)?;
        let (running, answered) = watch::channel(None);
        let socket = sampler.app().socket.clone();
        let wait_until = Instant::now() + self.response_times.limit(&socket, self.limits);
        self.rounds.insert(socket, AppRound { answered, wait_until, timed_out: false });
        Some((sampler, running))
    }

    /// The round of an app that is being asked.
    pub(super) fn round_of(&self, app: &str) -> Option<PendingRound> {
        let socket = self.being_asked().find(|asked| asked.name == app)?.socket;
        let round = self.rounds.get(&socket)?;
        let (answered, wait_until) = (round.answered.clone(), round.wait_until);
        Some(PendingRound { socket, wait_until, answered })
    }

    /// It did not answer the last round.
    pub(super) fn is_hung(&self, app: &DiscoveredApp) -> bool {
        self.response_times.is_hung(&app.socket)
    }

    /// The apps that a discovery need not connect to: those that are connected, and those that did not
    /// answer the last round and would not answer a discovery.
    pub(super) fn connected(&self) -> Vec<DiscoveredApp> {
        let mut connected = self.fleet.connected();
        let known = |app: &&DiscoveredApp| !connected.iter().any(|c| c.socket == app.socket);
        let hung: Vec<_> = self.response_times.hung().filter(known).cloned().collect();
        connected.extend(hung);
        connected
    }

    /// Takes in what a round brought, and tells those who wait. One that has failed has lost the
    /// sampler of its app.
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
        // It may have another name by now.
        let name = self.fleet.name_of(&app.socket);
        let state = name.and_then(|name| self.fleet.state.find(name)).cloned();
        running.send_replace(state.map(Arc::new));
        self.snapshot = Weak::new();
    }

    /// Apps that are being asked, by the names that they have now.
    fn being_asked(&self) -> impl Iterator<Item = DiscoveredApp> {
        let apps = self.fleet.connected().into_iter();
        apps.filter(|app| self.rounds.contains_key(&app.socket))
    }

    /// Event of a timeout that was counted when somebody could not wait any longer.
    fn uncount(&mut self, event: &FleetEvent) {
        let FleetEvent::Lost { app, class: ErrorClass::Timeout, .. } = event else { return };
        let member = self.fleet.state.apps.iter_mut().find(|member| member.name == *app);
        let count = member.and_then(|member| member.errors.get_mut(&ErrorClass::Timeout));
        if let Some(count) = count {
            *count = count.saturating_sub(1);
        }
    }

    /// Somebody cannot wait any longer: apps that have not answered these rounds yet count as lost
    /// until they do. Where there was more time, an app that has never answered is not known yet: it may
    /// be slow the first time.
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

    /// Counts a request that has begun rounds.
    pub(super) fn count_collection(&mut self) {
        self.counters.collections += 1;
        self.snapshot = Weak::new();
    }

    /// Counts a request that waits for rounds that others have begun.
    pub(super) fn count_shared(&mut self) {
        self.counters.shared_scrapes += 1;
        self.snapshot = Weak::new();
    }

    /// What is known now, and what these rounds have answered; the same for all who ask at the same
    /// moment, so that it is encoded once.
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

    /// The app has been asked again since.
    fn is_outdated(&self, answer: &AppState) -> bool {
        self.fleet.state.find(&answer.name).is_some_and(|now| {
            let model = |state: &AppState| state.model.as_ref().map(Arc::as_ptr);
            model(now) != model(answer) || now.status != answer.status
        })
    }
}
