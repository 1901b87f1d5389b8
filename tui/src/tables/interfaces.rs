//! Interfaces of the kernel with a filter, or with a queue that bypasses the kernel.

use pmdscope_render::cells::{alarm, bad_rate, rate};
use pmdscope_render::number::UNKNOWN;
use pmdscope_render::{Cell, Column, Subject, TextTable, Tone};
use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::interface::{BypassSample, FilterMode, InterfaceQueueSample};
use pmdscope_telemetry::model::InterfaceQueueRates;
use pmdscope_telemetry::{FleetState, InterfaceState};

/// One row per interface: all that arrived, and what became of it.
pub(super) fn interfaces(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("Interface"),
        Column::text("Driver").drop_at(5),
        Column::number("RX pps"),
        Column::number("Kernel"),
        Column::number("Bypass"),
        Column::text("To").drop_at(3),
        Column::number("Drop/s"),
        Column::text("Most for").drop_at(2),
        Column::number("Lost/s").drop_at(4),
        Column::number("TX pps").drop_at(6),
        Column::text("State").flex(6),
    ];
    let mut table = TextTable::new("Interfaces", columns);
    let state = &fleet.interfaces;
    for interface in &state.interfaces {
        let name = interface.sample.name.clone();
        let subject = Subject::Interface { interface: name, queue: None };
        table.push(subject, false, interface_cells(interface, fleet));
    }
    if !table.rows.is_empty() {
        table
            .notes
            .push("RX = kernel + bypass + dropped by the filter; lost: by the kernel".to_owned());
    }
    table.notes.extend(state.error.as_ref().map(|error| format!("not known: {error}")));
    table
}

fn interface_cells(interface: &InterfaceState, fleet: &FleetState) -> Vec<Cell> {
    let (sample, rates) = (&interface.sample, &interface.rates);
    let (bypassed, kernel) = fleet.split_rates(interface);
    let worst = rates.filter.as_ref().and_then(|filter| filter.worst());
    let dropped = match &sample.filter {
        Some(_) => bad_rate(rates.filtered_pps),
        None => Cell::text(""),
    };
    vec![
        Cell::text(&sample.name),
        Cell::text(if sample.driver.is_empty() { UNKNOWN } else { &sample.driver }),
        rate(rates.rx_pps),
        rate(kernel),
        if sample.bypass.is_some() { rate(bypassed) } else { Cell::text("") },
        Cell::text(sample.bypass.as_ref().map_or(String::new(), destination)),
        dropped,
        Cell::text(worst.map_or("", |worst| &worst.reason)),
        bad_rate(rates.rx_dropped_ps),
        rate(rates.tx_pps),
        state(interface),
    ]
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
pub(super) fn queues(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("Interface"),
        Column::number("Queue"),
        Column::text("Path"),
        Column::number("RX pps"),
        Column::number("Redir/s"),
        Column::number("Lost/s").drop_at(1),
        Column::text("To"),
        Column::number("App pps"),
    ];
    let mut table = TextTable::new("Interface queues", columns);
    for interface in &fleet.interfaces.interfaces {
        let Some(bypass) = &interface.sample.bypass else { continue };
        for (queue, rates) in interface.sample.queues.iter().zip(&interface.rates.queues) {
            let name = interface.sample.name.clone();
            let subject = Subject::Interface { interface: name, queue: Some(queue.queue) };
            let app_pps = fleet.bypass_port_pps(interface);
            table.push(subject, false, queue_cells(interface, queue, rates, bypass, app_pps));
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

fn queue_cells(
    interface: &InterfaceState,
    queue: &InterfaceQueueSample,
    rates: &InterfaceQueueRates,
    bypass: &BypassSample,
    app_pps: Option<f64>,
) -> Vec<Cell> {
    let bypassed = queue.queue == bypass.queue;
    let nobody = bypassed && bypass.app.is_none();
    let to = if bypassed { destination(bypass) } else { String::new() };
    vec![
        Cell::text(&interface.sample.name),
        Cell::number(Some(f64::from(queue.queue)), queue.queue.to_string()),
        Cell::text(if bypassed { "bypass" } else { "kernel" }),
        rate(rates.pps),
        rate(rates.redirected_ps),
        bad_rate(rates.dropped_ps),
        alarm(Cell::text(to), nobody, Tone::Warn),
        if bypassed { rate(app_pps) } else { Cell::text("") },
    ]
}
