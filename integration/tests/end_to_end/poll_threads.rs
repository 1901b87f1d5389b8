//! Threads that poll, whatever their names and processes, and those that do so no more.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, pmdscope, pmdscope_json, trial, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("poll_threads_of_other_names_are_listed", Needs::Apps, renamed),
        trial("a_poll_thread_of_no_lcore_is_listed", Needs::Apps, of_no_lcore),
        trial_unless("poll_loops_of_secondary_processes_are_listed", shared(), secondary),
        trial("check_names_the_thread_that_waits_for_a_lock", Needs::Apps, locked),
    ]
}

fn shared() -> Option<Missing> {
    Needs::Apps.missing().or_else(|| {
        let reason = "needs hugepages to share with others";
        (Memory::available() != Memory::Huge).then(|| Missing::Machine(reason.to_owned()))
    })
}

/// Starts the app, and waits until it polls.
fn start(scratch: &Scratch, role: &str, eal: &[&str], mode: &str) -> Result<Process> {
    let mut command = Command::new(programs::polling_app()?);
    command.args(["--no-pci"]).args(eal).args(["--", mode]);
    let mut process = Process::spawn(role, &mut command, scratch.dir())?;
    wait_until("the poll loop", LIMIT, || {
        let ready = process.output().contains("from now on");
        match process.exited()? {
            Some(status) if !ready => bail!("it ended ({status}): {}", process.output()),
            _ => Ok(ready),
        }
    })?;
    Ok(process)
}

/// Starts one on memory of its own.
fn alone(scratch: &Scratch, mode: &str, lcores: &str) -> Result<(String, Process)> {
    let app = scratch.prefix("polling");
    let eal = ["-l", lcores, "--no-huge", "-m", "64", "--file-prefix", &app, "--vdev", "net_null0"];
    let process = start(scratch, "polling", &eal, mode)?;
    Ok((app, process))
}

/// Waits for the row of a thread with this name.
fn row(scratch: &Scratch, app: &str, thread: &str) -> Result<Value> {
    let mut found = Value::Null;
    wait_until("the thread among the lcores", LIMIT, || {
        let args = ["lcores", "-a", app, "--json", "-n", "2", "-i", "0.5"];
        let out = pmdscope(scratch, &args, &[0])?;
        let last = out.lines().last().context("no report")?;
        let report: Value = serde_json::from_str(last)?;
        let rows = report["lcores"].as_array().context("lcores")?;
        found = rows.iter().find(|row| row["thread"] == thread).cloned().unwrap_or_default();
        Ok(!found.is_null())
    })?;
    Ok(found)
}

fn renamed(scratch: &Scratch) -> Result<()> {
    let (app, _process) = alone(scratch, "renamed", "0-1")?;
    let row = row(scratch, &app, "io-loop/1")?;
    ensure!(row["lcore"] == 1 && row["secondary"].is_null(), "{row:#}");
    ensure!(row["run_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row:#}");
    Ok(())
}

/// It has the number of its only CPU.
fn of_no_lcore(scratch: &Scratch) -> Result<()> {
    let (app, _process) = alone(scratch, "thread", "0")?;
    let row = row(scratch, &app, "packet-thread")?;
    let cpu = row["cpus"].as_str().and_then(|cpus| cpus.parse::<u64>().ok());
    ensure!(cpu.is_some() && row["lcore"].as_u64() == cpu, "{row:#}");
    Ok(())
}

fn secondary(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix("polling");
    let eal = ["-l", "0", "-m", "16", "--file-prefix", &app];
    let _primary = start(scratch, "primary", &eal, "plain")?;
    let eal = ["--lcores", "0@0,1@1", "--proc-type=secondary", "--file-prefix", &app];
    let secondary = start(scratch, "secondary", &eal, "plain")?;
    let row = row(scratch, &app, "rte-worker-1")?;
    ensure!(row["secondary"] == secondary.pid() && row["lcore"] == 1, "{row:#}");
    Ok(())
}

/// What `check` says of this kind, once it does.
fn finding(scratch: &Scratch, app: &str, lint: &str) -> Result<Value> {
    let mut found = Value::Null;
    wait_until("the finding", LIMIT, || {
        let check = pmdscope_json(scratch, &["check", "-a", app, "--json"], &[0, 1])?;
        let findings = check["apps"][0]["findings"].as_array().context("findings")?;
        found = findings.iter().find(|f| f["lint"] == lint).cloned().unwrap_or_default();
        Ok(!found.is_null())
    })?;
    Ok(found)
}

/// The worker polls for some time, and then waits for a lock that the main thread holds.
fn locked(scratch: &Scratch) -> Result<()> {
    let (app, _process) = alone(scratch, "lock", "0-1")?;
    let found = finding(scratch, &app, "no_polling")?;
    ensure!(found["severity"] == "warning" && found["subject"] == "lcore 1", "{found:#}");
    let evidence = found["evidence"].as_str().context("evidence")?;
    for part in ["(rte-worker-1, thread ", "waits for a lock", "state S", "futex", "polled before"]
    {
        ensure!(evidence.contains(part), "{part}: {evidence}");
    }
    Ok(())
}
