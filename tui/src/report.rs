//! The same tables without a terminal: plain text and JSON.

use std::fmt::Write;

use pmdscope_render::number::plural;
use pmdscope_render::{TextTable, table_text};
use pmdscope_telemetry::printable::harmless;
use serde::Serialize;

use crate::flows::{AppTraffic, CapturedTraffic};
use crate::state::{PageTab, ViewState};
use crate::tables;
use pmdscope_telemetry::{AppState, FleetState, InterfaceState};

/// Version of the JSON of [`TopDocument`]; raised when a field changes its meaning.
pub const REPORT_SCHEMA: u32 = 1;

/// Output of `top --json`: the state of all apps at one time.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TopDocument<'a> {
    /// Version of the JSON, [`REPORT_SCHEMA`]; raised when a field changes its meaning.
    #[cfg_attr(feature = "schema", schemars(extend("const" = REPORT_SCHEMA)))]
    pub schema: u32,
    /// Interfaces of the kernel with a filter or a bypass, with their rates and findings.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub interfaces: &'a [InterfaceState],
    /// Why interfaces cannot be read; left out if they can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces_error: Option<&'a str>,
    /// Apps, sorted by name, with their state, newest model and findings.
    pub apps: &'a [AppState],
    /// Conversations by app; left out if no packets were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<&'a [AppTraffic]>,
}

impl<'a> TopDocument<'a> {
    /// The state as it is, and what was captured of it.
    pub fn of(fleet: &'a FleetState, traffic: Option<&'a CapturedTraffic>) -> Self {
        let flows = traffic.map(|traffic| traffic.taps.as_slice());
        Self {
            schema: REPORT_SCHEMA,
            interfaces: &fleet.interfaces.interfaces,
            interfaces_error: fleet.interfaces.error.as_deref(),
            apps: &fleet.apps,
            flows,
        }
    }
}

/// All pages, one after the other, without escape codes.
pub fn text(fleet: &FleetState, view: &ViewState) -> String {
    if fleet.is_empty() {
        return format!("{}\n", fleet.advice);
    }
    let mut out = format!("pmdscope: {}", plural(fleet.apps.len() as u64, "app"));
    if !fleet.interfaces.interfaces.is_empty() {
        let interfaces = plural(fleet.interfaces.interfaces.len() as u64, "interface");
        let _ = write!(out, ", {interfaces}");
    }
    out.push('\n');
    for table in tables(fleet, view) {
        let title = format!("{}  {}", table.title, harmless(&table.remark, &[]));
        let text = table_text(&table, None, view.theme);
        let _ = write!(out, "\n{}\n{text}", title.trim_end());
    }
    out
}

/// The tables of all pages that have something to show, in the order of the pages: each table once, and
/// conversations only if packets were captured. The first one has the findings.
pub fn tables(fleet: &FleetState, view: &ViewState) -> Vec<TextTable> {
    let captured = view.flows.traffic.is_some();
    let left_out = |tab: PageTab| match tab {
        PageTab::Flows => !captured,
        // Findings are on the Overview already.
        PageTab::Findings | PageTab::Raw => true,
        _ => false,
    };
    let tabs = PageTab::ALL.into_iter().filter(|tab| !left_out(*tab));
    let tables = tabs.flat_map(|tab| tables::of(tab, fleet, view));
    tables.filter(|table| !table.rows.is_empty() || !table.notes.is_empty()).collect()
}

#[cfg(test)]
mod tests;
