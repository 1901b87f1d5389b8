//! Sampling for the interactive display: a thread per app, so that a stuck app delays no other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{DiscoveredApp, FindError};
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_telemetry::interface::InterfaceReader;
use pmdscope_telemetry::{Fleet, FleetEvent, FleetSettings};
use pmdscope_tui::run::DisplayFeed;
use pmdscope_tui::timeline::live::LiveUpdate;

/// How often to look for new apps. Looking connects to those that are not connected, so not as often
/// as sampling.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(3);

/// How often to look while there is nothing to show.
const IDLE_DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Feeds the display until it ends.
pub(crate) fn start(
    feed: DisplayFeed<LiveUpdate>,
    chosen: Option<String>,
    mut settings: FleetSettings,
) {
    if let Some(name) = &chosen {
        settings.only(name, &[]);
    }
    let mut fleet = Fleet::new(settings.clone());
    if let Some(name) = &chosen {
        fleet.only_interfaces_of(name, &[]);
    }
    let fleet = Mutex::new(fleet);
    let (told, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let shared = Arc::new(Shared { fleet, feed, told, over });
    if let Some(reader) = settings.interfaces.clone() {
        let shared = Arc::clone(&shared);
        thread::spawn(move || read_interfaces(&shared, &*reader));
    }
    let mut watch = TopSampler { chosen, settings, shared, sampled: BTreeMap::new() };
    thread::spawn(move || {
        while watch.look() {
            thread::sleep(if watch.sampled.is_empty() {
                IDLE_DISCOVERY_INTERVAL
            } else {
                DISCOVERY_INTERVAL
            });
        }
    });
}

/// What the threads have in common.
struct Shared {
    fleet: Mutex<Fleet>,
    feed: DisplayFeed<LiveUpdate>,
    /// The display was notified of a change, and has not read it yet.
    told: AtomicBool,
    /// The display has ended.
    over: AtomicBool,
}

impl Shared {
    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the fleet and has its state shown; `false` when the display has ended.
    fn show(self: &Arc<Self>, change: impl FnOnce(&mut Fleet)) -> bool {
        change(&mut self.fleet());
        // The next read contains this change as well.
        if self.told.swap(true, Ordering::SeqCst) { !self.is_over() } else { self.tell() }
    }

    /// As [`Shared::show`], and finds out whether the display has ended.
    fn show_surely(self: &Arc<Self>, change: impl FnOnce(&mut Fleet)) -> bool {
        self.told.store(false, Ordering::SeqCst);
        self.show(change)
    }

    fn tell(self: &Arc<Self>) -> bool {
        let shared = Arc::clone(self);
        let update = LiveUpdate::new(move || {
            // The next change notifies the display again.
            shared.told.store(false, Ordering::SeqCst);
            shared.fleet().state.clone()
        });
        if !self.feed.send(update) {
            self.over.store(true, Ordering::SeqCst);
        }
        !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

struct TopSampler {
    chosen: Option<String>,
    settings: FleetSettings,
    shared: Arc<Shared>,
    /// A thread for each app that can be asked; it ends when the app has ended.
    sampled: BTreeMap<String, JoinHandle<()>>,
}

impl TopSampler {
    /// Takes in what runs now; `false` when the display has ended.
    fn look(&mut self) -> bool {
        let (running, advice) = self.running();
        let goes_on = self.shared.show_surely(|fleet| {
            fleet.see(running);
            fleet.state.apply(FleetEvent::NoApps { advice });
        });
        self.sampled.retain(|_, thread| !thread.is_finished());
        let asked: Vec<String> = self.shared.fleet().asked().map(str::to_owned).collect();
        for app in asked {
            self.sampled.entry(app).or_insert_with_key(|app| {
                let (shared, app) = (Arc::clone(&self.shared), app.clone());
                thread::spawn(move || sample(&shared, &app))
            });
        }
        goes_on
    }

    /// The apps that run, and what to do when there is none.
    fn running(&self) -> (Vec<DiscoveredApp>, String) {
        // Separately, so that the fleet is not locked during the search.
        let connected = self.shared.fleet().connected();
        let name = self.chosen.as_deref();
        match self.settings.apps(name, &connected) {
            // Nothing runs: the error says where apps are looked for.
            Ok(running) if running.is_empty() && name.is_none() => match self.settings.find(None) {
                Ok(app) => (vec![app], String::new()),
                Err(error) => (Vec::new(), advice(&error)),
            },
            Ok(running) => (running, String::new()),
            Err(error) => (Vec::new(), advice(&error)),
        }
    }
}

fn advice(error: &FindError) -> String {
    format!("{error}\nStill looking ...")
}

/// Reads the interfaces of the kernel once an interval, whatever the number of apps. A host without any
/// shows no change.
fn read_interfaces(shared: &Arc<Shared>, reader: &dyn InterfaceReader) {
    let mut shown = false;
    loop {
        let start = Instant::now();
        let read = reader.read();
        let nothing = read.as_ref().is_ok_and(Vec::is_empty);
        if (shown || !nothing) && !shared.show(|fleet| fleet.take_interfaces(read)) {
            return;
        }
        shown = !nothing;
        shared.feed.pace.wait(start);
    }
}

fn sample(shared: &Arc<Shared>, app: &str) {
    loop {
        let start = Instant::now();
        let Some(mut sampler) = shared.fleet().check_out(app) else { return };
        let event = sampler.sample(ROUND_TIMEOUT);
        if !shared.show(|fleet| fleet.check_in(sampler, event)) {
            return;
        }
        shared.feed.pace.wait(start);
    }
}
