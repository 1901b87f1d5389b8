//! Interfaces of the kernel with a filter, or with a queue that bypasses the kernel.

use pmdscope_render::cells::{alarm, bad_rate, rate};
use pmdscope_render::number::UNKNOWN;
use pmdscope_render::{Cell, Column, Subject, TextTable, Tone};
use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::interface::{BypassSample, FilterMode};
use pmdscope_telemetry::model::{InterfaceRates, Model};
use pmdscope_telemetry::sample::PortSample;
use pmdscope_telemetry::{FleetState, InterfaceState};

use crate::state::ViewState;

/// One row per interface: all that arrived, and what became of it.
pub(super) fn interfaces(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Interface"),
        Column::text("Driver").drop_at(5),
        Column::events("RX pps", "RX total"),
        Column::events("Kernel", "To kernel"),
        Column::events("Bypass", "Bypassed"),
        Column::text("To").drop_at(3),
        Column::events("Drop/s", "Dropped"),
        Column::text("Most for").drop_at(2),
        Column::events("Lost/s", "Lost").drop_at(4),
        Column::events("TX pps", "TX total").drop_at(6),
        Column::text("State").flex(6),
    ];
    let mut table = TextTable::new("Interfaces", columns);
    let state = &fleet.interfaces;
    for interface in &state.interfaces {
        let name = interface.sample.name.clone();
        let subject = Subject::Interface { interface: name, queue: None };
        table.push(subject, false, interface_cells(interface, fleet, view));
    }
    if !table.rows.is_empty() {
        table
            .notes
            .push("RX = kernel + bypass + dropped by the filter; lost: by the kernel".to_owned());
    }
    table.notes.extend(state.error.as_ref().map(|error| format!("not known: {error}")));
    table
}

fn interface_cells(interface: &InterfaceState, fleet: &FleetState, view: &ViewState) -> Vec<Cell> {
    let (sample, rates) = (&interface.sample, &interface.rates);
    let totals = InterfaceTotals::of(interface, fleet, view);
    let sums = &totals.counted;
    let (bypassed, kernel) = fleet.split_rates(interface);
    let shown = if view.counters.totals { sums } else { rates };
    let worst = shown.filter.as_ref().and_then(|filter| filter.worst());
    let dropped = match &sample.filter {
        Some(_) => bad_rate(rates.filtered_pps).with_total(bad_total(sums.filtered_pps)),
        None => Cell::text(""),
    };
    let bypassed = match &sample.bypass {
        Some(_) => rate(bypassed).with_total(rate(totals.bypassed)),
        None => Cell::text(""),
    };
    vec![
        Cell::text(&sample.name),
        Cell::text(if sample.driver.is_empty() { UNKNOWN } else { &sample.driver }),
        rate(rates.rx_pps).with_total(rate(sums.rx_pps)),
        rate(kernel).with_total(rate(totals.kernel)),
        bypassed,
        Cell::text(sample.bypass.as_ref().map_or(String::new(), destination)),
        dropped,
        Cell::text(worst.map_or("", |worst| &worst.reason)),
        bad_rate(rates.rx_dropped_ps).with_total(bad_total(sums.rx_dropped_ps)),
        rate(rates.tx_pps).with_total(rate(sums.tx_pps)),
        state(interface),
    ]
}

/// What an interface, and the app that bypasses the kernel on it, have counted.
struct InterfaceTotals {
    counted: InterfaceRates,
    bypassed: Option<f64>,
    kernel: Option<f64>,
    /// Received by the port of the app.
    app: Option<f64>,
}

impl InterfaceTotals {
    fn of(interface: &InterfaceState, fleet: &FleetState, view: &ViewState) -> Self {
        let before = view.baseline.of_interface(&interface.sample, &fleet.interfaces);
        let counted = InterfaceRates::totals(&interface.sample, before);
        let app = app_port(interface, fleet);
        let since = app.and_then(|(model, _)| view.baseline.of(&model.sample));
        let app = app.map(|(_, port)| port.stats_since(since).rx_packets as f64);
        let (mut bypassed, mut kernel) = (counted.bypassed_pps, counted.kernel_pps);
        // As for rates; the app and the interface did not start together, but are marked together.
        if bypassed.is_none() && before.is_some() && since.is_some() {
            (bypassed, kernel) = (app, counted.kernel_with(app));
        }
        Self { counted, bypassed, kernel, app }
    }
}

/// The port of the app that polls the queue which bypasses the kernel.
fn app_port<'a>(
    interface: &InterfaceState,
    fleet: &'a FleetState,
) -> Option<(&'a Model, &'a PortSample)> {
    let bypass = interface.sample.bypass.as_ref()?;
    let model = fleet.find(bypass.app.as_deref()?).filter(|app| !app.stale())?.model.as_deref()?;
    let port = model.sample.ports.iter().find(|port| Some(port.id) == bypass.port)?;
    Some((model, port))
}

fn bad_total(count: Option<f64>) -> Cell {
    alarm(rate(count), count.is_some_and(|count| count > 0.0), Tone::Warn)
}

/// The app and the port that poll a queue.
pub(crate) fn destination(bypass: &BypassSample) -> String {
    match (&bypass.app, bypass.port) {
        (Some(app), Some(port)) => format!("{app}:{port}"),
        (Some(app), None) => app.clone(),
        (None, _) => "nobody".to_owned(),
    }
}

fn state(interface: &InterfaceState) -> Cell {
    if interface.findings.iter().any(|finding| finding.lint == Lint::Flood) {
        return Cell::text("flood").tone(Tone::Bad);
    }
    let filter = interface.sample.filter.as_ref().map(|filter| match filter.mode {
        FilterMode::Native => "filter",
        FilterMode::Generic => "filter, generic",
    });
    Cell::text(filter.unwrap_or(""))
}

/// One row per queue of the interfaces with a bypass: both halves of one NIC side by side.
pub(super) fn queues(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Interface"),
        Column::number("Queue"),
        Column::text("Path"),
        Column::events("RX pps", "RX total"),
        Column::events("Redir/s", "Redirected"),
        Column::events("Lost/s", "Lost").drop_at(1),
        Column::text("To"),
        Column::events("App pps", "App total"),
    ];
    let mut table = TextTable::new("Interface queues", columns);
    for interface in &fleet.interfaces.interfaces {
        let Some(bypass) = &interface.sample.bypass else { continue };
        let totals = InterfaceTotals::of(interface, fleet, view);
        let app = || rate(fleet.bypass_port_pps(interface)).with_total(rate(totals.app));
        let queues = interface.rates.queues.iter().zip(&totals.counted.queues);
        for (queue, (rates, sums)) in interface.sample.queues.iter().zip(queues) {
            let name = interface.sample.name.clone();
            let subject = Subject::Interface { interface: name, queue: Some(queue.queue) };
            let bypassed = queue.queue == bypass.queue;
            let [path, to, app] = if bypassed {
                let nobody = bypass.app.is_none();
                let to = alarm(Cell::text(destination(bypass)), nobody, Tone::Warn);
                [Cell::text("bypass"), to, app()]
            } else {
                ["kernel", "", ""].map(Cell::text)
            };
            let cells = vec![
                Cell::text(&interface.sample.name),
                Cell::number(Some(f64::from(queue.queue)), queue.queue.to_string()),
                path,
                rate(rates.pps).with_total(rate(sums.pps)),
                rate(rates.redirected_ps).with_total(rate(sums.redirected_ps)),
                bad_rate(rates.dropped_ps).with_total(bad_total(sums.dropped_ps)),
                to,
                app,
            ];
            table.push(subject, false, cells);
        }
    }
    if !table.rows.is_empty() {
        table.notes.push(
            "redir: part of RX, redirected to the app; app: what its port received of that"
                .to_owned(),
        );
    }
    table
}
