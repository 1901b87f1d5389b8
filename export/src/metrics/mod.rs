//! Converts the state of all apps to metric families, for each scrape.
//!
//! Unknown values have no sample. An app that does not answer has no values either, because they would
//! look current; exported are only that it is down, the reason, the time of its last answer and its
//! identity.

mod app;
mod interface;
mod lcore;
mod memory;
mod port;
mod pushes;
mod queue;
mod row;
mod stolen;

use pmdscope_telemetry::finding::{Finding, Lint};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::{AppInventory, AppState, AppStatus, FleetState};

use crate::catalogue;
use crate::connections::ConnectionCounts;
use crate::family::MetricFamily;
use crate::series_limits::SeriesLimits;
pub(crate) use pushes::PushCounters;
pub(crate) use pushes::PushCounts;
use row::{FamilyList, SuppressedSeries};

/// Settings for the metrics of a state, and the counters of the exporter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricsContext<'a> {
    /// Limits on the number of series.
    pub limits: &'a SeriesLimits,
    /// Lints that do not make an app unhealthy.
    pub tolerate: &'a [Lint],
    /// The expected apps and ports.
    pub expected: &'a AppInventory,
    /// Counters of the exporter.
    pub counters: ExporterCounters,
    /// Export only this app, and nothing about the exporter; with an empty name only the exporter.
    pub only: Option<&'a str>,
}

/// Counters of the exporter since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExporterCounters {
    /// Requests that started a query of at least one app.
    pub collections: u64,
    /// Scrapes that were answered by the queries of other requests.
    pub shared_scrapes: u64,
    /// Connections of clients; `None` without a network process.
    pub connections: Option<ConnectionCounts>,
    /// Pushes to an OTLP receiver; `None` without one.
    pub pushes: Option<PushCounts>,
}

/// An app that answers.
#[derive(Clone, Copy)]
struct LiveApp<'a> {
    name: &'a str,
    model: &'a Model,
    findings: &'a [Finding],
}

impl<'a> LiveApp<'a> {
    fn of(member: &'a AppState) -> Option<Self> {
        let model = member.model.as_deref().filter(|_| member.status == AppStatus::Live)?;
        Some(Self { name: &member.name, model, findings: &member.findings })
    }
}

/// Returns all families that have samples, in the order of the catalogue.
pub(crate) fn families(fleet: &FleetState, context: &MetricsContext<'_>) -> Vec<MetricFamily> {
    let shown = |app: &&AppState| context.only.is_none_or(|only| app.name == only);
    let apps: Vec<&AppState> = fleet.apps.iter().filter(shown).collect();
    let live: Vec<LiveApp<'_>> = apps.iter().filter_map(|app| LiveApp::of(app)).collect();
    let (mut families, mut suppressed) = (FamilyList::default(), SuppressedSeries::default());
    app::families(&mut families, &apps, &live, context);
    let ports = port::families(&mut families, &mut suppressed, &live, context.limits);
    queue::families(&mut families, &mut suppressed, &ports, context.limits);
    memory::families(&mut families, &mut suppressed, &live, context.limits);
    lcore::families(&mut families, &mut suppressed, &live, context.limits);
    // Interfaces belong to the host, like the exporter.
    if context.only.is_none_or(str::is_empty) {
        interface::families(&mut families, fleet);
    }
    let mut exporter = FamilyList::default();
    exporter.add(&catalogue::SERIES_SUPPRESSED, suppressed.samples(&live));
    app::exporter(exporter, families, fleet, context)
}

#[cfg(test)]
mod tests;
