//! `make bench-pair`: generator and reflector against two of `dpdk-testpmd`, over the same links.
//!
//! The numbers are informative: a slow machine does not count as a failure.

mod link;
mod report;
mod run;

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority};
use pmdscope_integration::oracle::installed;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Memory;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::link::{Link, Size};
use crate::report::PairResults;
use crate::run::{PairBench, Peer};

const HELP: &str = "\
Usage: pmdscope-bench-pair [options]

Measures round trips of pmdscope-generator and pmdscope-reflector, and of two of dpdk-testpmd, in turns
over memif and vhost, at 64 bytes, IMIX and 1500 bytes. testpmd generates with flowgen, which has one
size: IMIX is a file that it repeats. It reflects with 5tswap, which swaps addresses and ports as
pmdscope-reflector does, and with macswap, which swaps less. Before and after each measurement it times
a cache line between the two CPUs: virtual CPUs that sleep may continue on other cores, and the rates
depend on their distance. Then the generator sends for a minute, in bursts, at 90 % of the rate that the
same two processes just reached; again if that rate is not reached. Needs root, two CPUs and hugepages;
on fewer it says what is missing and ends with status 0.

  --quick        four minutes instead of three quarters of an hour at most
  --rounds N     repeat everything N times (5; with --quick 2)
  --hold S       seconds at 90 % of the highest rate, 0: not at all (60; with --quick 5)
  --attempts N   how often each of these rates is tried that is not reached (4; with --quick 1)
  --only WHAT    memif or vhost instead of both, or one size: 64, imix or 1500
  --descriptors N  packets that each queue of both pairs holds, a power of two (1024)
  --app FILE     the generator (build/integration/pmdscope-generator)
";
const TESTPMD: &str = "dpdk-testpmd";
const OPTIONS: &[&str] =
    &["--quick", "--rounds", "--hold", "--attempts", "--only", "--descriptors", "--app"];
const PARTS: &[&str] = &["memif", "vhost", "64", "imix", "1500"];
/// Limits of the links: rings of memif have 2^14 entries at most.
const DESCRIPTORS: RangeInclusive<u32> = 64..=16384;

fn main() -> ExitCode {
    command::main("pmdscope-bench-pair", HELP, OPTIONS, PARTS, run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let descriptors = options.descriptors.unwrap_or(1024);
    ensure!(
        descriptors.is_power_of_two() && DESCRIPTORS.contains(&descriptors),
        "--descriptors is a power of two from {} to {}",
        DESCRIPTORS.start(),
        DESCRIPTORS.end(),
    );
    let machine = match (missing(), Machine::new()?) {
        (None, Some(machine)) => machine,
        (reason, _) => {
            let reason = reason.unwrap_or("each side needs a CPU of its own".into());
            println!("SKIP: bench-pair: {reason}");
            return Ok(());
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let _priority = Priority::raise()?;
    let bench = PairBench {
        cpus: machine.ends(),
        generator: options.app.clone().map_or_else(programs::generator, Ok)?,
        reflector: programs::reflector()?,
        descriptors,
    };
    println!("{}; {descriptors} descriptors; load {}", machine.describe(), load());
    let cases = cases(options.only.as_deref());
    let mut results = PairResults::default();
    let outcome = measure(&bench, options, &cases, &stop, &mut results);
    print!("{results}");
    println!("load at the end {}", load());
    if stop.load(Ordering::Relaxed) { Ok(()) } else { outcome }
}

/// All links and sizes, or those of one part.
fn cases(only: Option<&str>) -> Vec<(Link, Size)> {
    let all = Link::ALL.iter().flat_map(|&link| Size::ALL.map(move |size| (link, size)));
    all.filter(|(link, size)| only.is_none_or(|only| only == link.name() || only == size.option()))
        .collect()
}

/// Runs the rounds, then holds the rates. After ^C, or a failure, the measurements so far are still
/// reported.
fn measure(
    bench: &PairBench,
    options: &BenchOptions,
    cases: &[(Link, Size)],
    stop: &AtomicBool,
    results: &mut PairResults,
) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 2 } else { 5 });
    let hold = options.hold.unwrap_or(if options.quick { 5 } else { 60 });
    let begin = Instant::now();
    for round in 0..rounds {
        for &(link, size) in cases {
            // Each is first, second and last in turn.
            let mut order = Peer::ALL;
            order.rotate_left(round % Peer::ALL.len());
            for peer in order {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                results.unlimited(link, size, peer, bench.unlimited(peer, link, size)?);
            }
        }
        let spent = begin.elapsed().as_secs_f64();
        eprintln!("round {} of {rounds}: {spent:.0} s", round + 1);
    }
    for &(link, size) in cases.iter().filter(|_| hold > 0) {
        for _ in 0..options.attempts.unwrap_or(if options.quick { 1 } else { 4 }) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let outcome = bench.hold(link, size, Duration::from_secs(hold))?;
            let spent = begin.elapsed().as_secs_f64();
            eprintln!("held {} {}: {spent:.0} s", link.name(), size.name());
            results.held(link, size, outcome);
            if outcome.reached() {
                break;
            }
        }
    }
    Ok(())
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Requirements that this machine lacks.
fn missing() -> Option<String> {
    if !installed(TESTPMD) {
        return Some(format!("{TESTPMD} is not installed (Debian: package dpdk-dev)"));
    }
    if !installed("setsid") {
        return Some("setsid is not installed (Debian: package util-linux)".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not root, which DPDK needs to be".into());
    }
    (Memory::available() == Memory::Ordinary).then(|| "too few free hugepages (make setup)".into())
}
