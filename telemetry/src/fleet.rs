//! Sampling: a [`Session`] per app, and a [`Fleet`] of all apps that were found or are expected.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use crate::collect::{Collector, now_ns};
use crate::discover::{self, App, AppState, DiscoverOptions, FindError};
use crate::error::{Error, ErrorClass};
use crate::finding::{self, Rules};
use crate::model::Tracker;
use crate::names::Names;
use crate::sample::Sample;
use crate::world::{Event, World};

/// Longest wait for one app to answer one round, unless the caller knows better.
pub const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// Where apps are looked for, what they are called, and what is expected of them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to look.
    pub discover: DiscoverOptions,
    /// What apps are called.
    pub names: Names,
    /// How they are judged.
    pub rules: Rules,
    /// How long an app that has ended stays visible as down; an expected one stays for ever.
    pub keep_lost: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            discover: DiscoverOptions::default(),
            names: Names::default(),
            rules: Rules::default(),
            keep_lost: Duration::from_secs(3600),
        }
    }
}

impl Settings {
    /// The apps on this machine, by the names that tools give them: mapped where the settings say so.
    /// Those that share a name, in directories of several users, are called by their directories,
    /// which are accepted as names too.
    pub fn running(&self) -> Vec<App> {
        self.running_beside(&[])
    }

    /// As [`Settings::running`], without connecting again to those of [`Fleet::connected`].
    pub fn running_beside(&self, connected: &[App]) -> Vec<App> {
        self.names.give(&discover::look(&self.discover, connected))
    }

    /// The one live app of that name, file-prefix or directory; without a name, the only live one.
    ///
    /// # Errors
    /// When there is none, when there are several, or when it cannot be asked.
    pub fn find(&self, name: Option<&str>) -> Result<App, FindError> {
        discover::choose(name, self.running(), &self.discover)
    }

    /// The app of that name. That an expected one cannot be asked, or does not run, is something to
    /// tell, and no mistake of who asks.
    fn named(&self, name: &str) -> Result<Vec<App>, FindError> {
        let expected = |name: &str| self.rules.expected.app(name).is_some();
        match self.find(Some(name)) {
            Ok(app) => Ok(vec![app]),
            Err(FindError::Unknown { .. }) if expected(name) => Ok(Vec::new()),
            Err(FindError::NoTelemetry(app) | FindError::Unreachable(app, _))
                if expected(&app.name) =>
            {
                Ok(vec![app])
            }
            Err(error) => Err(error),
        }
    }
}

/// One app, sampled again and again.
#[derive(Debug)]
pub struct Session {
    collector: Collector,
    judge: Judge,
    /// When it was last heard of, or found.
    heard: Instant,
}

impl Session {
    /// Connects at the first sample.
    pub fn new(app: App, settings: &Settings) -> Self {
        Self {
            collector: Collector::new(app),
            judge: Judge::new(settings.rules.clone()),
            heard: Instant::now(),
        }
    }

    /// The app, as it was found.
    pub fn app(&self) -> &App {
        self.collector.app()
    }

    /// The app has not closed the connection since it answered last.
    fn is_connected(&self) -> bool {
        self.collector.is_connected()
    }

    /// Asks the app once, within `timeout`; connects again by itself after it was lost.
    pub fn sample(&mut self, timeout: Duration) -> Event {
        match self.collector.collect(timeout) {
            Ok(sample) => {
                self.heard = Instant::now();
                self.judge.sampled(sample)
            }
            Err(error) => lost(self.collector.app(), &error),
        }
    }
}

/// Turns the samples of one app, live or recorded, into news.
#[derive(Debug)]
pub struct Judge {
    tracker: Tracker,
    rules: Rules,
}

impl Judge {
    /// One that has seen nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self { tracker: Tracker::default(), rules }
    }

    /// The news in a sample.
    pub fn sampled(&mut self, sample: Sample) -> Event {
        let app = sample.app.name.clone();
        let model = Arc::new(self.tracker.update(sample));
        let findings = finding::judge(&model, &self.rules);
        Event::Sampled { app, model, findings }
    }
}

/// An app that was found and then does not answer is as bad as one that never did.
fn lost(app: &App, error: &Error) -> Event {
    let class = error.class();
    let lost = App { state: AppState::Unreachable(class.into()), ..app.clone() };
    let finding = finding::judge_unasked(&lost)
        .map(|finding| finding::Finding { evidence: error.to_string(), ..finding });
    Event::Lost { app: app.name.clone(), class, reason: error.to_string(), finding }
}

/// News of an app that cannot be asked; `None` when it can.
pub fn unasked(app: &App) -> Option<Event> {
    let (class, reason) = obstacle(app.state)?;
    let finding = finding::judge_unasked(app);
    Some(Event::Lost { app: app.name.clone(), class, reason: reason.to_owned(), finding })
}

/// Why an app that runs cannot be asked; `None` when it can.
pub fn obstacle(state: AppState) -> Option<(ErrorClass, &'static str)> {
    match state {
        AppState::Live => None,
        AppState::NoTelemetry => Some((
            ErrorClass::TelemetryOff,
            "runs without telemetry; start it without --no-telemetry",
        )),
        AppState::Stale => Some((ErrorClass::Refused, "has ended and left its files behind")),
        AppState::Unreachable(why) => Some((why.into(), why.advice())),
    }
}

/// All chosen apps, sampled at the same moments.
#[derive(Debug)]
pub struct Fleet {
    /// What is known so far.
    pub world: World,
    settings: Settings,
    seats: Vec<Seat>,
}

/// An app that is sampled.
#[derive(Debug)]
struct Seat {
    app: App,
    /// `None` while it is lent.
    session: Option<Session>,
}

impl Seat {
    fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.app.name);
        if let Some(session) = &mut self.session {
            session.collector.rename(name);
        }
    }
}

impl Fleet {
    /// The apps that run now, or the one of that name, and those that are expected.
    ///
    /// # Errors
    /// When there is none at all, or the only one cannot be asked and is not expected.
    pub fn start(name: Option<&str>, mut settings: Settings) -> Result<Self, FindError> {
        let apps = match name {
            Some(name) => settings.named(name)?,
            None => settings.running(),
        };
        if let Some(name) = name {
            let name = apps.first().map_or(name, |app| &app.name);
            settings.rules.expected.apps.retain(|expected| expected.name == *name);
        }
        let expected = !settings.rules.expected.apps.is_empty();
        if !expected && !apps.iter().any(|app| app.state == AppState::Live) {
            settings.find(None)?;
        }
        let mut fleet = Self::new(settings);
        fleet.see(apps);
        Ok(fleet)
    }

    /// A fleet without apps; [`Fleet::look`] finds them.
    pub fn new(settings: Settings) -> Self {
        Self { world: World::default(), settings, seats: Vec::new() }
    }

    /// Takes in apps that have come since, gives up those that have been gone for too long, and
    /// misses those that are expected and were never seen.
    pub fn look(&mut self) {
        self.see(self.settings.running_beside(&self.connected()));
    }

    /// The apps with an open connection, and those that are lent, which are being asked.
    pub fn connected(&self) -> Vec<App> {
        let open = |seat: &&Seat| seat.session.as_ref().is_none_or(Session::is_connected);
        self.seats.iter().filter(open).map(|seat| seat.app.clone()).collect()
    }

    /// As [`Fleet::look`], for a caller who has looked: the apps of [`Settings::running`].
    pub fn see(&mut self, running: Vec<App>) {
        self.tell_time();
        self.recognise(&running);
        let known = |app: &App| self.seats.iter().any(|seat| seat.app.socket == app.socket);
        let apps: Vec<App> = running.into_iter().filter(|app| !known(app)).collect();
        let seen: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
        self.meet(apps);
        self.give_up(&seen);
        self.miss(&seen);
    }

    /// An app that came back under another file-prefix may have the name of the one that ended; one
    /// may have another name than before, because of who runs beside it; and one may have been
    /// restarted without telemetry, so that nobody can ask it any more.
    fn recognise(&mut self, running: &[App]) {
        let found = |seat: &Seat| running.iter().find(|app| app.socket == seat.app.socket);
        let succeeded = |seat: &Seat| running.iter().any(|app| app.name == seat.app.name);
        self.seats.retain(|seat| match found(seat) {
            Some(app) => app.state != AppState::NoTelemetry,
            None => !succeeded(seat),
        });
        for seat in &mut self.seats {
            let other = running.iter().find(|app| app.socket == seat.app.socket);
            if let Some(app) = other.filter(|app| app.name != seat.app.name) {
                seat.rename(&app.name);
            }
        }
    }

    /// Samples all apps at once; a stuck one delays the others by `timeout` at most.
    pub fn sample(&mut self, timeout: Duration) {
        let mut sessions: Vec<_> =
            self.seats.iter_mut().filter_map(|seat| seat.session.as_mut()).collect();
        let events: Vec<Event> = match sessions.as_mut_slice() {
            // Most machines run one: no need of another thread.
            [session] => vec![session.sample(timeout)],
            sessions => thread::scope(|scope| {
                let samples: Vec<_> = sessions
                    .iter_mut()
                    .map(|session| scope.spawn(move || session.sample(timeout)))
                    .collect();
                samples.into_iter().filter_map(|sample| sample.join().ok()).collect()
            }),
        };
        for event in events {
            self.world.apply(event);
        }
        self.tell_time();
    }

    /// Names of the apps that can be asked.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        self.seats.iter().map(|seat| seat.app.name.as_str())
    }

    /// Lends the session of an app to another thread, which samples it and gives it back. `None` when
    /// there is no such app, or its session is lent already.
    pub fn lend(&mut self, app: &str) -> Option<Session> {
        self.seats.iter_mut().find(|seat| seat.app.name == app)?.session.take()
    }

    /// Takes a lent session back, with the news it has brought.
    pub fn take_back(&mut self, session: Session, news: Event) {
        let mut seats = self.seats.iter_mut();
        // The app may have been given up meanwhile.
        let Some(seat) = seats.find(|s| s.app.socket == session.app().socket) else { return };
        let renamed = session.app().name != seat.app.name;
        seat.session = Some(session);
        if renamed {
            // Its news are about a name that may be another's by now.
            let name = seat.app.name.clone();
            seat.rename(&name);
            return;
        }
        self.world.apply(news);
        self.tell_time();
    }

    fn tell_time(&mut self) {
        self.world.now_ns = now_ns(ClockId::Monotonic);
        self.world.realtime_ns = now_ns(ClockId::Realtime);
    }

    fn meet(&mut self, apps: Vec<App>) {
        self.tell_time();
        for app in apps {
            match unasked(&app) {
                None => {
                    self.world.apply(Event::Found { app: app.name.clone() });
                    let session = Some(Session::new(app.clone(), &self.settings));
                    self.seats.push(Seat { app, session });
                }
                Some(event) => self.world.apply(event),
            }
        }
    }

    fn give_up(&mut self, seen: &[String]) {
        let (keep, expected) = (self.settings.keep_lost, &self.settings.rules.expected);
        self.seats.retain(|seat| {
            seat.session.as_ref().is_none_or(|session| session.heard.elapsed() < keep)
                || expected.app(&seat.app.name).is_some()
        });
        let asked = |name: &str| self.seats.iter().any(|seat| seat.app.name == name);
        let gone: Vec<String> = self
            .world
            .apps
            .iter()
            .map(|app| &app.name)
            .filter(|name| !asked(name) && !seen.contains(name) && expected.app(name).is_none())
            .cloned()
            .collect();
        for app in gone {
            self.world.apply(Event::Gone { app });
        }
    }

    /// Misses the expected apps that are neither asked nor were `seen` just now.
    fn miss(&mut self, seen: &[String]) {
        let there = |name: &String| {
            seen.contains(name) || self.seats.iter().any(|seat| seat.app.name == *name)
        };
        let missing: Vec<Event> = self
            .settings
            .rules
            .expected
            .apps
            .iter()
            .filter(|app| !there(&app.name))
            .map(|app| Event::missing(&app.name))
            .collect();
        for event in missing {
            self.world.apply(event);
        }
    }
}

impl Event {
    /// An expected app that was never seen.
    fn missing(app: &str) -> Self {
        Self::Lost {
            app: app.to_owned(),
            class: ErrorClass::Missing,
            reason: "is expected, and does not run".to_owned(),
            finding: Some(finding::judge_missing(app)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::ExpectedApp;
    use crate::world::Member;

    fn app(name: &str) -> App {
        let dir = std::path::PathBuf::from("/nonexistent").join(name);
        let socket = dir.join("socket");
        let (pid, dpdk_version, state) = (None, None, AppState::Live);
        App { name: name.to_owned(), dir, socket, pid, dpdk_version, state }
    }

    #[test]
    fn what_is_expected_and_absent_is_a_finding_and_no_error() {
        let mut settings = Settings::default();
        settings.discover.roots = vec!["/nonexistent".into()];
        assert!(Fleet::start(None, settings.clone()).is_err());
        for name in ["a", "b"] {
            let app = ExpectedApp { name: name.to_owned(), ..ExpectedApp::default() };
            settings.rules.expected.apps.push(app);
        }
        let missing = |name| {
            let fleet = Fleet::start(name, settings.clone()).unwrap();
            let findings = fleet.world.findings().into_iter();
            findings.map(|(app, found)| format!("{} {}", app.name, found.lint)).collect::<Vec<_>>()
        };
        assert_eq!(missing(None), ["a app_missing", "b app_missing"]);
        assert_eq!(missing(Some("b")), ["b app_missing"]);
        let unknown = Fleet::start(Some("c"), settings.clone());
        assert!(matches!(unknown, Err(FindError::Unknown { .. })));
    }

    #[test]
    fn a_session_is_lent_once_and_its_news_come_back_with_it() {
        let mut fleet = Fleet::new(Settings::default());
        fleet.see(vec![app("a"), app("b")]);
        let mut session = fleet.lend("a").unwrap();
        assert!(fleet.lend("a").is_none() && fleet.lend("x").is_none());
        fleet.see(vec![app("a")]);
        fleet.sample(Duration::ZERO);
        assert_eq!(fleet.asked().collect::<Vec<_>>(), ["a", "b"]);
        assert!(fleet.world.find("a").unwrap().errors.is_empty(), "it was lent");
        let news = session.sample(Duration::ZERO);
        fleet.take_back(session, news);
        assert_eq!(fleet.world.find("a").unwrap().errors[&ErrorClass::Refused], 1);
        assert!(fleet.lend("a").is_some());
    }

    #[test]
    fn a_missing_app_is_missing_since_it_was_looked_for() {
        let mut settings = Settings::default();
        let app = ExpectedApp { name: "gone".to_owned(), ..ExpectedApp::default() };
        settings.rules.expected.apps.push(app);
        let mut fleet = Fleet::new(settings);
        fleet.see(Vec::new());
        let since = fleet.world.find("gone").unwrap().silent_ns.unwrap();
        fleet.see(Vec::new());
        let missing = fleet.world.find("gone").unwrap();
        assert_eq!(missing.silent_ns, Some(since));
        assert_eq!(missing.silent_s(since + 2_000_000_000), Some(2.0));
    }

    #[test]
    fn an_app_that_was_given_up_meanwhile_does_not_come_back() {
        let mut fleet = Fleet::new(Settings::default());
        fleet.see(vec![app("a")]);
        let mut session = fleet.lend("a").unwrap();
        fleet.seats.clear();
        fleet.see(Vec::new());
        let news = session.sample(Duration::ZERO);
        fleet.take_back(session, news);
        assert!(fleet.world.apps.is_empty());
    }

    #[test]
    fn an_app_without_telemetry_is_told_also_when_it_had_some() {
        let mut fleet = Fleet::new(Settings::default());
        let off = App { state: AppState::NoTelemetry, ..app("a") };
        let lint = |fleet: &Fleet| fleet.world.find("a").unwrap().findings.first().map(|f| f.lint);
        fleet.see(vec![app("a")]);
        assert_eq!((fleet.asked().count(), lint(&fleet)), (1, None));
        fleet.see(vec![off]);
        assert_eq!((fleet.asked().count(), lint(&fleet)), (0, Some("telemetry_off")));
        fleet.see(vec![app("a")]);
        assert_eq!(fleet.asked().count(), 1);
    }

    #[test]
    fn an_expected_app_without_telemetry_is_missing_once_it_has_ended() {
        let mut settings = Settings::default();
        settings.rules.expected.apps =
            vec![ExpectedApp { name: "a".into(), ..ExpectedApp::default() }];
        let mut fleet = Fleet::new(settings);
        let lint = |fleet: &Fleet| fleet.world.find("a").unwrap().findings[0].lint;
        fleet.see(vec![App { state: AppState::NoTelemetry, ..app("a") }]);
        assert_eq!(lint(&fleet), "telemetry_off");
        fleet.see(Vec::new());
        assert_eq!(lint(&fleet), "app_missing");
    }

    #[test]
    fn a_lent_session_comes_back_under_its_new_name() {
        let mut fleet = Fleet::new(Settings::default());
        fleet.see(vec![app("a")]);
        let mut session = fleet.lend("a").unwrap();
        fleet.see(vec![App { name: "b".into(), ..app("a") }]);
        let news = session.sample(Duration::ZERO);
        fleet.take_back(session, news);
        assert!(fleet.world.find("a").is_none(), "{:?}", fleet.world);
        fleet.sample(Duration::ZERO);
        assert_eq!(fleet.world.apps.len(), 1);
        assert!(fleet.world.find("b").is_some_and(Member::stale));
    }
}
