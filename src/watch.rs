//! Sampling for the interactive display: a thread per app, so that a stuck one delays no other.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{App, AppState};
use pmdscope_telemetry::world::Event;
use pmdscope_tui::run::Feed;

use crate::session::AppArg;
use pmdscope_telemetry::Settings;
use pmdscope_telemetry::fleet::{ROUND_TIMEOUT, Session, unasked};

/// How often to look for new apps. Looking connects to each app, so not as often as sampling.
const LOOK: Duration = Duration::from_secs(3);

/// How often to look while there is nothing to show.
const LOOK_EAGERLY: Duration = Duration::from_secs(1);

/// Feeds the display until it ends.
pub(crate) fn start(feed: Feed, chosen: AppArg) {
    thread::spawn(move || {
        let mut watch = Watch { feed, chosen, known: BTreeMap::new() };
        while watch.look() {
            thread::sleep(if watch.watched() { LOOK } else { LOOK_EAGERLY });
        }
    });
}

struct Watch {
    feed: Feed,
    chosen: AppArg,
    /// Whether each app is sampled by a thread; such a thread goes on when its app is lost.
    known: BTreeMap<String, bool>,
}

impl Watch {
    fn watched(&self) -> bool {
        self.known.values().any(|&sampled| sampled)
    }

    /// Takes in what runs now; `false` when the display has ended or there is no more to look for.
    fn look(&mut self) -> bool {
        if self.chosen.app.is_some() && self.watched() {
            return false;
        }
        let settings = Settings::default();
        let apps = match &self.chosen.app {
            None => settings.running(),
            Some(name) => match settings.find(Some(name)) {
                Ok(app) => vec![app],
                Err(error) => return self.nothing(&error.to_string()),
            },
        };
        if apps.is_empty() && self.known.is_empty() {
            let advice = settings.find(None).err().map(|error| error.to_string());
            return self.nothing(&advice.unwrap_or_default());
        }
        self.forget(&apps) && apps.into_iter().all(|app| self.found(app))
    }

    fn nothing(&self, advice: &str) -> bool {
        let advice = format!("{advice}\nStill looking ...");
        self.feed.send(Event::NoApps { advice })
    }

    /// Apps that were never sampled and are gone leave the display.
    fn forget(&mut self, apps: &[App]) -> bool {
        let gone = |name: &String| !apps.iter().any(|app| app.name == *name);
        let names: Vec<String> =
            self.known.iter().filter(|(n, s)| !**s && gone(n)).map(|(n, _)| n.clone()).collect();
        names.into_iter().all(|name| {
            self.known.remove(&name);
            self.feed.send(Event::Gone { app: name })
        })
    }

    fn found(&mut self, app: App) -> bool {
        if self.known.get(&app.name).copied() == Some(true) {
            return true;
        }
        self.known.insert(app.name.clone(), app.state == AppState::Live);
        if let Some(event) = unasked(&app) {
            return self.feed.send(event);
        }
        let found = self.feed.send(Event::Found { app: app.name.clone() });
        let feed = self.feed.clone();
        thread::spawn(move || sample(app, &feed));
        found
    }
}

fn sample(app: App, feed: &Feed) {
    let mut session = Session::new(app, &Settings::default());
    loop {
        let start = Instant::now();
        if !feed.send(session.sample(ROUND_TIMEOUT)) {
            return;
        }
        feed.pace.wait(start);
    }
}
