//! NICs: their drivers, and their links to the host.

use std::collections::BTreeMap;

use pmdscope_telemetry::host::device;

use crate::app::AppFacts;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, quoted, warn};
use crate::facts::{NetworkDevice, PcieLink};
use crate::tree::{Fact, Unknown};

/// Kernel drivers that DPDK works beside: a NIC stays usable by DPDK while bound to them.
const BIFURCATED: [&str; 3] = ["mana", "mlx4_core", "mlx5_core"];

pub(super) const CHECKS: [Check; 2] = [
    Check {
        id: "nic_driver",
        group: CheckGroup::Nics,
        title: "NICs are bound to a driver for user space",
        matters: "An app whose NIC has stayed with its kernel driver, as after a kernel update, \
                  starts without a port and says nothing.",
        run: drivers,
    },
    Check {
        id: "pcie_link",
        group: CheckGroup::Nics,
        title: "PCIe links are as fast as the card",
        matters: "A card in a slot with fewer lanes, or whose link has fallen back, drops packets \
                  that no counter of the app explains.",
        run: links,
    },
];

/// Returns the NICs that an app names or has ports on.
pub(super) fn of_app<'a>(evidence: &Evidence<'a>, app: &AppFacts) -> Fact<Vec<&'a NetworkDevice>> {
    let devices = known(evidence)?;
    let ports = app.sample.iter().flat_map(|sample| &sample.ports);
    let named = app
        .expected_devices
        .iter()
        .map(String::as_str)
        .chain(ports.map(|port| port.device.as_str()));
    let named: Vec<&str> = named.collect();
    let is_of_app = |found: &&NetworkDevice| {
        named.iter().any(|name| device::is_port_of(name, &found.sample.address))
    };
    Ok(devices.values().filter(is_of_app).collect())
}

/// Returns the NICs of apps, and those that are bound to a driver for user space.
pub(super) fn in_use<'a>(evidence: &Evidence<'a>) -> Fact<Vec<&'a NetworkDevice>> {
    let mut used: Vec<&NetworkDevice> = Vec::new();
    for app in evidence.apps.unwrap_or_default() {
        used.extend(of_app(evidence, app)?);
    }
    let handed_over = known(evidence)?.values().filter(|found| is_handed_over(found));
    used.extend(handed_over);
    used.sort_by(|a, b| a.sample.address.cmp(&b.sample.address));
    used.dedup_by(|a, b| a.sample.address == b.sample.address);
    Ok(used)
}

fn known<'a>(evidence: &Evidence<'a>) -> Fact<&'a BTreeMap<String, NetworkDevice>> {
    evidence.host.devices.as_ref().map_err(Clone::clone)
}

/// Whether the driver hands the whole device to user space, rather than sharing it.
fn is_handed_over(found: &NetworkDevice) -> bool {
    let driver = found.sample.driver.as_deref().unwrap_or_default();
    found.sample.present
        && !BIFURCATED.contains(&driver)
        && !found.sample.has_wrong_driver()
        && found.sample.network
}

fn drivers(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for app in evidence.apps()? {
        for found in of_app(evidence, app)? {
            verdicts.push(of_device(&app.name, found));
        }
    }
    if !verdicts.is_empty() {
        return Ok(verdicts);
    }
    let devices = known(evidence)?;
    let handed: Vec<String> =
        devices.values().filter(|found| is_handed_over(found)).map(name_driver).collect();
    if !handed.is_empty() {
        return Ok(vec![pass(handed.join(", "))]);
    }
    if !devices.values().any(|found| found.sample.network) {
        return Err(Unknown("the host has no PCI network device".into()));
    }
    let starved = |app: &&&AppFacts| {
        app.sample.as_ref().is_some_and(|sample| sample.ports.len() < app.min_ports)
    };
    let running = evidence.running().unwrap_or_default();
    let starved: Vec<&str> = running.iter().filter(starved).map(|app| app.name.as_str()).collect();
    if !running.is_empty() && starved.is_empty() {
        return Err(Unknown("no app uses a PCI device".into()));
    }
    let all = devices.values().filter(|found| found.sample.network).map(name_driver);
    let all = all.collect::<Vec<_>>().join(", ");
    let fix = Fix::advice(
        "bind the NICs of the app, for instance: dpdk-devbind.py --bind=vfio-pci 0000:03:00.0",
    );
    let found = format!("no NIC is bound to a driver for user space: {all}");
    Ok(vec![match starved[..] {
        [] => warn(found, fix),
        _ => fail(format!("{} lacks ports, and {found}", starved.join(", ")), fix),
    }])
}

fn name_driver(found: &NetworkDevice) -> String {
    let driver = found.sample.driver.as_deref().unwrap_or("no driver");
    format!("{} ({driver})", found.sample.address)
}

fn of_device(app: &str, found: &NetworkDevice) -> Verdict {
    let address = &found.sample.address;
    if !found.sample.present {
        let fix = Fix::now("echo 1 > /sys/bus/pci/rescan")
            .and_advice("compare the address with: lspci -D -d ::0200");
        return fail(format!("{app} expects {address}, and the host has no such device"), fix);
    }
    let driver = found.sample.driver.as_deref();
    if found.sample.has_wrong_driver() {
        let driver =
            driver.map_or("no driver".to_owned(), |driver| format!("the kernel driver {driver}"));
        return fail(format!("{app} expects {address}, which is bound to {driver}"), bind(found));
    }
    pass(format!("{app}: {}", name_driver(found)))
}

/// dpdk-devbind.py refuses a device with an interface that is up.
fn bind(found: &NetworkDevice) -> Fix {
    let address = &found.sample.address;
    let fix = Fix::now("modprobe vfio-pci");
    let down =
        |fix: Fix, name: &String| fix.and_now(format!("ip link set dev {} down", quoted(name)));
    found
        .interfaces
        .iter()
        .fold(fix, down)
        .and_now(format!("dpdk-devbind.py --bind=vfio-pci {address}"))
        .and_persistent(format!("driverctl set-override {address} vfio-pci"))
        .and_advice("then restart the app: it looks for its NICs only at its start")
}

fn links(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let devices = in_use(evidence)?;
    let linked: Vec<_> = devices.iter().filter_map(|found| Some((*found, found.link?))).collect();
    if linked.is_empty() {
        return Err(Unknown("PCIe link unknown for all NICs in use".into()));
    }
    let verdict = |(found, (now, most)): (&NetworkDevice, (PcieLink, PcieLink))| {
        let address = &found.sample.address;
        let text = format!("{address}: {now}, the card can have {most}");
        if now.mbps() >= most.mbps() * 0.99 {
            return pass(format!("{address}: {now}"));
        }
        let fix = Fix::advice(format!(
            "reseat the card or move it to a slot with {} lanes; compare LnkCap and LnkSta of the \
             slots above: lspci -vv -s {address}",
            most.lanes
        ));
        match port_mbps(evidence, found) {
            Some(port) if now.mbps() < port as f64 => fail(
                format!(
                    "{text}; {:.1} Gbit/s of PCIe are less than the {:.0} Gbit/s of its port",
                    now.mbps() / 1e3,
                    port as f64 / 1e3
                ),
                fix,
            ),
            _ => warn(text, fix),
        }
    };
    Ok(linked.into_iter().map(verdict).collect())
}

/// Returns the speed of the fastest port on a device, Mbit/s.
fn port_mbps(evidence: &Evidence, found: &NetworkDevice) -> Option<u64> {
    let samples = evidence.apps.unwrap_or_default().iter().filter_map(|app| app.sample.as_ref());
    let ports = samples.flat_map(|sample| &sample.ports);
    let own = ports.filter(|port| device::is_port_of(&port.device, &found.sample.address));
    own.filter_map(|port| port.link_mbps).max()
}
