//! `pmdscope ls`: lists running DPDK apps.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use anyhow::Result;
use pmdscope_render::number::{UNKNOWN, known, seconds};
use pmdscope_render::{Cell, Column, Subject, TextTable, Tone};
use pmdscope_telemetry::discover::{
    DiscoveredApp, Reachability, UnreachableReason, unreadable, unreadable_text,
};
use pmdscope_telemetry::host::{Container, since_start};
use pmdscope_telemetry::parallel;
use pmdscope_telemetry::sample::Sample;
use pmdscope_telemetry::{SampleCollector, TelemetryError};
use serde::Serialize;

use crate::attach::policy::AttachPolicy;
use crate::attach::running::RunningApp;
use crate::attach::transport::Preflight;
use crate::attach::unavailable::CaptureUnavailable;
use crate::color::ColorArg;
use crate::output::{self, StandardOutput, names};
use crate::session::{self, AppArg};
use pmdscope_telemetry::fleet::{ROUND_TIMEOUT, obstacle};

/// Version of the JSON; raised when a field changes its meaning.
const LS_SCHEMA: u32 = 1;

/// Behind the names and the process ids.
const CONTAINER_COLUMN: usize = 2;

/// List running DPDK apps
#[derive(clap::Args)]
#[command(
    after_help = "\
Examples:
  pmdscope ls            running apps
  pmdscope ls -a fwd     one app
  pmdscope ls --all      also leftovers of apps that have exited
  pmdscope ls --json | jq -r .apps[].app",
    after_long_help = "\
Columns:
  Container
           id of the container of the app; only where an app has one
  Level    0: stock app; 1: linked with libpmdscope, which adds queue depths,
           mempool occupancy and stalls; 2: also compiled with
           pmdscope_trace.h, which adds the lines that lose mbufs; 1+: 1 or 2,
           the library is too old to report it
  Capture  library: packets come from libpmdscope; pdump: packets come from
           pmdscope-pdump, which attaches to an app that has called
           rte_pdump_init(); no: the reason follows below the table

Examples:
  pmdscope ls            running apps
  pmdscope ls -a fwd     one app
  pmdscope ls --all      also leftovers of apps that have exited
  pmdscope ls --json | jq -r .apps[].app

Exit status: 0 listed, 1 no app runs, 2 wrong usage or configuration."
)]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also list apps that have exited and left files behind
    #[arg(long, conflicts_with = "app")]
    all: bool,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut settings = args.app.settings()?;
    settings.discover.stale = args.all;
    let name = args.app.app.as_deref();
    let found = settings.apps(name, &[])?;
    session::tell_left_out(&settings);
    if found.is_empty() {
        settings.choose(name, Vec::new())?;
    }
    if let Some(text) = unreadable_text(&unreadable(&settings.discover)) {
        output::tell(&text);
    }
    let apps = ask_all(found);
    if args.json {
        output::print_json(&Listing { schema: LS_SCHEMA, apps: &apps })?;
    } else {
        let color = args.color.color(&args.app.config)?;
        output::print_table(&table(&apps), StandardOutput::width(), color)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Output of `ls --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Listing<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = LS_SCHEMA)))]
    schema: u32,
    /// Running apps; with `--all`, also apps that have ended and left files behind.
    apps: &'a [Entry],
}

/// An app.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Entry {
    /// Name of the app, by default its file-prefix.
    app: String,
    /// Process id of the app on this host; `None` if unknown.
    pid: Option<u32>,
    /// Container of the app; `None` if it is in none.
    container: Option<Container>,
    /// DPDK version, for instance `DPDK 22.11.11`; `None` if unknown.
    dpdk_version: Option<String>,
    /// Level: 0 for a stock app, 1 with libpmdscope, 2 if it was also compiled with `pmdscope_trace.h`; 1 if
    /// the library is too old to distinguish 1 from 2; `None` if the app did not answer.
    level: Option<u8>,
    #[serde(skip)]
    level_may_be_higher: bool,
    /// Number of ports that the app has started; `None` if the app did not answer.
    ports_started: Option<usize>,
    /// Number of ports of the app; `None` if the app did not answer.
    ports: Option<usize>,
    /// Time since the process started, seconds; `None` if unknown.
    uptime_s: Option<f64>,
    /// How packets can be captured: `library` or `pdump` (by a helper); `None` if they cannot.
    capture: Option<&'static str>,
    /// Why packets cannot be captured; `None` if they can.
    no_capture: Option<String>,
    #[serde(skip)]
    shut: Option<CaptureUnavailable>,
    /// State of the app: `live`, `starting`, `no telemetry`, `unreachable` or `ended`.
    state: &'static str,
    /// Why the app did not answer, or the first part missing from its answer; `None` if there is none.
    reason: Option<String>,
}

/// Asks many apps at once, so that stuck ones cost one timeout together.
fn ask_all(apps: Vec<DiscoveredApp>) -> Vec<Entry> {
    parallel::map(apps, |app| {
        let known = entry(&app);
        catch_unwind(AssertUnwindSafe(|| ask(app))).unwrap_or_else(|panic| known.lost(&*panic))
    })
}

/// The entry of an app that was not asked.
fn entry(app: &DiscoveredApp) -> Entry {
    Entry {
        app: app.name.clone(),
        pid: app.pid,
        container: app.container.clone(),
        dpdk_version: app.dpdk_version.clone(),
        level: None,
        level_may_be_higher: false,
        ports_started: None,
        ports: None,
        uptime_s: None,
        capture: None,
        no_capture: None,
        shut: None,
        state: state_word(app.state),
        reason: obstacle(app).map(|(_, reason)| reason),
    }
}

fn ask(app: DiscoveredApp) -> Entry {
    let mut entry = entry(&app);
    if app.state == Reachability::Live {
        match SampleCollector::new(app.clone()).collect(ROUND_TIMEOUT) {
            Ok(sample) => entry.learn(app, sample),
            Err(error) => (entry.state, entry.reason) = ("unreachable", Some(error.to_string())),
        }
    }
    entry
}

impl Entry {
    /// The thread that asked it has panicked.
    fn lost(self, panic: &(dyn Any + Send)) -> Self {
        let reason = TelemetryError::panicked(panic).to_string();
        Self { state: "unreachable", reason: Some(reason), ..self }
    }

    fn learn(&mut self, app: DiscoveredApp, sample: Sample) {
        self.level = Some(sample.level());
        self.level_may_be_higher = sample.level_may_be_higher();
        self.ports_started = Some(sample.ports.iter().filter(|port| port.started).count());
        self.ports = Some(sample.ports.len());
        self.uptime_s = uptime_s(sample.app.start_ticks);
        self.reason = sample.partial.first().map(|part| format!("partly: {part}"));
        match Preflight::of(&RunningApp { app, sample: Some(sample) }, AttachPolicy::Safe) {
            Ok(way) => self.capture = Some(way.via().unwrap_or("library")),
            Err(error) => {
                (self.no_capture, self.shut) =
                    (Some(format!("{error:#}")), Some(CaptureUnavailable::of(&error)));
            }
        }
    }
}

fn state_word(state: Reachability) -> &'static str {
    match state {
        Reachability::Live => "live",
        Reachability::NoTelemetry => "no telemetry",
        Reachability::Stale => "ended",
        Reachability::Unreachable(UnreachableReason::Starting) => "starting",
        Reachability::Unreachable(_) => "unreachable",
    }
}

/// Seconds since a process started; unknown where its start is.
fn uptime_s(start_ticks: u64) -> Option<f64> {
    (start_ticks > 0).then(|| since_start(start_ticks)).flatten().map(|age| age.as_secs_f64())
}

fn table(apps: &[Entry]) -> TextTable {
    let contained = apps.iter().any(|app| app.container.is_some());
    let mut columns = vec![
        Column::text("App"),
        Column::number("PID"),
        Column::text("DPDK"),
        Column::text("Level"),
        Column::number("Ports"),
        Column::number("Uptime"),
        Column::text("State"),
        Column::text("Capture"),
    ];
    if contained {
        columns.insert(CONTAINER_COLUMN, Column::text("Container"));
    }
    let mut table = TextTable::new("Apps", columns);
    for app in apps {
        let mut cells = cells(app);
        if contained {
            let id = app.container.as_ref().map_or("", Container::short_id);
            cells.insert(CONTAINER_COLUMN, Cell::text(id));
        }
        table.push(Subject::App { app: app.app.clone() }, false, cells);
    }
    table.notes.extend(no_capture(apps));
    table
}

/// Why there are no captures: a line for each app, or for all apps of which the same is true.
fn no_capture(apps: &[Entry]) -> Vec<String> {
    let shut = apps.iter().filter_map(|app| Some((app.app.as_str(), app.shut.as_ref()?)));
    // What follows the name, where the reason begins with it.
    let reasons = shut.map(|(app, shut)| match shut.text.strip_prefix(app) {
        Some(rest) if rest.starts_with(' ') => (Some(app), rest.trim_start()),
        _ => (None, shut.text.as_str()),
    });
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (app, reason) in reasons {
        let known = groups.iter_mut().find(|(known, _)| *known == reason);
        match known {
            Some((_, named)) => named.extend(app),
            None => groups.push((reason, app.into_iter().collect())),
        }
    }
    let line = |(reason, named): (&str, Vec<&str>)| match named[..] {
        [] => format!("no capture: {reason}"),
        [app] => format!("no capture: {app} {reason}"),
        _ => format!("no capture: {}: {reason}", names(&named)),
    };
    groups.into_iter().map(line).collect()
}

fn cells(app: &Entry) -> Vec<Cell> {
    let version = app.dpdk_version.as_deref().unwrap_or(UNKNOWN);
    let level = match app.level {
        Some(0) => "0 stock",
        Some(1) if app.level_may_be_higher => "1+ linked",
        Some(1) => "1 linked",
        Some(_) => "2 traced",
        None => UNKNOWN,
    };
    let ports = app.ports_started.zip(app.ports);
    let capture = match (app.capture, &app.shut) {
        (Some(capture), _) => capture.to_owned(),
        (None, Some(shut)) => format!("no: {}", shut.word),
        (None, None) => UNKNOWN.to_owned(),
    };
    let state = match &app.reason {
        Some(reason) => Cell::text(format!("{}: {reason}", app.state)).tone(Tone::Warn),
        None => Cell::text(app.state),
    };
    vec![
        Cell::text(&app.app),
        Cell::text(known(app.pid, |pid| pid.to_string())),
        Cell::text(version.trim_start_matches("DPDK ")),
        Cell::text(level),
        Cell::text(known(ports, |(started, all)| format!("{started}/{all}"))),
        Cell::text(known(app.uptime_s, seconds)),
        state,
        Cell::text(capture),
    ]
}

/// Prints the document of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if args.json {
        output::print_json(&Listing { schema: LS_SCHEMA, apps: &[] })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_render::{Theme, table_text};

    use super::*;

    fn app(name: &str, state: Reachability) -> DiscoveredApp {
        DiscoveredApp::in_dir("/nowhere", name, "socket", state)
    }

    #[test]
    fn every_state_is_told_with_its_reason() {
        let states = [
            Reachability::NoTelemetry,
            Reachability::Stale,
            Reachability::Unreachable(UnreachableReason::Permission),
            Reachability::Unreachable(UnreachableReason::Starting),
            Reachability::Live,
        ];
        let mut apps = ask_all(states.into_iter().map(|state| app("app", state)).collect());
        apps.extend([(1, true), (1, false), (2, false)].map(|(level, level_may_be_higher)| {
            Entry {
                app: "reflector".to_owned(),
                pid: Some(4242),
                container: None,
                dpdk_version: Some("DPDK 22.11.11".to_owned()),
                level: Some(level),
                level_may_be_higher,
                ports_started: Some(1),
                ports: Some(2),
                uptime_s: Some(3_725.0),
                capture: Some("library"),
                no_capture: None,
                shut: None,
                state: "live",
                reason: None,
            }
        }));
        assert_snapshot!(table_text(&table(&apps), None, Theme::default()));
    }

    #[test]
    fn apps_in_containers_are_listed_with_them() {
        let mut contained = entry(&app("rte@4f1c4f1c4f1c", Reachability::Live));
        contained.container =
            Some(Container { id: "4f1c".repeat(16), pod: Some("0f1b6c52".to_owned()) });
        let json = serde_json::to_value(&contained).unwrap();
        assert_eq!(json["container"]["id"], "4f1c".repeat(16));
        assert_eq!(json["container"]["pod"], "0f1b6c52");
        let text = table_text(
            &table(&[contained, entry(&app("rte", Reachability::Live))]),
            None,
            Theme::default(),
        );
        let columns: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
        assert!(columns.contains(&vec!["App", "PID", "Container", "DPDK"]), "{text}");
        assert!(text.contains(" 4f1c4f1c4f1c "), "{text}");
    }

    #[test]
    fn why_packets_cannot_be_had_stands_below_the_table_once() {
        let mut apps =
            ask_all(vec![app("one", Reachability::Stale), app("two", Reachability::Stale)]);
        for app in &mut apps {
            let text = "pmdscope-pdump is not installed: looked for /nowhere".to_owned();
            (app.shut, app.reason) =
                (Some(CaptureUnavailable { word: "not installed", text }), None);
        }
        assert_snapshot!(table_text(&table(&apps), None, Theme::default()));
    }

    #[test]
    fn the_same_reason_of_many_apps_is_one_line() {
        let mut apps: Vec<Entry> = (1..=176)
            .map(|number| entry(&app(&format!("app{number:03}"), Reachability::Live)))
            .collect();
        for (number, app) in apps.iter_mut().enumerate() {
            let reason = if number == 7 { "has no ports" } else { "was started with --no-huge" };
            let text = format!("{} {reason}", app.app);
            app.shut = Some(CaptureUnavailable { word: "see below", text });
        }
        let expected = [
            "no capture: 175 apps (app001, app002, app003, ...): was started with --no-huge",
            "no capture: app008 has no ports",
        ];
        assert_eq!(no_capture(&apps), expected);
    }

    #[test]
    fn a_process_without_a_start_has_no_uptime() {
        assert_eq!(uptime_s(0), None);
        assert!(uptime_s(1).is_some_and(|seconds| seconds > 0.0));
    }
}
