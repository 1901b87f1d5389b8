//! Lints for ports: whether the expected ones exist, and whether they work.

use std::fmt::Write;
use std::time::Duration;

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::inventory::{ExpectationSource, PortExpectation};
use crate::model::{Model, PortRates};
use crate::rx_flat::{MIN_BASELINE_PACKETS, RxFlat, SHARE};
use crate::sample::{DeviceSample, PortSample};

/// Returns all findings about the ports of an app, according to what is expected.
pub(super) fn evaluate(
    model: &Model,
    expected: &PortExpectation,
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    // A port that could not be read may exist and be started.
    if model.sample.ports_are_complete() {
        findings.extend(no_ports(model, expected));
        findings.extend(missing(model, expected));
    }
    findings.extend(stopped(model));
    findings.extend(links_down(model, expected));
    let ports = model.sample.ports.iter().zip(&model.ports);
    findings.extend(ports.clone().filter_map(|(port, rates)| flap(model, port, rates, thresholds)));
    findings
        .extend(ports.filter_map(|(port, rates)| flat(model, port, rates, expected, thresholds)));
    findings
}

fn no_ports(model: &Model, expected: &PortExpectation) -> Option<Finding> {
    let ports = &model.sample.ports;
    if expected.min_ports == 0 || ports.iter().any(|port| port.started) {
        return None;
    }
    let (evidence, advice) = match ports.len() {
        0 => (
            "the app has no ports and cannot receive or send".into(),
            "check that the NIC is bound to a DPDK driver (dpdk-devbind.py --status) and that the \
             app's -a, -b and --vdev options name it",
        ),
        count => (
            format!("none of the app's {count} ports is started"),
            "check the app's log for a failed rte_eth_dev_start(); only a started port passes packets",
        ),
    };
    let threshold = "at least one started port";
    Some(finding(
        model,
        Lint::NoPorts,
        Severity::Critical,
        FindingSubject::App,
        evidence,
        threshold,
        advice,
    ))
}

/// Returns findings about devices without a port, and about too few ports in addition.
fn missing(model: &Model, expected: &PortExpectation) -> Vec<Finding> {
    let mut findings: Vec<_> = expected
        .missing(&model.sample)
        .map(|device| without_port(model, device, expected))
        .collect();
    let ports = model.sample.ports.len();
    // An app without any port has its own lint, and a missing device has a finding already.
    if ports > 0 && ports + findings.len() < expected.min_ports {
        let evidence = format!("the app has {ports} ports; {} are expected", expected.min_ports);
        let threshold = threshold(expected);
        let advice = "check the app's log for ports that it could not probe; if it needs fewer, correct \
                      min_ports in the configuration";
        let severity = Severity::Critical;
        findings.push(finding(
            model,
            Lint::PortMissing,
            severity,
            FindingSubject::App,
            evidence,
            &threshold,
            advice,
        ));
    }
    findings
}

fn threshold(expected: &PortExpectation) -> String {
    match expected.source {
        ExpectationSource::Configuration => "every port that the configuration names".into(),
        ExpectationSource::Arguments => {
            "every device that the app's own arguments name is a port".into()
        }
        ExpectationSource::Default => "at least one port".into(),
    }
}

fn without_port(model: &Model, device: &str, expected: &PortExpectation) -> Finding {
    let known = model.sample.devices.iter().find(|known| known.address == device);
    if let Some(known) = known.filter(|known| known.has_wrong_driver()) {
        return wrong_driver(model, known);
    }
    let (evidence, advice) = match known {
        Some(DeviceSample { present: false, .. }) => (
            format!("{device} is not a port, and this machine has no PCI device with that address"),
            "check the address (dpdk-devbind.py --status): the NIC may be in another slot after a change \
             of hardware or firmware, switched off, or passed to a virtual machine",
        ),
        Some(DeviceSample { driver: Some(driver), .. }) => (
            format!("{device} is not a port of the app, although it is bound to {driver}"),
            "check the app's log: DPDK has no driver for this NIC, could not open it (permissions of \
             /dev/vfio, IOMMU group, memory lock limit), or another process uses it",
        ),
        _ => (
            format!("{device} is not a port of the app"),
            "check the app's log for why it was not probed, or was closed",
        ),
    };
    let (severity, threshold) = (Severity::Critical, threshold(expected));
    finding(
        model,
        Lint::PortMissing,
        severity,
        FindingSubject::Port(device.to_owned()),
        evidence,
        &threshold,
        advice,
    )
}

fn wrong_driver(model: &Model, device: &DeviceSample) -> Finding {
    let address = &device.address;
    let holder = match &device.driver {
        Some(driver) => format!("bound to the kernel driver {driver}"),
        None => "bound to no driver".into(),
    };
    let evidence =
        format!("{address} is not a port of the app: it is {holder}, which DPDK cannot use");
    let advice = format!(
        "dpdk-devbind.py --bind=vfio-pci {address}, then restart the app; this removes the kernel's \
         interface of the device, so make sure that nothing uses it"
    );
    let threshold = "vfio-pci, uio_pci_generic, igb_uio, or a driver that shares (mlx5_core, mana)";
    let severity = Severity::Critical;
    finding(
        model,
        Lint::WrongDriver,
        severity,
        FindingSubject::Device(address.clone()),
        evidence,
        threshold,
        &advice,
    )
}

fn stopped(model: &Model) -> impl Iterator<Item = Finding> {
    let ports = &model.sample.ports;
    let started = ports.iter().filter(|port| port.started).count();
    // If none is started, the app has a lint for that.
    let stopped = ports.iter().filter(move |port| started > 0 && !port.started);
    stopped.map(move |port| {
        let evidence = format!(
            "port {} ({}) is not started, while {started} of {} ports are",
            port.id,
            port.device,
            ports.len()
        );
        let advice = "check the app's log for a failed rte_eth_dev_start() or a stop; exclude a port that the app \
                      does not need with -b, or remove its -a or --vdev";
        let severity = Severity::Warning;
        let threshold = "every port is started";
        finding(model, Lint::PortStopped, severity, FindingSubject::Port(port.device.clone()), evidence, threshold, advice)
    })
}

fn links_down(model: &Model, expected: &PortExpectation) -> impl Iterator<Item = Finding> {
    let down = |port: &&PortSample| {
        port.started && port.link_up == Some(false) && !expected.may_be_idle(&port.device)
    };
    model.sample.ports.iter().filter(down).map(|port| {
        let evidence = format!("port {} ({}) is started and has no link", port.id, port.device);
        let advice = "check the cable, the transceiver and the switch port, and that both ends use the same \
                      speed and FEC; of a vhost or memif port, check that its peer runs. If it may be \
                      down, add it to may_be_idle in the configuration";
        let severity = Severity::Warning;
        let threshold = "every started port has a link";
        finding(model, Lint::LinkDown, severity, FindingSubject::Port(port.device.clone()), evidence, threshold, advice)
    })
}

fn flat(
    model: &Model,
    port: &PortSample,
    rates: &PortRates,
    expected: &PortExpectation,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let flat = rates.rx_flat.filter(|_| !expected.may_be_idle(&port.device))?;
    let severity = silence(&flat, thresholds.flat)?;
    let mut evidence = format!("{} packets received in {:.0} s", flat.packets, flat.seconds);
    let past = if flat.watched_past { "before that" } else { "on average since the app started" };
    let _ = write!(evidence, "; {:.0}/s {past}", flat.past_pps);
    let threshold = format!(
        "less than {:.0} % of its own past for {} s, worth {MIN_BASELINE_PACKETS} packets or more",
        SHARE * 100.0,
        thresholds.flat.as_secs_f64()
    );
    let advice = "check whether the peer still sends (switch counters, routes, ARP), the flow rules and \
                  filters that the app has set on the port, and whether the app still polls. If the port \
                  may be idle, add it to may_be_idle in the configuration";
    Some(finding(
        model,
        Lint::RxFlat,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        &threshold,
        advice,
    ))
}

fn flap(
    model: &Model,
    port: &PortSample,
    rates: &PortRates,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let flaps = rates.flaps?;
    // A link that comes up when its peer starts is not a finding.
    let changes = Some(flaps.changes()).filter(|changes| *changes > 1)?;
    let mut evidence = format!(
        "port {} ({}) was stopped {}, started {}, and its link changed {} in the last minute",
        port.id,
        port.device,
        times(flaps.stops),
        times(flaps.starts),
        times(flaps.link_changes)
    );
    if !flaps.counted {
        evidence += "; without libpmdscope, changes between two queries are unknown";
    }
    let severe = changes as f64 >= thresholds.port_changes;
    let severity = if severe { Severity::Critical } else { Severity::Info };
    let threshold = format!("{} changes of a port within a minute", thresholds.port_changes);
    let advice = "each interruption loses packets: check the app's log for what stops the port \
                  (rte_eth_dev_stop, a reset after a device error); for the link, check the cable, the \
                  transceiver, autonegotiation and the switch's log; for vhost and memif, whether the \
                  peer restarts";
    Some(finding(
        model,
        Lint::PortFlap,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        &threshold,
        advice,
    ))
}

fn times(number: u64) -> String {
    if number == 1 { "once".into() } else { format!("{number} times") }
}

/// Returns the severity of a port that receives almost nothing. A port that was idle since the first
/// sample is reported immediately, but only as information: it may be the pause between two bursts.
fn silence(flat: &RxFlat, least: Duration) -> Option<Severity> {
    if flat.seconds >= least.as_secs_f64() {
        return Some(Severity::Warning);
    }
    flat.from_start.then_some(Severity::Info)
}
