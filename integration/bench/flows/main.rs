//! `make bench-flows`: `pmdscope netstat` against tshark, softflowd and nfpcapd on the same files,
//! the cost that it adds to the packets of an app, and `pmdscope capture -r` against tcpdump.
//!
//! The numbers are informative: a slow machine does not count as a failure.

mod cost;
mod files;
mod readers;
mod report;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::Machine;
use pmdscope_integration::oracle::installed;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::files::Traffic;
use crate::readers::{Reader, ReaderBench};
use crate::report::FlowResults;

const HELP: &str = "\
Usage: pmdscope-bench-flows [options]

Measures what finds conversations in capture files: `pmdscope netstat -r`, tshark, softflowd and
nfpcapd, in turns; a peer that is not installed is left out. Then what `pmdscope netstat` adds to each
packet of an app, for which it needs root, two CPUs and memory for DPDK. Then `pmdscope capture -r`
against tcpdump.

  --quick           200,000 packets and 3 rounds
  --rounds N        repeat everything N times (5; with --quick 3)
  --only WHAT       files, cost or text instead of all
  --json FILE       write the numbers to a file, too
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
  --app FILE        the app (build/integration/pmdscope-capture-app)
";

/// The options that it accepts.
const OPTIONS: &[&str] = &["--quick", "--rounds", "--only", "--json", "--pmdscope", "--app"];

fn main() -> ExitCode {
    command::main("pmdscope-bench-flows", HELP, OPTIONS, &["files", "cost", "text"], run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 });
    let wants = |what| options.only.as_deref().is_none_or(|only| only == what);
    let scratch = Scratch::new()?;
    let machine = Machine::new()?;
    if let Some(machine) = &machine {
        println!("On {}; {rounds} rounds.", machine.describe());
    }
    let mut results = FlowResults::default();
    if wants("files") {
        let packets = if options.quick { 200_000 } else { 1_000_000 };
        let measured = measure_files(&scratch, &pmdscope, packets, rounds, &stop, &mut results);
        // After ^C, or a failure, the measurements so far are still reported.
        print!("{}", report::files(&results));
        measured?;
    }
    if wants("cost") {
        match (machine, cost::missing()) {
            (Some(machine), None) => {
                let app = options.app.clone().map_or_else(programs::capture_app, Ok)?;
                let mut cost = cost::CostBench::new(&machine, &scratch, &app, &pmdscope)?;
                let measured = (0..rounds).try_for_each(|_| cost.round(&stop, &mut results));
                print!("{}", report::costs(&results));
                measured?;
            }
            (None, _) => println!("SKIP: cost: one CPU must poll while another counts"),
            (_, Some(reason)) => println!("SKIP: cost: {reason}"),
        }
    }
    if wants("text") {
        let packets = if options.quick { 500_000 } else { 2_000_000 };
        let measured = measure_text(&scratch, &pmdscope, packets, rounds, &stop, &mut results);
        print!("{}", text::table(&results.texts));
        measured?;
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&report::json(&results))?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// Text and counts of packets of mixed sizes.
fn measure_text(
    scratch: &Scratch,
    pmdscope: &std::path::Path,
    packets: u32,
    rounds: usize,
    stop: &AtomicBool,
    results: &mut FlowResults,
) -> Result<()> {
    if !installed("tcpdump") {
        println!("SKIP: text: tcpdump is not installed");
        return Ok(());
    }
    let file = scratch.path("text.pcap");
    Traffic::mixed(packets).write(&file)?;
    for number in 0..rounds {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        text::round(pmdscope, (&file, packets), number, &mut results.texts)?;
    }
    Ok(())
}

/// Every reader in each round, so that disturbances of the machine affect all of them.
fn measure_files(
    scratch: &Scratch,
    pmdscope: &std::path::Path,
    packets: u32,
    rounds: usize,
    stop: &AtomicBool,
    results: &mut FlowResults,
) -> Result<()> {
    let readers = Reader::installed();
    let bench = ReaderBench { pmdscope, dir: scratch.dir() };
    for traffic in Traffic::all(packets) {
        let file = scratch.path("flows.pcap");
        traffic.write(&file)?;
        for round in 0..rounds {
            for at in 0..readers.len() {
                ensure!(!stop.load(Ordering::Relaxed), "stopped");
                let reader = readers[(at + round) % readers.len()];
                let sample = bench.read(reader, &traffic, &file)?;
                results.files.entry((traffic.label(), reader)).or_default().push(sample);
            }
        }
        std::fs::remove_file(&file)?;
        eprintln!("{}: done", traffic.label());
    }
    Ok(())
}
