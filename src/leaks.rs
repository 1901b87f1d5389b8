//! `pmdscope leaks`: the line that loses mbufs, the rate, and the lost packets.

mod arm;
mod packets;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::sample::{LedgerSample, Sample};

use crate::exit::FAILED;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::session::AppArg;
use crate::source::{AtArg, ReplayArg, Source};
use crate::{output, top};

/// Samples from which on a trend of our own is believed.
const TREND_SAMPLES: u32 = 5;

/// Find mbuf leaks: pool, rate and line of source
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // one per flag of the command line
#[command(group = clap::ArgGroup::new("act").multiple(false))]
#[command(after_help = "Exit status: 0 no leak, 1 leak or failure, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope leaks                             one row per leak site
  pmdscope leaks -a reflector --explain      where every mbuf of each mempool is
  pmdscope leaks --write leaked.pcapng -N 4  leaked packets, each with a comment
  pmdscope leaks --replay DIR --at 08:56:00  leaks at that time of a recording

Level 0 (a stock app with DPDK 23.03 or later) shows which mempool drains and when
it will be empty. Level 1 (linked with libpmdscope) adds the queue or stage that
leaks. Level 2 (built with pmdscope_trace.h) adds the line of source.

Exit status:
  0  no leak
  1  a leak, a mempool that is empty for an unknown reason, an app that does not
     answer, or a failure
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
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = top::interval)]
    interval: Duration,

    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,

    /// Write leaked packets as pcapng; -: stdout
    #[arg(long, value_name = "FILE", group = "act", conflicts_with_all = ["watch", "json", "replay"])]
    write: Option<PathBuf>,

    /// Packets per leak site, 1 to 4096
    #[arg(short = 'N', value_name = "PER_SITE", default_value_t = 8, requires = "write",
          value_parser = whole::<u32>(1..=4096))]
    per_site: u32,

    /// Show where the mbufs of all pools or POOL are
    #[arg(long, value_name = "POOL", num_args = 0..=1, group = "act",
          conflicts_with_all = ["watch", "json"])]
    #[allow(clippy::option_option)] // not given, given without a pool, with one
    explain: Option<Option<String>>,

    /// Stamp mbufs for SECONDS (1-86400) [default: 60]
    ///
    /// Overrides mode auto, in which the app stamps mbufs on demand.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60",
          group = "act", conflicts_with_all = ["watch", "json", "replay"],
          value_parser = whole::<u32>(1..=86_400))]
    arm: Option<u32>,

    /// Stop stamping mbufs
    #[arg(long, group = "act", conflicts_with_all = ["watch", "json", "replay"])]
    disarm: bool,

    /// Show the stamping mode and state
    #[arg(long = "show-mode", alias = "mode", group = "act", conflicts_with_all = ["watch", "json"])]
    mode: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(seconds) = args.arm.or(args.disarm.then_some(0)) {
        return arm::run(&args.app, seconds);
    }
    if let Some(path) = &args.write {
        return packets::run(&args.app, path, args.per_site);
    }
    let mut source = match args.replay.player(&args.app)? {
        Some(player) => Source::steps(player, &args.app, &args.at, args.interval, 1)?,
        None => Source::counted(&args.app, args.interval)?,
    };
    source.advance()?;
    source.tell_notes();
    if let Some(pool) = &args.explain {
        return explain(source.fleet(), pool.as_deref());
    }
    if args.mode {
        output::print(&report::modes(source.fleet()))?;
        return Ok(verdict(source.fleet()));
    }
    for _ in 1..samples(source.fleet()) {
        source.advance()?;
    }
    while print(args, source.fleet())? && args.watch && source.advance()? {}
    Ok(verdict(source.fleet()))
}

/// Samples before the first report: libpmdscope has its trends, those of a stock app are our own.
fn samples(fleet: &FleetState) -> u32 {
    let watched = |sample: &Sample| {
        sample.ledger.is_empty() && sample.pools.iter().any(|pool| pool.occupancy.is_some())
    };
    if fleet.models().any(|(_, model)| watched(&model.sample)) { TREND_SAMPLES } else { 2 }
}

/// Prints a report; false when nobody reads it.
fn print(args: &Args, fleet: &FleetState) -> Result<bool> {
    if args.json {
        return output::print_json(&report::Document::of(fleet));
    }
    if args.watch && StandardOutput::is_terminal() {
        output::clear_terminal()?;
    }
    output::print(&report::text(fleet))
}

fn explain(fleet: &FleetState, pool: Option<&str>) -> Result<ExitCode> {
    let text = report::explain(fleet, pool);
    if text.is_empty() {
        let names: Vec<_> = report::pools(fleet).collect();
        match (pool, names.is_empty()) {
            (Some(pool), false) => {
                bail!("there is no pool {pool:?} with a ledger; there is {}", names.join(", "))
            }
            _ => bail!("{}", report::why_no_ledger(fleet)),
        }
    }
    output::print(&text)?;
    Ok(verdict(fleet))
}

/// 1 for leaks, and for apps and pools that cannot say whether they have any.
fn verdict(fleet: &FleetState) -> ExitCode {
    let bad =
        |sample: &Sample| sample.has_leaks() || sample.ledger.iter().any(LedgerSample::starves);
    let leaks = fleet.models().any(|(_, model)| bad(&model.sample));
    let silent = fleet.apps.iter().any(pmdscope_telemetry::AppState::stale);
    if leaks || silent { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
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
        ];
        for words in wrong {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
