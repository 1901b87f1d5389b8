//! Sampling: a [`Session`] per app, and a [`Fleet`] of all apps that were found or are expected.

mod session;

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

pub use self::session::{Judge, Session, obstacle, unasked};
use crate::collect::now_ns;
use crate::discover::{self, App, AppState, DiscoverOptions, FindError, Unreachable};
use crate::error::Error;
use crate::finding::Rules;
use crate::names::Names;
use crate::world::{Event, Status, World};

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

    /// The one live app of that name, file-prefix or directory, or the only one whose name begins so;
    /// without a name, the only live one.
    ///
    /// # Errors
    /// When there is none, when there are several, or when it cannot be asked.
    pub fn find(&self, name: Option<&str>) -> Result<App, FindError> {
        self.choose(name, self.running())
    }

    /// As [`Settings::find`], among apps that were found already.
    ///
    /// # Errors
    /// As [`Settings::find`].
    pub fn choose(&self, name: Option<&str>, running: Vec<App>) -> Result<App, FindError> {
        discover::choose(name, running, &self.discover)
    }

    /// What runs of the app of that name, file-prefix or directory, or else of the only one whose name
    /// begins so, whether or not it can be asked; an expected one may not run, and among several whose
    /// names begin so the one that is `connected` stays the one that is meant. As [`Settings::running_beside`], it leaves those `connected` alone.
    ///
    /// # Errors
    /// When there is none and none is expected, or when there are several.
    pub fn named(&self, name: &str, connected: &[App]) -> Result<Vec<App>, FindError> {
        let running = self.running_beside(connected);
        // It is that one which is meant, and no other one whose name begins so.
        if self.expects(name) && !running.iter().any(|app| app.is_called(name)) {
            return Ok(Vec::new());
        }
        let is_known = |app: &App| connected.iter().any(|known| known.socket == app.socket);
        match discover::choose(Some(name), running, &self.discover) {
            Ok(app) | Err(FindError::NoTelemetry(app) | FindError::Unreachable(app, _)) => {
                Ok(vec![app])
            }
            Err(FindError::Several(apps))
                if apps.iter().filter(|app| is_known(app)).count() == 1 =>
            {
                Ok(apps.into_iter().filter(is_known).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Expects nothing of other apps than the one of that name, file-prefix or directory, by the name
    /// of those that were `found` for it, or would be.
    pub fn only(&mut self, name: &str, found: &[App]) {
        let mapped = self.names.of(name);
        let names = match found.first() {
            Some(app) => [app.name.as_str(); 2],
            None => [name, mapped.as_str()],
        };
        self.rules.expected.apps.retain(|expected| names.contains(&expected.name.as_str()));
    }

    fn expects(&self, name: &str) -> bool {
        [name, &self.names.of(name)].iter().any(|name| self.rules.expected.app(name).is_some())
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

/// An app that runs, or has run.
#[derive(Debug)]
struct Seat {
    app: App,
    /// `None` while it is lent, and for an app that cannot be asked.
    session: Option<Session>,
    /// It was there when somebody looked last, or has an open connection.
    runs: bool,
    /// When it was seen to run.
    seen: Instant,
}

impl Seat {
    fn new(app: App, settings: &Settings) -> Self {
        let session = || Session::new(app.clone(), settings);
        let session = (app.state == AppState::Live).then(session);
        Self { app, session, runs: true, seen: Instant::now() }
    }

    /// It has a session, which may be lent.
    fn is_asked(&self) -> bool {
        self.app.state == AppState::Live
    }

    fn is_lent(&self) -> bool {
        self.is_asked() && self.session.is_none()
    }

    fn is_connected(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_connected)
    }

    /// It has ended, and was told to be lost: only a look finds it again.
    fn is_over(&self, world: &World) -> bool {
        let lost = |name| world.find(name).is_some_and(|a| matches!(a.status, Status::Lost { .. }));
        !self.runs && lost(&self.app.name)
    }

    fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.app.name);
        if let Some(session) = &mut self.session {
            session.rename(name);
        }
    }

    /// Takes in that it runs, by this name; the news in that. Its session goes on, unless it was
    /// restarted without telemetry, so that nobody can ask it any more.
    fn meet(&mut self, app: App, settings: &Settings) -> Option<Event> {
        if !self.is_asked() || app.state == AppState::NoTelemetry {
            *self = Self::new(app, settings);
            return Some(self.greet());
        }
        (self.runs, self.seen) = (true, Instant::now());
        // It may have another name than before, because of who runs beside it.
        let renamed = app.name != self.app.name;
        renamed.then(|| {
            self.rename(&app.name);
            self.greet()
        })
    }

    fn greet(&self) -> Event {
        unasked(&self.app).unwrap_or_else(|| Event::Found { app: self.app.name.clone() })
    }

    /// Takes in that nobody saw it; the news in that. Where it is asked, its session brings them.
    fn miss(&mut self) -> Option<Event> {
        let ran = self.runs;
        self.runs = self.is_connected();
        if self.is_asked() || !ran {
            return None;
        }
        self.app.state = AppState::Unreachable(Unreachable::Refused);
        unasked(&self.app)
    }
}

impl Fleet {
    /// The apps that run now, or the one of that name, and those that are expected.
    ///
    /// # Errors
    /// When there is none at all, or the only one cannot be asked and is not expected.
    pub fn start(name: Option<&str>, mut settings: Settings) -> Result<Self, FindError> {
        let apps = match name {
            Some(name) => settings.named(name, &[])?,
            None => settings.running(),
        };
        if let Some(name) = name {
            settings.only(name, &apps);
        }
        let expected = !settings.rules.expected.apps.is_empty();
        if !expected && !apps.iter().any(|app| app.state == AppState::Live) {
            settings.find(name)?;
        }
        let mut fleet = Self::new(settings);
        fleet.see(apps);
        Ok(fleet)
    }

    /// A fleet without apps; [`Fleet::look`] finds them.
    pub fn new(settings: Settings) -> Self {
        Self { world: World::default(), settings, seats: Vec::new() }
    }

    /// Takes in apps that have come since, gives up those that ended too long ago, and misses those
    /// that are expected and do not run.
    pub fn look(&mut self) {
        self.see(self.settings.running_beside(&self.connected()));
    }

    /// The apps with an open connection, and those that are lent, which are being asked.
    pub fn connected(&self) -> Vec<App> {
        let open = |seat: &&Seat| seat.is_lent() || seat.is_connected();
        self.seats.iter().filter(open).map(|seat| seat.app.clone()).collect()
    }

    /// As [`Fleet::look`], for a caller who has looked: the apps of [`Settings::running`], or of
    /// [`Settings::named`].
    pub fn see(&mut self, running: Vec<App>) {
        self.tell_time();
        let runs = |seat: &Seat| running.iter().any(|app| app.socket == seat.app.socket);
        // An app that came back under another file-prefix may have the name of the one that ended.
        let succeeded = |seat: &Seat| running.iter().any(|app| app.name == seat.app.name);
        self.seats.retain(|seat| runs(seat) || !succeeded(seat));
        let ended = self.seats.iter_mut().filter(|seat| !runs(seat));
        let mut news: Vec<Event> = ended.filter_map(Seat::miss).collect();
        news.extend(running.into_iter().filter_map(|app| self.meet(app)));
        news.extend(self.missing());
        for event in news {
            self.world.apply(event);
        }
        self.give_up();
    }

    fn meet(&mut self, app: App) -> Option<Event> {
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.app.socket == app.socket) {
            return seat.meet(app, &self.settings);
        }
        let seat = Seat::new(app, &self.settings);
        let event = seat.greet();
        self.seats.push(seat);
        Some(event)
    }

    /// Samples all apps at once; a stuck one delays the others by `timeout` at most.
    pub fn sample(&mut self, timeout: Duration) {
        self.sample_with(timeout, Session::ask);
    }

    fn sample_with(
        &mut self,
        timeout: Duration,
        ask: impl Fn(&mut Session, Duration) -> Event + Sync,
    ) {
        let sample = |session: &mut Session| session.guarded(|session| ask(session, timeout));
        let seats = self.seats.iter_mut().filter(|seat| !seat.is_over(&self.world));
        let mut sessions: Vec<_> = seats.filter_map(|seat| seat.session.as_mut()).collect();
        let events: Vec<Event> = match sessions.as_mut_slice() {
            // Most machines run one: no need of another thread.
            [session] => vec![sample(session)],
            sessions => thread::scope(|scope| {
                let samples: Vec<_> =
                    sessions.iter_mut().map(|session| scope.spawn(|| sample(session))).collect();
                let joined = samples.into_iter().map(thread::ScopedJoinHandle::join);
                joined.map(|news| news.unwrap_or_else(|panic| resume_unwind(panic))).collect()
            }),
        };
        for event in events {
            self.world.apply(event);
        }
        self.tell_time();
    }

    /// Names of the apps that can be asked; those that have ended are found again by a look.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        let seats = self.seats.iter().filter(|s| s.is_asked() && !s.is_over(&self.world));
        seats.map(|seat| seat.app.name.as_str())
    }

    /// Lends the session of an app to another thread, which samples it and gives it back. `None` when
    /// there is no such app, it has ended, or its session is lent already.
    pub fn lend(&mut self, app: &str) -> Option<Session> {
        let seat = self.seats.iter_mut().find(|seat| seat.app.name == app)?;
        if seat.is_over(&self.world) { None } else { seat.session.take() }
    }

    /// Takes a lent session back, with the news it has brought.
    pub fn take_back(&mut self, session: Session, mut news: Event) {
        let lent = |seat: &&mut Seat| seat.is_lent() && seat.app.socket == session.app().socket;
        // The app may have been given up meanwhile.
        let Some(seat) = self.seats.iter_mut().find(lent) else { return };
        let renamed = session.app().name != seat.app.name;
        seat.session = Some(session);
        let name = seat.app.name.clone();
        if renamed {
            seat.rename(&name);
            news = news.renamed(&name);
        }
        if !seat.runs && self.settings.rules.expected.app(&name).is_some() {
            news = news.of_missing();
        }
        self.world.apply(news);
        self.tell_time();
    }

    /// Gives an app a new session for a lent one that was lost by `error`.
    pub fn replace_lost(&mut self, app: &App, error: &Error) {
        self.take_back(Session::new(app.clone(), &self.settings), session::lost(app, error));
    }

    fn tell_time(&mut self) {
        self.world.now_ns = now_ns(ClockId::Monotonic);
        self.world.realtime_ns = now_ns(ClockId::Realtime);
    }

    /// Gives up the apps that ended too long ago, and forgets those that nobody knows any more.
    fn give_up(&mut self) {
        let (keep, expected) = (self.settings.keep_lost, &self.settings.rules.expected);
        self.seats.retain(|seat| {
            seat.runs
                || seat.is_lent()
                || seat.seen.elapsed() < keep
                || expected.app(&seat.app.name).is_some()
        });
        let known = |name: &str| self.seats.iter().any(|seat| seat.app.name == name);
        let names = self.world.apps.iter().map(|app| app.name.as_str());
        let gone = names.filter(|name| !known(name) && expected.app(name).is_none());
        let gone: Vec<String> = gone.map(str::to_owned).collect();
        for app in gone {
            self.world.apply(Event::Gone { app });
        }
    }

    /// News of the expected apps that do not run.
    fn missing(&self) -> Vec<Event> {
        let runs = |name: &str| {
            let mut seats = self.seats.iter().filter(|seat| seat.app.name == name);
            seats.any(|seat| seat.runs || seat.is_lent())
        };
        let expected = self.settings.rules.expected.apps.iter();
        let missing = expected.filter(|app| !runs(&app.name));
        missing.map(|app| Event::missing(&app.name)).collect()
    }
}

#[cfg(test)]
#[path = "fleet/tests.rs"]
mod tests;
