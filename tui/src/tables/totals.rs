//! Totals of counters, since the mark or the start of the app.

use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::{PortStats, QueueSample, Sample};

use crate::view::{PageTab, ViewState};

/// What totals are counted from.
pub(crate) fn origin(fleet: &FleetState, view: &ViewState) -> &'static str {
    let counted = |model: &Model| view.baseline.of(&model.sample).is_some();
    let all = fleet.models().all(|(_, model)| counted(model));
    let some = fleet.models().any(|(_, model)| counted(model));
    if view.tab == PageTab::Flows {
        return "totals since the capture began";
    }
    match (view.baseline.is_empty(), all, some) {
        (true, ..) => "totals since the start",
        (false, true, _) => "totals since the mark",
        (false, false, true) => "totals since the mark, or the start of an app without one",
        (false, false, false) => "totals since the start: there is no mark before",
    }
}

/// The sum over all ports; unknown without a port.
pub(super) fn of_ports(
    model: &Model,
    before: Option<&Sample>,
    of: fn(&PortStats) -> u64,
) -> Option<u64> {
    let ports = model.sample.ports.iter().map(|port| of(&port.stats_since(before)));
    ports.reduce(u64::saturating_add)
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

/// A counter that went back was reset, and counts from there.
pub(super) fn since(now: u64, before: Option<u64>) -> u64 {
    now.checked_sub(before.unwrap_or(0)).unwrap_or(now)
}
