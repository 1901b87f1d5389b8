//! `make bench-xray`: the cost of counting the pools of a stock app from outside, and of searching
//! its memory for lost mbufs, and the effect on the app.
//!
//! One dpdk-testpmd forwards as fast as it can; windows without a scan, again without, with scans
//! within a budget, with scans at full speed and with `capture --peek` follow each other. The
//! numbers are informative: a slow machine does not count as a failure.

mod ceiling;
mod report;
mod rounds;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority, run_on};
use pmdscope_integration::oracle;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::testpmd::{Setup, Testpmd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::report::ScanResults;
use crate::rounds::ScanBench;

const HELP: &str = "\
Usage: pmdscope-bench-xray [options]

Measures X-ray on dpdk-testpmd, which forwards on the last CPU: time and CPU of counting its pools and
of searching its memory for lost mbufs, beside the same reads alone, and cycles per packet of its lcore
meanwhile and during capture --peek. Needs root, two CPUs and 5 GB of memory for the largest pool;
without them it says so and ends with status 0. Seven minutes.

  --quick          3 rounds instead of 11, without the largest pool
  --rounds N       so many rounds
  --only CASE      8k, 8k-640M, 64k, 32-lcores, 256k or 1M
  --pmdscope FILE  the pmdscope for capture --peek (target/release/pmdscope)
  --json FILE      write the numbers to a file, too
";

/// A measured pool.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    mbufs: u32,
    /// Memory of the app in addition to its mbufs, MiB.
    other_mb: u64,
    /// All lcores except the first forward, on the same CPU.
    lcores: usize,
}

const fn case(name: &'static str, mbufs: u32) -> Case {
    Case { name, mbufs, other_mb: 96, lcores: 2 }
}

const CASES: [Case; 6] = [
    case("8k", 8191),
    Case { other_mb: 640, ..case("8k-640M", 8191) },
    case("64k", 65_535),
    Case { lcores: 33, ..case("32-lcores", 65_535) },
    case("256k", 262_143),
    case("1M", 1_048_575),
];
const LARGEST: &str = "1M";

/// Bytes of an mbuf with its header on huge pages, and on ordinary pages, where each takes one.
const HUGE_BYTES: u64 = 2560;
const ORDINARY_BYTES: u64 = 4096;

impl Case {
    /// Memory that the app needs, MiB.
    fn memory_mb(&self, memory: Memory) -> u64 {
        let each = if memory == Memory::Huge { HUGE_BYTES } else { ORDINARY_BYTES };
        (u64::from(self.mbufs) * each).div_ceil(1 << 20) + self.other_mb
    }

    /// Huge pages if enough of them are free.
    fn memory(&self) -> Memory {
        let free_mb = free_huge_pages() * 2;
        let huge = Memory::available() == Memory::Huge && self.memory_mb(Memory::Huge) <= free_mb;
        if huge { Memory::Huge } else { Memory::Ordinary }
    }
}

fn main() -> ExitCode {
    let options = ["--quick", "--rounds", "--only", "--pmdscope", "--json"];
    let cases = CASES.map(|case| case.name);
    command::main("pmdscope-bench-xray", HELP, &options, &cases, run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let Some(machine) = Machine::new()?.filter(|_| rustix::process::geteuid().is_root()) else {
        println!("SKIP: bench-xray: needs root and two CPUs");
        return Ok(());
    };
    if !oracle::installed("dpdk-testpmd") {
        println!("SKIP: bench-xray: dpdk-testpmd is not installed: `make setup` installs it");
        return Ok(());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let _priority = Priority::raise()?;
    let (first, last) = machine.ends();
    run_on(first)?;
    println!("X-ray, on {}. Median and quartiles.", machine.describe());
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 11 });
    let wanted = CASES.iter().filter(|case| match options.only.as_deref() {
        Some(only) => only == case.name,
        None => !(options.quick && case.name == LARGEST),
    });
    let mut results = ScanResults::default();
    for case in wanted {
        let measured = measure(case, &pmdscope, (first, last), rounds, &stop, &mut results);
        // After ^C, or a failure, the measurements so far are still reported.
        print!("{}", results.text(case.name));
        measured?;
    }
    print!("{}", results.table());
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&results.json())?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

fn measure(
    case: &Case,
    pmdscope: &Path,
    (first, last): (usize, usize),
    rounds: usize,
    stop: &AtomicBool,
    results: &mut ScanResults,
) -> Result<()> {
    let memory = case.memory();
    let (needed, available) = (case.memory_mb(memory), memory_available_mb()?);
    if memory == Memory::Ordinary && available < needed + 512 {
        println!("\nSKIP: {}: needs {needed} MiB, {available} are free", case.name);
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let workers = (1..case.lcores).map(|lcore| format!("{lcore}@{last}"));
    let lcores = format!("0@{first},{}", workers.collect::<Vec<_>>().join(","));
    let megabytes = needed.to_string();
    let mut eal = vec!["--lcores", &lcores, "-m", &megabytes];
    if memory == Memory::Ordinary {
        eal.push("--no-huge");
    }
    let forwarders = (case.lcores - 1).to_string();
    let mbufs = format!("--total-num-mbufs={}", case.mbufs);
    let (cores, rxq) = (format!("--nb-cores={forwarders}"), format!("--rxq={forwarders}"));
    let txq = format!("--txq={forwarders}");
    let args = ["--forward-mode=macswap", "--auto-start", &mbufs, &cores, &rxq, &txq];
    let testpmd = Testpmd::start(&scratch, Setup { eal: &eal, args: &args, ..Setup::FLAT_OUT })?;
    let bench = ScanBench::open(&testpmd, &scratch, pmdscope.to_owned())?;
    results.of(case.name).memory = memory_name(memory);
    bench.counts(results.of(case.name))?;
    bench.ceiling(results.of(case.name))?;
    for round in 0..rounds {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        bench.round(round, results.of(case.name))?;
    }
    eprintln!("{}: done", case.name);
    Ok(())
}

fn memory_name(memory: Memory) -> &'static str {
    match memory {
        Memory::Huge => "hugepages",
        Memory::Ordinary => "ordinary pages",
    }
}

/// Free pages of 2 MiB.
fn free_huge_pages() -> u64 {
    let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn memory_available_mb() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("no MemAvailable in /proc/meminfo")? / 1024)
}
