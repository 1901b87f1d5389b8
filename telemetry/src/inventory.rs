//! The expected apps and ports.
//!
//! An app that starts without its NICs runs and answers, but does nothing. Only an expectation
//! reveals that: from the configuration, otherwise from the app's own arguments, otherwise one port.

use crate::arguments::{EalArguments, head};
use crate::host::device;
use crate::sample::Sample;

/// The expected apps; for others, their own arguments define the expected ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppInventory {
    /// The apps that must run on this machine.
    pub apps: Vec<ExpectedApp>,
}

/// What is expected of one app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedApp {
    /// Its name, after mapping.
    pub name: String,
    /// Devices that must be among its ports, for instance `0000:03:00.0` or `net_vhost0`; empty for
    /// those of its own arguments.
    pub ports: Vec<String>,
    /// Minimum number of ports; `None` for the number of these devices, at least one. 0 for an app
    /// that needs none.
    pub min_ports: Option<usize>,
    /// Ports that may have no link, or stop receiving; `"*"` for all.
    pub may_be_idle: Vec<String>,
    /// Mempools and software rings that may be held in full; `"*"` for all.
    pub may_be_full: Vec<String>,
}

/// The expected ports and pools of one running app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortExpectation {
    /// Devices that must be among its ports; PCI addresses with their domain.
    pub devices: Vec<String>,
    /// Minimum number of ports, including those of `devices`.
    pub min_ports: usize,
    /// Source of the expectation.
    pub source: ExpectationSource,
    /// Ports that may have no link, or stop receiving; `"*"` for all.
    pub may_be_idle: Vec<String>,
    /// Mempools and software rings that may be held in full; `"*"` for all.
    pub may_be_full: Vec<String>,
}

/// Where an expectation comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectationSource {
    /// The configuration names devices or a number of ports.
    Configuration,
    /// The app's own arguments name devices.
    Arguments,
    /// Neither does: a DPDK app has at least one port.
    #[default]
    Default,
}

impl ExpectationSource {
    /// Returns the text after "expected by".
    pub fn words(self) -> &'static str {
        match self {
            Self::Configuration => "the configuration",
            Self::Arguments => "the app's own arguments",
            Self::Default => "default",
        }
    }
}

impl AppInventory {
    /// Returns the expectations of this app.
    pub fn app(&self, name: &str) -> Option<&ExpectedApp> {
        self.apps.iter().find(|app| app.name == name)
    }

    /// Returns the expected ports of the app of `sample`.
    pub fn expectation(&self, sample: &Sample) -> PortExpectation {
        let app = self.app(&sample.app.name);
        let of_app = |read: fn(&ExpectedApp) -> &[String]| app.map_or(&[][..], read);
        let ports = of_app(|app| &app.ports);
        let min_ports = app.and_then(|app| app.min_ports);
        let devices = if ports.is_empty() {
            devices_of_arguments(sample)
        } else {
            ports.iter().map(|port| device::address(port).unwrap_or_else(|| port.clone())).collect()
        };
        PortExpectation {
            min_ports: min_ports.unwrap_or(devices.len().max(1)),
            source: match (min_ports, ports.is_empty(), devices.is_empty()) {
                (None, true, true) => ExpectationSource::Default,
                (None, true, false) => ExpectationSource::Arguments,
                _ => ExpectationSource::Configuration,
            },
            devices,
            may_be_idle: of_app(|app| &app.may_be_idle).to_vec(),
            may_be_full: of_app(|app| &app.may_be_full).to_vec(),
        }
    }
}

impl PortExpectation {
    /// Whether this port may have no link, or stop receiving.
    pub fn may_be_idle(&self, port: &str) -> bool {
        self.may_be_idle.iter().any(|idle| idle == "*" || device::is_port_of(port, idle))
    }

    /// Whether this mempool or software ring may be held in full.
    pub fn may_be_full(&self, pool: &str) -> bool {
        self.may_be_full.iter().any(|full| full == "*" || full == pool)
    }

    /// Returns the expected devices without a port of the app.
    pub fn missing<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a str> {
        let has_port =
            |device: &str| sample.ports.iter().any(|port| device::is_port_of(&port.device, device));
        self.devices.iter().map(String::as_str).filter(move |device| !has_port(device))
    }
}

/// Virtual devices with a port that replaces the ports that they consist of.
const HIDING: [&str; 5] =
    ["net_bonding", "eth_bond", "net_failsafe", "net_vdev_netvsc", "net_netvsc"];

/// Virtual devices with ports of other names.
const RENAMING: [&str; 5] =
    ["eth_mvpp2", "net_mvneta", "net_mvpp2", "net_octeontx", "net_vdev_netvsc"];

/// Returns the ports that the app's own arguments ask for: PCI network devices that are allowed by
/// name, and virtual network devices.
fn devices_of_arguments(sample: &Sample) -> Vec<String> {
    let arguments = EalArguments::parse(&sample.app.eal_args);
    let vdevs: Vec<&str> = arguments.vdevs.iter().map(String::as_str).collect();
    let hides = |name: &str| HIDING.iter().any(|hiding| name.starts_with(hiding));
    let hidden =
        vdevs.iter().any(|vdev| hides(vdev)) || sample.ports.iter().any(|port| hides(&port.device));
    let virtual_port = |vdev: &&&str| {
        let network = vdev.starts_with("net_") || vdev.starts_with("eth_");
        let renamed = RENAMING.iter().any(|driver| vdev.starts_with(driver));
        // A ring device may take over existing rings, under their names.
        network && !renamed && !vdev.contains("nodeaction=") && (!hidden || hides(vdev))
    };
    let virtual_ports = vdevs.iter().filter(virtual_port).map(|vdev| head(vdev).to_owned());
    let allowed = arguments.allowed.iter().filter(|address| !hidden && is_port(sample, address));
    let mut devices: Vec<String> = Vec::new();
    for device in allowed.cloned().chain(virtual_ports) {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

/// An address that is a NIC on no host: as an argument it means "no device".
const HOST_BRIDGE: &str = "0000:00:00.0";

/// A device that the kernel does not know is expected as well: it may have been mistyped, or removed.
fn is_port(sample: &Sample, address: &str) -> bool {
    let known = sample.devices.iter().find(|device| device.address == address);
    known.is_some_and(|device| device.network || !device.present) && address != HOST_BRIDGE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::DeviceSample;
    use crate::sample::tests::{empty_sample, port};

    /// Returns an app with these arguments, on a host with a NIC at 03:00.0 and an accelerator at 05:00.0.
    fn app(line: &str) -> Sample {
        let device = |address: &str, network| DeviceSample {
            address: address.into(),
            present: true,
            network,
            driver: None,
        };
        let mut sample = empty_sample();
        sample.app.eal_args = line.split_whitespace().map(str::to_owned).collect();
        let absent = DeviceSample { address: "0000:09:00.0".into(), ..DeviceSample::default() };
        sample.devices = vec![device("0000:03:00.0", true), device("0000:05:00.0", false), absent];
        sample
    }

    fn of_arguments(line: &str) -> (Vec<String>, usize, ExpectationSource) {
        let expectation = AppInventory::default().expectation(&app(line));
        (expectation.devices, expectation.min_ports, expectation.source)
    }

    #[test]
    fn the_app_s_own_arguments_name_its_ports() {
        let (devices, least, source) = of_arguments(
            "app -a 03:00.0,x=1 -a 05:00.0 -a 09:00.0 --vdev=net_null0,size=64 --vdev crypto_null \
             --vdev=event_sw0 --vdev net_null0",
        );
        assert_eq!(devices, ["0000:03:00.0", "0000:09:00.0", "net_null0"]);
        assert_eq!((least, source), (3, ExpectationSource::Arguments));
    }

    #[test]
    fn by_default_one_port_is_expected() {
        for line in ["app", "app --no-pci", "app -a 0000:00:00.0", "app -a 05:00.0", "app -a 7:0.0"]
        {
            assert_eq!(of_arguments(line), (Vec::new(), 1, ExpectationSource::Default), "{line}");
        }
    }

    #[test]
    fn members_of_bonds_are_not_expected() {
        let (devices, least, _) = of_arguments("app -a 03:00.0 --vdev net_bonding0,slave=03:00.0");
        assert_eq!((devices, least), (vec!["net_bonding0".into()], 1));
        let mut sample = app("app -a 03:00.0 --vdev net_null0");
        sample.ports = vec![port(0, 0)];
        sample.ports[0].device = "net_bonding_testpmd_0".into();
        assert_eq!(AppInventory::default().expectation(&sample).min_ports, 1);
        assert_eq!(of_arguments("app --vdev net_vdev_netvsc0,iface=eth1").0, Vec::<String>::new());
    }

    #[test]
    fn ports_with_their_own_names_are_not_expected_by_device_name() {
        let (devices, least, _) = of_arguments(
            "app --vdev net_mvpp2,iface=eth0 --vdev net_ring0,nodeaction=R0:0:ATTACH --vdev net_tap0",
        );
        assert_eq!((devices, least), (vec!["net_tap0".into()], 1));
    }

    #[test]
    fn the_configuration_overrides_the_arguments() {
        let named = |ports: &[&str], min_ports| AppInventory {
            apps: vec![ExpectedApp {
                name: "app".into(),
                ports: ports.iter().map(|port| (*port).to_owned()).collect(),
                min_ports,
                may_be_idle: vec!["3:0.0".into()],
                may_be_full: vec!["templates".into()],
            }],
        };
        let sample = app("app --vdev net_null0");
        let both = named(&["03:00.0", "net_vhost0"], None).expectation(&sample);
        assert_eq!(both.devices, ["0000:03:00.0", "net_vhost0"]);
        assert_eq!((both.min_ports, both.source), (2, ExpectationSource::Configuration));
        assert!(both.may_be_idle("0000:03:00.0") && !both.may_be_idle("net_vhost0"));
        assert!(both.may_be_full("templates") && !both.may_be_full("mb"));
        let number = named(&[], Some(4)).expectation(&sample);
        assert_eq!((number.devices, number.min_ports), (vec!["net_null0".into()], 4));
        assert_eq!(named(&[], Some(0)).expectation(&sample).min_ports, 0);
        let neither = named(&[], None).expectation(&sample);
        assert_eq!((neither.min_ports, neither.source), (1, ExpectationSource::Arguments));
    }

    #[test]
    fn everything_may_be_idle_with_a_star() {
        let all = PortExpectation { may_be_idle: vec!["*".into()], ..PortExpectation::default() };
        assert!(all.may_be_idle("net_null7"));
    }

    #[test]
    fn devices_without_a_port_are_missing() {
        let mut sample = app("app -a 03:00.0 --vdev net_null0");
        let expectation = AppInventory::default().expectation(&sample);
        assert_eq!(expectation.missing(&sample).collect::<Vec<_>>(), ["0000:03:00.0", "net_null0"]);
        sample.ports = vec![port(0, 0)];
        assert_eq!(expectation.missing(&sample).collect::<Vec<_>>(), ["0000:03:00.0"]);
        sample.ports[0].device = "03:00.0".into();
        assert_eq!(expectation.missing(&sample).collect::<Vec<_>>(), ["net_null0"]);
    }

    proptest! {
        #[test]
        fn any_arguments_give_an_expectation(argv: Vec<String>, ports: Vec<String>) {
            let mut sample = empty_sample();
            sample.app.eal_args = argv;
            let apps = vec![ExpectedApp { name: "app".into(), ports, ..ExpectedApp::default() }];
            let expectation = AppInventory { apps }.expectation(&sample);
            prop_assert!(expectation.min_ports >= 1);
            prop_assert!(expectation.missing(&sample).count() <= expectation.min_ports);
        }
    }
}
