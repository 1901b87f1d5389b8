//! The kernel's interfaces below the virtual devices of an app.

use std::collections::BTreeMap;

use crate::arguments::head;
use crate::host::netdev::{self, Netdev, NetdevKey, NetdevReader};
use crate::sample::{NetdevSample, NetdevState, PortSample};

/// Virtual devices on top of an interface. `iface` of others, such as `net_vhost`, is something else.
const DRIVERS: [&str; 7] =
    ["net_af_packet", "eth_af_packet", "net_af_xdp", "net_tap", "eth_tap", "net_pcap", "eth_pcap"];

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
        let named: Vec<(String, String)> = of_ports
            .flat_map(|(vdev, port)| {
                interfaces(vdev).map(|name| (port.device.clone(), name.to_owned()))
            })
            .collect();
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

/// Returns the interfaces that the parameters of a virtual device name.
fn interfaces(vdev: &str) -> impl Iterator<Item = &str> {
    let is_known = DRIVERS.iter().any(|driver| vdev.starts_with(driver));
    let pairs = vdev.split(',').skip(1).filter(move |_| is_known);
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    // The kernel chooses the number for a name such as `tap%d`.
    let is_name = |value: &str| !value.is_empty() && !value.contains('%');
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
    fn an_interface_with_a_known_index_and_another_name_was_renamed() {
        let vdevs = ["net_af_packet0,iface=old-name".to_owned()];
        let mut lookup = NetdevLookup::default();
        // That of the loopback interface.
        lookup.known.insert("old-name".into(), 1);
        let found = lookup.read(std::process::id(), &vdevs, &[port(0, "net_af_packet0")]);
        assert_eq!(found[0].renamed.as_deref(), Some("lo"));
    }
}
