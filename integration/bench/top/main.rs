//! `make bench-top`: the CPU time that `pmdscope top` takes while it shows many apps.
//!
//! Idle apps are shown on a terminal, page after page. The numbers are for people to read: a slow machine is
//! no failure.

use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, process_cpu_ns};
use pmdscope_integration::programs;
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::{Idle, Site, started};

const HELP: &str = "\
Usage: pmdscope-bench-top [options]

Measures the CPU time of `pmdscope top` on a terminal of 200 columns and 60 lines, sampling once a second,
over idle apps of 4 ports with 16 queues each. Needs root and two CPUs; without them it says so and ends with
status 0. Three minutes.

  --quick           one minute
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
";

/// How many apps, and whether they are linked with libpmdscope.
const CASES: [(usize, bool); 4] = [(1, true), (1, false), (20, true), (20, false)];

/// Keys of the pages that have most to draw.
const PAGES: [(&str, &str); 3] = [("Overview", "1"), ("Ports", "2"), ("Pools", "3")];

const START: Duration = Duration::from_secs(60);

/// Until the first samples are over, and apps have been looked for several times.
const WARM_UP: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    command::main("pmdscope-bench-top", HELP, &["--quick", "--pmdscope"], &[], run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let Some(machine) = Machine::new()?.filter(|_| rustix::process::geteuid().is_root()) else {
        println!("SKIP: bench-top: needs root and two CPUs");
        return Ok(());
    };
    println!("pmdscope top, % of one core, on {}.", machine.describe());
    println!("{:<28} {:<9} {:>6} {:>13}", "apps of 4 x 16", "page", "all", "of it drawing");
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let window = Duration::from_secs(if options.quick { 4 } else { 12 });
    for (apps, linked) in CASES {
        measure(&pmdscope, apps, linked, window)?;
    }
    Ok(())
}

fn measure(pmdscope: &std::path::Path, apps: usize, linked: bool, window: Duration) -> Result<()> {
    let scratch = Scratch::new()?;
    let site = Site::new(&scratch, "site", "")?;
    let idle = Idle { ports: 4, queues: 16, linked };
    let mut processes = Vec::new();
    for app in 0..apps {
        let mut process = site.launch(&scratch, &format!("app{app}"), idle)?;
        started(&mut process)?;
        processes.push(process);
    }
    let mut command = Command::new(pmdscope);
    command.arg("top").args(site.config());
    let mut top = TerminalProcess::spawn(&mut command, 60, 200)?;
    top.await_shown(&["app0", "live"], START)?;
    sleep(WARM_UP);
    let kind = if linked { "libpmdscope" } else { "stock, X-ray" };
    for (page, key) in PAGES {
        top.press(key)?;
        sleep(Duration::from_secs(1));
        let (all, drawing) = share(top.pid(), window)?;
        println!("{:<28} {page:<9} {all:>6.2} {drawing:>13.2}", format!("{apps}, {kind}"));
    }
    top.press("q")?;
    top.wait(START)?;
    Ok(())
}

/// What a process takes of one core, and its first thread of that, in %.
fn share(pid: u32, window: Duration) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let before = (process_cpu_ns(pid)?, first_thread_ns(pid)?);
    sleep(window);
    let after = (process_cpu_ns(pid)?, first_thread_ns(pid)?);
    let elapsed = begin.elapsed().as_nanos() as f64;
    let percent = |before: u64, after: u64| after.saturating_sub(before) as f64 * 100.0 / elapsed;
    Ok((percent(before.0, after.0), percent(before.1, after.1)))
}

fn first_thread_ns(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let spent = text.split(' ').next().context("an empty schedstat")?;
    Ok(spent.parse()?)
}
