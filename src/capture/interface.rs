//! What `-i` means: apps, ports and queues by the names people use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use pmdscope_capture::pump::Port;
use pmdscope_telemetry::Collector;
use pmdscope_telemetry::discover::{self, App, AppState, DiscoverOptions, FindError};
use pmdscope_telemetry::sample::{PortSample, Sample};

/// How long an app may take to tell about itself.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Telemetry socket and capture socket of a first instance; further ones append `:N` to both.
const TELEMETRY_SOCKET: &str = "dpdk_telemetry.v2";
const CAPTURE_SOCKET: &str = "pmdscope.sock";

/// Queues of one app; `None` is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// DPDK port id.
    pub(super) port: Option<u16>,
    /// Queue of the port.
    pub(super) queue: Option<u16>,
}

impl Target {
    const ALL: Self = Self { port: None, queue: None };
}

/// What to capture from one app.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) app: String,
    pub(super) socket: PathBuf,
    pub(super) targets: Vec<Target>,
    known: Vec<PortSample>,
}

impl Wanted {
    /// The ports of the app, with those that are captured from.
    pub(super) fn ports(&self) -> Vec<Port> {
        let wanted = |id| self.targets.iter().any(|t| t.port.is_none_or(|port| port == id));
        let port =
            |p: &PortSample| Port { id: p.id, device: p.device.clone(), selected: wanted(p.id) };
        self.known.iter().map(port).collect()
    }

    /// The targets as people write them.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.targets.iter().map(|target| {
            let port = target.port.map_or("any".to_owned(), |port| port.to_string());
            let queue = target.queue.map_or(String::new(), |queue| format!(":{queue}"));
            format!("{}:{port}{queue}", self.app)
        })
    }
}

/// An app and what it tells of itself.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) app: App,
    /// `None` when it cannot be asked.
    pub(crate) sample: Option<Sample>,
}

/// All running apps.
pub(super) fn running() -> Vec<Running> {
    let apps = discover::discover(&DiscoverOptions::default());
    apps.into_iter().map(ask).collect()
}

/// Finds the apps and ports that `-i` and `-a` name; without `-i`, all ports of the app.
pub(super) fn resolve(interfaces: &[String], app: Option<&str>) -> anyhow::Result<Vec<Wanted>> {
    let apps = discover::discover(&DiscoverOptions::default());
    let names = apps.iter().map(|app| app.name.as_str()).collect::<Vec<_>>();
    let every = [String::from("any")];
    let interfaces = if interfaces.is_empty() { &every } else { interfaces };
    let mut wanted = BTreeMap::new();
    for interface in interfaces {
        let (prefix, port) = split_app(interface, &names);
        let name = prefix.or(app).or_else(|| guess_app(interface, &names));
        let found = match wanted.entry(name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(want(name)?),
        };
        let target = parse_target(port, &found.app, &found.known)?;
        if !found.targets.contains(&target) {
            found.targets.push(target);
        }
    }
    Ok(merge_same(wanted.into_values()))
}

/// One app may have been named in two ways, or not at all and by name.
fn merge_same(all: impl Iterator<Item = Wanted>) -> Vec<Wanted> {
    let mut merged: Vec<Wanted> = Vec::new();
    for wanted in all {
        match merged.iter_mut().find(|known| known.socket == wanted.socket) {
            Some(known) => known.targets.extend(wanted.targets),
            None => merged.push(wanted),
        }
    }
    merged
}

/// Splits off the name of a running app. Names and devices may both contain colons, so the longest
/// name that fits is meant.
fn split_app<'a>(interface: &'a str, apps: &[&'a str]) -> (Option<&'a str>, &'a str) {
    let rest = |app: &&str| {
        Some((*app).len())
            .filter(|len| interface.get(..*len) == Some(*app) && interface[*len..].starts_with(':'))
    };
    match apps.iter().filter_map(rest).max() {
        Some(len) => (Some(&interface[..len]), &interface[len + 1..]),
        None => (None, interface),
    }
}

/// What must be meant for an app where the only one cannot be.
fn guess_app<'a>(interface: &'a str, apps: &[&str]) -> Option<&'a str> {
    let (prefix, _) = interface.split_once(':').filter(|_| apps.len() != 1)?;
    Some(prefix)
}

/// `any`, a device name or a number, with a queue behind it or not.
fn parse_target(text: &str, app: &str, ports: &[PortSample]) -> anyhow::Result<Target> {
    if let Some(target) = find_port(text, ports) {
        return Ok(target);
    }
    if let Some((port, queue)) = text.rsplit_once(':')
        && let (Some(target), Ok(queue)) = (find_port(port, ports), queue.parse())
    {
        return Ok(Target { queue: Some(queue), ..target });
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

fn find_port(text: &str, ports: &[PortSample]) -> Option<Target> {
    if text == "any" {
        return Some(Target::ALL);
    }
    let is_meant = |port: &&PortSample| port.device == text || port.id.to_string() == text;
    ports.iter().find(is_meant).map(|port| Target { port: Some(port.id), queue: None })
}

/// Everything about an app but its targets.
fn want(name: Option<&str>) -> anyhow::Result<Wanted> {
    let app = match discover::find(name, &DiscoverOptions::default()) {
        Ok(app) => app,
        // Without telemetry there are no port names, but the packets may still be had.
        Err(FindError::NoTelemetry(app)) if convention(&app).exists() => app,
        Err(error) => return Err(error.into()),
    };
    let running = ask(app);
    let socket = capture_socket(&running)?;
    let known = running.sample.map(|sample| sample.ports).unwrap_or_default();
    Ok(Wanted { app: running.app.name, socket, targets: Vec::new(), known })
}

fn ask(app: App) -> Running {
    let live = app.state == AppState::Live;
    let sample = live.then(|| Collector::new(app.clone()).collect(TIMEOUT).ok()).flatten();
    Running { app, sample }
}

/// Where the app offers its packets: where it says, seen from here, or where it ought to be.
pub(crate) fn capture_socket(running: &Running) -> anyhow::Result<PathBuf> {
    let Running { app, sample } = running;
    let library = sample.as_ref().and_then(|sample| sample.library.as_ref());
    let told = library.and_then(|library| library.tee_socket.as_ref()).map(PathBuf::from);
    let here = told.as_ref().and_then(|path| path.file_name()).map(|name| app.dir.join(name));
    let places = [told, here, Some(convention(app))];
    if let Some(socket) = places.into_iter().flatten().find(|path| path.exists()) {
        return Ok(socket);
    }
    match (sample, library) {
        (None, _) => bail!("{} does not answer on {}", app.name, app.socket.display()),
        (Some(_), None) => bail!(
            "{} runs without libpmdscope, so nobody hands out its packets: link it with libpmdscope \
             and call pmdscope_init() after rte_eal_init()",
            app.name
        ),
        (Some(_), Some(_)) => bail!(
            "{} offers no captures: it was started with PMDSCOPE_F_NO_TEE, or its log says why the \
             capture socket could not be opened",
            app.name
        ),
    }
}

fn convention(app: &App) -> PathBuf {
    let file = app.socket.file_name().unwrap_or_default().to_string_lossy();
    let instance = file.strip_prefix(TELEMETRY_SOCKET).unwrap_or_default();
    app.dir.join(format!("{CAPTURE_SOCKET}{instance}"))
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
    fn an_unknown_app_is_asked_for_unless_only_one_runs() {
        assert_eq!(guess_app("refl:0", &["a", "b"]), Some("refl"));
        assert_eq!(guess_app("any", &["a", "b"]), None);
        assert_eq!(guess_app("0000:03:00.0", &["a"]), None);
    }

    #[test]
    fn an_unknown_port_is_answered_with_those_there_are() {
        let error = parse_target("9", "rte", &ports()).unwrap_err().to_string();
        assert!(error.contains("rte:1 (net_vhost0)"), "{error}");
        let error = parse_target("9", "rte", &[]).unwrap_err().to_string();
        assert!(error.contains("no ports at all"), "{error}");
    }

    #[test]
    fn further_instances_have_sockets_of_the_same_number() {
        let app = |socket: &str| App {
            name: "rte".into(),
            dir: "/run/dpdk/rte".into(),
            socket: format!("/run/dpdk/rte/{socket}").into(),
            pid: None,
            dpdk_version: None,
            state: AppState::Live,
        };
        let path = |socket: &str| convention(&app(socket));
        assert_eq!(path("dpdk_telemetry.v2"), PathBuf::from("/run/dpdk/rte/pmdscope.sock"));
        assert_eq!(path("dpdk_telemetry.v2:2"), PathBuf::from("/run/dpdk/rte/pmdscope.sock:2"));
    }
}
