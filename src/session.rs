//! Sampling: one session per app, and rounds over all of them.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use pmdscope_telemetry::discover::{self, App, AppState, DiscoverOptions, Unreachable};
use pmdscope_telemetry::finding::{self, Finding};
use pmdscope_telemetry::{Collector, Error, Thresholds, Tracker};
use pmdscope_tui::world::{Event, World};

/// Longest wait for one app to answer one round.
pub(crate) const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// Which apps to look at.
#[derive(clap::Args, Clone)]
pub(crate) struct AppArg {
    /// The app, by its DPDK file-prefix; all running apps without it
    #[arg(short, long, value_name = "PREFIX")]
    pub(crate) app: Option<String>,
}

/// One app, sampled again and again.
pub(crate) struct Session {
    collector: Collector,
    tracker: Tracker,
    thresholds: Thresholds,
}

impl Session {
    /// Connects at the first sample.
    pub(crate) fn new(app: App) -> Self {
        Self {
            collector: Collector::new(app),
            tracker: Tracker::default(),
            thresholds: Thresholds::default(),
        }
    }

    /// Asks the app once; connects again by itself after it was lost.
    pub(crate) fn sample(&mut self) -> Event {
        let app = self.collector.app().name.clone();
        match self.collector.collect(ROUND_TIMEOUT) {
            Ok(sample) => {
                let model = Box::new(self.tracker.update(sample));
                let findings = finding::judge(&model, &self.thresholds);
                Event::Sampled { app, model, findings }
            }
            Err(error) => Event::Lost {
                app,
                finding: judge_lost(self.collector.app(), &error),
                reason: error.to_string(),
            },
        }
    }
}

/// An app that was found and then does not answer is as bad as one that never did.
fn judge_lost(app: &App, error: &Error) -> Option<Finding> {
    let why = match error {
        Error::Refused | Error::Closed => Unreachable::Refused,
        Error::Permission => Unreachable::Permission,
        Error::Timeout(_) => Unreachable::Timeout,
        Error::Busy | Error::Locked => Unreachable::Busy,
        _ => Unreachable::Protocol,
    };
    let lost = App { state: AppState::Unreachable(why), ..app.clone() };
    let finding = finding::judge_unasked(&lost)?;
    Some(Finding { evidence: error.to_string(), ..finding })
}

/// The apps on this machine. Those that share a name, in directories of several users, are called by
/// their directories, which are accepted as names too.
pub(crate) fn running(options: &DiscoverOptions) -> Vec<App> {
    let apps = discover::discover(options);
    let shared = |app: &App| apps.iter().filter(|other| other.name == app.name).count() > 1;
    let name =
        |app: &App| if shared(app) { app.dir.display().to_string() } else { app.name.clone() };
    apps.iter().map(|app| App { name: name(app), ..app.clone() }).collect()
}

/// News of an app that cannot be asked; `None` when it can.
pub(crate) fn unasked(app: &App) -> Option<Event> {
    let reason = obstacle(app.state)?.to_owned();
    Some(Event::Lost { app: app.name.clone(), reason, finding: finding::judge_unasked(app) })
}

/// Why an app that runs cannot be asked; `None` when it can.
pub(crate) fn obstacle(state: AppState) -> Option<&'static str> {
    match state {
        AppState::Live => None,
        AppState::NoTelemetry => Some("runs without telemetry; start it without --no-telemetry"),
        AppState::Stale => Some("has ended and left its files behind"),
        AppState::Unreachable(why) => Some(why.advice()),
    }
}

/// All chosen apps, sampled at the same moments.
pub(crate) struct Rounds {
    /// What is known so far.
    pub(crate) world: World,
    sessions: Vec<Session>,
}

impl Rounds {
    /// Finds the chosen apps.
    ///
    /// # Errors
    ///
    /// When there is none, or the only one cannot be asked.
    pub(crate) fn start(chosen: &AppArg) -> Result<Self> {
        let options = DiscoverOptions::default();
        let apps = match &chosen.app {
            Some(name) => vec![discover::find(Some(name), &options)?],
            None => running(&options),
        };
        if !apps.iter().any(|app| app.state == AppState::Live) {
            discover::find(None, &options)?;
        }
        let mut rounds = Self { world: World::default(), sessions: Vec::new() };
        for app in apps {
            match unasked(&app) {
                None => rounds.sessions.push(Session::new(app)),
                Some(event) => rounds.world.apply(event),
            }
        }
        Ok(rounds)
    }

    /// Samples all apps at once; a stuck one delays the others by [`ROUND_TIMEOUT`] at most.
    pub(crate) fn sample(&mut self) {
        let events: Vec<Event> = thread::scope(|scope| {
            let samples: Vec<_> =
                self.sessions.iter_mut().map(|session| scope.spawn(|| session.sample())).collect();
            samples.into_iter().filter_map(|sample| sample.join().ok()).collect()
        });
        for event in events {
            self.world.apply(event);
        }
        self.world.now_ns = pmdscope_tui::run::monotonic_ns();
    }
}
