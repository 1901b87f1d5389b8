//! Texts of tables in place of numbers, and below their rows.

use pmdscope_render::TextTable;
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::sample::Sample;

use crate::action::{Action, TaskAction};
use crate::state::ViewState;

/// Shown where a stock app cannot show what an app with the library does.
pub(crate) const NEEDS_LIBRARY: &str = "needs libpmdscope (level 1)";

/// Shown where the driver does not report a value.
pub(crate) const UNSUPPORTED: &str = "n/a";

/// How to see who holds the mbufs of a pool: the key; in a report or without a key, the command.
pub(crate) fn holders_hint(view: &ViewState) -> String {
    let key = view.keys.label(&Action::Task(TaskAction::Holders));
    match key.filter(|_| view.trends.is_some()) {
        Some(key) => format!("{key} shows who holds mbufs"),
        None => "pmdscope leaks --explain shows who holds mbufs".to_owned(),
    }
}

/// Names the apps of which it was counted in their memory.
pub(super) fn note_counted(
    table: &mut TextTable,
    fleet: &FleetState,
    counted: impl Fn(&Sample) -> bool,
) {
    let apps = fleet.models().filter(|(_, model)| counted(&model.sample));
    let apps: Vec<&str> = apps.map(|(app, _)| app.name.as_str()).collect();
    if !apps.is_empty() {
        table
            .notes
            .push(format!("{}: counted via xray, in the memory of the app", apps.join(", ")));
    }
}

/// Adds a note why not all could be counted.
pub(super) fn note_uncounted(table: &mut TextTable, fleet: &FleetState) {
    for (app, model) in fleet.models() {
        let problem = model.sample.xray.as_ref().and_then(|xray| xray.problem.as_ref());
        table.notes.extend(problem.map(|problem| format!("{}: xray: {problem}", app.name)));
    }
}

/// A note for each app at level 0, saying what it does not show.
pub(super) fn note_level_0(table: &mut TextTable, fleet: &FleetState, what: &str) {
    let stock: Vec<&str> =
        fleet.apps.iter().filter(|a| a.level() == Some(0)).map(|a| a.name.as_str()).collect();
    if !stock.is_empty() {
        table.notes.push(format!("{}: {what} {NEEDS_LIBRARY}", stock.join(", ")));
    }
}
