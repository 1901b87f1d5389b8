//! Where requests come in, work goes out, and answers are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{App, AppState, Unreachable};
use pmdscope_telemetry::finding;
use pmdscope_telemetry::fleet::{Fleet, Session, Settings};
use pmdscope_telemetry::world::{Event, Status, World};
use tokio::sync::oneshot;

use super::Wants;
use crate::metrics::Counters;
use crate::snapshot::{Exhibit, Form, Snapshot};

/// Least time between two looks for new apps: a look connects to each app.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Request {
    wants: Wants,
    form: Option<Form>,
    deadline: Instant,
    answer: oneshot::Sender<Arc<Snapshot>>,
    /// Waits until somebody has looked for new apps.
    look: bool,
    /// Waits until these were asked.
    apps: BTreeSet<String>,
}

impl Request {
    pub(super) fn new(
        wants: Wants,
        form: Option<Form>,
        deadline: Instant,
        answer: oneshot::Sender<Arc<Snapshot>>,
    ) -> Self {
        Self { wants, form, deadline, answer, look: false, apps: BTreeSet::new() }
    }

    fn waits(&self) -> bool {
        self.look || !self.apps.is_empty()
    }

    fn wants(&self, app: &str) -> bool {
        match &self.wants {
            Wants::All => true,
            Wants::App(name) => name == app,
            Wants::Names => false,
        }
    }
}

/// Something that takes time.
#[derive(Debug)]
pub(super) enum Job {
    /// Look for apps other than those that are connected.
    Look(Box<Settings>, Vec<App>),
    /// Ask an app until then.
    Sample(Box<Session>, Instant),
}

/// What a job brought.
#[derive(Debug)]
pub(super) enum Outcome {
    Looked(Vec<App>),
    Sampled(Box<Session>, Event),
}

impl Job {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Look(settings, connected) => Outcome::Looked(settings.running_beside(&connected)),
            Self::Sample(mut session, deadline) => {
                let news = session.sample(deadline.saturating_duration_since(Instant::now()));
                Outcome::Sampled(session, news)
            }
        }
    }
}

/// The same answer for several who waited.
#[derive(Debug)]
pub(super) struct Answer {
    snapshot: Arc<Snapshot>,
    requests: Vec<Request>,
}

impl Answer {
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
pub(super) struct Desk {
    fleet: Fleet,
    settings: Settings,
    exhibit: Arc<Exhibit>,
    /// Apps that are being asked.
    asked: BTreeMap<String, App>,
    looking: bool,
    looked: Option<Instant>,
    waiting: Vec<Request>,
    counters: Counters,
}

impl Desk {
    pub(super) fn new(settings: Settings, exhibit: Exhibit) -> Self {
        Self {
            fleet: Fleet::new(settings.clone()),
            settings,
            exhibit: Arc::new(exhibit),
            asked: BTreeMap::new(),
            looking: false,
            looked: None,
            waiting: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Starts what nobody else has started: the jobs to do.
    pub(super) fn accept(&mut self, mut request: Request) -> Vec<Job> {
        self.waiting.retain(|request| !request.answer.is_closed());
        let mut jobs = Vec::new();
        if self.needs_look(&request.wants) {
            jobs.extend(self.look());
            request.look = self.looking;
        }
        request.apps = self.askable(|app| request.wants(app));
        let deadline = request.deadline;
        let asking: Vec<Job> =
            request.apps.iter().filter_map(|app| self.ask(app, deadline)).collect();
        if !asking.is_empty() {
            self.counters.collections += 1;
        } else if !request.apps.is_empty() {
            self.counters.shared_scrapes += 1;
        }
        jobs.extend(asking);
        self.waiting.push(request);
        jobs
    }

    fn askable(&self, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
        self.fleet.asked().filter(|app| wanted(app)).map(str::to_owned).collect()
    }

    /// One that is known and can be asked is found without a look.
    fn needs_look(&self, wants: &Wants) -> bool {
        match wants {
            Wants::All | Wants::Names => true,
            Wants::App(name) => !self.fleet.asked().any(|app| app == name),
        }
    }

    fn look(&mut self) -> Option<Job> {
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_PAUSE);
        (due && !self.looking).then(|| {
            self.looking = true;
            Job::Look(Box::new(self.settings.clone()), self.fleet.connected())
        })
    }

    fn ask(&mut self, app: &str, deadline: Instant) -> Option<Job> {
        let session = self.fleet.lend(app)?;
        self.asked.insert(app.to_owned(), session.app().clone());
        Some(Job::Sample(Box::new(session), deadline))
    }

    /// Takes in what a job brought: the jobs that follow from it.
    pub(super) fn take(&mut self, outcome: Outcome) -> Vec<Job> {
        match outcome {
            Outcome::Looked(apps) => self.meet(apps),
            Outcome::Sampled(session, news) => {
                let app = session.app().name.clone();
                self.fleet.take_back(*session, news);
                self.asked.remove(&app);
                for request in &mut self.waiting {
                    request.apps.remove(&app);
                }
                Vec::new()
            }
        }
    }

    /// Apps that have come are asked at once, for those who wait for the look.
    fn meet(&mut self, apps: Vec<App>) -> Vec<Job> {
        let known = self.askable(|_| true);
        self.fleet.see(apps);
        (self.looking, self.looked) = (false, Some(Instant::now()));
        let new = self.askable(|app| !known.contains(app));
        let mut deadlines = BTreeMap::<String, Instant>::new();
        for request in self.waiting.iter_mut().filter(|request| request.look) {
            request.look = false;
            for app in &new {
                if request.wants(app) {
                    let deadline = deadlines.entry(app.clone()).or_insert(request.deadline);
                    *deadline = request.deadline.max(*deadline);
                    request.apps.insert(app.clone());
                }
            }
        }
        deadlines.iter().filter_map(|(app, deadline)| self.ask(app, *deadline)).collect()
    }

    /// The answer for those who need not wait any longer.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let requests: Vec<Request> =
            self.waiting.extract_if(.., |request| !request.waits()).collect();
        let snapshot = || Arc::new(self.snapshot(self.fleet.world.clone()));
        (!requests.is_empty()).then(|| Answer { snapshot: snapshot(), requests })
    }

    /// What is known now, for somebody who cannot wait any longer.
    pub(super) fn late(&self) -> Snapshot {
        let mut world = self.fleet.world.clone();
        for member in &mut world.apps {
            if let Some(app) = self.asked.get(&member.name) {
                let late =
                    App { state: AppState::Unreachable(Unreachable::Timeout), ..app.clone() };
                let reason = "did not answer before this request had to be".to_owned();
                member.status = Status::Lost { reason };
                member.findings = finding::judge_unasked(&late).into_iter().collect();
            }
        }
        self.snapshot(world)
    }

    fn snapshot(&self, world: World) -> Snapshot {
        Snapshot::new(world, self.counters, Arc::clone(&self.exhibit))
    }
}
