//! `pmdscope top`: rates, queue depths, pools and poll loops, interactive, as text, JSON or CSV.

mod csv;
mod names;
pub(crate) mod settings;
pub(crate) mod theme;

use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ArgGroup;
use jiff::tz::TimeZone;
use pmdscope_recording::RecordingPlayer;
use pmdscope_telemetry::{FleetState, Thresholds};
use pmdscope_tui::report::{self, TopDocument};
use pmdscope_tui::run::{DisplayFeed, DisplayOptions, run as run_display};
use pmdscope_tui::state::{PageTab, ViewState};
use pmdscope_tui::task::TaskContext;
use pmdscope_tui::timeline::TimeSpan;
use pmdscope_tui::timeline::live::{LiveTimeline, LiveUpdate};
use pmdscope_tui::timeline::recording_cursor::RecordingCursor;
use pmdscope_tui::timeline::replay::{ReplayTimeline, ReplayUpdate};

use self::csv::CsvTable;
use self::settings::TopSettings;
use self::theme::ThemeArg;
use crate::config::Config;
pub(crate) use crate::duration::interval;
use crate::exit::Usage;
use crate::netstat::resolver::NameResolver;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::session::{AppArg, XrayArg};
use crate::source::{AtArg, ReplayArg, Source};
use crate::{duration, flows, interfaces, output, session, source, tasks, watch};

/// Time between two samples for one report of running apps.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Monitor ports, queues, mempools and lcores of DPDK apps
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // one per flag of the command line
#[command(group(ArgGroup::new("report").args(["once", "json", "csv", "n"]).multiple(true)))]
#[command(after_help = "Press ? for the keys. Examples: pmdscope top --help")]
#[command(after_long_help = "\
Examples:
  pmdscope top                    all apps; press ? for the keys
  pmdscope top -a reflector       one app, now or once it starts
  pmdscope top --once             one text report, rates over 0.2 seconds
  pmdscope top --once -i 0        one text report at once: totals, no rates
  pmdscope top --json -n 60 -i 1  one line of JSON per second for a minute
  pmdscope top --csv ports        one table for spreadsheets
  pmdscope top --once --flows     also conversations, from packets captured in a second
  pmdscope top -r incident.jsonl.zst
                                  play a recording from its beginning
  pmdscope top --once -r incident.jsonl.zst --at -90s
                                  report on the time 90 seconds before its end

JSON: {\"schema\":1, \"apps\":[{\"app\", \"state\", \"findings\":[...], \"model\":{\"sample\",
\"interval_s\", \"ports\":[{\"rx_pps\", ...}], \"queues\", \"pools\", \"lcores\"}}]}
An unknown rate is null. --flows adds {\"flows\":[{\"app\", \"capture\", \"counted\":{\"flows\",
\"other\", \"total\", \"queues\", \"interval_s\", \"sample\", \"lost\", ...}}]}.
docs/top.md describes the fields.

Exit status: 0 ok, 1 failed, 2 wrong usage or configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    #[command(flatten)]
    replay: ReplayArg,

    #[command(flatten)]
    at: AtArg,

    /// Print a text report and exit
    #[arg(long)]
    once: bool,

    /// Print JSON, one document per line, and exit
    #[arg(long)]
    json: bool,

    /// CSV of apps, ports, queues, pools, lcores, findings
    ///
    /// The first line has the names of the columns; with -n, the rows of all reports follow.
    #[arg(long, value_name = "TABLE", hide_possible_values = true,
          conflicts_with_all = ["json", "flows"])]
    csv: Option<CsvTable>,

    /// Print N reports and exit
    #[arg(short, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX))]
    n: Option<u64>,

    /// Capture packets and report conversations
    ///
    /// Captures from apps with libpmdscope until the last report, using at most 10 % of a core.
    #[arg(long, conflicts_with = "replay", requires = "report")]
    flows: bool,

    /// Show names of hosts and services on the Flows page
    ///
    /// Sends one query to the name server for each address that is shown. Addresses stay numeric until
    /// the answer arrives. Filters and sorting use numbers.
    #[arg(long, hide_short_help = true, conflicts_with = "report")]
    resolve: bool,

    /// Trace what takes the CPU from lcores
    ///
    /// Interrupts, softirqs and other threads. Needs root (CAP_BPF and CAP_PERFMON) and bpftrace.
    /// Otherwise the counters of /proc are used, which have the times of the scheduler only; a note
    /// says so. Tracing starts within seconds; a report waits for it.
    #[arg(long, conflicts_with = "replay")]
    interrupts: bool,

    #[command(flatten)]
    xray: XrayArg,

    /// Sampling interval, 0.1 to 60; 0: no rates [default: 1, for one report 0.2]
    ///
    /// Some drivers count only once a second: their rates need an interval of several seconds. With
    /// 0, one report is printed at once, from one sample: totals, and no rates.
    #[arg(short, long, value_name = "TIME", value_parser = interval_or_none)]
    interval: Option<Duration>,

    /// Page to show first: overview, ports, pools, ...
    #[arg(long, hide_short_help = true, conflicts_with = "report", value_parser = settings::page)]
    page: Option<PageTab>,

    /// Initial filter, as typed after /
    #[arg(long, value_name = "WORDS", hide_short_help = true, conflicts_with = "report",
          value_parser = settings::filter)]
    filter: Option<String>,

    #[command(flatten)]
    theme: ThemeArg,

    /// ASCII characters only [default: by locale]
    #[arg(long)]
    ascii: bool,

    /// Allow Unicode, overriding the configuration
    #[arg(long, hide_short_help = true, overrides_with = "ascii")]
    no_ascii: bool,

    /// Capture the mouse, overriding the configuration
    #[arg(long, hide_short_help = true)]
    mouse: bool,

    /// Do not capture the mouse
    #[arg(long, hide_short_help = true, overrides_with = "mouse")]
    no_mouse: bool,

    /// Disable keys that capture, write, arm or attach
    ///
    /// The Flows page still counts packets of apps with libpmdscope.
    #[arg(long, conflicts_with = "report")]
    read_only: bool,

    /// Enable these keys, overriding the configuration
    #[arg(long, hide_short_help = true, overrides_with = "read_only")]
    no_read_only: bool,

    /// Print the effective configuration and exit
    #[arg(long, hide_short_help = true, conflicts_with = "report")]
    print_config: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut config = args.app.config.load()?;
    args.set(&mut config.top);
    if args.print_config {
        output::print(&config.text())?;
    } else if args.reports_only() {
        print(args, config)?;
    } else {
        display(args, config)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Without a terminal.
    fn reports_only(&self) -> bool {
        self.once || self.json || self.csv.is_some() || self.n.is_some()
    }

    fn reports(&self) -> u64 {
        self.n.unwrap_or(1)
    }

    /// What is given here comes before the configuration.
    fn set(&self, top: &mut TopSettings) {
        let given = |on: bool, off: bool| (on || off).then_some(on);
        top.interval = self.interval.filter(|time| !time.is_zero()).unwrap_or(top.interval);
        top.page = self.page.unwrap_or(top.page);
        if let Some(filter) = &self.filter {
            top.filter.clone_from(filter);
        }
        top.theme = self.theme.given().unwrap_or(top.theme);
        top.ascii = given(self.ascii, self.no_ascii).or(top.ascii);
        top.mouse = given(self.mouse, self.no_mouse).unwrap_or(top.mouse);
        top.read_only = given(self.read_only, self.no_read_only).unwrap_or(top.read_only);
    }

    /// Between two samples; zero for a report of one sample.
    ///
    /// # Errors
    ///
    /// When it is zero for more than one report of running apps.
    fn interval(&self, top: &TopSettings) -> Result<Duration> {
        let one = self.reports_only() && self.reports() == 1 && !self.flows;
        match self.interval {
            Some(Duration::ZERO) if !one || self.replay.replay.is_some() => {
                let what = "-i 0 is for one report of running apps: --once, --json or --csv, without -n, \
                            --flows and -r";
                Err(Usage(what).into())
            }
            Some(interval) => Ok(interval),
            None if one && self.replay.replay.is_none() && !self.interrupts => Ok(REPORT_INTERVAL),
            None => Ok(top.interval),
        }
    }
}

/// Prints one report per interval; each shows the rates of the interval before.
fn print(args: &Args, config: Config) -> Result<()> {
    let (reports, interval) = (args.reports(), args.interval(&config.top)?);
    let mut source = match args.replay.player(&args.app)? {
        Some(player) => Source::steps(player, &args.app, &args.at, interval, reports)?,
        None if args.interrupts => Source::traced(&args.app, args.xray, interval, None)?,
        None => Source::host(&args.app, args.xray, interval, None)?,
    };
    if !interval.is_zero() {
        source.prepare();
    }
    let mut captured = if args.flows {
        Some(flows::ReportSampler::start(source.fleet(), config.settings.clone()))
    } else {
        None
    };
    let (theme, _) = args.theme.choose(&config.top, theme::variable);
    let view = ViewState::new(theme, millis(interval), source.time_zone());
    let (thresholds, keys) = (config.settings.rules.thresholds, Arc::new(config.top.keys));
    let mut view = ViewState { thresholds, keys, ..view };
    for left in (0..reports).rev() {
        if !source.advance()? {
            break;
        }
        let fleet = source.fleet();
        let traffic = match (left, &mut captured) {
            (0, _) => captured.take().map(flows::ReportSampler::last),
            (_, captured) => captured.as_mut().map(|captured| captured.next(fleet)),
        };
        view.follow(traffic.map(Arc::new));
        let read_on = if args.json {
            output::print_json(&TopDocument::of(fleet, view.flows.traffic.as_deref()))?
        } else if let Some(table) = args.csv {
            output::print(&table.text(fleet, left + 1 == reports)?)?
        } else {
            output::print(&report::text(fleet, &view))?
        };
        if !read_on {
            break;
        }
    }
    source.tell_notes();
    Ok(())
}

fn display(args: &Args, config: Config) -> Result<()> {
    if !has_terminal() {
        let what = "top needs a terminal on standard input and output; use --once, --json or --csv";
        return Err(Usage(what).into());
    }
    if theme::is_dumb(theme::variable) {
        let what = "top cannot draw on this terminal: TERM is dumb or not set; use --once, --json or --csv";
        return Err(Usage(what).into());
    }
    // Two threads read it: one shows it, one looks for findings.
    match (args.replay.player(&args.app)?, args.replay.player(&args.app)?) {
        (Some(player), Some(again)) => display_replay(args, config, player, again),
        _ => display_live(args, config),
    }
}

/// Input and output are a terminal.
pub(crate) fn has_terminal() -> bool {
    StandardOutput::is_terminal() && stdin().is_terminal()
}

fn display_live(args: &Args, config: Config) -> Result<()> {
    let (chosen, mut settings) = (args.app.app.clone(), config.settings);
    let untraced = settings.clone();
    interfaces::read_with(&mut settings);
    args.xray.add_to(&mut settings);
    let _tracer = args.interrupts.then(|| session::trace(&mut settings));
    settings.replies = Some(Arc::default());
    settings.histograms.want(false);
    let options = options(args, config.top, TimeZone::system(), settings.rules.thresholds)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (replies, histograms) = (settings.replies.clone(), Arc::clone(&settings.histograms));
    let options = DisplayOptions { host, replies, histograms, ..options };
    let (mut sampler, mut runner) = (None, None);
    let live = |feed: DisplayFeed<LiveUpdate>| {
        sampler = Some(flows::start(feed.clone(), untraced));
        runner = Some(tasks::start(feed.clone()));
        watch::start(feed, chosen, settings);
        LiveTimeline::default()
    };
    let result = run_display(options, live);
    if let Some(runner) = runner {
        runner.end();
    }
    if let Some(sampler) = sampler {
        sampler.end();
    }
    result.context("cannot use the terminal")
}

fn display_replay(
    args: &Args,
    config: Config,
    player: RecordingPlayer,
    again: RecordingPlayer,
) -> Result<()> {
    let (oldest, newest) = player.span();
    let start = match &args.at.at {
        Some(at) => at.resolve((oldest, newest), player.utc_offset_s())?,
        None => oldest,
    };
    let thresholds = config.settings.rules.thresholds;
    let options = options(args, config.top, source::time_zone(&player), thresholds)?;
    let options = DisplayOptions { host: player.host().to_owned(), ..options };
    let (cursor, again) = (RecordingCursor::new(player), RecordingCursor::new(again));
    let mut runner = None;
    let replay = |feed: DisplayFeed<ReplayUpdate>| {
        runner = Some(tasks::start(feed.clone()));
        let span = TimeSpan { oldest, newest };
        ReplayTimeline::start(cursor, again, span, start, move |update| feed.send(update))
    };
    let result = run_display(options, replay);
    if let Some(runner) = runner {
        runner.end();
    }
    result.context("cannot use the terminal")
}

fn options(
    args: &Args,
    top: TopSettings,
    zone: TimeZone,
    thresholds: Thresholds,
) -> Result<DisplayOptions> {
    let (theme, notice) = args.theme.choose(&top, theme::variable);
    Ok(DisplayOptions {
        host: String::new(),
        theme,
        notice,
        interval_ms: millis(args.interval(&top)?),
        mouse: top.mouse,
        zone,
        thresholds,
        tasks: task_context(args, &top),
        page: top.page,
        filter: top.filter,
        keys: top.keys,
        columns: top.columns,
        names: NameResolver::for_option(args.resolve)?.map(|names| Arc::new(names) as _),
        replies: None,
        histograms: Arc::default(),
    })
}

fn task_context(args: &Args, top: &TopSettings) -> TaskContext {
    let path = |path: &Path| path.display().to_string();
    TaskContext {
        read_only: top.read_only,
        recording: args.replay.replay.as_deref().map(path),
        app: args.app.app.clone(),
        config: args.app.config.named_file().map(path),
        no_xray: !args.xray.is_allowed(),
    }
}

/// As [`interval`], or zero.
fn interval_or_none(text: &str) -> Result<Duration, String> {
    match duration::parse_or_seconds(text) {
        Some(Duration::ZERO) => Ok(Duration::ZERO),
        _ => interval(text),
    }
}

/// Whole milliseconds of an interval that [`interval`] has accepted.
fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

/// Prints the document or the table of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    let none = FleetState::default();
    if args.json {
        output::print_json(&TopDocument::of(&none, None))?;
    } else if let Some(table) = args.csv {
        output::print(&table.text(&none, true)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
