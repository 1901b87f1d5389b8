//! Metrics of PCI devices and ports.

use std::collections::HashMap;

use pmdscope_telemetry::drivers::CounterPlace;
use pmdscope_telemetry::finding::{FindingSubject, Lint};
use pmdscope_telemetry::missed::MissedCause;
use pmdscope_telemetry::model::PortRates;
use pmdscope_telemetry::sample::{DeviceSample, PortSample, counts_bytes};

use super::app::info;
use super::row::{FamilyList, LabelledRow, SuppressReason, SuppressedSeries, labels, rows};
use super::{LiveApp, queue};
use crate::catalogue as metric;
use crate::family::MetricSample;
use crate::series_limits::SeriesLimits;

/// Bytes per second in one Mbit/s.
const BYTES_PER_MBIT: u64 = 1_000_000 / 8;

/// A port of an app.
#[derive(Clone, Copy)]
pub(super) struct AppPort<'a> {
    pub(super) app: LiveApp<'a>,
    pub(super) sample: &'a PortSample,
    pub(super) rates: &'a PortRates,
}

/// Adds the families of devices and ports; returns the ports, whose queues are added later.
pub(super) fn families<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) -> Vec<AppPort<'a>> {
    devices(families, suppressed, live);
    let ports = rows(live, suppressed, |app| {
        let app = *app;
        let ports = app.model.sample.ports.iter().zip(&app.model.ports);
        ports.map(move |(sample, rates)| ([sample.device.clone()], AppPort { app, sample, rates }))
    });
    families.add(&metric::PORT_INFO, ports.iter().map(identity));
    state(families, &ports);
    counters(families, &ports);
    families.add(&metric::PORT_MISSED_CAUSE, ports.iter().flat_map(missed_causes));
    families.add(&metric::PORT_DISCARDS, ports.iter().flat_map(discards));
    families.add(&metric::PORT_MEMBER, ports.iter().filter_map(member));
    families.add(&metric::PORT_XSTAT, xstats(&ports, suppressed, limits));
    ports.into_iter().map(|row| row.of).collect()
}

fn devices<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
) {
    let devices = rows(live, suppressed, |app| {
        let app = *app;
        let devices = app.model.sample.devices.iter();
        devices.map(move |device| ([device.address.clone()], (app, device)))
    });
    families.add(
        &metric::PCI_DEVICE_INFO,
        devices.iter().map(|row| {
            let (app, DeviceSample { address, driver, .. }) = row.of;
            info(labels(app.name, [address.clone(), driver.clone().unwrap_or_default()]))
        }),
    );
    families.per(&metric::PCI_DEVICE_DRIVER_MISMATCH, &devices, |(app, device)| {
        let is_about = FindingSubject::Device(device.address.clone());
        let mismatch = app
            .findings
            .iter()
            .any(|finding| finding.lint == Lint::WrongDriver && finding.subject == is_about);
        Some(mismatch)
    });
}

fn identity(row: &LabelledRow<AppPort<'_>>) -> MetricSample {
    let AppPort { app, sample, .. } = row.of;
    let values = [
        sample.device.clone(),
        sample.id.to_string(),
        sample.numa_node.to_string(),
        sample.mac.clone().unwrap_or_default(),
    ];
    info(labels(app.name, values))
}

fn state(families: &mut FamilyList, ports: &[LabelledRow<AppPort<'_>>]) {
    families.per(&metric::PORT_STARTED, ports, |port| Some(port.sample.started));
    families.per(&metric::PORT_LINK_UP, ports, |port| port.sample.link_up);
    families.per(&metric::PORT_LINK_SPEED, ports, |port| {
        port.sample.link_mbps.map(|mbps| mbps.saturating_mul(BYTES_PER_MBIT))
    });
    families.per(&metric::PORT_PROMISCUOUS, ports, |port| port.sample.promiscuous);
    families.per(&metric::PORT_MTU, ports, |port| Some(port.sample.mtu));
    families
        .per(&metric::PORT_RECEIVE_QUEUES, ports, |port| Some(u64::from(port.sample.rx_queues)));
    families
        .per(&metric::PORT_TRANSMIT_QUEUES, ports, |port| Some(u64::from(port.sample.tx_queues)));
}

fn counters(families: &mut FamilyList, ports: &[LabelledRow<AppPort<'_>>]) {
    let rows: Vec<_> = ports
        .iter()
        .map(|row| LabelledRow { labels: row.labels.clone(), of: row.of.sample.stats })
        .collect();
    families.per(&metric::PORT_RECEIVE_PACKETS, &rows, |stats| Some(stats.rx_packets));
    families.per(&metric::PORT_TRANSMIT_PACKETS, &rows, |stats| Some(stats.tx_packets));
    families.per(&metric::PORT_RECEIVE_BYTES, &rows, |stats| {
        counts_bytes(stats.rx_packets, stats.rx_bytes).then_some(stats.rx_bytes)
    });
    families.per(&metric::PORT_TRANSMIT_BYTES, &rows, |stats| {
        counts_bytes(stats.tx_packets, stats.tx_bytes).then_some(stats.tx_bytes)
    });
    families.per(&metric::PORT_RECEIVE_MISSED_PACKETS, &rows, |stats| Some(stats.rx_missed));
    families.per(&metric::PORT_RECEIVE_ERRORS, &rows, |stats| Some(stats.rx_errors));
    families.per(&metric::PORT_TRANSMIT_ERRORS, &rows, |stats| Some(stats.tx_errors));
    families
        .per(&metric::PORT_RECEIVE_MBUF_ALLOCATION_FAILURES, &rows, |stats| Some(stats.rx_nombuf));
}

/// Returns every cause of missed packets of a port that misses packets.
fn missed_causes(row: &LabelledRow<AppPort<'_>>) -> Vec<MetricSample> {
    let AppPort { app, sample, .. } = row.of;
    let about = FindingSubject::Port(sample.device.clone());
    let mut findings = app.findings.iter();
    let found = findings.find(|found| found.lint == Lint::RxMissed && found.subject == about);
    let Some(found) = found else { return Vec::new() };
    let sample_of = |cause: MissedCause| MetricSample {
        labels: labels(app.name, [sample.device.clone(), cause.name().to_owned()]),
        value: found.causes.iter().any(|of| of.cause == cause).into(),
    };
    MissedCause::ALL.map(sample_of).into()
}

/// Returns the lost packets of a port by place and reason.
fn discards(row: &LabelledRow<AppPort<'_>>) -> Vec<MetricSample> {
    let AppPort { app, sample, rates } = row.of;
    let lost = rates.counters.lost().into_iter();
    let sample_of = |((place, reason), packets): ((Option<CounterPlace>, &str), u64)| {
        let place = place.map_or("unknown", CounterPlace::name).to_owned();
        let values = [sample.device.clone(), place, reason.to_owned()];
        MetricSample { labels: labels(app.name, values), value: packets.into() }
    };
    lost.map(sample_of).collect()
}

/// Returns the port that counts the packets of this one as well.
fn member(row: &LabelledRow<AppPort<'_>>) -> Option<MetricSample> {
    let AppPort { app, sample, rates } = row.of;
    let whole = rates.member_of?;
    let whole = app.model.sample.ports.iter().find(|port| port.id == whole)?;
    let labels = labels(app.name, [sample.device.clone(), whole.device.clone()]);
    Some(info(labels))
}

/// Returns the exported xstats: up to the limit, those that are first by name, so that they do not
/// change.
fn xstats<'a>(
    ports: &[LabelledRow<AppPort<'a>>],
    suppressed: &mut SuppressedSeries<'a>,
    limits: &SeriesLimits,
) -> Vec<MetricSample> {
    // Ports of one driver have the same names.
    let mut known: HashMap<&str, bool> = HashMap::new();
    let mut allowed = |name: &'a str| {
        let decide = || limits.xstats.is_match(name) && !queue::is_queue_counter(name);
        *known.entry(name).or_insert_with(decide)
    };
    let mut samples = Vec::new();
    for AppPort { app, sample, .. } in ports.iter().map(|row| row.of) {
        let xstats: Vec<_> = sample.xstats.iter().filter(|(name, _)| allowed(name)).collect();
        let keep =
            suppressed.keep(app.name, SuppressReason::Xstats, xstats.len(), limits.xstats_per_port);
        samples.extend(xstats.into_iter().take(keep).map(|(name, value)| MetricSample {
            labels: labels(app.name, [sample.device.clone(), name.to_owned()]),
            value: value.into(),
        }));
    }
    samples
}
