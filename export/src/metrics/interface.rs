//! Interfaces of the kernel: their queues, filter and bypass. Sources of dropped packets are not
//! exported: a flood would create a series for each forged address.

use pmdscope_telemetry::finding::{Lint, Severity};
use pmdscope_telemetry::interface::{
    BypassSample, FilterMode, FilterSample, InterfaceQueueSample, InterfaceSample, VerdictSample,
};
use pmdscope_telemetry::{FleetState, InterfaceState};

use super::app::info;
use super::row::{FamilyList, LabelledRow};
use crate::catalogue as metric;
use crate::family::{LabelValues, MetricSample};

pub(super) fn families(families: &mut FamilyList, fleet: &FleetState) {
    let state = &fleet.interfaces;
    if state.is_empty() {
        return;
    }
    let readable = MetricSample { labels: [].into(), value: state.error.is_none().into() };
    families.add(&metric::INTERFACES_READABLE, [readable]);
    let interfaces = &state.interfaces;
    families.add(&metric::INTERFACE_INFO, interfaces.iter().map(|of| identity(&of.sample)));
    families.add(&metric::INTERFACE_UNHEALTHY_REASON, interfaces.iter().flat_map(reasons));
    let rows: Vec<_> = interfaces.iter().map(|of| row([of.sample.name.clone()], of)).collect();
    families.per(&metric::INTERFACE_RECEIVE_PACKETS, &rows, |of| of.sample.rx_packets);
    families.per(&metric::INTERFACE_RECEIVE_DROPPED, &rows, |of| of.sample.rx_dropped);
    families.per(&metric::INTERFACE_TRANSMIT_PACKETS, &rows, |of| of.sample.tx_packets);
    queues(families, interfaces);
    families
        .add(&metric::INTERFACE_BYPASS_INFO, interfaces.iter().filter_map(|of| bypass(of, fleet)));
    filters(families, interfaces);
}

fn row<T, const N: usize>(labels: [String; N], of: T) -> LabelledRow<T> {
    LabelledRow { labels: labels.into(), of }
}

fn queues(families: &mut FamilyList, interfaces: &[InterfaceState]) {
    let queues = interfaces.iter().flat_map(|of| {
        let labels = |queue: u32| [of.sample.name.clone(), queue.to_string()];
        of.sample.queues.iter().map(move |queue| row(labels(queue.queue), queue))
    });
    let queues: Vec<LabelledRow<&InterfaceQueueSample>> = queues.collect();
    families.per(&metric::INTERFACE_QUEUE_RECEIVE_PACKETS, &queues, |queue| queue.packets);
    families.per(&metric::INTERFACE_QUEUE_RECEIVE_DROPPED, &queues, |queue| queue.dropped);
    families.per(&metric::INTERFACE_QUEUE_REDIRECTED, &queues, |queue| queue.redirected);
}

fn filters(families: &mut FamilyList, interfaces: &[InterfaceState]) {
    let filters = interfaces
        .iter()
        .filter_map(|of| Some(row([of.sample.name.clone()], of.sample.filter.as_ref()?)));
    let filters: Vec<LabelledRow<&FilterSample>> = filters.collect();
    let verdicts = filters.iter().flat_map(|filter| {
        let labels = |reason: &str| -> LabelValues {
            filter.labels.iter().cloned().chain([reason.to_owned()]).collect()
        };
        let verdicts = filter.of.verdicts.iter();
        verdicts.map(move |verdict| LabelledRow { labels: labels(&verdict.reason), of: verdict })
    });
    let verdicts: Vec<LabelledRow<&VerdictSample>> = verdicts.collect();
    families.per(&metric::XDP_FILTER_PACKETS, &verdicts, |verdict| Some(verdict.packets));
    families.per(&metric::XDP_FILTER_BYTES, &verdicts, |verdict| Some(verdict.bytes));
    families.per(&metric::XDP_FILTER_UNCOUNTED, &filters, |of| Some(of.uncounted_sources));
}

fn identity(interface: &InterfaceSample) -> MetricSample {
    let mode = match interface.filter.as_ref().map(|filter| filter.mode) {
        Some(FilterMode::Native) => "native",
        Some(FilterMode::Generic) => "generic",
        None => "",
    };
    info([interface.name.clone(), interface.driver.clone(), mode.to_owned()].into())
}

/// Returns a sample of every reason, also of those that do not apply, so that an alert ends.
fn reasons(interface: &InterfaceState) -> impl Iterator<Item = MetricSample> {
    let lints = Lint::ALL.iter().filter(|lint| lint.is_about_host());
    lints.map(|lint| {
        let bad = interface.findings.iter().filter(|of| of.severity >= Severity::Warning);
        MetricSample {
            labels: [interface.sample.name.clone(), lint.to_string()].into(),
            value: bad.into_iter().any(|finding| finding.lint == *lint).into(),
        }
    })
}

/// Returns the bypass of an interface. The port has the same label as in the metrics of ports: its
/// device.
fn bypass(interface: &InterfaceState, fleet: &FleetState) -> Option<MetricSample> {
    let BypassSample { queue, app, port, flows } = interface.sample.bypass.as_ref()?;
    let device = || {
        let model = fleet.find(app.as_deref()?)?.model.as_ref()?;
        let port = model.sample.ports.iter().find(|known| Some(known.id) == *port)?;
        Some(port.device.clone())
    };
    let labels = [
        interface.sample.name.clone(),
        queue.to_string(),
        app.clone().unwrap_or_default(),
        device().unwrap_or_default(),
        flows.join(", "),
    ];
    Some(info(labels.into()))
}
