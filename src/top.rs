//! `pmdscope top`: rates, depths, pools and poll loops, live or as text or JSON.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pmdscope_telemetry::Settings;
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_tui::report::{self, Document};
use pmdscope_tui::run::{Options, run as run_display};
use pmdscope_tui::theme::Theme;
use pmdscope_tui::timeline::live::Live;
use pmdscope_tui::view::View;

use crate::session::AppArg;
use crate::{Usage, output, watch};

/// Show what all DPDK apps do: packet rates, queue depths, pools, poll loops, findings
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // one per flag of the command line
#[command(after_help = "\
Examples:
  pmdscope top                    all apps; ? shows the keys
  pmdscope top -a reflector       one app, also one that starts later
  pmdscope top --once             text, rates over one second
  pmdscope top --json -n 60 -i 1  a line of JSON per second, for a minute

JSON: {\"schema\":1, \"apps\":[{\"app\", \"state\", \"findings\":[...], \"model\":{\"sample\",
\"interval_s\", \"ports\":[{\"rx_pps\", ...}], \"queues\", \"pools\", \"lcores\"}}]}
A rate that is not known is null.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// Print all views as text and end
    #[arg(long)]
    once: bool,

    /// Print JSON, one document per line, and end
    #[arg(long)]
    json: bool,

    /// Print N times, an interval apart, and end
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    n: Option<u64>,

    /// Seconds between two samples, 0.1 to 60
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    #[arg(long, help = "No colours, as with the environment variable NO_COLOR")]
    mono: bool,

    /// Only ASCII characters, as in locales without UTF-8
    #[arg(long)]
    ascii: bool,

    /// Leave the mouse to the terminal
    #[arg(long)]
    no_mouse: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.once || args.json || args.n.is_some() {
        print(args)?;
    } else {
        display(args)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one report per interval; each shows the rates of the interval before.
fn print(args: &Args) -> Result<()> {
    let view = View::new(theme(args), millis(args.interval), jiff::tz::TimeZone::system());
    let mut fleet = args.app.fleet()?;
    let mut start = Instant::now();
    fleet.sample(ROUND_TIMEOUT);
    for _ in 0..args.n.unwrap_or(1) {
        // Keeps the pace of the clock instead of adding the time of each round.
        start += args.interval;
        thread::sleep(start.saturating_duration_since(Instant::now()));
        fleet.sample(ROUND_TIMEOUT);
        let read_on = if args.json {
            output::print_json(&Document::of(&fleet.world))?
        } else {
            output::print(&report::text(&fleet.world, &view))?
        };
        if !read_on {
            break;
        }
    }
    Ok(())
}

fn display(args: &Args) -> Result<()> {
    if !stdout().is_terminal() || !stdin().is_terminal() {
        let what = "top needs a terminal on standard input and output; use --once or --json";
        return Err(Usage(what).into());
    }
    let options =
        Options { theme: theme(args), interval_ms: millis(args.interval), mouse: !args.no_mouse };
    let (chosen, settings) = (args.app.app.clone(), Settings::default());
    let live = |feed| {
        watch::start(feed, chosen, settings);
        Live::default()
    };
    run_display(options, live).context("cannot use the terminal")
}

fn theme(args: &Args) -> Theme {
    let mono = args.mono || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Theme { mono, ascii: args.ascii || !utf8_locale() }
}

/// The locale says UTF-8, or nothing.
fn utf8_locale() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Parses seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let range = "must be a number of seconds from 0.1 to 60";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "61", "NaN", "inf", "1s", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
