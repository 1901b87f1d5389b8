//! What `pmdscope doctor` reports about this host and real apps, and without any app.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, document, pmdscope, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("doctor_checks_a_linked_app", Needs::Apps, linked),
        trial("doctor_checks_a_stock_app", Needs::Testpmd, stock),
        trial("doctor_runs_before_the_first_start", Needs::Apps, no_app),
        trial("doctor_tells_what_has_changed", Needs::Apps, changed),
    ]
}

/// Results of one check.
fn results<'a>(report: &'a Value, check: &str) -> Result<Vec<&'a Value>> {
    let all = report["results"].as_array().context("results")?;
    let results: Vec<&Value> = all.iter().filter(|result| result["check"] == check).collect();
    ensure!(!results.is_empty(), "no {check} in {report:#}");
    Ok(results)
}

fn status(report: &Value, check: &str) -> Result<String> {
    let results = results(report, check)?;
    ensure!(results.len() == 1, "{results:#?}");
    Ok(results[0]["status"].as_str().context("status")?.to_owned())
}

/// A report, with whose verdict the exit code must agree.
fn doctor(scratch: &Scratch, args: &[&str]) -> Result<Value> {
    let mut command = Command::new(programs::pmdscope()?);
    let (code, out, error) =
        run(command.args(["doctor", "--json"]).args(args), scratch.dir(), LIMIT)?;
    let report = document(&["doctor"], &out).context(error)?;
    let fails = report["counts"]["fail"].as_u64().context("counts")?;
    ensure!(code == i32::from(fails > 0), "exit code {code} with {report:#}");
    ensure!(report["ok"] == (fails == 0) && report["schema"] == 1, "{report:#}");
    Ok(report)
}

fn linked(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "2000"])?;
    await_packets(pair.app(), 1000)?;
    let report = doctor(scratch, &["-a", pair.app()])?;
    for check in ["app_running", "telemetry", "app_ports", "capture"] {
        ensure!(status(&report, check)? == "pass", "{check} in {report:#}");
    }
    // It has a CPU and an EAL thread of its own, on a machine without isolated CPUs.
    let cpus = &results(&report, "lcore_cpus")?[0]["found"];
    ensure!(cpus.as_str().is_some_and(|found| found.starts_with("CPU")), "{cpus}");
    for check in ["pool_size", "cpu_quota", "cpuset", "memory_lock_limit"] {
        let found = results(&report, check)?[0]["found"].as_str().unwrap_or_default().to_owned();
        ensure!(found.contains(pair.app()), "{check}: {found}");
    }

    let text = pmdscope(scratch, &["doctor", "-v", "-a", pair.app()], &[0, 1])?;
    ensure!(text.starts_with("doctor: ") && text.contains("[app_ports]"), "{text}");
    ensure!(!text.contains('\u{1b}'), "escape codes in: {text}");
    drop(generator);
    Ok(())
}

fn stock(scratch: &Scratch) -> Result<()> {
    let (app, testpmd) = testpmd::forwarding(scratch)?;
    let report = doctor(scratch, &["-a", &app])?;
    ensure!(status(&report, "app_ports")? == "pass", "{report:#}");
    // It is not asked for descriptors: its release does not report them.
    ensure!(status(&report, "descriptors")? == "skip", "{report:#}");
    ensure!(status(&report, "pool_size")? == "pass", "{report:#}");
    let blind = doctor(scratch, &["-a", &app, "--no-xray"])?;
    ensure!(status(&blind, "pool_size")? == "skip", "{blind:#}");
    // It runs on ordinary pages, to which no process can attach.
    ensure!(status(&report, "capture")? == "warn", "{report:#}");
    let script = pmdscope(scratch, &["doctor", "--fix-script", "-a", &app], &[0, 1])?;
    ensure!(script.starts_with("#!/bin/sh\n"), "{script}");
    let file = scratch.path("fix.sh");
    fs::write(&file, &script)?;
    let (code, _, error) = run(Command::new("sh").arg("-n").arg(&file), scratch.dir(), LIMIT)?;
    ensure!((code, error.as_str()) == (0, ""), "{error}\n{script}");
    drop(testpmd);
    Ok(())
}

/// A configuration that searches a directory without apps.
fn elsewhere(scratch: &Scratch, more: &str) -> Result<String> {
    let file = scratch.path("pmdscope.toml");
    let roots = scratch.path("nowhere").display().to_string();
    fs::write(&file, format!("[discovery]\nroots = [{roots:?}]\ncontainers = false\n{more}"))?;
    Ok(file.display().to_string())
}

fn no_app(scratch: &Scratch) -> Result<()> {
    let config = elsewhere(scratch, "")?;
    let report = doctor(scratch, &["--config", &config, "--cpus", "1"])?;
    ensure!(status(&report, "app_running")? == "skip", "{report:#}");
    for check in ["isolcpus", "irq_affinity", "hugepages_reserved"] {
        let status = results(&report, check)?[0]["status"].as_str().context("status")?;
        ensure!(status != "skip", "{check} in {report:#}");
    }
    let config = elsewhere(scratch, "[[expected]]\napp = \"edge\"\n")?;
    let report = doctor(scratch, &["--config", &config])?;
    ensure!(status(&report, "app_running")? == "fail", "{report:#}");
    pmdscope(scratch, &["doctor", "--cpus", "x"], &[2])?;
    pmdscope(scratch, &["doctor", "--root", "/"], &[2])?;
    pmdscope(scratch, &["doctor", "--root", "/nonexistent"], &[1])?;
    Ok(())
}

/// The saved facts, without the time.
fn facts(file: &Path) -> Result<Value> {
    let mut facts: Value = serde_json::from_slice(&fs::read(file)?)?;
    facts["saved_realtime_ns"].take();
    Ok(facts)
}

fn changed(scratch: &Scratch) -> Result<()> {
    let config = elsewhere(scratch, "")?;
    let (good, after) = (scratch.path("good.json"), scratch.path("after.json"));
    let (good_name, after_name) = (good.display().to_string(), after.display().to_string());
    let base = ["doctor", "--config", &config];
    let with = |more: &[&str]| pmdscope(scratch, &[&base, more].concat(), &[0, 1]);
    with(&["--save", &good_name])?;
    with(&["--fix-script"])?;
    with(&["--save", &after_name])?;
    ensure!(facts(&good)? == facts(&after)?, "the script was run:\n{good_name} {after_name}");

    let compare = ["--config", config.as_str(), "--compare", &good_name];
    let same = doctor(scratch, &compare)?;
    for check in ["changed_kernel", "changed_kernel_arguments", "changed_hugepages"] {
        ensure!(status(&same, check)? == "pass", "{check} in {same:#}");
    }
    let mut old = facts(&good)?;
    old["saved_realtime_ns"] = 0.into();
    old["kernel_release"] = "5.10.0-1-amd64".into();
    let device = old["drivers"].as_object().and_then(|drivers| drivers.keys().next().cloned());
    if let Some(device) = &device {
        old["drivers"][device] = "vfio-pci-of-then".into();
    }
    fs::write(&good, serde_json::to_vec(&old)?)?;
    let report = doctor(scratch, &compare)?;
    ensure!(status(&report, "changed_kernel")? == "fail" && report["ok"] == false, "{report:#}");
    if device.is_some() {
        ensure!(status(&report, "changed_driver")? == "fail", "{report:#}");
    }
    // The facts of a failed run are not kept as those of a good one.
    with(&["--compare", &good_name, "--save", &good_name])?;
    ensure!(facts(&good)?["kernel_release"] == "5.10.0-1-amd64", "a bad run was saved");
    Ok(())
}
