//! Samples apps: an [`AppSampler`] per app, and a [`Fleet`] of all apps that were found or are expected.

mod app_sampler;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::app_sampler::{AppSampler, Evaluator, obstacle, unqueried_event};
use crate::clock::{monotonic_ns, realtime_ns};
use crate::discover::{
    self, DiscoverOptions, DiscoveredApp, FindError, Reachability, UnreachableReason,
};
use crate::error::TelemetryError;
use crate::finding::{LintRules, Thresholds};
use crate::fleet_state::{AppStatus, FleetEvent, FleetState};
use crate::interface::{InterfaceReader, InterfaceSample};
use crate::interface_state::InterfaceEvaluator;
use crate::names::AppNames;
use crate::occupancy::OccupancyReader;
use crate::parallel;
use crate::queue_histograms::QueueHistograms;
use crate::raw_replies::RawReplies;
use crate::scans::ScanResults;
use crate::tracer::LcoreTracer;

/// Default timeout of one app in one round.
pub const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// Least timeout for the banner of an app in a command that searches once: on a busy host an app may
/// take longer than is acceptable for a search every second.
const SINGLE_LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of a fleet: where to search for apps, their names, and what is expected of them.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Where to search.
    pub discover: DiscoverOptions,
    /// The names of apps.
    pub names: AppNames,
    /// The rules that they are evaluated by.
    pub rules: LintRules,
    /// Tracer of their lcores; none by default.
    pub tracer: Option<Arc<dyn LcoreTracer>>,
    /// Counts pools and rings of apps without libpmdscope; none by default.
    pub occupancy: Option<Arc<dyn OccupancyReader>>,
    /// Scans of their memory; none by default.
    pub scans: Option<Arc<ScanResults>>,
    /// Stores the raw replies of apps on demand; none by default.
    pub replies: Option<Arc<RawReplies>>,
    /// Whether histograms of queues are requested; they are by default.
    pub histograms: Arc<QueueHistograms>,
    /// Reader of the interfaces of the kernel; none by default.
    pub interfaces: Option<Arc<dyn InterfaceReader>>,
    /// How long an app that has ended stays visible as down; an expected one stays forever.
    pub keep_lost: Duration,
    /// The only app that repeated searches find, see [`FleetSettings::set_only`]; all by default.
    pub chosen: Option<String>,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            discover: DiscoverOptions::default(),
            names: AppNames::default(),
            rules: LintRules::default(),
            tracer: None,
            occupancy: None,
            scans: None,
            replies: None,
            histograms: Arc::default(),
            interfaces: None,
            keep_lost: Duration::from_secs(3600),
            chosen: None,
        }
    }
}

impl FleetSettings {
    /// Returns the apps on this host, by the names that tools give them: mapped if the settings say
    /// so. Apps with the same name, in directories of several users, are named by their directories,
    /// which are accepted as names too. Waits for all of them concurrently, for 1 s or the timeout of
    /// the settings, whichever is longer.
    pub fn running(&self) -> Vec<DiscoveredApp> {
        let timeout = self.discover.timeout.max(SINGLE_LOOK_TIMEOUT);
        let discover = DiscoverOptions { timeout, ..self.discover.clone() };
        self.names.give(&discover::look(&discover, &[]))
    }

    /// Returns the names that apps may be called by, of which some may have ended. Nothing is connected
    /// to.
    pub fn names(&self) -> Vec<DiscoveredApp> {
        self.names.give(&discover::candidates(&self.discover))
    }

    /// As [`FleetSettings::running`], without connecting again to the apps of [`Fleet::connected`],
    /// and for periodic searches: the timeout is that of the settings.
    pub fn running_beside(&self, connected: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
        let give = |apps: &[DiscoveredApp]| self.names.give(apps);
        match &self.chosen {
            Some(name) => discover::look_for(name, give, &self.discover, connected),
            None => give(&discover::look(&self.discover, connected)),
        }
    }

    /// Has [`FleetSettings::running_beside`] find only the app with this name, file-prefix or directory,
    /// whether or not it runs already, and drops what is expected of others.
    pub fn set_only(&mut self, name: Option<&str>) {
        self.chosen = name.map(str::to_owned);
        if let Some(name) = name {
            self.only(name, &[]);
        }
    }

    /// Returns the apps that a command is about, whether or not they can be queried: all, or the one
    /// with this name, file-prefix or directory, which is asked alone. An expected app may be absent.
    /// If several have the name, the one that is `connected` is chosen. As
    /// [`FleetSettings::running_beside`], this does not connect to those that are `connected`; if there
    /// are none, it waits as long as [`FleetSettings::running`].
    ///
    /// # Errors
    /// When there is none of that name and none is expected, when there are several, or when the search
    /// was interrupted.
    pub fn apps(
        &self,
        name: Option<&str>,
        connected: &[DiscoveredApp],
    ) -> Result<Vec<DiscoveredApp>, FindError> {
        let apps = match name {
            None if connected.is_empty() => self.running(),
            None => self.running_beside(connected),
            Some(name) => self.named(name, connected)?,
        };
        if self.discover.stop.is_set() {
            return Err(FindError::Interrupted);
        }
        Ok(apps)
    }

    /// Returns the only live app with this name, file-prefix or directory; without a name, the only
    /// live app.
    ///
    /// # Errors
    /// When there is none, when there are several, or when it cannot be queried.
    pub fn find(&self, name: Option<&str>) -> Result<DiscoveredApp, FindError> {
        discover::choose(name, self.apps(name, &[])?, &self.discover)
    }

    /// As [`FleetSettings::find`], among apps that were found already.
    ///
    /// # Errors
    /// As [`FleetSettings::find`].
    pub fn choose(
        &self,
        name: Option<&str>,
        running: Vec<DiscoveredApp>,
    ) -> Result<DiscoveredApp, FindError> {
        discover::choose(name, running, &self.discover)
    }

    fn named(
        &self,
        name: &str,
        connected: &[DiscoveredApp],
    ) -> Result<Vec<DiscoveredApp>, FindError> {
        let timeout = match connected {
            [] => self.discover.timeout.max(SINGLE_LOOK_TIMEOUT),
            _ => self.discover.timeout,
        };
        let options = DiscoverOptions { timeout, stale: false, ..self.discover.clone() };
        let found = discover::look_for(name, |apps| self.names.give(apps), &options, connected);
        let known = |app: &DiscoveredApp| connected.iter().any(|it| it.socket == app.socket);
        if !found.is_empty() {
            return match discover::one_live(found) {
                Ok(app) => Ok(vec![app]),
                Err(FindError::NoTelemetry(app) | FindError::Unreachable(app, _)) => Ok(vec![*app]),
                Err(FindError::Several(apps))
                    if apps.iter().filter(|app| known(app)).count() == 1 =>
                {
                    Ok(apps.into_iter().filter(known).collect())
                }
                Err(error) => Err(error),
            };
        }
        if self.expects(name) {
            return Ok(Vec::new());
        }
        // What runs instead; and its container may be known only now.
        let running = self.names.give(&discover::look(&options, connected));
        match discover::choose(Some(name), running, &options) {
            Ok(app) => Ok(vec![app]),
            Err(FindError::NoTelemetry(app) | FindError::Unreachable(app, _)) => Ok(vec![*app]),
            Err(error) => Err(error),
        }
    }

    /// Drops all expectations but those of the app with this name, file-prefix or directory, by the
    /// name of the app that was `found` for it, or would be.
    pub fn only(&mut self, name: &str, found: &[DiscoveredApp]) {
        let mapped = self.names.of(name);
        let names = match found.first() {
            Some(app) => [app.name.as_str(); 2],
            None => [name, mapped.as_str()],
        };
        self.rules.expected.apps.retain(|expected| names.contains(&expected.name.as_str()));
    }

    /// Whether there is an interface to show.
    fn has_interfaces(&self) -> bool {
        let read = self.interfaces.as_ref().map(|reader| reader.read());
        read.is_some_and(|read| read.is_ok_and(|interfaces| !interfaces.is_empty()))
    }

    fn expects(&self, name: &str) -> bool {
        [name, &self.names.of(name)].iter().any(|name| self.rules.expected.app(name).is_some())
    }
}

/// All chosen apps, sampled at the same time.
#[derive(Debug)]
pub struct Fleet {
    /// The present state.
    pub state: FleetState,
    settings: FleetSettings,
    /// Name of the only app to search for; `None` for all.
    chosen: Option<String>,
    slots: Vec<AppSlot>,
    interfaces: InterfaceEvaluator,
}

/// An app that runs, or did.
#[derive(Debug)]
struct AppSlot {
    app: DiscoveredApp,
    /// `None` while it is checked out, and for an app that cannot be queried.
    sampler: Option<AppSampler>,
    /// Whether the last search found it, or it has an open connection.
    runs: bool,
    /// When it was last seen running.
    seen: Instant,
}

impl AppSlot {
    fn new(app: DiscoveredApp, settings: &FleetSettings) -> Self {
        let sampler = || AppSampler::new(app.clone(), settings);
        let sampler = (app.state == Reachability::Live).then(sampler);
        Self { app, sampler, runs: true, seen: Instant::now() }
    }

    /// Whether it has a sampler, which may be checked out.
    fn is_asked(&self) -> bool {
        self.app.state == Reachability::Live
    }

    fn is_checked_out(&self) -> bool {
        self.is_asked() && self.sampler.is_none()
    }

    fn is_connected(&self) -> bool {
        self.sampler.as_ref().is_some_and(AppSampler::is_connected)
    }

    /// Whether it has ended, and was reported as lost: only a search finds it again.
    fn is_over(&self, fleet: &FleetState) -> bool {
        let lost =
            |name| fleet.find(name).is_some_and(|a| matches!(a.status, AppStatus::Lost { .. }));
        !self.runs && lost(&self.app.name)
    }

    fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.app.name);
        if let Some(sampler) = &mut self.sampler {
            sampler.rename(name);
        }
    }

    /// Notes that it runs, by this name, and returns the event. Its sampler is kept, unless it was
    /// restarted without telemetry, so that it cannot be queried any more.
    fn meet(&mut self, app: DiscoveredApp, settings: &FleetSettings) -> Option<FleetEvent> {
        if !self.is_asked() || app.state == Reachability::NoTelemetry {
            *self = Self::new(app, settings);
            return Some(self.greet());
        }
        (self.runs, self.seen) = (true, Instant::now());
        // Its name may differ from before, because of other apps with the same one.
        let renamed = app.name != self.app.name;
        renamed.then(|| {
            self.rename(&app.name);
            self.greet()
        })
    }

    fn greet(&self) -> FleetEvent {
        unqueried_event(&self.app)
            .unwrap_or_else(|| FleetEvent::Found { app: self.app.name.clone() })
    }

    /// Notes that it was not found, and returns the event, unless its sampler reports that.
    fn miss(&mut self) -> Option<FleetEvent> {
        let ran = self.runs;
        self.runs = self.is_connected();
        if self.is_asked() || !ran {
            return None;
        }
        self.app.state = Reachability::Unreachable(UnreachableReason::Refused);
        unqueried_event(&self.app)
    }
}

impl Fleet {
    /// Returns a fleet of the apps that run now, or the one of that name, and those that are expected.
    ///
    /// # Errors
    /// When there is none at all, or the only one cannot be queried and is not expected.
    pub fn start(name: Option<&str>, mut settings: FleetSettings) -> Result<Self, FindError> {
        let apps = settings.apps(name, &[])?;
        if let Some(name) = name {
            settings.only(name, &apps);
        }
        let expected = !settings.rules.expected.apps.is_empty();
        let other = expected || (name.is_none() && settings.has_interfaces());
        if !other {
            match apps.len() {
                0 => return Err(discover::no_app(&settings.discover)),
                // Of several, those that do not answer are shown with the reason.
                1 => _ = discover::one_live(apps.clone())?,
                _ => {}
            }
        }
        let mut fleet = Self { chosen: name.map(str::to_owned), ..Self::new(settings) };
        if let Some(name) = name {
            fleet.only_interfaces_of(name, &apps);
        }
        fleet.see(apps);
        Ok(fleet)
    }

    /// Returns a fleet without apps; [`Fleet::look`] finds them.
    pub fn new(settings: FleetSettings) -> Self {
        let interfaces = InterfaceEvaluator::new(settings.rules.thresholds);
        let state = FleetState::default();
        let chosen = settings.chosen.clone();
        let mut fleet = Self { state, settings, chosen: None, slots: Vec::new(), interfaces };
        if let Some(name) = chosen {
            fleet.only_interfaces_of(&name, &[]);
        }
        fleet
    }

    /// Searches for apps: adds new ones, drops those that ended too long ago, and reports those that
    /// are expected and do not run.
    pub fn look(&mut self) {
        match self.settings.apps(self.chosen.as_deref(), &self.connected()) {
            Err(FindError::Interrupted) => {}
            apps => self.see(apps.unwrap_or_default()),
        }
    }

    /// Returns the apps with an open connection, and those that are checked out, which are being queried.
    pub fn connected(&self) -> Vec<DiscoveredApp> {
        let open = |slot: &&AppSlot| slot.is_checked_out() || slot.is_connected();
        self.slots.iter().filter(open).map(|slot| slot.app.clone()).collect()
    }

    /// Returns the apps as they were found, including those that cannot be queried or have ended since.
    pub fn apps(&self) -> impl Iterator<Item = &DiscoveredApp> {
        self.slots.iter().map(|slot| &slot.app)
    }

    /// As [`Fleet::look`], for a caller that has searched: with the apps of [`FleetSettings::apps`].
    pub fn see(&mut self, running: Vec<DiscoveredApp>) {
        self.tell_time();
        self.state.unreadable = discover::unreadable(&self.settings.discover);
        let runs = |slot: &AppSlot| running.iter().any(|app| app.socket == slot.app.socket);
        // An app that was restarted with another file-prefix may have the name of the one that ended.
        let succeeded = |slot: &AppSlot| running.iter().any(|app| app.name == slot.app.name);
        self.slots.retain(|slot| runs(slot) || !succeeded(slot));
        let ended = self.slots.iter_mut().filter(|slot| !runs(slot));
        let mut events: Vec<FleetEvent> = ended.filter_map(AppSlot::miss).collect();
        events.extend(running.into_iter().filter_map(|app| self.meet(app)));
        events.extend(self.missing());
        for event in events {
            self.state.apply(event);
        }
        self.give_up();
    }

    fn meet(&mut self, app: DiscoveredApp) -> Option<FleetEvent> {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.app.socket == app.socket) {
            return slot.meet(app, &self.settings);
        }
        let slot = AppSlot::new(app, &self.settings);
        let event = slot.greet();
        self.slots.push(slot);
        Some(event)
    }

    /// Samples all apps, many concurrently, and reads the interfaces. A hung app delays the others by
    /// `timeout` at most, and by less in later rounds.
    pub fn sample(&mut self, timeout: Duration) {
        self.read_interfaces();
        self.sample_with(timeout, AppSampler::ask);
    }

    /// Reads the interfaces of the kernel, as [`Fleet::sample`] does. Does nothing without a reader.
    pub fn read_interfaces(&mut self) {
        if let Some(reader) = self.settings.interfaces.clone() {
            self.take_interfaces(reader.read());
        }
    }

    /// As [`Fleet::read_interfaces`], for a caller that has read them.
    pub fn take_interfaces(&mut self, mut read: Result<Vec<InterfaceSample>, String>) {
        let apps = read.iter_mut().flatten().filter_map(|interface| interface.bypass.as_mut());
        for app in apps.filter_map(|bypass| bypass.app.as_mut()) {
            *app = self.settings.names.of(app);
        }
        let event = self.interfaces.event(read, monotonic_ns());
        self.state.apply(event);
        self.tell_time();
    }

    /// Restricts the interfaces to those with a queue that bypasses the kernel to the app of that
    /// name, or to one of those `found` for it.
    pub fn only_interfaces_of(&mut self, name: &str, found: &[DiscoveredApp]) {
        let mapped = self.settings.names.of(name);
        let mut names = vec![name, mapped.as_str()];
        names.extend(found.iter().map(|app| app.name.as_str()));
        self.interfaces.only(&names);
    }

    fn sample_with(
        &mut self,
        timeout: Duration,
        ask: impl Fn(&mut AppSampler, Duration) -> FleetEvent + Sync,
    ) {
        let ask_one = |sampler: &mut AppSampler| {
            sampler.limited(timeout, |sampler, timeout| {
                sampler.guarded(|sampler| ask(sampler, timeout))
            })
        };
        let slots = self.slots.iter_mut().filter(|slot| !slot.is_over(&self.state));
        let mut samplers: Vec<_> = slots.filter_map(|slot| slot.sampler.as_mut()).collect();
        // Apps that may take long come last, so that they do not delay others.
        samplers.sort_by_key(|sampler| !sampler.is_connected());
        for event in parallel::map(samplers, ask_one) {
            self.state.apply(event);
        }
        self.tell_time();
    }

    /// Returns the names of the apps that can be queried; apps that have ended need a search first.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        let slots = self.slots.iter().filter(|s| s.is_asked() && !s.is_over(&self.state));
        slots.map(|slot| slot.app.name.as_str())
    }

    /// Returns the present name of the app with this socket.
    pub fn name_of(&self, socket: &Path) -> Option<&str> {
        let slot = self.slots.iter().find(|slot| slot.app.socket == socket)?;
        Some(&slot.app.name)
    }

    /// Hands the sampler of an app to another thread, which samples and checks it in again. `None` if
    /// there is no such app, it has ended, or its sampler is checked out already.
    pub fn check_out(&mut self, app: &str) -> Option<AppSampler> {
        let slot = self.slots.iter_mut().find(|slot| slot.app.name == app)?;
        if slot.is_over(&self.state) { None } else { slot.sampler.take() }
    }

    /// Returns a sampler that was checked out, with the event that it produced.
    pub fn check_in(&mut self, mut sampler: AppSampler, mut event: FleetEvent) {
        let checked_out =
            |slot: &&mut AppSlot| slot.is_checked_out() && slot.app.socket == sampler.app().socket;
        // The app may have been dropped in the meantime.
        let Some(slot) = self.slots.iter_mut().find(checked_out) else { return };
        let renamed = sampler.app().name != slot.app.name;
        sampler.set_thresholds(self.settings.rules.thresholds);
        slot.sampler = Some(sampler);
        let name = slot.app.name.clone();
        if renamed {
            slot.rename(&name);
            event = event.renamed(&name);
        }
        if !slot.runs && self.settings.rules.expected.app(&name).is_some() {
            let unreadable = discover::unreadable_text(&self.state.unreadable);
            event = event.of_missing(unreadable.as_deref());
        }
        self.state.apply(event);
        self.tell_time();
    }

    /// Sets the thresholds for all apps, from their next samples on.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.settings.rules.thresholds = thresholds;
        self.interfaces.set_thresholds(thresholds);
        for sampler in self.slots.iter_mut().filter_map(|slot| slot.sampler.as_mut()) {
            sampler.set_thresholds(thresholds);
        }
    }

    /// Replaces the sampler of an app that was checked out and lost because of `error`.
    pub fn replace_lost(&mut self, app: &DiscoveredApp, error: &TelemetryError) {
        self.check_in(AppSampler::new(app.clone(), &self.settings), app_sampler::lost(app, error));
    }

    fn tell_time(&mut self) {
        self.state.now_ns = monotonic_ns();
        self.state.realtime_ns = realtime_ns();
    }

    /// Drops the apps that ended too long ago, and the states of unknown apps.
    fn give_up(&mut self) {
        let (keep, expected) = (self.settings.keep_lost, &self.settings.rules.expected);
        self.slots.retain(|slot| {
            slot.runs
                || slot.is_checked_out()
                || slot.seen.elapsed() < keep
                || expected.app(&slot.app.name).is_some()
        });
        let known = |name: &str| self.slots.iter().any(|slot| slot.app.name == name);
        let names = self.state.apps.iter().map(|app| app.name.as_str());
        let gone = names.filter(|name| !known(name) && expected.app(name).is_none());
        let gone: Vec<String> = gone.map(str::to_owned).collect();
        for app in gone {
            self.state.apply(FleetEvent::Gone { app });
        }
    }

    /// Returns the events of the expected apps that do not run.
    fn missing(&self) -> Vec<FleetEvent> {
        let runs = |name: &str| {
            let mut slots = self.slots.iter().filter(|slot| slot.app.name == name);
            slots.any(|slot| slot.runs || slot.is_checked_out())
        };
        let expected = self.settings.rules.expected.apps.iter();
        let missing = expected.filter(|app| !runs(&app.name));
        let unreadable = discover::unreadable_text(&self.state.unreadable);
        missing.map(|app| FleetEvent::missing(&app.name, unreadable.as_deref())).collect()
    }
}

#[cfg(test)]
#[path = "fleet/tests.rs"]
mod tests;
