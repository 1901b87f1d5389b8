//! The kernel's interfaces below the virtual devices of an app.

use std::collections::{BTreeMap, BTreeSet};

use crate::arguments::head;
use crate::host::netdev::{self, Netdev, NetdevKey, NetdevReader};
use crate::sample::{NetdevSample, NetdevState, PortSample};

/// Virtual devices on top of an interface. `iface` of others, such as `net_vhost`, is something else.
const DRIVERS: [&str; 8] = [
    "net_af_packet",
    "eth_af_packet",
    "net_af_xdp",
    "net_tap",
    "eth_tap",
    "net_tun",
    "net_pcap",
    "eth_pcap",
];

/// Those of them that make their interface, which the kernel names if the arguments do not, as `dtap0`.
const TAPS: [&str; 3] = ["net_tap", "eth_tap", "net_tun"];

/// Stands for the name of such an interface, if it was deleted before it was known.
const UNKNOWN_TAP: &str = "dtap%d";

/// Parameters of these devices that name an interface.
const PARAMETERS: [&str; 5] = ["iface", "remote", "rx_iface", "rx_iface_in", "tx_iface"];

/// Looks up the interfaces of one app.
#[derive(Debug, Default)]
pub(super) struct NetdevLookup {
    /// `None` until it was opened, or if it may not be.
    reader: Option<NetdevReader>,
    is_tried: bool,
    /// Indexes of interfaces that were found, by name.
    known: BTreeMap<String, i32>,
    /// Interfaces that the kernel has named, by port.
    taps: BTreeMap<String, String>,
}

impl NetdevLookup {
    /// Returns the interfaces of the ports that `vdevs`, the arguments of virtual devices, name.
    pub(super) fn read(
        &mut self,
        pid: u32,
        vdevs: &[String],
        ports: &[PortSample],
    ) -> Vec<NetdevSample> {
        let of_ports = vdevs
            .iter()
            .filter_map(|vdev| Some((vdev, ports.iter().find(|port| port.device == head(vdev))?)));
        let of_ports: Vec<_> = of_ports.collect();
        let is_unnamed = |(vdev, _): &&(&String, &PortSample)| is_unnamed_tap(vdev);
        let unnamed = of_ports.iter().filter(is_unnamed).map(|(_, port)| port.device.as_str());
        let unnamed: Vec<&str> = unnamed.collect();
        if pid != 0 && !unnamed.iter().all(|port| self.taps.contains_key(*port)) {
            let given = vdevs.iter().flat_map(|vdev| interfaces(vdev)).collect();
            self.taps.extend(name_taps(&unnamed, &given, netdev::tun_interfaces(pid)));
        }
        let of_taps = unnamed
            .iter()
            .filter_map(|port| Some(((*port).to_owned(), self.taps.get(*port).cloned()?)));
        let of_arguments = of_ports.iter().flat_map(|(vdev, port)| {
            interfaces(vdev).map(|name| (port.device.clone(), name.to_owned()))
        });
        let named: Vec<(String, String)> = of_arguments.chain(of_taps).collect();
        if pid == 0 || named.is_empty() {
            return Vec::new();
        }
        if !std::mem::replace(&mut self.is_tried, true) {
            self.reader = NetdevReader::open(pid).ok();
        }
        named.into_iter().filter_map(|(port, name)| self.look_up(pid, port, name)).collect()
    }

    fn look_up(&mut self, pid: u32, port: String, interface: String) -> Option<NetdevSample> {
        let Some(reader) = &self.reader else {
            let exists = netdev::exists(pid, &interface)?;
            let state = if exists { NetdevState::Exists } else { NetdevState::Missing };
            return Some(NetdevSample { port, interface, state, renamed: None });
        };
        if let Some(found) = reader.find(NetdevKey::Name(&interface)).ok()? {
            self.known.insert(interface.clone(), found.index);
            return Some(NetdevSample { port, interface, state: found.state, renamed: None });
        }
        let renamed = self.renamed(reader, pid, &interface);
        Some(NetdevSample {
            port,
            interface,
            state: NetdevState::Missing,
            renamed: renamed.map(|found| found.name),
        })
    }

    /// Returns an interface that had this name: the one with its index, or else the one to which the only packet
    /// socket of the app that is bound to no other interface of its arguments belongs.
    fn renamed(&self, reader: &NetdevReader, pid: u32, name: &str) -> Option<Netdev> {
        let by_index = |index| reader.find(NetdevKey::Index(index)).ok().flatten();
        if let Some(index) = self.known.get(name) {
            return by_index(*index);
        }
        let mut bound = netdev::packet_sockets(pid);
        bound.retain(|index| !self.known.values().any(|known| known == index));
        match bound[..] {
            [only] => by_index(only),
            _ => None,
        }
    }
}

/// Whether the kernel chooses the name of the interface that a virtual device makes.
fn is_unnamed_tap(vdev: &str) -> bool {
    let named = |pair: &str| pair.strip_prefix("iface=").is_some_and(is_name);
    TAPS.iter().any(|driver| vdev.starts_with(driver)) && !vdev.split(',').any(named)
}

/// The kernel chooses the number for a name such as `tap%d`.
fn is_name(value: &str) -> bool {
    !value.is_empty() && !value.contains('%')
}

/// Returns which port has which interface. Both are in the order in which they were made; `given` are interfaces that
/// arguments name. Unless there are as many interfaces as ports, it is not known.
fn name_taps(
    ports: &[&str],
    given: &BTreeSet<&str>,
    interfaces: Vec<Option<String>>,
) -> Vec<(String, String)> {
    let has_deleted = interfaces.contains(&None);
    let interfaces = interfaces.into_iter().flatten();
    let mut free: Vec<String> = interfaces.filter(|name| !given.contains(name.as_str())).collect();
    if free.is_empty() && has_deleted && ports.len() == 1 {
        free.push(UNKNOWN_TAP.to_owned());
    }
    if free.len() != ports.len() {
        return Vec::new();
    }
    ports.iter().map(|port| (*port).to_owned()).zip(free).collect()
}

/// Returns the interfaces that the parameters of a virtual device name.
fn interfaces(vdev: &str) -> impl Iterator<Item = &str> {
    let is_known = DRIVERS.iter().any(|driver| vdev.starts_with(driver));
    let pairs = vdev.split(',').skip(1).filter(move |_| is_known);
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .filter(move |(key, value)| PARAMETERS.contains(key) && is_name(value))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn port(id: u16, device: &str) -> PortSample {
        PortSample { device: device.into(), ..fixture::port(id, 0) }
    }

    #[test]
    fn interfaces_are_those_of_the_arguments_of_ports() {
        let vhost = "net_null2,iface=/tmp/link.sock";
        let vdevs = ["net_af_packet0,iface=lo,qpairs=1", "net_tap1,iface=no-such-if", vhost];
        let vdevs = vdevs.map(str::to_owned);
        let ports = [port(0, "net_af_packet0"), port(1, "net_tap1"), port(2, "net_null2")];
        let mut lookup = NetdevLookup::default();
        let pid = std::process::id();
        let found = lookup.read(pid, &vdevs, &ports);
        let states: Vec<_> =
            found.iter().map(|it| (it.port.as_str(), it.interface.as_str(), it.state)).collect();
        assert_eq!(
            states,
            [
                ("net_af_packet0", "lo", states[0].2),
                ("net_tap1", "no-such-if", NetdevState::Missing)
            ]
        );
        assert_ne!(states[0].2, NetdevState::Missing);
        assert_eq!(lookup.read(pid, &vdevs, &ports[2..]), []);
        assert_eq!(lookup.read(0, &vdevs, &ports), [], "of another PID namespace");
    }

    #[test]
    fn taps_without_a_name_have_those_that_the_kernel_gave() {
        let unnamed = ["net_tap0", "net_tap1,mac=fixed", "net_tun0", "net_tap2,iface=tap%d"];
        assert!(unnamed.iter().all(|vdev| is_unnamed_tap(vdev)));
        for named in ["net_tap0,iface=mine", "net_af_packet0", "net_null0,iface="] {
            assert!(!is_unnamed_tap(named), "{named}");
        }
        let name = |ports: &[&str], interfaces: &[&str]| {
            let interfaces = interfaces
                .iter()
                .map(|name| Some((*name).to_owned()).filter(|name| !name.is_empty()));
            let named = name_taps(ports, &["mine"].into(), interfaces.collect());
            named.into_iter().map(|(port, name)| format!("{port} {name}")).collect::<Vec<_>>()
        };
        let two = ["net_tap0", "net_tap1"];
        assert_eq!(name(&two, &["dtap0", "mine", "dtap1"]), ["net_tap0 dtap0", "net_tap1 dtap1"]);
        assert!(name(&two, &["dtap0", ""]).is_empty(), "either may be the deleted one");
        assert_eq!(name(&two[..1], &["mine", ""]), ["net_tap0 dtap%d"]);
        assert!(name(&two[..1], &["mine"]).is_empty());
    }

    #[test]
    fn an_interface_with_a_known_index_and_another_name_was_renamed() {
        let vdevs = ["net_af_packet0,iface=old-name".to_owned()];
        let mut lookup = NetdevLookup::default();
        // That of the loopback interface.
        lookup.known.insert("old-name".into(), 1);
        let found = lookup.read(std::process::id(), &vdevs, &[port(0, "net_af_packet0")]);
        assert_eq!(found[0].renamed.as_deref(), Some("lo"));
    }
}
