//! Where requests come in, work goes out, and answers are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability, UnreachableReason};
use pmdscope_telemetry::fleet::{AppSampler, Fleet, FleetSettings};
use pmdscope_telemetry::{Error, ErrorClass, FleetEvent, finding};
use tokio::sync::oneshot;

use super::scope::ScrapeScope;
use crate::metrics::ExporterCounters;
use crate::snapshot::{ExpositionForm, RenderOptions, ScrapeSnapshot};

/// Least time between two looks for new apps: a look connects to each app.
pub(super) const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct ScrapeRequest {
    scope: ScrapeScope,
    form: Option<ExpositionForm>,
    answer: oneshot::Sender<Arc<ScrapeSnapshot>>,
    /// Waits until somebody has looked for new apps.
    look: bool,
    /// Waits until those behind these sockets were asked; names may change meanwhile.
    apps: BTreeSet<PathBuf>,
}

impl ScrapeRequest {
    pub(super) fn new(
        scope: ScrapeScope,
        form: Option<ExpositionForm>,
        answer: oneshot::Sender<Arc<ScrapeSnapshot>>,
    ) -> Self {
        Self { scope, form, answer, look: false, apps: BTreeSet::new() }
    }

    fn waits(&self) -> bool {
        self.look || !self.apps.is_empty()
    }
}

/// Something that takes time.
#[derive(Debug)]
pub(super) enum ScrapeJob {
    /// Look for apps other than those that are connected.
    Look(Box<FleetSettings>, Vec<DiscoveredApp>),
    /// Ask an app for so long. Whoever has less time does not wait for the end: it would cost the app
    /// its connection, and others their answer.
    Sample(Box<AppSampler>, Duration),
}

/// What a job brought.
#[derive(Debug)]
pub(super) enum JobOutcome {
    Looked(Vec<DiscoveredApp>),
    Sampled(Box<AppSampler>, FleetEvent),
    /// The job did not come to its end, and the sampler of that app is lost; without one, nobody
    /// knows which apps run.
    Failed(Option<DiscoveredApp>, Error),
}

impl ScrapeJob {
    /// The app that it asks, if any.
    pub(super) fn app(&self) -> Option<DiscoveredApp> {
        match self {
            Self::Look(..) => None,
            Self::Sample(sampler, _) => Some(sampler.app().clone()),
        }
    }

    pub(super) fn run(self) -> JobOutcome {
        match self {
            Self::Look(settings, connected) => {
                JobOutcome::Looked(settings.running_beside(&connected))
            }
            Self::Sample(mut sampler, timeout) => {
                let news = sampler.sample(timeout);
                JobOutcome::Sampled(sampler, news)
            }
        }
    }
}

/// The same answer for several who waited.
#[derive(Debug)]
pub(super) struct ScrapeAnswer {
    snapshot: Arc<ScrapeSnapshot>,
    requests: Vec<ScrapeRequest>,
}

impl ScrapeAnswer {
    /// Puts together what was asked for, once for all, and sends it.
    pub(super) fn send(self) {
        for request in self.requests {
            if let Some(form) = &request.form {
                self.snapshot.text(form);
            }
            // Whoever does not wait any more has had an answer, or has gone.
            let _ = request.answer.send(Arc::clone(&self.snapshot));
        }
    }
}

/// All that the threads share.
#[derive(Debug)]
pub(super) struct Scheduler {
    fleet: Fleet,
    settings: FleetSettings,
    render_options: Arc<RenderOptions>,
    /// Longest time for one app.
    timeout: Duration,
    /// Sockets of the apps that are being asked, and whether somebody could not wait for them.
    asked: BTreeMap<PathBuf, bool>,
    looking: bool,
    looked: Option<Instant>,
    waiting: Vec<ScrapeRequest>,
    counters: ExporterCounters,
}

impl Scheduler {
    pub(super) fn new(
        settings: FleetSettings,
        render_options: RenderOptions,
        timeout: Duration,
    ) -> Self {
        Self {
            fleet: Fleet::new(settings.clone()),
            settings,
            render_options: Arc::new(render_options),
            timeout,
            asked: BTreeMap::new(),
            looking: false,
            looked: None,
            waiting: Vec::new(),
            counters: ExporterCounters::default(),
        }
    }

    /// Starts what nobody else has started: the jobs to do.
    pub(super) fn accept(&mut self, mut request: ScrapeRequest) -> Vec<ScrapeJob> {
        self.waiting.retain(|request| !request.answer.is_closed());
        let mut jobs = Vec::new();
        if self.needs_look(&request.scope) {
            jobs.extend(self.look());
            request.look = self.looking;
        }
        let mut asking = Vec::new();
        for app in self.askable() {
            if request.scope.includes(&app) {
                request.apps.extend(self.ask(&app, &mut asking));
            }
        }
        if !asking.is_empty() {
            self.counters.collections += 1;
        } else if !request.apps.is_empty() {
            self.counters.shared_scrapes += 1;
        }
        jobs.extend(asking);
        self.waiting.push(request);
        jobs
    }

    /// Names of the apps that can be asked.
    fn askable(&self) -> BTreeSet<String> {
        self.fleet.asked().map(str::to_owned).collect()
    }

    /// One that is known and can be asked is found without a look.
    fn needs_look(&self, scope: &ScrapeScope) -> bool {
        match scope {
            ScrapeScope::All | ScrapeScope::Names => true,
            ScrapeScope::App(name) => !self.fleet.asked().any(|app| app == name),
        }
    }

    fn look(&mut self) -> Option<ScrapeJob> {
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= DISCOVERY_INTERVAL);
        (due && !self.looking).then(|| {
            self.looking = true;
            ScrapeJob::Look(Box::new(self.settings.clone()), self.fleet.connected())
        })
    }

    /// Adds the job to ask an app, unless that is being done already: the socket to wait for.
    fn ask(&mut self, app: &str, jobs: &mut Vec<ScrapeJob>) -> Option<PathBuf> {
        let Some(sampler) = self.fleet.check_out(app) else {
            return self.being_asked().find(|asked| asked.name == app).map(|asked| asked.socket);
        };
        let socket = sampler.app().socket.clone();
        self.asked.insert(socket.clone(), false);
        jobs.push(ScrapeJob::Sample(Box::new(sampler), self.timeout));
        Some(socket)
    }

    /// Apps that are being asked, by the names that they have now.
    fn being_asked(&self) -> impl Iterator<Item = DiscoveredApp> {
        let apps = self.fleet.connected().into_iter();
        apps.filter(|app| self.asked.contains_key(&app.socket))
    }

    /// Takes in what a job brought: the jobs that follow from it.
    pub(super) fn take(&mut self, outcome: JobOutcome) -> Vec<ScrapeJob> {
        match outcome {
            JobOutcome::Looked(apps) => self.meet(apps),
            JobOutcome::Sampled(sampler, news) => {
                let socket = sampler.app().socket.clone();
                if self.asked.remove(&socket) == Some(true) {
                    self.uncount(&news);
                }
                self.fleet.check_in(*sampler, news);
                self.await_no_longer(&socket);
                Vec::new()
            }
            JobOutcome::Failed(Some(app), error) => {
                self.asked.remove(&app.socket);
                self.fleet.replace_lost(&app, &error);
                self.await_no_longer(&app.socket);
                Vec::new()
            }
            JobOutcome::Failed(None, _) => {
                // Whoever comes next looks again, and at once.
                self.looking = false;
                for request in &mut self.waiting {
                    request.look = false;
                }
                Vec::new()
            }
        }
    }

    /// The app behind that socket has been asked.
    fn await_no_longer(&mut self, socket: &Path) {
        for request in &mut self.waiting {
            request.apps.remove(socket);
        }
    }

    /// News of a timeout that was counted when somebody could not wait any longer.
    fn uncount(&mut self, news: &FleetEvent) {
        let FleetEvent::Lost { app, class: ErrorClass::Timeout, .. } = news else { return };
        let member = self.fleet.state.apps.iter_mut().find(|member| member.name == *app);
        let count = member.and_then(|member| member.errors.get_mut(&ErrorClass::Timeout));
        if let Some(count) = count {
            *count = count.saturating_sub(1);
        }
    }

    /// Apps that have come are asked at once, for those who wait for the look.
    fn meet(&mut self, apps: Vec<DiscoveredApp>) -> Vec<ScrapeJob> {
        let known = self.askable();
        self.fleet.see(apps);
        (self.looking, self.looked) = (false, Some(Instant::now()));
        let (mut jobs, mut waiting) = (Vec::new(), std::mem::take(&mut self.waiting));
        let mut looking: Vec<_> = waiting.iter_mut().filter(|request| request.look).collect();
        for app in self.askable().difference(&known) {
            for request in looking.iter_mut().filter(|request| request.scope.includes(app)) {
                request.apps.extend(self.ask(app, &mut jobs));
            }
        }
        for request in looking {
            request.look = false;
        }
        self.waiting = waiting;
        self.counters.collections += u64::from(!jobs.is_empty());
        jobs
    }

    /// The answer for those who need not wait any longer.
    pub(super) fn answer(&mut self) -> Option<ScrapeAnswer> {
        let requests: Vec<ScrapeRequest> =
            self.waiting.extract_if(.., |request| !request.waits()).collect();
        let snapshot = || Arc::new(self.snapshot());
        (!requests.is_empty()).then(|| ScrapeAnswer { snapshot: snapshot(), requests })
    }

    /// What is known now, for somebody who cannot wait any longer: apps that have not answered yet
    /// count as lost until they do.
    pub(super) fn late(&mut self, scope: &ScrapeScope) -> ScrapeSnapshot {
        let late: Vec<DiscoveredApp> =
            self.being_asked().filter(|app| scope.includes(&app.name)).collect();
        for app in late {
            if self.asked.insert(app.socket.clone(), true) == Some(true) {
                continue;
            }
            let app = DiscoveredApp {
                state: Reachability::Unreachable(UnreachableReason::Timeout),
                ..app
            };
            let finding = finding::evaluate_unasked(&app);
            let reason = "did not answer before this request had to be".to_owned();
            let class = ErrorClass::Timeout;
            self.fleet.state.apply(FleetEvent::Lost { app: app.name, class, reason, finding });
        }
        self.snapshot()
    }

    fn snapshot(&self) -> ScrapeSnapshot {
        ScrapeSnapshot::new(
            self.fleet.state.clone(),
            self.counters,
            Arc::clone(&self.render_options),
        )
    }
}
