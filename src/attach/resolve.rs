//! Finds the apps that are meant. Each is found, asked and checked at most once: a search connects to
//! the apps, and a check may start a program. Where all that is meant has the name of an app in front,
//! no other app is asked.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::{DiscoveredApp, FindError, Reachability};
use pmdscope_telemetry::fleet::obstacle;
use pmdscope_telemetry::parallel;

use super::interface::{check_same, guess_app, list, names_of, split_app};
use super::policy::AttachPolicy;
use super::running::RunningApp;
use super::target::CaptureTarget;
use super::transport::{Preflight, convention};
use crate::{output, session};

/// Finds the apps and ports that `-i` and `-a` name; without `-i`, all ports of the app. `-i any`
/// without an app is all apps that hand out packets by themselves, or the only app.
pub(crate) fn resolve(
    interfaces: &[String],
    app: Option<&str>,
    settings: FleetSettings,
    policy: AttachPolicy,
) -> anyhow::Result<Vec<CaptureTarget>> {
    let source = LocalApps { settings: Arc::new(settings), policy };
    let resolved = Resolver::new(&source, interfaces, app)
        .and_then(|resolver| resolver.resolve(interfaces, app));
    resolved.map_err(|error| {
        match interfaces.iter().find(|interface| is_of_kernel(interface)) {
            Some(name) => anyhow!(
                "{name} is an interface of the kernel: use tcpdump -i {name}; pmdscope captures from DPDK \
                 ports, which pmdscope capture -D lists"
            ),
            None => error,
        }
    })
}

/// The kernel has an interface of that name.
fn is_of_kernel(name: &str) -> bool {
    let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    plain && Path::new("/sys/class/net").join(name).exists()
}

/// A target as it is now that its app has come back; `None` as long as that is not so.
pub(super) fn again(target: &CaptureTarget) -> Option<CaptureTarget> {
    let source = LocalApps { settings: Arc::clone(&target.settings), policy: target.policy };
    let address = Some(target.address.as_str());
    let mut now = Resolver::new(&source, &[], address).ok()?.target(address).ok()?;
    for port in &target.asked {
        now.add(port).ok()?;
    }
    // Ports come up one by one when an app starts.
    (now.known.len() >= target.known.len())
        .then_some(CaptureTarget { app: target.app.clone(), ..now })
}

/// What finding apps asks of the system.
trait AppSource {
    /// The apps by all their names, of which some may have ended. Connects to none.
    fn known(&self) -> Vec<DiscoveredApp>;
    /// All running apps, or that of that name. Connects to each of these.
    fn apps(&self, name: Option<&str>) -> Result<Vec<DiscoveredApp>, FindError>;
    /// The one of that name, or the only one.
    fn choose(
        &self,
        name: Option<&str>,
        running: &[DiscoveredApp],
    ) -> Result<DiscoveredApp, FindError>;
    /// Asks apps about themselves, at the same time.
    fn ask(&self, apps: Vec<DiscoveredApp>) -> Vec<RunningApp>;
    /// Whether packets can be had from an app of `-i any`.
    fn preflight(&self, running: &RunningApp) -> anyhow::Result<Preflight>;
    /// The same for one that was named.
    fn preflight_named(&self, running: &RunningApp) -> anyhow::Result<Preflight>;
    /// Everything about an app but its ports.
    fn target(&self, running: RunningApp, found: Preflight) -> anyhow::Result<CaptureTarget>;
}

/// The running apps of this host.
struct LocalApps {
    settings: Arc<FleetSettings>,
    policy: AttachPolicy,
}

impl AppSource for LocalApps {
    fn known(&self) -> Vec<DiscoveredApp> {
        self.settings.names()
    }

    fn apps(&self, name: Option<&str>) -> Result<Vec<DiscoveredApp>, FindError> {
        let apps = self.settings.apps(name, &[]);
        session::tell_left_out(&self.settings);
        apps
    }

    fn choose(
        &self,
        name: Option<&str>,
        running: &[DiscoveredApp],
    ) -> Result<DiscoveredApp, FindError> {
        self.settings.choose(name, running.to_vec())
    }

    fn ask(&self, apps: Vec<DiscoveredApp>) -> Vec<RunningApp> {
        parallel::map(apps, RunningApp::ask)
    }

    fn preflight(&self, running: &RunningApp) -> anyhow::Result<Preflight> {
        Preflight::of(running, self.policy)
    }

    fn preflight_named(&self, running: &RunningApp) -> anyhow::Result<Preflight> {
        Preflight::for_capture(running, self.policy)
    }

    fn target(&self, running: RunningApp, found: Preflight) -> anyhow::Result<CaptureTarget> {
        CaptureTarget::new(running, found, &self.settings, self.policy)
    }
}

/// What is known of the apps by now.
struct Resolver<'a> {
    source: &'a dyn AppSource,
    apps: Vec<DiscoveredApp>,
    /// By telemetry socket.
    asked: BTreeMap<PathBuf, RunningApp>,
    /// Those that passed, by telemetry socket.
    checked: BTreeMap<PathBuf, Preflight>,
    /// By the name that was given.
    targets: BTreeMap<Option<String>, CaptureTarget>,
}

impl<'a> Resolver<'a> {
    fn new(
        source: &'a dyn AppSource,
        interfaces: &[String],
        app: Option<&str>,
    ) -> anyhow::Result<Self> {
        let apps = match app {
            Some(_) => source.apps(app)?,
            None => match named(source, interfaces)? {
                Some(apps) => apps,
                None => source.apps(None)?,
            },
        };
        let (asked, checked) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { source, apps, asked, checked, targets: BTreeMap::new() })
    }

    fn resolve(
        mut self,
        interfaces: &[String],
        app: Option<&str>,
    ) -> anyhow::Result<Vec<CaptureTarget>> {
        for interface in interfaces {
            if interface == "any" && app.is_none() && self.apps.len() > 1 {
                self.add_any()?;
            } else if let Some(listed) = self.by_number(interface, app) {
                let (prefix, port) = listed?;
                self.add(Some(prefix), &port)?;
            } else if let Some(unique) = self.by_unique_name(interface, app) {
                let (name, port) = unique?;
                self.add(Some(name), &port)?;
            } else {
                self.add_named(interface, app)?;
            }
        }
        if interfaces.is_empty() {
            self.add(app.map(str::to_owned), "any")?;
        }
        Ok(merge_same(self.targets.into_values()))
    }

    /// All ports of all apps that hand out packets by themselves.
    fn add_any(&mut self) -> anyhow::Result<()> {
        for name in self.offering() {
            let name = Some(name);
            let asked_for = self.targets.get(&name).is_some_and(CaptureTarget::is_named);
            self.add(name.clone(), "any")?;
            self.targets.entry(name).and_modify(|target| target.unnamed = !asked_for);
        }
        Ok(())
    }

    fn add_named(&mut self, interface: &str, app: Option<&str>) -> anyhow::Result<()> {
        let names = self.apps.iter().flat_map(names_of).collect::<Vec<_>>();
        let (prefix, port) = split_app(interface, &names);
        if let (Some(prefix), Some(app)) = (prefix, app) {
            check_same(interface, &self.find(Some(prefix))?, &self.find(Some(app))?)?;
        }
        let name = prefix.or(app).or_else(|| guess_app(interface, self.apps.len()));
        if name.is_none()
            && interface != "any"
            && self.apps.len() > 1
            && let Err(error) = self.source.choose(Some(interface), &self.apps)
        {
            bail!("{error}; nor has an app such a device: pmdscope capture -D lists all");
        }
        self.add(name.map(str::to_owned), port)
    }

    fn add(&mut self, app: Option<String>, port: &str) -> anyhow::Result<()> {
        if !self.targets.contains_key(&app) {
            let target = self.target(app.as_deref())?;
            self.targets.insert(app.clone(), target);
        }
        if let Entry::Occupied(mut entry) = self.targets.entry(app) {
            entry.get_mut().unnamed = false;
            entry.get_mut().add(port)?;
        }
        Ok(())
    }

    /// An app by a name, with none of its ports.
    fn target(&mut self, name: Option<&str>) -> anyhow::Result<CaptureTarget> {
        let app = self.find(name)?;
        let running = self.ask(std::slice::from_ref(&app)).pop();
        let running = running.unwrap_or(RunningApp { app, sample: None });
        let found = match self.checked.get(&running.app.socket) {
            Some(found) => found.clone(),
            None => self.source.preflight_named(&running)?,
        };
        self.checked.insert(running.app.socket.clone(), found.clone());
        self.source.target(running, found)
    }

    fn find(&self, name: Option<&str>) -> anyhow::Result<DiscoveredApp> {
        match self.source.choose(name, &self.apps) {
            Ok(app) => Ok(app),
            // Without telemetry there are no port names, but its packets may still be captured.
            Err(FindError::NoTelemetry(app)) if convention(&app).exists() => Ok(*app),
            Err(error) => Err(error.into()),
        }
    }

    /// The answers of some apps, in their order.
    fn ask(&mut self, apps: &[DiscoveredApp]) -> Vec<RunningApp> {
        let unknown = apps.iter().filter(|app| !self.asked.contains_key(&app.socket));
        let answers = self.source.ask(unknown.cloned().collect());
        self.asked.extend(answers.into_iter().map(|one| (one.app.socket.clone(), one)));
        apps.iter().filter_map(|app| self.asked.get(&app.socket).cloned()).collect()
    }

    fn ask_all(&mut self) -> Vec<RunningApp> {
        self.ask(&self.apps.clone())
    }

    /// The apps that `-i any` means; the others are named with what keeps them out. Nothing attaches to
    /// an app that was not named.
    fn offering(&mut self) -> Vec<String> {
        let (mut offering, mut silent) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
        for running in self.ask_all() {
            let socket = &running.app.socket;
            if let Some((_, why)) = obstacle(&running.app).filter(|_| !is_mute(&running.app)) {
                silent.entry(why).or_default().push(running.app.name);
                continue;
            }
            let found = match self.checked.get(socket) {
                Some(found) => Ok(found.clone()),
                None => self.source.preflight(&running),
            };
            match &found {
                Ok(Preflight::Pdump(_)) => output::tell(&format!(
                    "left out: {0} runs without libpmdscope; name it (-a {0}) to have pmdscope-pdump \
                     attach to it",
                    running.app.name
                )),
                Ok(Preflight::Peek) => output::tell(&format!(
                    "left out: {0} cannot be captured; name it (-a {0}) to sample packets from its memory",
                    running.app.name
                )),
                Ok(Preflight::Library(_)) => offering.push(socket.display().to_string()),
                Err(error) => super::leave_out(error),
            }
            self.checked.extend(found.ok().map(|found| (socket.clone(), found)));
        }
        for (why, apps) in silent {
            let apps = apps.iter().map(String::as_str).collect::<Vec<_>>();
            output::tell(&format!("left out: {}: {why}", output::names(&apps)));
        }
        offering
    }

    /// App and ports of a device that only one app has, or of an app, where no app is named beside it.
    fn by_unique_name(
        &mut self,
        interface: &str,
        app: Option<&str>,
    ) -> Option<anyhow::Result<(String, String)>> {
        let plain = app.is_none() && interface != "any" && interface.parse::<u64>().is_err();
        let names = self.apps.iter().flat_map(names_of).collect::<Vec<_>>();
        if !plain || self.apps.is_empty() || split_app(interface, &names).0.is_some() {
            return None;
        }
        let running = self.ask_all();
        let owners = running.iter().filter(|one| has_device(one, interface)).collect::<Vec<_>>();
        let target = |running: &RunningApp, port: &str| {
            Some(Ok((running.app.socket.display().to_string(), port.to_owned())))
        };
        match owners.as_slice() {
            [] => match self.find(Some(interface)) {
                Ok(found) => {
                    target(running.iter().find(|one| one.app.socket == found.socket)?, "any")
                }
                Err(error) => match error.downcast_ref() {
                    Some(FindError::Unknown { .. }) | None => None,
                    // There is such an app.
                    Some(_) => Some(Err(error)),
                },
            },
            [one] => target(one, interface),
            several => {
                let names = several.iter().map(|one| format!("{}:{interface}", one.app.name));
                let names = names.collect::<Vec<_>>().join(", ");
                Some(Err(anyhow!("several apps have a device {interface}; name one of {names}")))
            }
        }
    }

    /// App and port of a number in the list of `-D`, where a number alone is no port of the only app.
    fn by_number(
        &mut self,
        interface: &str,
        app: Option<&str>,
    ) -> Option<anyhow::Result<(String, String)>> {
        let several = app.is_none() && self.apps.len() > 1;
        let number = interface.parse::<usize>().ok().filter(|_| several)?;
        let running = self.ask_all();
        let all = list(&running);
        let found = all.iter().find(|listed| listed.number == number).map(|listed| {
            (listed.running.app.socket.display().to_string(), listed.port.id.to_string())
        });
        Some(found.ok_or_else(|| anyhow!("there is no interface {number} in the list of -D")))
    }
}

/// The apps that are named, if every interface begins with the name of an app that runs: `APP` or
/// `APP:PORT`.
fn named(
    source: &dyn AppSource,
    interfaces: &[String],
) -> anyhow::Result<Option<Vec<DiscoveredApp>>> {
    let known = source.known();
    let names = known.iter().flat_map(names_of).collect::<Vec<_>>();
    let name = |interface: &String| {
        let whole = names.iter().find(|name| **name == interface.as_str()).copied();
        whole.or_else(|| {
            let (name, _) = split_app(interface, &names);
            names.iter().find(|known| Some(**known) == name).copied()
        })
    };
    let wanted: Option<BTreeSet<&str>> = interfaces.iter().map(name).collect();
    let mut apps: Vec<DiscoveredApp> = Vec::new();
    for name in wanted.unwrap_or_default() {
        match source.apps(Some(name)) {
            Ok(found) => apps.extend(found),
            // It has ended, and the name may be that of a device as well.
            Err(FindError::Unknown { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    apps.dedup_by(|a, b| a.socket == b.socket);
    Ok(Some(apps).filter(|apps| !apps.is_empty()))
}

/// It runs without telemetry: its packets may be had all the same.
fn is_mute(app: &DiscoveredApp) -> bool {
    app.state == Reachability::NoTelemetry
}

/// An app has this device; a queue may follow it.
fn has_device(running: &RunningApp, interface: &str) -> bool {
    let is_meant = |device: &str| {
        let queue = interface.strip_prefix(device).and_then(|rest| rest.strip_prefix(':'));
        interface == device || queue.is_some_and(|queue| queue.parse::<u16>().is_ok())
    };
    running.ports().iter().any(|port| is_meant(&port.device))
}

/// One app may have been named in several ways, or not at all and by name.
fn merge_same(all: impl Iterator<Item = CaptureTarget>) -> Vec<CaptureTarget> {
    let mut merged: Vec<CaptureTarget> = Vec::new();
    for wanted in all {
        match merged.iter_mut().find(|known| known.address == wanted.address) {
            Some(known) => {
                known.targets.extend(wanted.targets);
                known.asked.extend(wanted.asked);
                known.unnamed &= wanted.unnamed;
            }
            None => merged.push(wanted),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
