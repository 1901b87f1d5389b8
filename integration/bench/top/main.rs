//! `make bench-top`: the CPU time that `pmdscope top` takes while it shows many apps.
//!
//! Idle apps are shown on a terminal, page after page. The numbers are informative: a slow machine
//! does not count as a failure.

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
over idle apps with ports of 16 queues. Needs root and two CPUs; without them it says so and ends with status 0.
Three minutes.

  --quick           one minute
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
";

/// Apps that are shown.
#[derive(Clone, Copy)]
struct Case {
    label: &'static str,
    apps: usize,
    /// Number of apps with ports; the others have none.
    with_ports: usize,
    /// Ports of each of those.
    ports: u16,
    /// With libpmdscope.
    linked: bool,
}

const CASES: [Case; 5] = [
    Case { label: "1 app of 4 ports", apps: 1, with_ports: 1, ports: 4, linked: true },
    Case { label: "1 app of 4 ports", apps: 1, with_ports: 1, ports: 4, linked: false },
    Case { label: "20 apps, 4 ports in all", apps: 20, with_ports: 4, ports: 1, linked: true },
    Case { label: "20 apps of 4 ports", apps: 20, with_ports: 20, ports: 4, linked: true },
    Case { label: "20 apps of 4 ports", apps: 20, with_ports: 20, ports: 4, linked: false },
];

/// Queues of a port.
const QUEUES: u16 = 16;

/// Keys of the pages with most content.
const PAGES: [(&str, &str); 3] = [("Overview", "1"), ("Ports", "2"), ("Pools", "3")];

const START: Duration = Duration::from_secs(60);

/// Time for the first samples and several searches for apps.
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
    println!("{:<38} {:<9} {:>6} {:>13}", "ports of 16 queues", "page", "all", "of it drawing");
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let window = Duration::from_secs(if options.quick { 4 } else { 12 });
    for case in CASES {
        measure(&pmdscope, case, window)?;
    }
    Ok(())
}

fn measure(pmdscope: &std::path::Path, case: Case, window: Duration) -> Result<()> {
    let scratch = Scratch::new()?;
    let site = Site::new(&scratch, "site", "")?;
    let mut processes = Vec::new();
    for app in 0..case.apps {
        let ports = if app < case.with_ports { case.ports } else { 0 };
        let idle = Idle { ports, queues: QUEUES, linked: case.linked };
        let mut process = site.launch(&scratch, &format!("app{app}"), idle)?;
        started(&mut process)?;
        processes.push(process);
    }
    let mut command = Command::new(pmdscope);
    command.arg("top").args(site.config());
    let mut top = TerminalProcess::spawn(&mut command, 60, 200)?;
    top.await_shown(&["app0", "live"], START)?;
    sleep(WARM_UP);
    let kind = if case.linked { "libpmdscope" } else { "X-ray" };
    let what = format!("{}, {kind}", case.label);
    for (page, key) in PAGES {
        top.press(key)?;
        sleep(Duration::from_secs(1));
        let (all, drawing) = share(top.pid(), window)?;
        println!("{what:<38} {page:<9} {all:>6.2} {drawing:>13.2}");
    }
    top.press("q")?;
    top.wait(START)?;
    Ok(())
}

/// Share of one core that a process takes, and that of its first thread, in %.
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
