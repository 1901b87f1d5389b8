//! The script of `pmdscope interrupts` runs alone, as described in its head.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::reflector;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::tracefs::with_tracefs;
use serde_json::Value;

use crate::interrupts::missing_to_trace;
use crate::support::{LIMIT, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    let traced = |name: &str, test| trial_unless(name, missing_to_trace(), test);
    vec![
        traced("the_script_of_interrupts_runs_alone", alone),
        traced("the_script_of_interrupts_runs_alone_before_linux_6_5", alone_before_6_5),
    ]
}

fn alone(scratch: &Scratch) -> Result<()> {
    traces(scratch, "pollsteal.bt")
}

/// With the command of its head, which newer kernels do not mind.
fn alone_before_6_5(scratch: &Scratch) -> Result<()> {
    let head = std::fs::read_to_string(script()).context("pollsteal.bt")?;
    let sed =
        head.lines().find(|line| line.starts_with(" *   sed '")).context("no sed in its head")?;
    let copied = Command::new("cp").arg(script()).arg(scratch.dir()).status()?;
    let ran =
        Command::new("sh").args(["-c", &sed[" *".len()..]]).current_dir(scratch.dir()).status()?;
    ensure!(copied.success() && ran.success(), "{sed}");
    traces(scratch, &scratch.path("older.bt").to_string_lossy())
}

fn script() -> std::path::PathBuf {
    programs::root().join("integration/interrupts/pollsteal.bt")
}

/// The timer interrupts every CPU that polls.
fn traces(scratch: &Scratch, script: &str) -> Result<()> {
    let directory = programs::root().join("integration/interrupts");
    let (_, reflector) = reflector(scratch, "net_null0")?;
    let tid = reflector.pid().to_string();
    let usage = ["taskset", "-c", "0", "bpftrace", "-q", "-f", "json", script, "1000", &tid];
    let mut command = with_tracefs(&usage);
    let mut bpftrace = Process::spawn("pollsteal", command.current_dir(directory), scratch.dir())?;
    let lines = |bpftrace: &Process| -> Vec<Value> {
        bpftrace.output().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let is = |line: &Value, kind: &str, id: u64| {
        line["data"][0] == kind && line["data"][4] == reflector.pid() && line["data"][5] == id
    };
    wait_until("an interrupt of the timer", LIMIT, || {
        let ended = bpftrace.exited()?;
        ensure!(ended.is_none(), "bpftrace ended: {}", bpftrace.output());
        let lines = lines(&bpftrace);
        let live = lines.iter().filter(|line| line["data"][0] == "live").count();
        // 236 is the vector of the timer on x86; other CPUs have a device for it.
        let timer = |line: &&Value| is(line, "vector", 236) || line["data"][0] == "irq";
        Ok(live >= 4 && lines.iter().any(|line| timer(&line)))
    })?;
    bpftrace.interrupt()?;
    let lines = lines(&bpftrace);
    let key = format!("{tid},236");
    let totals = lines.iter().filter_map(|line| line["data"]["@timer"][&key]["count"].as_u64());
    let total = totals.max();
    ensure!(total > Some(0) || !cfg!(target_arch = "x86_64"), "{}", bpftrace.output());
    Ok(())
}
