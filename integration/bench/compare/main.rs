//! `make compare`: the kernel against bypass, the same generator and reflector over sockets and over DPDK.
//!
//! The numbers are for people to read: a slow machine is no failure.

mod figure;
mod pair;
mod plan;
mod report;
mod sample;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority};
use pmdscope_integration::scratch::Scratch;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::pair::Pair;
use crate::plan::{Load, System};
use crate::report::{CompareResults, RunResult};

const HELP: &str = "\
Usage: pmdscope-bench-compare [options]

Compares the kernel with bypass: the same generator and reflector over UDP sockets (loopback, and veth
between two namespaces) and over DPDK (the same kind of veth, and shared memory), in turns. Frames of 64 and
1500 bytes, at the highest rate and at 200 kpps. Writes compare.csv, compare.json, compare.svg and
compare.png. Needs root and two CPUs; what the kernel does not have is left out, and named.

  --quick           one round of shorter runs of fewer systems: less than a minute
  --only WHAT       af_packet, af_xdp, virtio or memif, and the kernel over veth, instead of all
  --rounds N        repeat everything N times (3; with --quick 1)
  --output DIR      where the files go (target/compare)
";

/// The options that it accepts.
const OPTIONS: &[&str] = &["--quick", "--only", "--rounds", "--output"];

fn main() -> ExitCode {
    command::main("pmdscope-bench-compare", HELP, OPTIONS, plan::BYPASSES, run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    ensure!(rustix::process::geteuid().is_root(), "needs root, for network namespaces");
    let machine =
        Machine::new()?.context("needs two CPUs: one generates while the other reflects")?;
    let _priority = Priority::raise()?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let seconds = if options.quick { 0.4 } else { 1.0 };
    let systems = &plan::systems(options.quick, options.only.as_deref());
    let load_average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load_average = load_average.split(' ').next().unwrap_or("unknown").to_owned();
    let about = format!("{}, load {load_average} before the start", machine.describe());
    println!("On {about}; {rounds} rounds, {seconds} s each.");

    let mut results = CompareResults::default();
    let measured = (0..rounds).try_for_each(|round| {
        for at in 0..systems.len() {
            let system = systems[(at + round) % systems.len()];
            measure(system, round, seconds, &stop, &mut results)?;
        }
        Ok(())
    });
    // What was measured until ^C is still told.
    print!("{}{}", report::tables(&results, systems), report::idle(&results, systems));
    for (system, why) in &results.missing {
        println!("\nNot available here: {}: {why}", system.label());
    }
    let dir = options.output.clone().unwrap_or_else(|| PathBuf::from("target/compare"));
    write(&results, systems, &about, &dir)?;
    measured
}

/// All loads, one after the other. A system that cannot run is noted, and left out from then on.
fn measure(
    system: System,
    round: usize,
    seconds: f64,
    stop: &AtomicBool,
    results: &mut CompareResults,
) -> Result<()> {
    if results.missing.contains_key(&system) {
        return Ok(());
    }
    eprintln!("round {}: {}", round + 1, system.label());
    // One for each, so that no file or socket of one is in the way of the next.
    let scratch = Scratch::new()?;
    let mut pair = match Pair::start(&scratch, system) {
        Ok(pair) => pair,
        Err(why) => {
            results.missing.insert(system, format!("{why:#}"));
            return Ok(());
        }
    };
    results.idle.entry(system).or_default().push(pair.idle()?);
    for load in Load::ALL {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        match pair.generate(&scratch, load, seconds).and_then(|run| RunResult::new(round, &run)) {
            Ok(sample) => results.samples.entry((load, system)).or_default().push(sample),
            Err(why) => {
                let (system, load) = (system.label(), load.label());
                eprintln!("round {}: {system}, {load}: {why:#}", round + 1);
            }
        }
    }
    Ok(())
}

fn write(results: &CompareResults, systems: &[System], about: &str, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    file("compare.csv", &report::csv(results))?;
    file("compare.json", &serde_json::to_string_pretty(&report::json(results, about))?)?;
    println!("\nWritten to {}: compare.csv, compare.json", dir.display());
    match figure::draw(results, systems, about, dir)? {
        None => println!("and compare.svg, compare.png"),
        Some(why) => println!("SKIP: compare.svg, compare.png: {why}"),
    }
    Ok(())
}
