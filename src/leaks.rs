//! `pmdscope leaks`: the line that loses mbufs, the rate, and the lost packets; of apps without libpmdscope
//! what a scan of their memory finds.

mod arm;
mod core;
mod groups;
mod lost_packets;
mod lost_table;
mod packets;
pub(crate) mod report;
pub(crate) mod save;
pub(crate) mod scan;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use pmdscope_telemetry::discover::{DiscoveredApp, FindError};
use pmdscope_telemetry::fleet::unqueried_event;
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::{LedgerSample, Sample, ScanSample};
use pmdscope_telemetry::{AppState, FleetState};

use self::scan::{AppScan, AppScans, ScanArgs, Scanner};
use crate::color::ColorArg;
use crate::exit::FAILED;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::progress::Progress;
use crate::session::{AppArg, XrayArg};
use crate::source::{AtArg, ReplayArg, Source};
use crate::{duration, output};

/// Least number of samples for a trend of our own.
const TREND_SAMPLES: u32 = 5;

/// Find mbuf leaks: pool, rate and line of source
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // one per flag of the command line
#[command(group = clap::ArgGroup::new("act").multiple(false))]
#[command(group = clap::ArgGroup::new("packets").args(["write", "save"]))]
#[command(after_help = "Exit status: 0 no leak, 1 leak or failure, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope leaks                             one row per leak site
  pmdscope leaks -a reflector --explain      where every mbuf of each mempool is
  pmdscope leaks -w leaked.pcapng -N 4       leaked packets, each with a comment
  pmdscope leaks -r DIR --at 08:56:00        leaks at that time of a recording
  pmdscope leaks --core core.1234            lost mbufs of an app that has ended

Level 0 (a stock app) is scanned from outside: lost mbufs by pool, their packets, and
who holds the others; that needs root, CAP_SYS_PTRACE, or the user of the app.
Level 1 (linked with libpmdscope) adds the queue or stage that leaks. Level 2 (built
with pmdscope_trace.h) adds the line of source.

Exit status:
  0  no leak
  1  a leak, a mempool that is empty for an unknown reason, an app that does not
     answer or cannot be scanned, or a failure
  2  wrong usage or configuration")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    #[command(flatten)]
    replay: ReplayArg,

    #[command(flatten)]
    at: AtArg,

    /// Repeat the report every interval
    #[arg(long, conflicts_with = "replay")]
    watch: bool,

    /// Sampling interval, 0.1 to 60
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration::interval)]
    interval: Duration,

    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,

    /// Write leaked packets as pcapng; -: stdout
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, group = "act",
          conflicts_with_all = ["watch", "json", "replay"])]
    write: Option<PathBuf>,

    /// Packets per leak site, 1 to 4096
    #[arg(short = 'N', value_name = "PER_SITE", default_value_t = 8, requires = "packets",
          value_parser = whole::<u32>(1..=4096))]
    per_site: u32,

    /// Show where the mbufs of all pools or POOL are
    #[arg(long, value_name = "POOL", num_args = 0..=1, group = "act",
          conflicts_with_all = ["watch", "json"])]
    #[allow(clippy::option_option)] // not given, given without a pool, with one
    explain: Option<Option<String>>,

    /// Stamp mbufs for TIME (1s to 1d) [default: 60s]
    ///
    /// Overrides mode auto, in which the app stamps mbufs on demand.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s",
          group = "act", conflicts_with_all = ["watch", "json", "replay"],
          value_parser = |text: &str| duration::whole_seconds(text, 1..=86_400))]
    arm: Option<u64>,

    /// Stop stamping mbufs
    #[arg(long, group = "act", conflicts_with_all = ["watch", "json", "replay"])]
    disarm: bool,

    /// Show the stamping mode and state
    #[arg(long = "show-mode", alias = "mode", group = "act", conflicts_with_all = ["watch", "json"])]
    mode: bool,

    /// Read a core file, not running apps
    ///
    /// It must hold the memory of the app: before the app starts, set the bits of
    /// /proc/self/coredump_filter for anonymous memory, shared files and hugepages (0x7f sets all).
    #[allow(clippy::doc_markdown)] // it is text of the help
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
          conflicts_with_all = ["app", "replay", "at", "watch", "arm", "disarm", "mode", "no_scan",
                                "no_xray"])]
    core: Option<PathBuf>,

    /// Do not scan the memory of apps without libpmdscope
    ///
    /// A scan reads all memory in which the app may keep references to mbufs, twice or more. It neither
    /// stops the app nor writes to it. Without it only the trend of each mempool is shown.
    #[arg(long, conflicts_with = "replay")]
    no_scan: bool,

    /// Write all reports into a directory, for `pmdscope bundle`
    #[arg(long, value_name = "DIR", hide = true, group = "act",
          conflicts_with_all = ["watch", "json", "replay", "core"])]
    save: Option<PathBuf>,

    /// Beside these the lost packets of an app that is scanned
    #[arg(long, value_names = ["APP", "FILE"], num_args = 2, hide = true, requires = "save")]
    save_packets: Vec<String>,

    #[command(flatten)]
    xray: XrayArg,

    #[command(flatten)]
    scan: ScanArgs,

    #[command(flatten)]
    color: ColorArg,
}

impl Args {
    /// Whether the memory of apps is scanned.
    fn scans(&self) -> bool {
        !self.no_scan && self.xray.is_allowed()
    }

    /// Packets to write per site or group.
    fn per_site(&self) -> usize {
        usize::try_from(self.per_site).unwrap_or(usize::MAX)
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(seconds) = args.arm.or(args.disarm.then_some(0)) {
        return arm::run(&args.app, seconds);
    }
    if let Some(path) = &args.core {
        return core::run(args, path);
    }
    if let Some(path) = &args.write {
        return packets::run(args, path);
    }
    if let Some(player) = args.replay.player(&args.app)? {
        let source = Source::steps(player, &args.app, &args.at, args.interval, 1)?;
        return replayed(args, source);
    }
    match Source::counted(&args.app, args.xray, args.interval) {
        Ok(source) => running(args, source),
        Err(error) => match unanswering(&error).filter(|_| args.scans() && !args.mode) {
            Some(app) => silent(args, &app),
            None => Err(error),
        },
    }
}

/// One moment of a recording.
fn replayed(args: &Args, mut source: Source) -> Result<ExitCode> {
    source.advance()?;
    source.tell_notes();
    for _ in 1..samples(source.fleet()) {
        source.advance()?;
    }
    let recorded = |(app, model): (&AppState, &Model)| {
        let sample = model.sample.scan.clone()?;
        Some((app.name.clone(), Ok(AppScan { sample, live: None })))
    };
    let scans = source.fleet().models().filter_map(recorded).collect();
    print(args, source.fleet(), &scans)?;
    Ok(verdict(source.fleet(), &scans))
}

/// Apps that run.
fn running(args: &Args, mut source: Source) -> Result<ExitCode> {
    source.advance()?;
    if args.mode {
        output::print(&report::modes(source.fleet()))?;
        return Ok(verdict(source.fleet(), &AppScans::new()));
    }
    let mut scanner = Scanner::new(args.scan);
    let mut rounds = if args.explain.is_some() { 1 } else { samples(source.fleet()) };
    loop {
        let apps = if args.scans() { apps_to_scan(&source) } else { Vec::new() };
        let length = args.interval.saturating_mul(rounds.saturating_sub(1));
        let progress = Progress::watch("watching mempools for a trend", length, false);
        // The trend needs samples anyway.
        let scans = thread::scope(|scope| {
            let scanning = scope.spawn(|| scanner.scan_all(&apps));
            for _ in 1..rounds {
                source.advance()?;
            }
            drop(progress);
            scanning.join().map_err(|_| anyhow!("the scan failed, which is a bug of pmdscope"))
        })?;
        let read = print(args, source.fleet(), &scans)?;
        if !read || !args.watch || !source.advance()? {
            return Ok(verdict(source.fleet(), &scans));
        }
        rounds = 1;
    }
}

/// An app that does not answer, but whose memory can be read: it was stopped, or has no telemetry.
fn silent(args: &Args, app: &DiscoveredApp) -> Result<ExitCode> {
    let mut fleet = FleetState::default();
    if let Some(event) = unqueried_event(app) {
        fleet.apply(event);
    }
    let mut scanner = Scanner::new(args.scan);
    loop {
        let scans = scanner.scan_all(std::slice::from_ref(app));
        let read = print(args, &fleet, &scans)?;
        if !read || !args.watch {
            return Ok(verdict(&fleet, &scans));
        }
        thread::sleep(args.interval);
    }
}

/// The app that an error is about, if its memory may show what the app itself does not report.
fn unanswering(error: &anyhow::Error) -> Option<DiscoveredApp> {
    match error.downcast_ref() {
        Some(FindError::NoTelemetry(app) | FindError::Unreachable(app, _)) => {
            scan::is_readable(app).then(|| (**app).clone())
        }
        _ => None,
    }
}

/// Apps that have no ledger of their own.
pub(crate) fn apps_to_scan(source: &Source) -> Vec<DiscoveredApp> {
    let linked = |app: &DiscoveredApp| {
        let model = source.fleet().find(&app.name).and_then(|app| app.model.as_ref());
        model.is_some_and(|model| model.sample.library.is_some())
    };
    let apps = source.apps().into_iter();
    apps.filter(|app| scan::is_readable(app) && !linked(app)).collect()
}

/// Samples before the first report: libpmdscope has its trends, those of a stock app are our own.
fn samples(fleet: &FleetState) -> u32 {
    let watched = |sample: &Sample| {
        sample.ledger.is_empty() && sample.pools.iter().any(|pool| pool.occupancy.is_some())
    };
    if fleet.models().any(|(_, model)| watched(&model.sample)) { TREND_SAMPLES } else { 2 }
}

/// Prints what was found, in the form that was asked for; false when the output is closed.
fn print(args: &Args, fleet: &FleetState, scans: &AppScans) -> Result<bool> {
    if let Some(dir) = &args.save {
        save::write(args, dir, fleet, scans)?;
        return Ok(true);
    }
    if let Some(pool) = &args.explain {
        return explain(fleet, scans, pool.as_deref());
    }
    if args.mode {
        return output::print(&report::modes(fleet));
    }
    if args.json {
        return output::print_json(&report::Document::of(fleet, scans));
    }
    if args.watch && StandardOutput::is_terminal() {
        output::clear_terminal()?;
    }
    output::print_fitted(&report::text(fleet, scans), args.color.color(&args.app.config)?)
}

fn explain(fleet: &FleetState, scans: &AppScans, pool: Option<&str>) -> Result<bool> {
    let text = report::explain(fleet, scans, pool);
    if text.is_empty() {
        let names = report::pools(fleet, scans);
        match (pool, names.is_empty()) {
            (Some(pool), false) => {
                bail!("there is no mbuf pool {pool:?}; there is {}", names.join(", "))
            }
            _ => bail!("{}", report::why_no_ledger(fleet, scans)),
        }
    }
    let read = output::print_fitted_text(&text)?;
    for (app, why) in scans.iter().filter_map(|(app, scan)| Some((app, scan.as_ref().err()?))) {
        output::tell(&format!("{app}: not scanned: {why}"));
    }
    Ok(read)
}

/// 1 for leaks, and for apps and pools that cannot report whether they have any.
fn verdict(fleet: &FleetState, scans: &AppScans) -> ExitCode {
    let bad =
        |sample: &Sample| sample.has_leaks() || sample.ledger.iter().any(LedgerSample::starves);
    let leaks = fleet.models().any(|(_, model)| bad(&model.sample));
    let silent = fleet.apps.iter().any(AppState::stale);
    if leaks || silent || scans_fail(scans) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// Some mbufs are lost, or something could not be read that may hide a loss.
fn scans_fail(scans: &AppScans) -> bool {
    !scans.values().all(|scan| scan.as_ref().is_ok_and(|scan| is_clean(&scan.sample)))
}

fn is_clean(scan: &ScanSample) -> bool {
    scan.lost() == 0 && scan.problems.is_empty()
}

/// As [`scans_fail`].
fn verdict_of_scan(scan: &ScanSample) -> ExitCode {
    if is_clean(scan) { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

/// Prints the document of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if args.json {
        let (fleet, scans) = (FleetState::default(), AppScans::new());
        output::print_json(&report::Document::of(&fleet, &scans))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    fn parse(words: &str) -> Result<Args, clap::Error> {
        parse_args("leaks", words)
    }

    #[test]
    fn optional_values_have_defaults() {
        assert_eq!(parse("--arm").unwrap().arm, Some(60));
        assert_eq!(parse("--arm 5 -a x").unwrap().arm, Some(5));
        assert_eq!(parse("-a x --explain").unwrap().explain, Some(None));
        assert_eq!(parse("--explain mb").unwrap().explain, Some(Some("mb".into())));
        assert_eq!(parse("--write x").unwrap().per_site, 8);
        assert_eq!(parse("--core x").unwrap().scan.scan_interval, Duration::from_secs(1));
    }

    #[test]
    fn the_former_name_of_show_mode_works() {
        assert!(parse("--show-mode").unwrap().mode && parse("--mode").unwrap().mode);
    }

    #[test]
    fn contradictions_and_values_out_of_range_are_refused() {
        let wrong = [
            "--arm 0",
            "--arm 86401",
            "--arm --disarm",
            "--write x -N 0",
            "-N 4",
            "--write x --json",
            "--explain --watch",
            "--show-mode --arm",
            "-i 0.01",
            "--core x -a y",
            "--core x --watch",
            "--replay x --no-scan",
            "--replay x --no-xray",
            "--core x --no-xray",
            "--scan-rate 0",
            "--scan-interval 0",
        ];
        for words in wrong {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
