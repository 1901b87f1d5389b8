//! `pmdscope top`: rates, queue depths, pools and poll loops, interactive, as text, JSON or CSV.

mod csv;

use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ArgGroup;
use jiff::tz::TimeZone;
use pmdscope_recording::RecordingPlayer;
use pmdscope_render::Theme;
use pmdscope_telemetry::{FleetState, Thresholds};
use pmdscope_tui::report::{self, TopDocument};
use pmdscope_tui::run::{DisplayFeed, DisplayOptions, run as run_display};
use pmdscope_tui::task::TaskContext;
use pmdscope_tui::timeline::TimeSpan;
use pmdscope_tui::timeline::live::LiveTimeline;
use pmdscope_tui::timeline::recording_cursor::RecordingCursor;
use pmdscope_tui::timeline::replay::{ReplayTimeline, ReplayUpdate};
use pmdscope_tui::view::ViewState;

use self::csv::CsvTable;
use crate::exit::Usage;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::session::{AppArg, XrayArg};
use crate::source::{AtArg, ReplayArg, Source};
use crate::{flows, interfaces, output, session, source, tasks, watch};

/// Time between two samples.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The same for one report of running apps.
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
  pmdscope top --replay incident.jsonl.zst
                                  play a recording
  pmdscope top --once --replay incident.jsonl.zst --at -90s
                                  report on the time 90 seconds before its end

JSON: {\"schema\":1, \"apps\":[{\"app\", \"state\", \"findings\":[...], \"model\":{\"sample\",
\"interval_s\", \"ports\":[{\"rx_pps\", ...}], \"queues\", \"pools\", \"lcores\"}}]}
An unknown rate is null. --flows adds {\"flows\":[{\"app\", \"capture\", \"counted\":{\"flows\", \"other\", \"total\", \"queues\",
\"interval_s\", \"sample\", \"lost\", ...}}]}. docs/top.md describes the fields.

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

    /// Trace what takes the CPU from lcores
    ///
    /// Interrupts, softirqs and other threads. Needs root (CAP_BPF and CAP_PERFMON) and bpftrace.
    /// Without them, the counters of /proc are used, which have the times of the scheduler only; a
    /// note says so. Tracing starts within seconds.
    /// A report waits for it.
    #[arg(long, conflicts_with = "replay")]
    interrupts: bool,

    #[command(flatten)]
    xray: XrayArg,

    /// Sampling interval, 0.1 to 60; 0 for one report without rates [default: 1, of one report 0.2]
    ///
    /// Some drivers count only once a second: their rates need an interval of several seconds. With
    /// 0, one report is printed at once, of what one sample tells: totals, and no rates.
    #[arg(short, long, value_name = "SECONDS", value_parser = interval_or_none)]
    interval: Option<Duration>,

    #[arg(long, help = "No colors, like the environment variable NO_COLOR")]
    mono: bool,

    /// ASCII characters only [default: by locale]
    #[arg(long)]
    ascii: bool,

    /// Do not capture the mouse
    #[arg(long, hide_short_help = true)]
    no_mouse: bool,

    /// Disable keys that capture, write, arm or attach
    ///
    /// Those are c, w, a and P. The Flows page still counts packets of apps with libpmdscope.
    #[arg(long, conflicts_with = "report")]
    read_only: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.reports_only() {
        print(args)?;
    } else {
        display(args)?;
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

    /// Between two samples; zero for a report of one sample.
    ///
    /// # Errors
    ///
    /// When it is zero for more than one report of running apps.
    fn interval(&self) -> Result<Duration> {
        let one = self.reports_only() && self.reports() == 1 && !self.flows;
        match self.interval {
            Some(Duration::ZERO) if !one || self.replay.replay.is_some() => {
                let what = "-i 0 is for one report of running apps: --once, --json or --csv, without -n, \
                            --flows and --replay";
                Err(Usage(what).into())
            }
            Some(interval) => Ok(interval),
            None if one && self.replay.replay.is_none() && !self.interrupts => Ok(REPORT_INTERVAL),
            None => Ok(DEFAULT_INTERVAL),
        }
    }
}

/// Prints one report per interval; each shows the rates of the interval before.
fn print(args: &Args) -> Result<()> {
    let (reports, interval) = (args.reports(), args.interval()?);
    let mut source = match args.replay.player(&args.app)? {
        Some(player) => Source::steps(player, &args.app, &args.at, interval, reports)?,
        None if args.interrupts => Source::traced(&args.app, args.xray, interval, None)?,
        None => Source::host(&args.app, args.xray, interval, None)?,
    };
    if !interval.is_zero() {
        source.prepare();
    }
    let mut captured = if args.flows {
        Some(flows::ReportSampler::start(source.fleet(), args.app.settings()?))
    } else {
        None
    };
    let view = ViewState::new(theme(args), millis(interval), source.time_zone());
    let mut view = ViewState { thresholds: args.app.settings()?.rules.thresholds, ..view };
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

fn display(args: &Args) -> Result<()> {
    if !StandardOutput::is_terminal() || !stdin().is_terminal() {
        let what = "top needs a terminal on standard input and output; use --once, --json or --csv";
        return Err(Usage(what).into());
    }
    // Two threads read it: one shows it, one looks for findings.
    match (args.replay.player(&args.app)?, args.replay.player(&args.app)?) {
        (Some(player), Some(again)) => display_replay(args, player, again),
        _ => display_live(args),
    }
}

fn display_live(args: &Args) -> Result<()> {
    let (chosen, mut settings) = (args.app.app.clone(), args.app.settings()?);
    let untraced = settings.clone();
    interfaces::read_with(&mut settings);
    args.xray.add_to(&mut settings);
    let _tracer = args.interrupts.then(|| session::trace(&mut settings));
    settings.replies = Some(Arc::default());
    let options = options(args, TimeZone::system(), settings.rules.thresholds)?;
    let options = DisplayOptions { replies: settings.replies.clone(), ..options };
    let (mut sampler, mut runner) = (None, None);
    let live = |feed: DisplayFeed<FleetState>| {
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

fn display_replay(args: &Args, player: RecordingPlayer, again: RecordingPlayer) -> Result<()> {
    let (oldest, newest) = player.span();
    let start = match &args.at.at {
        Some(at) => at.resolve((oldest, newest), player.utc_offset_s())?,
        None => oldest,
    };
    let thresholds = args.app.settings()?.rules.thresholds;
    let options = options(args, source::time_zone(&player), thresholds)?;
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

fn options(args: &Args, zone: TimeZone, thresholds: Thresholds) -> Result<DisplayOptions> {
    let (theme, interval_ms) = (theme(args), millis(args.interval()?));
    let tasks = task_context(args);
    let mouse = !args.no_mouse;
    Ok(DisplayOptions { theme, interval_ms, mouse, zone, thresholds, tasks, replies: None })
}

fn task_context(args: &Args) -> TaskContext {
    let path = |path: &Path| path.display().to_string();
    TaskContext {
        read_only: args.read_only,
        recording: args.replay.replay.as_deref().map(path),
        app: args.app.app.clone(),
        config: args.app.config.named_file().map(path),
    }
}

fn theme(args: &Args) -> Theme {
    let mono = args.mono || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Theme { mono, ascii: args.ascii || !utf8_locale() }
}

/// The locale is UTF-8, or not set.
fn utf8_locale() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// As [`interval`], or zero.
fn interval_or_none(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0.0) => Ok(Duration::ZERO),
        _ => interval(text),
    }
}

/// Parses seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let range = "expected a number of seconds from 0.1 to 60";
    let seconds: f64 = text.parse().map_err(|_| range.to_owned())?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(range.to_owned())
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
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn conversations_are_printed_only_of_what_runs() {
        let parse = |words: &[&str]| {
            let words = ["pmdscope", "top", "--flows"].iter().chain(words);
            crate::Cli::try_parse_from(words).is_ok()
        };
        assert!(parse(&["--once"]) && parse(&["--json", "-n", "2"]) && parse(&["-n", "2"]));
        assert!(!parse(&[]) && !parse(&["--once", "--replay", "x"]) && !parse(&["--csv", "apps"]));
    }

    #[test]
    fn one_report_is_quick_and_without_rates_at_once() {
        let interval = |words: &[&str]| {
            let words = ["pmdscope", "top"].iter().chain(words);
            let crate::Cli { command: crate::Command::Top(args), .. } =
                crate::Cli::try_parse_from(words).unwrap()
            else {
                panic!("not top")
            };
            args.interval().ok()
        };
        for once in [&["--once"][..], &["--json"], &["--json", "-n", "1"], &["--csv", "pools"]] {
            assert_eq!(interval(once), Some(REPORT_INTERVAL), "{once:?}");
        }
        for several in
            [&[][..], &["--json", "-n", "2"], &["--once", "--flows"], &["--once", "--replay", "x"]]
        {
            assert_eq!(interval(several), Some(DEFAULT_INTERVAL), "{several:?}");
        }
        assert_eq!(interval(&["--once", "-i", "3"]), Some(Duration::from_secs(3)));
        assert_eq!(interval(&["--once", "-i", "0"]), Some(Duration::ZERO));
        for wrong in [&["-i", "0"][..], &["-n", "2", "-i", "0"], &["--once", "--flows", "-i", "0"]]
        {
            assert_eq!(interval(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "61", "NaN", "inf", "1s", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
