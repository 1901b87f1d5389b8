//! Reports of `pmdscope leaks`.

use std::collections::BTreeMap;
use std::fmt::Write;

use pmdscope_render::ledger;
use pmdscope_render::number::{UNKNOWN, count, known, percent, plural, seconds, signed};
use pmdscope_render::pool_scan;
use pmdscope_render::{
    Cell, Column, PathStyle, Subject, TextLine, TextTable, Theme, Tone, cells, leak_sites,
    table_lines,
};
use pmdscope_telemetry::model::{LedgerRates, Model, PoolTrend, SiteRates};
use pmdscope_telemetry::sample::{
    CountSource, LedgerSample, LostGroupSample, PoolSample, Sample, ScanSample, StageSample,
};
use pmdscope_telemetry::{AppState, AppStatus, FleetState};
use pmdscope_xray::{PoolScan, ScanReport};
use serde::Serialize;

use super::lost_table;
use super::scan::{AppScan, AppScans, ScannedMemory};
use crate::output::one_line;

/// Version of the JSON; raised when a field changes its meaning.
const LEAKS_SCHEMA: u32 = 1;

/// What more instrumentation would report.
const LEVELS: &str = "where mbufs are lost needs libpmdscope: level 1 names the queue or stage, \
                      level 2 the line of source";

/// Output of `leaks --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = LEAKS_SCHEMA)))]
    schema: u32,
    /// Whether any app has leaks.
    leaks: bool,
    /// Apps, each with its lost and misused mbufs.
    apps: Vec<AppLeaks<'a>>,
}

/// Lost and misused mbufs of an app.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AppLeaks<'a> {
    /// Name of the app, by default its file-prefix.
    app: &'a str,
    #[serde(flatten)]
    status: &'a AppStatus,
    /// Level: 0 for a stock app, 1 with libpmdscope, 2 if it was also compiled with `pmdscope_trace.h`; 1 if
    /// the library is too old to distinguish 1 from 2; `None` before the first answer.
    level: Option<u8>,
    /// Whether mbufs of the app are certainly lost, or were misused.
    leaks: bool,
    /// Ledgers of mbuf pools, sorted by name; empty without libpmdscope.
    ledger: Vec<Ledger<'a>>,
    /// Sites that lost or misused mbufs, most lost mbufs first; empty without libpmdscope.
    sites: Vec<Site<'a>>,
    /// Places that hold mbufs, sorted by name; empty without libpmdscope.
    stages: &'a [StageSample],
    /// Trends of mempools, sorted by name.
    pools: &'a [PoolTrend],
    /// Parts that could not be read or may be incomplete, as `endpoint: reason`; the rest is valid.
    partial: &'a [String],
    /// Results of a scan; left out if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    scan: Option<Scan<'a>>,
    /// Recorded summary of a scan; only for a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    scan_summary: Option<&'a ScanSample>,
    /// Why a scan failed; left out if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    scan_error: Option<&'a str>,
}

/// Result of the scans of the memory of an app.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Scan<'a> {
    #[serde(flatten)]
    report: &'a ScanReport,
    /// Lost mbufs, by pool and by what their packets have in common.
    groups: Vec<Group<'a>>,
    /// Growth of the number of lost mbufs by pool, per second; `None` if unknown.
    lost_ps: BTreeMap<&'a str, Option<f64>>,
}

/// Lost mbufs of a pool with packets that have something in common.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Group<'a> {
    /// Name of the pool.
    pool: &'a str,
    #[serde(flatten)]
    group: &'a LostGroupSample,
}

/// Ledger of one pool: its mbufs by place, and its loss rate.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Ledger<'a> {
    #[serde(flatten)]
    sample: &'a LedgerSample,
    /// Mbufs lost per second over the trend window; `None` until there are two samples.
    leaked_ps: Option<f64>,
}

/// A site in the app that lost or misused mbufs of a pool, and its rate.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Site<'a> {
    #[serde(flatten)]
    sample: &'a pmdscope_telemetry::sample::SiteSample,
    /// Mbufs lost or misused per second over the trend window; `None` until the site was sampled twice.
    rate_ps: Option<f64>,
}

impl<'a> Document<'a> {
    pub(super) fn of(fleet: &'a FleetState, scans: &'a AppScans) -> Self {
        let app = |app: &'a AppState| AppLeaks::of(app, scans.get(&app.name));
        let apps: Vec<_> = fleet.apps.iter().map(app).collect();
        let leaks = apps.iter().any(|app| app.leaks);
        Self { schema: LEAKS_SCHEMA, leaks, apps }
    }
}

impl<'a> Scan<'a> {
    /// `None` in a recording.
    fn of(scan: &'a AppScan) -> Option<Self> {
        let report = &scan.live.as_ref()?.report;
        let pools = &scan.sample.pools;
        let groups = pools
            .iter()
            .flat_map(|pool| pool.groups.iter().map(|group| Group { pool: &pool.name, group }));
        let lost_ps = pools.iter().map(|pool| (pool.name.as_str(), pool.lost_ps)).collect();
        Some(Self { report, groups: groups.collect(), lost_ps })
    }
}

impl<'a> AppLeaks<'a> {
    fn of(app: &'a AppState, scan: Option<&'a Result<AppScan, String>>) -> Self {
        let model = app.model.as_ref();
        let scanned = scan.and_then(|scan| scan.as_ref().ok());
        let lost = scanned.is_some_and(|scan| scan.sample.lost() > 0);
        let ledger = |(sample, rates): (&'a LedgerSample, &LedgerRates)| Ledger {
            sample,
            leaked_ps: rates.leaked_ps,
        };
        let site = |(sample, rates): (_, &SiteRates)| Site { sample, rate_ps: rates.rate_ps };
        Self {
            app: &app.name,
            status: &app.status,
            level: app.level(),
            leaks: lost || model.is_some_and(|model| model.sample.has_leaks()),
            ledger: model.map_or_else(Vec::new, |m| {
                m.sample.ledger.iter().zip(&m.ledger).map(ledger).collect()
            }),
            sites: model
                .map_or_else(Vec::new, |m| m.sample.sites.iter().zip(&m.sites).map(site).collect()),
            stages: model.map_or(&[], |m| &m.sample.stages),
            pools: model.map_or(&[], |m| &m.pools),
            partial: model.map_or(&[], |m| &m.sample.partial),
            scan: scanned.and_then(Scan::of),
            scan_summary: scanned.filter(|scan| scan.live.is_none()).map(|scan| &scan.sample),
            scan_error: scan.and_then(|scan| scan.as_ref().err()).map(String::as_str),
        }
    }
}

/// Sites, lost mbufs that scans found, the trend of other pools, and notes.
pub(super) fn text(fleet: &FleetState, scans: &AppScans) -> Vec<TextLine> {
    let mut out = Vec::new();
    let mut add = |mut table: TextTable| {
        if fleet.apps.len() == 1 {
            table.hide_column("App");
        }
        if !table.rows.is_empty() {
            out.extend((!out.is_empty()).then(TextLine::default));
            out.extend(table_lines(&table, None, Theme::default()));
        }
    };
    add(leak_sites(fleet, PathStyle::Full));
    let scanned = scans.iter().filter_map(|(app, scan)| Some((app.as_str(), scan.as_ref().ok()?)));
    add(lost_table::lost_mbufs(scanned.map(|(app, scan)| (app, &scan.sample))));
    add(drains(fleet));
    for app in &fleet.apps {
        for note in notes(app, scans.get(&app.name)) {
            out.push(one_line(&format!("{}: {note}", app.name)).into());
        }
    }
    out
}

/// Pools without a ledger whose occupancy is known.
fn drains(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool"),
        Column::number("Size"),
        Column::number("In use"),
        Column::number("Used"),
        Column::number("Growth/s"),
        Column::number("Empty in"),
    ];
    let mut table = TextTable::new("Pools", columns);
    for (app, model) in fleet.models().filter(|(_, model)| model.sample.ledger.is_empty()) {
        for (pool, trend) in model.sample.pools.iter().zip(&model.pools) {
            let subject = Subject::Pool { app: app.name.clone(), pool: pool.name.clone() };
            if let Some(cells) = drain_cells(app, pool, trend) {
                table.push(subject, app.stale(), cells);
            }
        }
    }
    let counted = |pool: &PoolSample| pool.source == Some(CountSource::Xray);
    if fleet.models().any(|(_, model)| model.sample.pools.iter().any(counted)) {
        table.notes.push("counted via xray, in the memory of the app".to_owned());
    }
    table
}

fn drain_cells(app: &AppState, pool: &PoolSample, trend: &PoolTrend) -> Option<Vec<Cell>> {
    let in_use = pool.occupancy?.in_use;
    let used = Cell::text(known(trend.used_ratio, percent));
    Some(vec![
        Cell::text(&app.name),
        Cell::text(&pool.name),
        Cell::text(count(pool.size)),
        Cell::text(count(in_use)),
        cells::alarm(used, trend.used_ratio.is_some_and(|ratio| ratio >= 1.0), Tone::Bad),
        Cell::text(known(trend.slope_ps, signed)),
        Cell::text(known(trend.exhausted_in_s, seconds)),
    ])
}

/// Notes on an app, in addition to the tables.
fn notes(app: &AppState, scan: Option<&Result<AppScan, String>>) -> Vec<String> {
    let mut notes = Vec::new();
    if let AppStatus::Lost { reason } = &app.status {
        notes.push(reason.clone());
    }
    match scan {
        Some(Ok(scan)) => {
            notes.extend(lost_table::notes(&scan.sample));
            let runs = |live: &ScannedMemory| live.target.memory.process().is_some();
            let is_repeatable = scan.live.as_ref().is_some_and(runs);
            notes.extend(lost_table::rate_note(&scan.sample).filter(|_| is_repeatable));
        }
        Some(Err(why)) => notes.push(format!("not scanned: {why}")),
        None => {}
    }
    let Some(model) = &app.model else { return notes };
    let sample = &model.sample;
    notes.extend(sample.partial.iter().map(|part| format!("could not be read: {part}")));
    if sample.ledger.is_empty() {
        notes.extend(level_note(model, scan));
        return notes;
    }
    for ledger in &sample.ledger {
        notes.extend(ledger_notes(ledger));
    }
    if !sample.has_leaks() && !sample.ledger.iter().any(LedgerSample::starves) {
        notes.push(clean_note(&sample.ledger));
    }
    notes
}

fn ledger_notes(ledger: &LedgerSample) -> Vec<String> {
    let mut notes = Vec::new();
    let (name, size) = (&ledger.name, count(ledger.size));
    if ledger.opaque {
        notes
            .push(format!("losses of {name} are only counted: its common pool is not an rte_ring"));
    }
    if ledger.queued_up() {
        notes.push(format!(
            "{} of {size} mbufs of {name} are in software rings: their consumers are too slow, or \
             stand still",
            count(ledger.rings)
        ));
    }
    if ledger.starves() {
        let free = count(ledger.common.saturating_add(ledger.cached));
        notes.push(format!(
            "only {free} of {size} mbufs of {name} are free, and it is not proven whether the others \
             are lost: with stamps written from the start (mode always) it would be"
        ));
    }
    if ledger.unplaced > 0 {
        let why = if ledger.armed {
            "in use, place unknown".to_owned()
        } else {
            format!("stamps are disarmed (mode {}); use --arm to locate them", ledger.mode)
        };
        notes.push(format!("{} of {size} mbufs of {name} unplaced: {why}", count(ledger.unplaced)));
    }
    if ledger.lost_at_least > 0 {
        let least = count(ledger.lost_at_least);
        notes.push(format!(
            "at least {least} of {size} mbufs of {name} lost; too few are free to prove which"
        ));
    }
    notes
}

fn clean_note(ledgers: &[LedgerSample]) -> String {
    let mbufs: u64 = ledgers.iter().map(|ledger| ledger.size).sum();
    let pools = plural(ledgers.len() as u64, "pool");
    let (known, watched) = if ledgers.iter().all(|ledger| ledger.armed) {
        ("", "")
    } else {
        (" known", "; only counted while the stamps are disarmed")
    };
    format!("no leaks{known} in {pools} of {} mbufs{watched}", count(mbufs))
}

/// Why an app has no ledger, and what it provides instead.
fn level_note(model: &Model, scan: Option<&Result<AppScan, String>>) -> Option<String> {
    let sample = &model.sample;
    let stock = "a stock app (level 0)";
    match (&sample.library, scan) {
        (Some(_), _) => Some(why_no_ledger_of(sample)),
        (None, Some(Ok(scan))) if scan.sample.lost() == 0 => None,
        (None, Some(Ok(_))) => Some(format!("{stock}: {LEVELS}")),
        (None, Some(Err(_))) => Some(format!("{stock} that is not scanned shows growth only")),
        (None, None) => {
            Some(format!("{stock} shows growth only; a scan of its memory counts lost mbufs"))
        }
    }
}

/// Why an app has no ledger.
pub(super) fn why_no_ledger_of(sample: &Sample) -> String {
    match &sample.library {
        None => format!("runs without libpmdscope; {LEVELS}"),
        Some(_) if sample.failed("/pmdscope/leaks") => {
            format!("the ledger could not be read: {}", sample.partial.join("; "))
        }
        Some(library) => format!(
            "no leak ledger: its libpmdscope {} is too old, or it has no mbuf pool",
            library.version
        ),
    }
}

/// Why no app has a ledger, or was scanned.
pub(super) fn why_no_ledger(fleet: &FleetState, scans: &AppScans) -> String {
    let why = fleet.apps.iter().map(|app| match (scans.get(&app.name), &app.model) {
        (Some(Err(why)), _) => format!("{}: {why}", app.name),
        (Some(Ok(_)), _) => format!("{}: no mbuf pool was found", app.name),
        (None, Some(model)) => format!("{}: {}", app.name, why_no_ledger_of(&model.sample)),
        (None, None) => format!("{}: does not answer", app.name),
    });
    why.collect::<Vec<_>>().join("\n")
}

/// Names of pools with a ledger, and of those that were scanned.
pub(super) fn pools<'a>(fleet: &'a FleetState, scans: &'a AppScans) -> Vec<&'a str> {
    let ledgers = fleet.models().flat_map(|(_, model)| &model.sample.ledger);
    let scanned = reports(scans).flat_map(|(_, report)| &report.pools);
    let ledgers = ledgers.map(|ledger| ledger.name.as_str());
    ledgers.chain(scanned.map(|pool| pool.name.as_str())).collect()
}

fn reports(scans: &AppScans) -> impl Iterator<Item = (&str, &ScanReport)> {
    scans
        .iter()
        .filter_map(|(app, scan)| Some((app.as_str(), &scan.as_ref().ok()?.live.as_ref()?.report)))
}

/// The ledgers and the scanned pools line by line; empty when there is none of that name.
pub(super) fn explain(fleet: &FleetState, scans: &AppScans, pool: Option<&str>) -> String {
    let mut out = ledgers(fleet, pool);
    for (app, report) in reports(scans) {
        let meant = |scanned: &&PoolScan| pool.is_none_or(|pool| scanned.name == pool);
        for scanned in report.pools.iter().filter(meant) {
            let gap = if out.is_empty() { "" } else { "\n" };
            let _ = write!(out, "{gap}{} ", one_line(app));
            for line in pool_scan::explain(scanned) {
                let _ = writeln!(out, "{}", one_line(&line));
            }
        }
    }
    out
}

fn ledgers(fleet: &FleetState, pool: Option<&str>) -> String {
    let mut out = String::new();
    for (app, model) in fleet.models() {
        let meant = |ledger: &&LedgerSample| pool.is_none_or(|pool| ledger.name == pool);
        for ledger in model.sample.ledger.iter().filter(meant) {
            let gap = if out.is_empty() { "" } else { "\n" };
            let _ = write!(out, "{gap}{} ", one_line(&app.name));
            for line in ledger::explain(ledger, &model.sample.stages) {
                let _ = writeln!(out, "{}", one_line(&line));
            }
        }
    }
    out
}

/// Whether stamps are armed, and the mode, one line per app.
pub(super) fn modes(fleet: &FleetState) -> String {
    let mut out = String::new();
    for app in &fleet.apps {
        let ledger = app.model.as_ref().and_then(|model| model.sample.ledger.first());
        let mode = ledger.map_or(UNKNOWN.to_owned(), |ledger| {
            let stamps = if ledger.armed { "stamps armed" } else { "stamps disarmed" };
            format!("mode {}, {stamps}", ledger.mode)
        });
        let _ = writeln!(out, "{}: {mode}", one_line(&app.name));
    }
    out
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
