//! `make bench-capture`: `pmdscope capture` against `dpdk-dumpcap`, from one app in one run.
//!
//! The numbers are informative: a slow machine does not count as a failure.

mod bench;
mod capture;
mod plan;
mod report;
mod traffic;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::Machine;
use pmdscope_integration::oracle::installed;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::bench::CaptureBench;
use crate::capture::{Captures, DUMPCAP};

const HELP: &str = "\
Usage: pmdscope-bench-capture [options]

Measures `pmdscope capture` and dpdk-dumpcap on one DPDK app, in turns. Needs root, two CPUs and
hugepages; on fewer it says what is missing and ends with status 0.

  --quick           two minutes instead of a quarter of an hour
  --rounds N        repeat everything N times (5; with --quick 3)
  --only WHAT       costs, rates, or of the costs those of filters, instead of all
  --fifo            captures at real-time priority, in place of CPUs that nobody else uses
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
  --app FILE        the app (build/integration/pmdscope-capture-app)
  -- ARGS           further arguments of `pmdscope capture`, such as --ring-size 32M
";
/// Directory for files in memory.
const TMPFS: &str = "/dev/shm";
const LENGTH: Duration = Duration::from_millis(400);

/// The accepted options.
const OPTIONS: &[&str] = &["--quick", "--rounds", "--only", "--fifo", "--pmdscope", "--app", "--"];

fn main() -> ExitCode {
    command::main("pmdscope-bench-capture", HELP, OPTIONS, &["costs", "filters", "rates"], run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let machine = match (missing(), Machine::new()?) {
        (None, Some(machine)) => machine,
        (reason, _) => {
            let reason = reason.unwrap_or("one CPU must poll while another captures".into());
            println!("SKIP: bench-capture: {reason}");
            return Ok(());
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let scratch = Scratch::new()?;
    let tmpfs = tempfile::Builder::new().prefix("pmdscope-bench-").tempdir_in(TMPFS)?;
    let captures = Captures {
        machine: &machine,
        scratch: &scratch,
        pmdscope: options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?,
        fifo: options.fifo,
        args: options.args.clone(),
    };
    let app = options.app.clone().map_or_else(programs::capture_app, Ok)?;
    print_head(&machine, options);
    let mut bench = CaptureBench::new(captures, app, tmpfs.path(), LENGTH, &stop)?;
    measure(&mut bench, options, &stop)
}

/// Runs the rounds. After ^C, or a failure, the measurements so far are still reported.
fn measure(bench: &mut CaptureBench<'_>, options: &BenchOptions, stop: &AtomicBool) -> Result<()> {
    let wants = |what| options.only.as_deref().is_none_or(|only| only == what);
    let mut groups = plan::groups(options.quick);
    groups.retain(|group| wants("costs") || wants("filters") && group.device.filtered());
    let ladders = if wants("rates") { plan::ladders(options.quick) } else { Vec::new() };
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 });
    let begin = Instant::now();
    let mut result = Ok(());
    for round in 0..rounds {
        result = bench
            .plain_write()
            .and_then(|()| bench.costs(&groups, round))
            .and_then(|()| bench.climb(&ladders, round));
        if result.is_err() {
            eprintln!("ended in round {} of {rounds}", round + 1);
            break;
        }
        eprintln!("round {} of {rounds}: {:.0} s", round + 1, begin.elapsed().as_secs_f64());
    }
    print!("{}", report::tables(&bench.results, &groups, &ladders));
    if stop.load(Ordering::Relaxed) { Ok(()) } else { result }
}

fn print_head(machine: &Machine, options: &BenchOptions) {
    println!("pmdscope capture against {DUMPCAP}, on {}.", machine.describe());
    let args = options.args.join(" ");
    println!(
        "Polling lcore and capture{} on CPUs of their own; windows of {} ms; pmdscope {}.",
        if options.fifo { ", at real-time priority," } else { "" },
        LENGTH.as_millis(),
        if args.is_empty() { "as it is by default".to_owned() } else { format!("with {args}") }
    );
}

/// Requirements that this machine lacks.
fn missing() -> Option<String> {
    if !installed(DUMPCAP) {
        return Some(format!("{DUMPCAP} is not installed (Debian: package dpdk)"));
    }
    if let Some(tool) = ["setsid", "taskset", "chrt"].into_iter().find(|tool| !installed(tool)) {
        return Some(format!("{tool} is not installed (Debian: package util-linux)"));
    }
    if !rustix::process::geteuid().is_root() {
        return Some(format!("not root, which {DUMPCAP} needs to be"));
    }
    if Memory::available() == Memory::Ordinary {
        return Some(format!("too few free hugepages (make setup), which {DUMPCAP} needs"));
    }
    let mounted = Command::new("stat").args(["-f", "-c", "%T", TMPFS]).output();
    let kind = mounted.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match kind {
        Ok(kind) if kind == "tmpfs" && Path::new(TMPFS).is_dir() => None,
        _ => Some(format!("{TMPFS} is no tmpfs")),
    }
}
