//! What `-i` means: apps, ports and queues by the names people use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use pmdscope_capture::{CapturePort, Transport};
use pmdscope_telemetry::discover::{App, AppState, FindError};
use pmdscope_telemetry::sample::{PortSample, Sample};
use pmdscope_telemetry::{Collector, Settings};

use super::policy::AttachPolicy;
use super::transport::{Reach, convention, transport, way};
use crate::output;

/// How long an app may take to tell about itself.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Queues of one app; `None` is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortSelector {
    /// DPDK port id.
    pub(crate) port: Option<u16>,
    /// Queue of the port.
    pub(crate) queue: Option<u16>,
}

impl PortSelector {
    const ALL: Self = Self { port: None, queue: None };
}

/// What to capture from one app.
#[derive(Clone, Debug)]
pub(crate) struct CaptureTarget {
    pub(crate) app: String,
    pub(crate) transport: Transport,
    pub(crate) targets: Vec<PortSelector>,
    known: Vec<PortSample>,
    /// What it is sure to be found by: its telemetry socket.
    pub(crate) address: String,
    /// How apps are found and judged.
    pub(crate) settings: Arc<Settings>,
    attach: AttachPolicy,
    /// The ports as they were asked for.
    asked: Vec<String>,
    /// It is meant by `any` only.
    unnamed: bool,
}

impl CaptureTarget {
    /// The ports of the app, with those that are captured from.
    pub(crate) fn ports(&self) -> Vec<CapturePort> {
        let wanted = |id| self.targets.iter().any(|t| t.port.is_none_or(|port| port == id));
        let port = |p: &PortSample| CapturePort {
            id: p.id,
            device: p.device.clone(),
            selected: wanted(p.id),
        };
        self.known.iter().map(port).collect()
    }

    /// Somebody asked for this very app.
    pub(crate) fn is_named(&self) -> bool {
        !self.unnamed
    }

    /// The same, as it is now that the app has come back; `None` as long as that is not so.
    pub(crate) fn again(&self) -> Option<Self> {
        let mut now = want(Some(&self.address), &self.settings, self.attach).ok()?;
        for port in &self.asked {
            now.add(port).ok()?;
        }
        // Ports come up one by one when an app starts.
        (now.known.len() >= self.known.len()).then_some(Self { app: self.app.clone(), ..now })
    }

    /// A queue of an app with libpmdscope, by what the app has told: it is not asked again.
    pub(crate) fn queue(
        running: RunningApp,
        port: u16,
        queue: u16,
        settings: &Arc<Settings>,
    ) -> anyhow::Result<Self> {
        let mut wanted = Self::of(running, settings, AttachPolicy::Never)?;
        wanted.add(&format!("{port}:{queue}"))?;
        Ok(wanted)
    }

    /// Everything about an app but its targets.
    fn of(
        running: RunningApp,
        settings: &Arc<Settings>,
        attach: AttachPolicy,
    ) -> anyhow::Result<Self> {
        let transport = transport(&running, attach)?;
        let known = running.sample.map(|sample| sample.ports).unwrap_or_default();
        let address = running.app.socket.display().to_string();
        let (app, targets, asked) = (running.app.name, Vec::new(), Vec::new());
        let settings = Arc::clone(settings);
        Ok(Self {
            app,
            transport,
            targets,
            known,
            address,
            settings,
            attach,
            asked,
            unnamed: false,
        })
    }

    fn add(&mut self, port: &str) -> anyhow::Result<()> {
        let target = parse_target(port, &self.app, &self.known)?;
        if !self.targets.contains(&target) {
            self.targets.push(target);
            self.asked.push(port.to_owned());
        }
        Ok(())
    }

    /// The targets as people write them.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.targets.iter().map(|target| {
            let port = target.port.map_or("any".to_owned(), |port| port.to_string());
            let queue = target.queue.map_or(String::new(), |queue| format!(":{queue}"));
            format!("{}:{port}{queue}", self.app)
        })
    }
}

/// An app and what it tells of itself.
#[derive(Debug)]
pub(crate) struct RunningApp {
    pub(crate) app: App,
    /// `None` when it cannot be asked.
    pub(crate) sample: Option<Sample>,
}

/// All running apps.
pub(crate) fn running(settings: &Settings) -> Vec<RunningApp> {
    settings.running().into_iter().map(ask).collect()
}

/// A port of a running app, as `-D` lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedPort<'a> {
    /// What `-i` takes for it: the port of the only app, or its place in the list.
    pub(crate) number: usize,
    pub(crate) running: &'a RunningApp,
    pub(crate) port: &'a PortSample,
}

impl ListedPort<'_> {
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.running.app.name, self.port.id)
    }
}

/// All ports of all apps.
pub(crate) fn list(running: &[RunningApp]) -> Vec<ListedPort<'_>> {
    let ports = |running| ports_of(running).iter().map(move |port| (running, port));
    let all = running.iter().flat_map(ports).enumerate();
    all.map(|(place, (one, port))| {
        let number = number_of(running.len(), place, port.id);
        ListedPort { number, running: one, port }
    })
    .collect()
}

fn number_of(apps: usize, place: usize, port: u16) -> usize {
    if apps == 1 { port.into() } else { place }
}

fn ports_of(running: &RunningApp) -> &[PortSample] {
    running.sample.as_ref().map_or(&[], |sample| &sample.ports)
}

/// Finds the apps and ports that `-i` and `-a` name; without `-i`, all ports of the app. `-i any`
/// without an app is all apps that hand out packets by themselves, or the only app.
pub(crate) fn resolve(
    interfaces: &[String],
    app: Option<&str>,
    settings: Settings,
    attach: AttachPolicy,
) -> anyhow::Result<Vec<CaptureTarget>> {
    let settings = Arc::new(settings);
    let apps = settings.running();
    let names = apps.iter().flat_map(names_of).collect::<Vec<_>>();
    let mut wanted = BTreeMap::new();
    for interface in interfaces {
        if interface == "any" && app.is_none() && apps.len() > 1 {
            for name in offering(&settings, attach) {
                let name = Some(name);
                let asked_for = wanted.get(&name).is_some_and(CaptureTarget::is_named);
                add(&mut wanted, name.clone(), "any", &settings, attach)?;
                wanted.entry(name).and_modify(|wanted| wanted.unnamed = !asked_for);
            }
        } else if let Some(listed) = by_number(interface, app, apps.len(), &settings) {
            let (prefix, port) = listed?;
            add(&mut wanted, Some(prefix), &port, &settings, attach)?;
        } else {
            let (prefix, port) = split_app(interface, &names);
            if let (Some(prefix), Some(app)) = (prefix, app) {
                let [prefix, app] = [prefix, app].map(|name| find(Some(name), &settings));
                check_same(interface, &prefix?, &app?)?;
            }
            let name = prefix.or(app).or_else(|| guess_app(interface, apps.len()));
            add(&mut wanted, name.map(str::to_owned), port, &settings, attach)?;
        }
    }
    if interfaces.is_empty() {
        add(&mut wanted, app.map(str::to_owned), "any", &settings, attach)?;
    }
    Ok(merge_same(wanted.into_values()))
}

fn add(
    wanted: &mut BTreeMap<Option<String>, CaptureTarget>,
    app: Option<String>,
    port: &str,
    settings: &Arc<Settings>,
    attach: AttachPolicy,
) -> anyhow::Result<()> {
    let found = match wanted.entry(app) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let found = want(entry.key().as_deref(), settings, attach)?;
            entry.insert(found)
        }
    };
    found.unnamed = false;
    found.add(port)
}

/// The apps that `-i any` means; the others are named with what keeps them out. Nothing attaches to an
/// app that nobody has named.
fn offering(settings: &Settings, attach: AttachPolicy) -> Vec<String> {
    let mut offering = Vec::new();
    for running in running(settings) {
        match way(&running, attach) {
            Ok(Reach::Pdump) => output::tell(&format!(
                "left out: {0} runs without libpmdscope; name it (-a {0}) to have pmdscope-pdump attach \
                 to it",
                running.app.name
            )),
            Ok(Reach::Library(_)) => offering.push(running.app.socket.display().to_string()),
            Err(error) => super::leave_out(&error),
        }
    }
    offering
}

/// App and port of a number in the list of `-D`, where a number alone is no port of the only app.
fn by_number(
    interface: &str,
    app: Option<&str>,
    apps: usize,
    settings: &Settings,
) -> Option<anyhow::Result<(String, String)>> {
    let number = interface.parse::<usize>().ok().filter(|_| app.is_none() && apps > 1)?;
    let running = running(settings);
    let all = list(&running);
    let found = all.iter().find(|listed| listed.number == number).map(|listed| {
        (listed.running.app.socket.display().to_string(), listed.port.id.to_string())
    });
    Some(found.ok_or_else(|| anyhow::anyhow!("there is no interface {number} in the list of -D")))
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

/// What an app may be called in front of a port: its name, and its file-prefix.
fn names_of(app: &App) -> impl Iterator<Item = &str> {
    let prefix = app.dir.file_name().and_then(|prefix| prefix.to_str());
    std::iter::once(app.name.as_str()).chain(prefix)
}

/// Splits off the name of a running app. Names and devices may both contain colons, so the longest
/// name that fits is meant.
fn split_app<'a>(interface: &'a str, apps: &[&'a str]) -> (Option<&'a str>, &'a str) {
    let rest = |app: &&str| {
        Some((*app).len())
            .filter(|len| interface.get(..*len) == Some(*app) && interface[*len..].starts_with(':'))
    };
    match apps.iter().filter_map(rest).max().or_else(|| begin_of_app(interface, apps)) {
        Some(len) => (Some(&interface[..len]), &interface[len + 1..]),
        None => (None, interface),
    }
}

/// Length of the longest text in front of a colon that the name of a running app begins with.
fn begin_of_app(interface: &str, apps: &[&str]) -> Option<usize> {
    let begins =
        |len: &usize| *len > 0 && apps.iter().any(|app| app.starts_with(&interface[..*len]));
    interface.match_indices(':').map(|(len, _)| len).filter(begins).max()
}

/// What must be meant for an app where the only one cannot be.
fn guess_app(interface: &str, apps: usize) -> Option<&str> {
    let (prefix, _) = interface.split_once(':').filter(|_| apps != 1)?;
    Some(prefix)
}

/// `any`, a device name or a number, with a queue behind it or not.
fn parse_target(text: &str, app: &str, ports: &[PortSample]) -> anyhow::Result<PortSelector> {
    if let Some(target) = find_port(text, ports) {
        return Ok(target);
    }
    if let Some((port, queue)) = text.rsplit_once(':')
        && let (Some(target), Ok(queue)) = (find_port(port, ports), queue.parse())
    {
        check_queue(queue, target, app, ports)?;
        return Ok(PortSelector { queue: Some(queue), ..target });
    }
    let name = |port: &PortSample| format!("{app}:{} ({})", port.id, port.device);
    match ports.iter().map(name).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => bail!("{app} has no port {text:?}: it has no ports at all"),
        known => bail!(
            "there is no port {text:?} in {app}, and no app of such a name; there is {known}. \
             Name one as PREFIX:PORT[:QUEUE]; -D lists all"
        ),
    }
}

/// Refuses a queue that no port that is meant has; without queues, a port has not told them.
fn check_queue(
    queue: u16,
    target: PortSelector,
    app: &str,
    ports: &[PortSample],
) -> anyhow::Result<()> {
    let meant = ports.iter().filter(|port| target.port.is_none_or(|id| id == port.id));
    let counts = meant.map(|port| port.rx_queues.max(port.tx_queues)).collect::<Vec<_>>();
    let most = counts.iter().copied().max().unwrap_or(0);
    if queue < most || counts.is_empty() || counts.contains(&0) {
        return Ok(());
    }
    let port = target.port.map_or("any".to_owned(), |port| port.to_string());
    match most - 1 {
        0 => bail!("there is no queue {queue} of {app}:{port}: the only one is 0"),
        last => bail!("there is no queue {queue} of {app}:{port}: there are 0 to {last}"),
    }
}

/// Refuses to look for a port of one app in another.
fn check_same(interface: &str, prefix: &App, app: &App) -> anyhow::Result<()> {
    if prefix.socket == app.socket {
        return Ok(());
    }
    bail!("-a {} and {interface} are different apps: leave out -a, or name its own ports", app.name)
}

fn find_port(text: &str, ports: &[PortSample]) -> Option<PortSelector> {
    if text == "any" {
        return Some(PortSelector::ALL);
    }
    let is_meant = |port: &&PortSample| port.device == text || port.id.to_string() == text;
    ports.iter().find(is_meant).map(|port| PortSelector { port: Some(port.id), queue: None })
}

fn find(name: Option<&str>, settings: &Settings) -> anyhow::Result<App> {
    match settings.find(name) {
        Ok(app) => Ok(app),
        // Without telemetry there are no port names, but the packets may still be had.
        Err(FindError::NoTelemetry(app)) if convention(&app).exists() => Ok(app),
        Err(error) => Err(error.into()),
    }
}

fn want(
    name: Option<&str>,
    settings: &Arc<Settings>,
    attach: AttachPolicy,
) -> anyhow::Result<CaptureTarget> {
    CaptureTarget::of(ask(find(name, settings)?), settings, attach)
}

fn ask(app: App) -> RunningApp {
    let live = app.state == AppState::Live;
    let sample = live.then(|| Collector::new(app.clone()).collect(TIMEOUT).ok()).flatten();
    RunningApp { app, sample }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Vec<PortSample> {
        let port =
            |id, device: &str| PortSample { id, device: device.into(), ..PortSample::default() };
        vec![port(0, "0000:03:00.0"), port(1, "net_vhost0")]
    }

    fn target(text: &str) -> Option<(Option<u16>, Option<u16>)> {
        parse_target(text, "rte", &ports()).ok().map(|target| (target.port, target.queue))
    }

    #[test]
    fn ports_are_numbers_or_devices_with_or_without_a_queue() {
        assert_eq!(target("0"), Some((Some(0), None)));
        assert_eq!(target("1:3"), Some((Some(1), Some(3))));
        assert_eq!(target("net_vhost0:7"), Some((Some(1), Some(7))));
        assert_eq!(target("0000:03:00.0"), Some((Some(0), None)));
        assert_eq!(target("0000:03:00.0:2"), Some((Some(0), Some(2))));
        assert_eq!(target("any"), Some((None, None)));
        assert_eq!(target("any:1"), Some((None, Some(1))));
        for bad in ["", "2", "1:", "1:x", "1:70000", "net_vhost", "0000:03"] {
            assert_eq!(target(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_longest_name_of_an_app_is_meant() {
        let apps = ["rte", "rte:1", "refl"];
        assert_eq!(split_app("rte:1", &apps), (Some("rte"), "1"));
        assert_eq!(split_app("rte:1:0", &apps), (Some("rte:1"), "0"));
        assert_eq!(split_app("refl:0000:03:00.0", &apps), (Some("refl"), "0000:03:00.0"));
        assert_eq!(split_app("0000:03:00.0", &apps), (None, "0000:03:00.0"));
        assert_eq!(split_app("réfl:0", &apps), (None, "réfl:0"));
    }

    #[test]
    fn the_begin_of_a_name_is_split_off_where_no_name_fits() {
        let apps = ["rte", "rte:1", "reflector"];
        assert_eq!(split_app("ref:net_vhost0:2", &apps), (Some("ref"), "net_vhost0:2"));
        assert_eq!(split_app("r:0", &apps), (Some("r"), "0"), "an error of two apps");
        assert_eq!(split_app("rte:0", &apps), (Some("rte"), "0"));
        assert_eq!(split_app(":0", &apps), (None, ":0"));
        assert_eq!(split_app("eflector:0", &apps), (None, "eflector:0"));
    }

    #[test]
    fn apps_are_called_by_their_names_and_their_prefixes() {
        let app = App { name: "fwd".into(), dir: "/var/run/dpdk/fwd-17".into(), ..app("x") };
        assert_eq!(names_of(&app).collect::<Vec<_>>(), ["fwd", "fwd-17"]);
    }

    #[test]
    fn an_unknown_app_is_asked_for_unless_only_one_runs() {
        assert_eq!(guess_app("refl:0", 2), Some("refl"));
        assert_eq!(guess_app("any", 2), None);
        assert_eq!(guess_app("0000:03:00.0", 1), None);
    }

    #[test]
    fn an_unknown_port_is_answered_with_those_there_are() {
        let error = parse_target("9", "rte", &ports()).unwrap_err().to_string();
        assert!(error.contains("rte:1 (net_vhost0)"), "{error}");
        let error = parse_target("9", "rte", &[]).unwrap_err().to_string();
        assert!(error.contains("no ports at all"), "{error}");
    }

    #[test]
    fn a_queue_that_does_not_exist_is_answered_with_those_that_do() {
        let ports = ports().into_iter().zip([(1, 1), (4, 2)]);
        let ports = ports
            .map(|(port, (rx_queues, tx_queues))| PortSample { rx_queues, tx_queues, ..port })
            .collect::<Vec<_>>();
        for good in ["0:0", "1:3", "any:3"] {
            assert!(parse_target(good, "rte", &ports).is_ok(), "{good}");
        }
        for (bad, told) in [
            ("0:7", "no queue 7 of rte:0: the only one is 0"),
            ("net_vhost0:4", "no queue 4 of rte:1: there are 0 to 3"),
            ("any:4", "no queue 4 of rte:any: there are 0 to 3"),
        ] {
            let error = parse_target(bad, "rte", &ports).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_port_of_another_app_than_the_chosen_one_is_refused() {
        let (chosen, other) = (app("dpdk_telemetry.v2"), app("dpdk_telemetry.v2:1"));
        assert!(check_same("rte:0", &chosen, &chosen).is_ok());
        let error = check_same("rte:1:0", &other, &chosen).unwrap_err().to_string();
        assert!(error.contains("-a rte and rte:1:0 are different apps"), "{error}");
    }

    #[test]
    fn numbers_are_ports_of_the_only_app_and_places_among_several() {
        assert_eq!([number_of(1, 0, 3), number_of(1, 1, 5)], [3, 5]);
        assert_eq!([number_of(2, 0, 3), number_of(2, 1, 5)], [0, 1]);
    }

    fn app(socket: &str) -> App {
        App {
            name: "rte".into(),
            dir: "/run/dpdk/rte".into(),
            socket: format!("/run/dpdk/rte/{socket}").into(),
            pid: None,
            dpdk_version: None,
            state: AppState::Live,
        }
    }
}
