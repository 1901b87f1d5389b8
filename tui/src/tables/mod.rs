//! The tables of each page, built from the models. They are drawn elsewhere.

mod apps;
mod captures;
mod findings;
pub(crate) mod flows;
mod hottest;
pub(crate) mod interfaces;
pub(crate) mod lcores;
mod leaks;
pub(crate) mod notes;
mod pools;
mod ports;
pub(crate) mod queue_heat;
pub(crate) mod replies;
mod rings;
mod shown;
mod since;
pub(crate) mod stolen;
pub(crate) mod totals;

pub(crate) use self::shown::{PageTables, page, selected, selected_table, shown};
use crate::state::{PageTab, ViewState};
use pmdscope_render::{PathStyle, TextTable, leak_sites};
use pmdscope_telemetry::FleetState;

/// Lines from which on the overview has room for more.
const TALL: u16 = 36;

/// The tables of a page.
pub(crate) fn of(tab: PageTab, fleet: &FleetState, view: &ViewState) -> Vec<TextTable> {
    let mut tables = match tab {
        PageTab::Overview => overview(fleet, view),
        PageTab::Ports => vec![
            ports::ports(fleet, view),
            queue_heat::heat(fleet, view),
            ports::queues(fleet, view),
        ],
        PageTab::Pools => vec![
            pools::pools(fleet),
            leaks::ledgers(fleet, view),
            leak_sites(fleet, PathStyle::Brief),
            leaks::lost_packets(fleet),
            leaks::stages(fleet),
        ],
        PageTab::Lcores => vec![lcores::lcores(fleet, view)],
        PageTab::Flows => flows::page(view),
        PageTab::Rings => vec![rings::rings(fleet)],
        PageTab::Captures => vec![captures::captures(fleet)],
        PageTab::Findings => findings::page(fleet, view),
        PageTab::Kernel => {
            vec![interfaces::interfaces(fleet, view), interfaces::queues(fleet, view)]
        }
        PageTab::Raw => vec![replies::replies(fleet, view)],
    };
    for table in &mut tables {
        since::add(table, fleet, view);
    }
    if tab != PageTab::Overview && fleet.apps.len() == 1 {
        for table in &mut tables {
            table.hide_column("App");
        }
    }
    tables
}

/// Findings and apps; on a tall screen also the queues, pools and lcores that are used most.
fn overview(fleet: &FleetState, view: &ViewState) -> Vec<TextTable> {
    let mut tables = vec![findings::findings(fleet, view), apps::apps(fleet, view)];
    if view.height >= TALL {
        tables.push(hottest::queues(fleet, view));
        tables.push(hottest::pools(fleet));
        tables.push(hottest::lcores(fleet, view));
    }
    tables
}
