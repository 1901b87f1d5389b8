//! Ports that consist of others: bonding, failsafe, and netvsc with its virtual function.
//!
//! Such a port counts the packets of its members once more, so that totals must leave the members out.
//! Members are those that the arguments of the app name, those with the same Ethernet address, or PCI
//! ports whose packets add up to those of the port.

use std::collections::BTreeMap;

use crate::arguments::EalArguments;
use crate::host::device;
use crate::sample::{PortSample, Sample};

/// Virtual devices that consist of others.
const BONDS: [&str; 3] = ["net_bonding", "eth_bond", "net_failsafe"];

/// Lengths of the groups of hexadecimal digits in the name of a `VMBus` device.
const GUID: [usize; 5] = [8, 4, 4, 4, 12];

/// Most PCI ports of which several together are tried as members.
const MOST_PORTS: usize = 8;

/// Fewest packets from which counters can identify members.
const LEAST_PACKETS: u64 = 1000;

/// Largest relative difference of counters that are read one after the other.
const READ_SKEW: f64 = 0.02;

/// The members that were found, by id: their device, and the port that they belong to.
#[derive(Debug, Default)]
pub(super) struct PortMembers(BTreeMap<u16, (String, u16)>);

impl PortMembers {
    /// Discards everything: the ports are those of another process.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the port that each port belongs to, in the order of `sample.ports`.
    pub(super) fn update(&mut self, sample: &Sample) -> Vec<Option<u16>> {
        let ports = &sample.ports;
        let is_listed = |id: u16| ports.iter().any(|port| port.id == id);
        self.0.retain(|id, (device, whole)| {
            is_listed(*whole) && ports.iter().any(|port| port.id == *id && port.device == *device)
        });
        for whole in ports.iter().filter(|port| consists_of_others(port)) {
            if !self.0.values().any(|(_, of)| *of == whole.id) {
                let found = members(whole, sample);
                self.0.extend(
                    found.into_iter().map(|port| (port.id, (port.device.clone(), whole.id))),
                );
            }
        }
        ports.iter().map(|port| self.0.get(&port.id).map(|(_, whole)| *whole)).collect()
    }
}

/// Whether a port may have others as its members, by its name.
fn consists_of_others(port: &PortSample) -> bool {
    BONDS.iter().any(|bond| port.device.starts_with(bond)) || is_vmbus(&port.device)
}

/// Whether a device is one of `VMBus`, which netvsc drives.
fn is_vmbus(device: &str) -> bool {
    let length = |group: &str| group.chars().all(|c| c.is_ascii_hexdigit()).then_some(group.len());
    device.split('-').map(length).eq(GUID.map(Some))
}

fn members<'a>(whole: &PortSample, sample: &'a Sample) -> Vec<&'a PortSample> {
    let others = || {
        let ports = sample.ports.iter();
        ports.filter(|port| port.id != whole.id && !consists_of_others(port))
    };
    let arguments = EalArguments::parse(&sample.app.eal_args);
    let devices: Vec<&str> =
        arguments.vdevs.iter().flat_map(|vdev| devices_of(vdev, whole)).collect();
    let is_named =
        |port: &&PortSample| devices.iter().any(|name| device::is_port_of(&port.device, name));
    let named: Vec<_> = others().filter(is_named).collect();
    if !named.is_empty() {
        return named;
    }
    let has_address = |port: &&PortSample| whole.mac.is_some() && port.mac == whole.mac;
    let same_address: Vec<_> = others().filter(has_address).collect();
    if !same_address.is_empty() {
        return same_address;
    }
    let nics: Vec<_> = others().filter(|port| device::is_pci(&port.device)).collect();
    by_packets(whole, &nics)
}

/// Returns the devices that the arguments of a virtual device name: `slave=X`, `member=X`, `dev(X)`.
fn devices_of<'a>(vdev: &'a str, whole: &PortSample) -> Vec<&'a str> {
    let Some(arguments) = vdev.strip_prefix(whole.device.as_str()) else { return Vec::new() };
    let device = |argument: &'a str| {
        let assigned = ["slave=", "member="].iter().find_map(|key| argument.strip_prefix(key));
        assigned.or_else(|| argument.strip_prefix("dev(").map(|name| name.trim_end_matches(')')))
    };
    arguments.split(',').filter_map(device).collect()
}

/// Returns the port whose packets are those of the whole, or else, of a bond, the fewest ports whose packets add
/// up to them. A port of netvsc has one virtual function.
fn by_packets<'a>(whole: &PortSample, nics: &[&'a PortSample]) -> Vec<&'a PortSample> {
    let own = |name: &str, all: u64| whole.xstats.get(name).unwrap_or(all);
    let received = own("vf_rx_good_packets", whole.stats.rx_packets);
    let sent = own("vf_tx_good_packets", whole.stats.tx_packets);
    if received.saturating_add(sent) < LEAST_PACKETS {
        return Vec::new();
    }
    let distance = |port: &&&PortSample| {
        port.stats
            .rx_packets
            .abs_diff(received)
            .saturating_add(port.stats.tx_packets.abs_diff(sent))
    };
    let add_up = |ports: &[&PortSample]| {
        let sum = |of: fn(&PortSample) -> u64| {
            ports.iter().map(|port| of(port)).fold(0, u64::saturating_add)
        };
        let alike = |sum: u64, of: u64| sum.abs_diff(of) as f64 <= READ_SKEW * of as f64;
        alike(sum(|port| port.stats.rx_packets), received)
            && alike(sum(|port| port.stats.tx_packets), sent)
    };
    if let Some(port) = nics.iter().filter(|port| add_up(&[**port])).min_by_key(distance) {
        return vec![*port];
    }
    if is_vmbus(&whole.device) {
        return Vec::new();
    }
    let nics = &nics[..nics.len().min(MOST_PORTS)];
    let chosen = |set: u32| -> Vec<&'a PortSample> {
        let ports = nics.iter().enumerate();
        ports.filter(|(at, _)| set >> at & 1 == 1).map(|(_, port)| *port).collect()
    };
    let sets = (1..1_u32 << nics.len()).map(chosen).filter(|ports| add_up(ports));
    sets.min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};

    const SYNTHETIC: &str = "f8615163-0000-1000-2000-000d3ac5b2b1";

    /// Returns the port that each of these ports belongs to: by device, packets received and sent.
    fn of(line: &str, ports: &[(&str, u64, u64)]) -> Vec<Option<u16>> {
        PortMembers::default().update(&app(line, ports))
    }

    fn app(line: &str, ports: &[(&str, u64, u64)]) -> Sample {
        let mut sample = empty_sample();
        sample.app.eal_args = line.split_whitespace().map(str::to_owned).collect();
        let port = |(id, (device, rx, tx)): (u16, &(&str, u64, u64))| {
            let mut port = port(id, *rx);
            (port.device, port.stats.tx_packets) = ((*device).to_owned(), *tx);
            port
        };
        sample.ports = (0..).zip(ports).map(port).collect();
        sample
    }

    #[test]
    fn members_are_named_or_add_up() {
        let (a, b) = ("0000:03:00.0", "0000:03:00.1");
        let line = "app --vdev net_bonding0,mode=1,slave=03:00.0,slave=0000:03:00.1";
        let bond = [(a, 0, 0), ("net_bonding0", 0, 0), (b, 0, 0), ("net_null0", 0, 0)];
        assert_eq!(of(line, &bond), [Some(1), None, Some(1), None]);
        let line = "app --vdev net_failsafe0,dev(0000:03:00.0),dev(net_tap0)";
        let failsafe = [("net_failsafe0", 0, 0), (a, 0, 0), ("net_tap0", 0, 0), (b, 0, 0)];
        assert_eq!(of(line, &failsafe), [None, Some(0), Some(0), None]);
        let azure = [(SYNTHETIC, 50_000, 9000), (a, 50_100, 9000), (b, 7, 9000)];
        assert_eq!(of("app", &azure), [None, Some(0), None]);
        let sum = [("net_bonding0", 50_000, 9000), (a, 20_000, 3000), (b, 30_000, 6000)];
        assert_eq!(of("app", &sum), [None, Some(0), Some(0)]);
        assert_eq!(of("app", &[(a, 50_000, 9000), (b, 50_000, 9000)]), [None, None]);
        assert_eq!(of("app", &[("net_bonding0", 7, 9), (a, 7, 9)]), [None, None], "too few");
    }

    #[test]
    fn members_with_the_address_of_their_bond_count_once() {
        let mut tracker = ModelTracker::default();
        let mut rx = |second: u64| {
            let packets = second * 500;
            let mut sample =
                app("app", &[("0000:03:00.0", packets, 0), ("net_bonding0", packets, 0)]);
            sample.monotonic_ns += second * 1_000_000_000;
            for port in &mut sample.ports {
                port.mac = Some("02:00:00:00:00:01".into());
            }
            let model = tracker.update(sample);
            (model.ports[0].member_of, model.sum_of_ports(|rates| rates.rx_pps))
        };
        assert_eq!((rx(0), rx(1)), ((Some(1), None), (Some(1), Some(500.0))));
    }

    proptest! {
        #[test]
        fn no_port_belongs_to_itself_or_to_a_member(
            names in prop::collection::vec("(net_bonding|0000:0[0-9]:00\\.|net_null)[0-7]", 0..20),
            line: String,
            counts in prop::collection::vec((0..9_u64, 0..9_u64), 20),
        ) {
            let ports: Vec<_> = names
                .iter()
                .zip(&counts)
                .map(|(name, (rx, tx))| (name.as_str(), rx * 1000, tx * 1000))
                .collect();
            let found = of(&line, &ports);
            for (id, whole) in (0_u16..).zip(&found) {
                if let Some(whole) = whole {
                    prop_assert!(*whole != id && found[usize::from(*whole)].is_none());
                }
            }
        }
    }
}
