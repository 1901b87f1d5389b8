//! Overview: apps and their findings.

use pmdscope_render::cells::{alarm, app_cell, bad_rate, rate, share};
use pmdscope_render::number::{UNKNOWN, known, micros, nanos, seconds};
use pmdscope_render::{Cell, Column, Subject, TextTable, Theme, Tone};
use pmdscope_telemetry::finding::{Finding, Lint, Severity};
use pmdscope_telemetry::model::{Model, PortRates};

use crate::view::ViewState;
use pmdscope_telemetry::{AppState, AppStatus, FleetState};

/// Pools fuller than this are marked; the findings judge more finely.
const POOL_NEARLY_USED: f64 = 0.9;

/// One row per app.
pub(super) fn apps(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("PID").drop_at(6),
        Column::text("DPDK").drop_at(8),
        Column::number("Lvl").drop_at(4),
        Column::number("Ports"),
        Column::number("RX pps"),
        Column::number("TX pps"),
        Column::number("RX bit/s").drop_at(7),
        Column::number("TX bit/s").drop_at(7),
        Column::number("Miss/s"),
        Column::number("Pool").drop_at(2),
        Column::number("Gap").drop_at(5),
        Column::number("Scrape").drop_at(9),
        Column::text("State").flex(16),
    ];
    let mut table = TextTable::new("Apps", columns);
    for app in &fleet.apps {
        let subject = Subject::App { app: app.name.clone() };
        table.push(subject, app.stale(), app_cells(app, fleet.now_ns));
    }
    table
}

fn app_cells(app: &AppState, now_ns: u64) -> Vec<Cell> {
    let state = state(app, now_ns);
    let Some(model) = &app.model else {
        let mut cells = vec![app_cell(app)];
        cells.resize_with(13, || Cell::text(UNKNOWN));
        cells.push(state);
        return cells;
    };
    let sample = &model.sample;
    let version = sample.app.dpdk_version.trim_start_matches("DPDK ").to_owned();
    // The library of an app at "1+" is too old to tell level 1 from level 2.
    let more = if sample.level_may_be_higher() { "+" } else { "" };
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(sample.app.pid)), sample.app.pid.to_string()),
        Cell::text(version),
        Cell::number(Some(f64::from(sample.level())), format!("{}{more}", sample.level())),
        ports_started(app, model),
        rate(sum(model, |rates| rates.rx_pps)),
        rate(sum(model, |rates| rates.tx_pps)),
        rate(sum(model, |rates| rates.rx_bps)),
        rate(sum(model, |rates| rates.tx_bps)),
        bad_rate(sum(model, |rates| rates.rx_missed_ps)),
        fullest_pool(model),
        longest_gap(model),
        Cell::number(Some(sample.duration_ns as f64), nanos(sample.duration_ns)),
        state,
    ]
}

/// The sum over all ports whose value is known; unknown when none is.
pub(crate) fn sum(model: &Model, of: impl Fn(&PortRates) -> Option<f64>) -> Option<f64> {
    model.ports.iter().filter_map(of).reduce(|a, b| a + b)
}

/// The ports that are started, of those that the app has and ought to have.
fn ports_started(app: &AppState, model: &Model) -> Cell {
    let ports = &model.sample.ports;
    let started = ports.iter().filter(|port| port.started).count();
    let all = ports.len() + missing_ports(app).count();
    let cell = Cell::number(Some(started as f64), format!("{started}/{all}"));
    alarm(cell, started < all || all == 0, Tone::Bad)
}

/// The devices that the app ought to have as ports and has not.
pub(crate) fn missing_ports(app: &AppState) -> impl Iterator<Item = &Finding> {
    let missing = |finding: &&Finding| finding.lint == Lint::PortMissing;
    app.findings.iter().filter(missing).filter(|finding| !finding.subject.is_app())
}

fn fullest_pool(model: &Model) -> Cell {
    let fullest = model.pools.iter().filter_map(|pool| pool.used_ratio).reduce(f64::max);
    alarm(share(fullest), fullest.is_some_and(|r| r >= POOL_NEARLY_USED), Tone::Bad)
}

fn longest_gap(model: &Model) -> Cell {
    let gap = model.sample.lcores.iter().map(|lcore| lcore.gap_window_max_us).max();
    Cell::number(gap.map(|us| us as f64), known(gap, micros))
}

/// What there is to say about how fresh the numbers are.
fn state(app: &AppState, now_ns: u64) -> Cell {
    match &app.status {
        AppStatus::Waiting => Cell::text("waiting for an answer").tone(Tone::Dim),
        AppStatus::Lost { reason } => {
            Cell::text(format!("{}: {reason}", lost(app, now_ns))).tone(Tone::Bad)
        }
        AppStatus::Live => live_state(app),
    }
}

/// Since when an app that does not answer was not heard of.
pub(crate) fn lost(app: &AppState, now_ns: u64) -> String {
    match (app.age_s(now_ns), app.silent_s(now_ns)) {
        (Some(age), _) => format!("lost {} ago", seconds(age)),
        (None, Some(silent)) => format!("no answer for {}", seconds(silent)),
        (None, None) => "no answer".to_owned(),
    }
}

fn live_state(app: &AppState) -> Cell {
    let Some(model) = &app.model else { return Cell::text("live") };
    if model.restarted {
        Cell::text("restarted").tone(Tone::Warn)
    } else if model.ports.iter().any(|port| port.reset) {
        Cell::text("live, counters reset").tone(Tone::Warn)
    } else if let Some(part) = model.sample.partial.first() {
        Cell::text(format!("live, partly: {part}")).tone(Tone::Warn)
    } else {
        Cell::text("live").tone(Tone::Good)
    }
}

/// One row per finding, worst first.
pub(super) fn findings(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Severity"),
        Column::text("App").drop_at(1),
        Column::text("What").drop_at(3),
        Column::text("About").drop_at(2),
        Column::text("Evidence").flex(20),
    ];
    let mut table = TextTable::new("Findings", columns);
    for (app, finding) in fleet.findings() {
        let (sign, tone) = severity_look(finding.severity, view.theme);
        let subject = Subject::Finding {
            app: finding.app.clone(),
            lint: finding.lint,
            about: finding.subject.clone(),
        };
        let cells = vec![
            Cell::text(format!("{sign}{}", finding.severity.word())).tone(tone),
            app.map_or_else(|| Cell::text(""), app_cell),
            Cell::text(finding.lint.name()),
            Cell::text(finding.subject.to_string()),
            Cell::text(&finding.evidence).tone(tone),
        ];
        table.push(subject, app.is_some_and(AppState::stale), cells);
    }
    let known = fleet.apps.iter().any(|app| app.model.is_some());
    if table.rows.is_empty() && (known || !fleet.interfaces.interfaces.is_empty()) {
        table.notes.push("none".to_owned());
    }
    table
}

/// Sign and tone of a severity.
pub(crate) fn severity_look(severity: Severity, theme: Theme) -> (&'static str, Tone) {
    let [critical, warning, info] = theme.signs();
    match severity {
        Severity::Critical => (critical, Tone::Bad),
        Severity::Warning => (warning, Tone::Warn),
        Severity::Info => (info, Tone::Plain),
    }
}
