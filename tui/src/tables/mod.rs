//! The tables of each page, built from the models. Drawing them is somebody else's task.

pub(crate) mod apps;
pub(crate) mod flows;
pub(crate) mod lcores;
pub mod leaks;
mod pools;
pub(crate) mod ports;

use self::leaks::Paths;
use crate::number::{known, si};
use crate::table::{Cell, Table};
use crate::theme::Tone;
use crate::view::{Tab, View};
use pmdscope_telemetry::world::{Member, World};

/// Said where a stock app cannot show what an app with the library does.
pub(crate) const NEEDS_LIBRARY: &str = "needs libpmdscope (level 1)";

/// Said where the driver does not know.
pub(crate) const UNSUPPORTED: &str = "n/a";

/// Lines from which on the overview has room for more.
const TALL: u16 = 36;

/// The tables of a page.
pub fn of(tab: Tab, world: &World, view: &View) -> Vec<Table> {
    let mut tables = match tab {
        Tab::Overview => overview(world, view),
        Tab::Ports => {
            vec![ports::ports(world, view), ports::queues(world, view), ports::rings(world)]
        }
        Tab::Pools => vec![
            pools::pools(world),
            leaks::ledgers(world, view.theme),
            leaks::sites(world, Paths::Brief),
            leaks::stages(world),
        ],
        Tab::Lcores => vec![lcores::lcores(world, view), lcores::captures(world)],
        Tab::Flows => flows::page(view),
    };
    if tab != Tab::Overview && world.apps.len() == 1 {
        for table in &mut tables {
            table.hide_column("App");
        }
    }
    tables
}

/// Apps and findings; on a tall screen also what they are about.
fn overview(world: &World, view: &View) -> Vec<Table> {
    let mut tables = vec![apps::apps(world), apps::findings(world, view)];
    if view.height >= TALL {
        tables.push(ports::ports(world, view));
        tables.push(pools::pools(world));
    }
    tables
}

/// A rate.
fn rate(value: Option<f64>) -> Cell {
    Cell::number(value, known(value, si))
}

/// A rate that should be zero.
fn bad_rate(value: Option<f64>) -> Cell {
    alarm(rate(value), value.is_some_and(|v| v > 0.0), Tone::Bad)
}

/// A count that should be zero.
fn bad_count(value: u64, text: String) -> Cell {
    alarm(Cell::number(Some(value as f64), text), value > 0, Tone::Warn)
}

/// Marks a value by a tone and, for those who see no colours, the sign that [`Cell::flag`] adds.
fn alarm(cell: Cell, alarming: bool, tone: Tone) -> Cell {
    if alarming { cell.tone(tone).flag() } else { cell }
}

/// A plain count.
fn number(value: u64) -> Cell {
    Cell::number(Some(value as f64), si(value as f64))
}

/// A count that may be unknown for a named reason.
fn number_or(value: Option<u64>, otherwise: &str) -> Cell {
    value.map_or_else(|| Cell::text(otherwise).tone(Tone::Dim), number)
}

/// A share of 1.
fn share(value: Option<f64>) -> Cell {
    Cell::number(value, known(value, crate::number::percent))
}

/// A note for each app at level 0, saying what it does not show.
fn note_level_0(table: &mut Table, world: &World, what: &str) {
    let stock: Vec<&str> =
        world.apps.iter().filter(|a| a.level() == Some(0)).map(|a| a.name.as_str()).collect();
    if !stock.is_empty() {
        table.notes.push(format!("{}: {what} {NEEDS_LIBRARY}", stock.join(", ")));
    }
}

/// Name cell of the app that a row belongs to.
fn app_cell(app: &Member) -> Cell {
    Cell::text(&app.name)
}
