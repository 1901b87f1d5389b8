//! Time stolen from lcores, in metrics and recordings of a real app.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::Exporter;
use pmdscope_integration::pair::reflector;
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use serde_json::Value;

use crate::support::{LIMIT, Needs, trial_unless};

const EVENTS: &str = "dpdk_lcore_stolen_events_total";

pub(crate) fn trials() -> Vec<Trial> {
    let counted = |name: &str, test| trial_unless(name, Needs::Apps.missing(), test);
    vec![
        counted("stolen_time_is_exported", exported),
        counted("stolen_time_is_recorded_and_replayed", recorded),
    ]
}

/// Whatever this machine lets us trace: the timer ticks on every CPU that polls.
fn exported(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let exporter = Exporter::start(scratch, &["--interrupts"])?;
    let timer = || {
        let scrape = exporter.scrape()?;
        let of_app = scrape.0.iter().filter(|sample| sample.labels.get("app") == Some(&app));
        let timer = of_app.filter(|sample| {
            sample.name == EVENTS && sample.labels.get("cause").is_some_and(|it| it == "timer")
        });
        Ok::<f64, anyhow::Error>(timer.map(|sample| sample.value).sum())
    };
    let mut first = 0.0;
    wait_until("the first event of the timer", 2 * LIMIT, || {
        first = timer()?;
        Ok(first > 0.0)
    })?;
    wait_until("more of them", LIMIT, || {
        let now = timer()?;
        ensure!(now >= first, "{EVENTS} went back from {first} to {now}");
        Ok(now > first)
    })?;
    Ok(())
}

/// Without bpftrace, which all machines can do.
fn recorded(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let file = scratch.path("stolen.jsonl.zst");
    let file = file.to_string_lossy();
    let mut record = Command::new(programs::pmdscope()?);
    record.args(["record", "--interrupts", "-a", &app, "-w", &file, "-i", "0.2", "--for", "3"]);
    let (code, _, err) = run(record.env("PATH", "/nonexistent"), scratch.dir(), LIMIT)?;
    ensure!(code == 0, "record ended with {code}: {err}");
    ensure!(err.contains("apt install bpftrace"), "it does not say what is missing: {err}");
    let mut top = Command::new(programs::pmdscope()?);
    top.args(["top", "--json", "--replay", &file]);
    let (code, out, err) = run(&mut top, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "top ended with {code}: {err}");
    let document: Value = serde_json::from_str(out.lines().last().context("no output")?)?;
    let model = &document["apps"][0]["model"];
    ensure!(model["sample"]["tracing"]["method"] == "proc", "{model:#}");
    let rates = model["stolen"].as_array().context("no rates")?;
    ensure!(rates.iter().any(|lcore| lcore["events_ps"].as_f64() > Some(0.0)), "{rates:?}");
    Ok(())
}
