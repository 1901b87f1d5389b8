//! What `-i` means: apps, ports and queues by the names people use.

use anyhow::bail;
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::PortSample;

use super::running::RunningApp;

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
    let ports = |one| RunningApp::ports(one).iter().map(move |port| (one, port));
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

/// What an app may be called in front of a port: its name, and its file-prefix if other users cannot
/// have given it.
pub(super) fn names_of(app: &DiscoveredApp) -> impl Iterator<Item = &str> {
    let prefix = app.dir.file_name().and_then(|prefix| prefix.to_str());
    std::iter::once(app.name.as_str()).chain(prefix.filter(|_| app.user.is_none()))
}

/// Splits off the name of a running app. Names and devices may both contain colons, so the longest
/// name that fits is meant.
pub(super) fn split_app<'a>(interface: &'a str, apps: &[&str]) -> (Option<&'a str>, &'a str) {
    let rest = |app: &&str| {
        Some((*app).len())
            .filter(|len| interface.get(..*len) == Some(*app) && interface[*len..].starts_with(':'))
    };
    match apps.iter().filter_map(rest).max() {
        Some(len) => (Some(&interface[..len]), &interface[len + 1..]),
        None => (None, interface),
    }
}

/// The text that must name an app, unless there is exactly one app.
pub(super) fn guess_app(interface: &str, apps: usize) -> Option<&str> {
    let (prefix, _) = interface.split_once(':').filter(|_| apps != 1)?;
    Some(prefix)
}

/// `any`, a device name or a number, with a queue behind it or not.
pub(super) fn parse_target(
    text: &str,
    app: &str,
    ports: &[PortSample],
) -> anyhow::Result<PortSelector> {
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

/// Refuses a queue that no port that is meant has; a port without queues has not reported them.
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
pub(super) fn check_same(
    interface: &str,
    prefix: &DiscoveredApp,
    app: &DiscoveredApp,
) -> anyhow::Result<()> {
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

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::discover::Reachability;

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
    fn a_name_that_only_begins_as_that_of_an_app_is_another_one() {
        let apps = ["rte", "rte:1", "reflector"];
        for other in ["ref:net_vhost0:2", "r:0", ":0", "eflector:0", "reflector-canary:0"] {
            assert_eq!(split_app(other, &apps), (None, other));
        }
    }

    #[test]
    fn apps_are_called_by_their_names_and_their_prefixes() {
        let app =
            DiscoveredApp { name: "fwd".into(), dir: "/var/run/dpdk/fwd-17".into(), ..app("x") };
        assert_eq!(names_of(&app).collect::<Vec<_>>(), ["fwd", "fwd-17"]);
        let app = DiscoveredApp { user: Some("eve".into()), name: "eve/fwd".into(), ..app };
        assert_eq!(names_of(&app).collect::<Vec<_>>(), ["eve/fwd"]);
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

    fn app(socket: &str) -> DiscoveredApp {
        DiscoveredApp::in_dir("/run/dpdk/rte", "rte", socket, Reachability::Live)
    }
}
