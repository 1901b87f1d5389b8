//! `pmdscope lcores`: the threads of poll loops, and where their time goes.

pub(crate) mod profile;
mod profile_text;
pub(crate) mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pmdscope_telemetry::FleetState;

use crate::color::ColorArg;
use crate::duration;
use crate::exit::{FAILED, Usage};
use crate::number::whole;
use crate::output::{self, StandardOutput};
use crate::progress::Progress;
use crate::session::{self, AppArg};
use crate::source::{AtArg, ReplayArg, Source};

/// Samples per second of a profile: a millisecond between two shows which function stalls a loop for a
/// few milliseconds. Not 1000, since what happens a thousand times a second, such as the tick of the
/// kernel, would be hit each time or never.
const DEFAULT_HZ: &str = "997";

/// Time of a profile.
const PROFILE_LENGTH: Duration = Duration::from_secs(10);

/// Show poll threads and their CPUs; profile where their time goes
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope lcores                       one row per lcore
  pmdscope lcores -a fwd --profile      functions by share of time
  pmdscope lcores --profile --folded    stacks for flamegraph.pl

Exit status: 0 ok, 1 no lcore or failure, 2 wrong usage.")]
#[command(after_long_help = "\
Columns:
  CPU use      share of the time that the thread ran; a poll loop needs all of it
  Waiting      share of the time that it was ready to run, but another thread had its CPU
  Preempt/s    involuntary context switches: the CPU was taken from it
  Sleeps/s     voluntary context switches: it slept or waited
  Empty polls  iterations without a packet (level 1)
  Gap          longest time between two iterations in the last window (level 1)
  Stalls       gaps above the limit since the start (level 1)

Examples:
  pmdscope lcores                          one row per lcore of all apps
  pmdscope lcores -a fwd -n 10 -i 1        ten reports, one per second
  pmdscope lcores -a fwd --profile         functions by share of time, for ten seconds
  pmdscope lcores --profile=4999 --for 2s  more samples in less time
  pmdscope lcores -r incident.jsonl.zst --at -90s
                                           as it was 90 seconds before the end
  pmdscope lcores --profile --folded | flamegraph.pl > fwd.svg

--profile samples the stacks of poll threads of any app, without stopping it or
changing it. It needs root, or CAP_PERFMON and CAP_SYS_PTRACE. docs/lcores.md describes
what a sample costs, and how functions are assigned to drivers and libraries.

Exit status:
  0  printed
  1  no app, no lcore whose thread is known, or a failure
  2  wrong usage or configuration")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    #[command(flatten)]
    replay: ReplayArg,

    #[command(flatten)]
    at: AtArg,

    /// Profile for 10 seconds [default HZ: 997]
    ///
    /// HZ is the number of samples per second of CPU time, 1 to 9999.
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_HZ, conflicts_with = "replay",
          value_parser = whole::<u32>(1..=9999))]
    profile: Option<u32>,

    /// Time to watch or profile: 500ms, 10s, 5m
    #[arg(long = "for", value_name = "TIME", value_parser = length, conflicts_with = "n")]
    length: Option<Duration>,

    /// Print N reports and exit [default: 1]
    #[arg(short, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX),
          conflicts_with = "profile")]
    n: Option<u64>,

    /// Sampling interval, 0.1 to 60 [default: 1]
    #[arg(short, long, value_name = "TIME", value_parser = duration::interval,
          conflicts_with = "profile")]
    interval: Option<Duration>,

    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,

    /// Print stacks as flame-graph tools read them
    #[arg(long, requires = "profile", conflicts_with = "json")]
    folded: bool,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(hz) = args.profile {
        return profile::run(args, hz, args.length.unwrap_or(PROFILE_LENGTH));
    }
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    let reports = args.reports(interval)?;
    let mut source = match args.replay.player(&args.app)? {
        Some(player) => Source::steps(player, &args.app, &args.at, interval, reports)?,
        None => Source::live(&args.app, interval)?,
    };
    source.prepare();
    let length = interval.saturating_mul(u32::try_from(reports).unwrap_or(u32::MAX));
    let progress = Progress::watch(&format!("watching {}", args.app.text()), length, false);
    let mut lcores = 0;
    for _ in 0..reports {
        if !source.advance()? {
            break;
        }
        lcores = table::rows(source.fleet()).count();
        if !print(args, source.fleet())? {
            break;
        }
    }
    drop(progress);
    source.tell_notes();
    session::tell_silent(source.fleet());
    Ok(if lcores > 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

impl Args {
    fn reports(&self, interval: Duration) -> Result<u64> {
        let Some(length) = self.length else { return Ok(self.n.unwrap_or(1)) };
        if length < interval {
            bail!(Usage("--for is shorter than the interval of -i"));
        }
        Ok(u64::try_from(length.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Prints a report; false when the output is closed.
fn print(args: &Args, fleet: &FleetState) -> Result<bool> {
    if args.json {
        output::print_json(&table::Document::of(fleet))
    } else {
        let (width, color) = (StandardOutput::width(), args.color.color(&args.app.config)?);
        output::print_table(&table::table(fleet), width, color)
    }
}

fn length(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    duration::within(text, range, "10s")
}

/// Prints the document of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    match args.profile.filter(|_| args.json) {
        Some(hz) => output::print_json(&profile::ProfileDocument::of(hz, Vec::new())),
        None if args.json => output::print_json(&table::Document::of(&FleetState::default())),
        None => return Ok(()),
    }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    fn parse(words: &str) -> Result<Args, clap::Error> {
        parse_args("lcores", words)
    }

    #[test]
    fn a_profile_has_a_frequency_and_a_length() {
        assert_eq!(parse("--profile").unwrap().profile, Some(997));
        assert_eq!(parse("--profile=99 --for 2s").unwrap().profile, Some(99));
        assert_eq!(parse("--for 300ms").unwrap().length, Some(Duration::from_millis(300)));
        assert!(parse("--profile --folded -a x").unwrap().folded);
    }

    #[test]
    fn a_time_to_watch_is_a_number_of_reports() {
        let reports = |words| parse(words).unwrap().reports(Duration::from_secs(1));
        assert_eq!(reports("-a x").unwrap(), 1);
        assert_eq!(reports("-n 3").unwrap(), 3);
        assert_eq!(reports("--for 5.5s").unwrap(), 5);
        assert!(reports("--for 500ms").unwrap_err().is::<Usage>());
    }

    #[test]
    fn contradictions_and_values_out_of_range_are_refused() {
        let wrong = [
            "--profile=0",
            "--profile=10000",
            "--profile 99",
            "--folded",
            "--profile --folded --json",
            "--profile -n 2",
            "--profile -i 1",
            "--profile -r x",
            "--at -5s",
            "--for 1s -n 2",
            "--for 2h",
            "--for 1ms",
            "-n 0",
        ];
        for words in wrong {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
