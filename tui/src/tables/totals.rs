//! Totals of counters, since the mark or the start of the app.

use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::queue_counters::QueueCounters;
use pmdscope_telemetry::sample::{
    LcoreSample, PortSample, PortStats, QueueDirection, QueueSample, Sample,
};
use pmdscope_telemetry::{FleetState, InterfaceState, InterfacesState};

use crate::state::{PageTab, ViewState};

/// What totals are counted from.
pub(crate) fn origin(fleet: &FleetState, view: &ViewState) -> &'static str {
    match view.tab {
        PageTab::Flows => return "totals since the capture began",
        PageTab::Kernel => return origin_of_interfaces(&fleet.interfaces, view),
        _ => {}
    }
    let counted = |model: &Model| view.baseline.of(&model.sample).is_some();
    let all = fleet.models().all(|(_, model)| counted(model));
    let some = fleet.models().any(|(_, model)| counted(model));
    match (view.baseline.is_empty(), all, some) {
        (true, ..) => "totals since the start",
        (false, true, _) => "totals since the mark",
        (false, false, true) => "totals since the mark, or the start of an app without one",
        (false, false, false) => "totals since the start: there is no mark before",
    }
}

/// The same where interfaces are shown.
fn origin_of_interfaces(shown: &InterfacesState, view: &ViewState) -> &'static str {
    let counted = |of: &InterfaceState| view.baseline.of_interface(&of.sample, shown).is_some();
    let (all, some) = (shown.interfaces.iter().all(counted), shown.interfaces.iter().any(counted));
    match (view.baseline.is_empty(), all, some) {
        (true, ..) => "totals since the start of the interface, filter or app",
        (false, true, _) => "totals since the mark",
        (false, false, true) => "totals since the mark, or the start of an interface without one",
        (false, false, false) => "totals since the start: there is no mark before",
    }
}

/// The sum over all ports but those whose packets another port counts as well; unknown without a port.
pub(super) fn of_ports(
    model: &Model,
    before: Option<&Sample>,
    of: fn(&PortStats) -> u64,
) -> Option<u64> {
    let ports = model.sample.ports.iter().zip(&model.ports);
    let whole = ports.filter(|(_, rates)| rates.member_of.is_none());
    whole.map(|(port, _)| of(&port.stats_since(before))).reduce(u64::saturating_add)
}

/// What a queue has counted.
pub(super) fn of_queue(
    queue: &QueueSample,
    before: Option<&Sample>,
    of: fn(&QueueSample) -> u64,
) -> u64 {
    let key = |queue: &QueueSample| (queue.port, queue.queue, queue.direction);
    let same = |other: &&QueueSample| key(other) == key(queue);
    let before = before.and_then(|sample| sample.queues.iter().find(same));
    since(of(queue), before.map(of))
}

/// Packets that a receive queue has missed; `None` for other queues, and where the driver does not know.
pub(super) fn missed_of_queue(
    queue: &QueueSample,
    now: &Sample,
    before: Option<&Sample>,
) -> Option<u64> {
    let is_rx = queue.direction == QueueDirection::Rx;
    is_rx.then(|| of_driver(queue, now, before, |of| of.missed))?
}

/// Packets and bytes that a queue has received or sent. libpmdscope counts what a transmit queue is offered:
/// sent packets are those of the driver, `None` where it does not count them by queue.
pub(super) fn moved_by_queue(
    queue: &QueueSample,
    now: &Sample,
    before: Option<&Sample>,
) -> (Option<u64>, Option<u64>) {
    let (packets, bytes) = (|of: &QueueSample| of.packets, |of: &QueueSample| of.bytes);
    let [offered, offered_bytes] = [packets, bytes].map(|of| of_queue(queue, before, of));
    if queue.direction == QueueDirection::Rx {
        return (Some(offered), Some(offered_bytes));
    }
    let sent = of_driver(queue, now, before, |of| of.packets);
    let bytes = |sent: u64| {
        let parts = u128::from(offered_bytes) * u128::from(sent.min(offered));
        u64::try_from(parts / u128::from(offered.max(1))).ok()
    };
    (sent, sent.and_then(bytes))
}

/// What the driver has counted of a queue.
fn of_driver(
    queue: &QueueSample,
    now: &Sample,
    before: Option<&Sample>,
    of: fn(&QueueCounters) -> Option<u64>,
) -> Option<u64> {
    let count = |port: &PortSample| of(port.queue_counters(queue.direction).get(&queue.queue)?);
    let port = now.ports.iter().find(|port| port.id == queue.port)?;
    let then = before.and_then(|then| then.ports.iter().find(|old| old.device == port.device));
    Some(since(count(port)?, then.and_then(count)))
}

/// What an lcore has counted.
pub(super) fn of_lcore(
    lcore: &LcoreSample,
    before: Option<&Sample>,
    of: fn(&LcoreSample) -> u64,
) -> u64 {
    let same = |other: &&LcoreSample| other.lcore == lcore.lcore;
    let before = before.and_then(|sample| sample.lcores.iter().find(same));
    since(of(lcore), before.map(of))
}

/// A counter that went back was reset, and counts from there.
pub(super) fn since(now: u64, before: Option<u64>) -> u64 {
    now.checked_sub(before.unwrap_or(0)).unwrap_or(now)
}
