//! X-ray of apps that rewrite themselves or end while they are read: it ends in time, never by a panic,
//! and never reports a loss where there is none.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, document, number, trial, trial_of};
use crate::xray::{adds_up, brief, pools, scan_args};

/// What the app corrupts or does in an endless loop.
const MODES: [&str; 9] =
    ["numbers", "names", "lists", "ring", "caches", "mbufs", "maps", "move", "pools"];
/// Scans of each where `PMDSCOPE_XRAY_ROUNDS` is not set.
const ROUNDS: u64 = 1;
/// Bounded also on a busy machine.
const LONGEST: Duration = Duration::from_secs(45);

pub(crate) fn trials() -> Vec<Trial> {
    let spoiled = MODES.iter().map(|mode| {
        let name = format!("xray_is_not_misled_by_hostile_{mode}");
        trial_of(&name, Needs::Apps.missing(), move |scratch| spoiled(scratch, mode))
    });
    let mut trials: Vec<_> = spoiled.collect();
    trials.push(trial("xray_survives_apps_that_end_under_it", Needs::Apps, ending));
    trials.push(trial("xray_refuses_an_unknown_release", Needs::Apps, unknown_release));
    trials
}

/// `PMDSCOPE_XRAY_ROUNDS`, or what fits into a test.
pub(crate) fn rounds(usual: u64) -> Result<u64> {
    match std::env::var("PMDSCOPE_XRAY_ROUNDS") {
        Err(_) => Ok(usual),
        Ok(text) => {
            text.parse().ok().with_context(|| format!("PMDSCOPE_XRAY_ROUNDS={text} is no number"))
        }
    }
}

/// Starts the app; returns its prefix and the process.
pub(crate) fn start(scratch: &Scratch, args: &[&str]) -> Result<(String, Process)> {
    let app = scratch.prefix("hostile");
    let mut command = Command::new(programs::hostile_app()?);
    command.args(["--lcores", "0@1", "--no-pci", "--no-huge", "-m", "64", "--file-prefix", &app]);
    command.args(["--vdev", "net_null0"]);
    let mut process = Process::spawn("hostile", command.arg("--").args(args), scratch.dir())?;
    wait_until("the hostile app", LIMIT, || {
        // An app that must end may have ended already.
        let ready = process.output().contains("hostile from now on");
        match process.exited()? {
            Some(status) if !ready => bail!("it ended ({status}): {}", process.output()),
            _ => Ok(ready),
        }
    })?;
    Ok((app, process))
}

/// What was found, if anything; in time, and in good order.
fn scan_hostile(scratch: &Scratch, app: &str) -> Result<Option<Value>> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(scan_args(app));
    let (code, out, err) = run(&mut command, scratch.dir(), LONGEST)?;
    ensure!(code == 0 || code == 1, "exit code {code}: {err}");
    ensure!(!err.contains("panicked"), "{err}");
    let leaks = if out.is_empty() { None } else { Some(document(&["leaks"], &out)?) };
    ensure!(leaks.is_some() || !err.trim().is_empty(), "neither a report nor a reason: {out}");
    // One that ended before the scan is in no list.
    let scan = leaks.and_then(|mut leaks| leaks.pointer_mut("/apps/0/scan").map(Value::take));
    let scan = scan.filter(Value::is_object);
    let Some(scan) = scan else { return Ok(None) };
    adds_up(&scan)?;
    for pool in pools(&scan)? {
        ensure!(number(pool, "lost")? == 0, "nothing is lost: {}", brief(&scan));
        ensure!(number(pool, "size")? <= 4095, "{}", brief(&scan));
    }
    Ok(Some(scan))
}

fn spoiled(scratch: &Scratch, mode: &str) -> Result<()> {
    let (app, mut process) = start(scratch, &[mode])?;
    for _ in 0..rounds(ROUNDS)? {
        scan_hostile(scratch, &app)?;
        if let Some(status) = process.exited()? {
            bail!("the app ended ({status}): {}", process.output());
        }
    }
    Ok(())
}

/// At any moment of a scan, also by becoming another program with the same process id.
fn ending(_: &Scratch) -> Result<()> {
    let mut ended = 0;
    for round in 0..rounds(2)? {
        for mode in ["end", "exec"] {
            let scratch = Scratch::new()?;
            let after = (100 + round * 211 % 700).to_string();
            let (app, mut process) = start(&scratch, &[mode, &after])?;
            scan_hostile(&scratch, &app)?;
            let comm = format!("/proc/{}/comm", process.pid());
            let gone = process.exited()?.is_some() || is_sleep(Path::new(&comm));
            ended += u64::from(gone);
        }
    }
    eprintln!("{ended} apps ended before or during their scan");
    Ok(())
}

/// Where the version is in the file `config`, behind the magic number, and `RTE_VERSION_NUM(99, 11, 0, 99)`.
const VERSION: (u64, u32) = (4, 0x630b_0063);

/// An app of a future release. It is stopped, because its telemetry would report the real one.
fn unknown_release(scratch: &Scratch) -> Result<()> {
    let (app, process) = start(scratch, &["move"])?;
    let path = format!("/var/run/dpdk/{app}/config");
    let config = OpenOptions::new().write(true).open(&path).context(path)?;
    config.write_all_at(&VERSION.1.to_le_bytes(), VERSION.0)?;
    process.signal(Signal::STOP)?;
    let mut command = Command::new(programs::pmdscope()?);
    let scanned = run(command.args(scan_args(&app)), scratch.dir(), LONGEST);
    process.signal(Signal::CONT)?;
    let (code, out, err) = scanned?;
    ensure!(code == 1, "exit code {code}: {out}{err}");
    let leaks = document(&["leaks"], &out).context(err)?;
    let why = leaks["apps"][0]["scan_error"].as_str().context("scan_error")?;
    let told = "the layout of DPDK 99.11.0 in this app is not known: releases 21.11 to ";
    ensure!(why.starts_with(told) && why.ends_with(" are known"), "{why}");
    Ok(())
}

fn is_sleep(comm: &Path) -> bool {
    std::fs::read_to_string(comm).is_ok_and(|name| name.trim() == "sleep")
}
