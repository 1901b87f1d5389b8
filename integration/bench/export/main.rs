//! `make bench-export`: `pmdscope export` against DPDK's own exporter, on the same apps in one run.
//!
//! The numbers are informative: a slow machine does not count as a failure.

mod bench;
mod exporters;
mod http;
mod plan;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority, real_time_alone};
use pmdscope_integration::programs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::bench::{ExportBench, ExportResults};
use crate::exporters::{ExporterPrograms, PEER, PEER_VARIABLE, find_peer};
use crate::plan::ExportCase;

const HELP: &str = "\
Usage: pmdscope-bench-export [options]

Measures `pmdscope export` and DPDK's dpdk-telemetry-exporter.py (DPDK 24.07 and later) on idle DPDK
apps, in turns. Needs root and two CPUs; without them it says so and ends with status 0. The peer is
$DPDK_EXPORTER, or in $PATH; without it pmdscope is measured alone.

  --quick           two minutes instead of five
  --rounds N        repeat everything N times (5; with --quick 3)
  --only cold       only scrapes 1.1 s apart, of 1 x 1 and 16 x 16 (under a minute each)
  --fifo            at real-time priority, in place of CPUs that nobody else uses
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
";

/// The accepted options.
const OPTIONS: &[&str] = &["--quick", "--rounds", "--only", "--fifo", "--pmdscope"];

/// Values of `--only`: scrapes after a rest.
const PARTS: &[&str] = &["cold"];

fn main() -> ExitCode {
    command::main("pmdscope-bench-export", HELP, OPTIONS, PARTS, run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let machine = match Machine::new()? {
        Some(machine) if rustix::process::geteuid().is_root() => machine,
        _ => {
            println!("SKIP: bench-export: needs root and two CPUs");
            return Ok(());
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let programs = ExporterPrograms { pmdscope, peer: find_peer() };
    println!("pmdscope export against {PEER}, on {}.", machine.describe());
    println!("All at {} priority.", if options.fifo { "real-time" } else { "the highest normal" });
    if programs.peer.is_none() {
        println!("SKIP: no {PEER} in $PATH or ${PEER_VARIABLE}: pmdscope is measured alone.");
    }
    let _priority = Priority::raise()?;
    if options.fifo {
        real_time_alone()?;
    }
    let results = ExportResults::default();
    let BenchOptions { quick, fifo, rounds, .. } = *options;
    let bench = ExportBench { programs, quick, fifo, stop: &stop, results };
    if options.only.is_some() {
        return measure(bench, &plan::cold_cases(), 0);
    }
    let rounds = rounds.unwrap_or(if quick { 3 } else { 5 });
    measure(bench, &plan::cases(quick), rounds)
}

/// Runs the cases. After ^C, or a failure, the measurements so far are still reported.
fn measure(mut bench: ExportBench<'_>, cases: &[ExportCase], rounds: usize) -> Result<()> {
    let mut result = Ok(());
    for case in cases {
        let begin = Instant::now();
        result = bench.case(*case, rounds);
        if result.is_err() {
            break;
        }
        eprintln!("{case}: {:.0} s", begin.elapsed().as_secs_f64());
    }
    print!("{}", report::tables(&bench.results, cases));
    if bench.stop.load(Ordering::Relaxed) { Ok(()) } else { result }
}
