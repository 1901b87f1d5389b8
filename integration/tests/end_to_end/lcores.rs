//! `pmdscope lcores`: the table of poll threads, and profiles of apps that are not changed for it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::machine::process_cpu_ns;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::{programs, testpmd};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    LIMIT, Missing, Needs, document, pmdscope, pmdscope_json, trial, trial_unless,
};

/// The function in which the reflector spends its injected stalls.
const STALLING: &str = "inject_stall";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("lcores_are_listed_with_their_cpu_use", Needs::Testpmd, listed),
        profiled("a_profile_names_the_function_that_stalls", Needs::Apps, stalling),
        profiled("a_profile_of_a_stock_app_tells_rx_from_tx", Needs::Testpmd, stock),
        profiled("a_profile_outlasts_the_app", Needs::Testpmd, app_ends),
        profiled("a_killed_profile_leaves_nothing", Needs::Testpmd, killed),
    ]
}

/// A test that samples threads.
fn profiled(name: &str, needs: Needs, test: fn(&Scratch) -> Result<()>) -> Trial {
    trial_unless(name, needs.missing().or_else(missing_to_profile), test)
}

/// Why no thread can be sampled here.
pub(crate) fn missing_to_profile() -> Option<Missing> {
    (!fs::exists("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default())
        .then(|| Missing::Machine("the kernel has no perf events".to_owned()))
}

fn listed(scratch: &Scratch) -> Result<()> {
    let (app, _testpmd) = testpmd::forwarding(scratch)?;
    let list = pmdscope_json(scratch, &["lcores", "-a", &app, "--json"], &[0])?;
    let lcores = list["lcores"].as_array().context("lcores")?;
    let worker = lcores.iter().find(|lcore| lcore["lcore"] == 1).context("lcore 1")?;
    ensure!(worker["run_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{list:#}");
    ensure!(worker["polls_ps"].is_null() && worker["stalls"].is_null(), "{list:#}");
    let text = pmdscope(scratch, &["lcores", "-a", &app, "-n", "2", "-i", "0.2"], &[0])?;
    ensure!(text.lines().filter(|line| line.starts_with("App ")).count() == 2, "{text}");
    Ok(())
}

fn profile(scratch: &Scratch, app: &str, time: &str) -> Result<Value> {
    let args = ["lcores", "-a", app, "--profile", "--for", time, "--json"];
    let mut document = pmdscope_json(scratch, &args, &[0])?;
    Ok(document["apps"][0].take())
}

fn lcore(profile: &Value, id: u64) -> Result<&Value> {
    let lcores = profile["lcores"].as_array().context("lcores")?;
    lcores.iter().find(|lcore| lcore["lcore"] == id).with_context(|| format!("{profile:#}"))
}

/// Share of an activity.
fn share(lcore: &Value, activity: &str) -> f64 {
    let activities = lcore["activities"].as_array().into_iter().flatten();
    let mut shares = activities.filter(|share| share["activity"] == activity);
    shares.next().and_then(|share| share["share"].as_f64()).unwrap_or_default()
}

/// Stalls of 5 ms, ten times a second: 5 % of the time, as far as the machine lets it run.
fn stalling(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { stall: Some("5000/100".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    wait_until("a profile that names the function", LIMIT, || {
        let profile = profile(scratch, pair.app(), "3s")?;
        let lcores = profile["lcores"].as_array().context("lcores")?;
        let polling = lcores.iter().max_by_key(|lcore| lcore["samples"].as_u64());
        Ok(names_the_stall(polling.context("no lcore")?))
    })?;
    let args = ["lcores", "-a", pair.app(), "--profile", "--for", "3s", "--folded"];
    let folded = pmdscope(scratch, &args, &[0])?;
    let begin = format!("{};lcore ", pair.app());
    for line in folded.lines() {
        let (stack, samples) = line.rsplit_once(' ').context("no number")?;
        ensure!(stack.starts_with(&begin) && samples.parse::<u64>()? > 0, "{line}");
    }
    let under_loop = |line: &str| line.contains(";lcore_main") && line.contains(STALLING);
    ensure!(folded.lines().any(under_loop), "no stack from the loop down:\n{folded}");
    Ok(())
}

/// Whatever else the machine does may take samples from a stall, or end it early, and the app may just
/// have started: one such profile is enough.
fn names_the_stall(lcore: &Value) -> bool {
    let mut functions = lcore["functions"].as_array().into_iter().flatten();
    let found = functions.find(|function| function["function"] == STALLING);
    let stay = &lcore["longest_stay"];
    let empty = lcore["empty_polls"]["of_polls"].as_f64();
    eprintln!("stalling: {found:?}, longest stay {stay}, empty polls {empty:?}");
    let length = stay["length_ns"].as_u64().unwrap_or_default();
    let share_of = |function: &Value| function["share"].as_f64().unwrap_or_default();
    let named = found.is_some_and(|function| {
        function["activity"] == "app" && (0.005..0.5).contains(&share_of(function))
    });
    let stayed = stay["function"] == STALLING && length >= 2_000_000;
    named && stayed && share(lcore, "driver_rx") > 0.0 && empty > Some(0.9)
}

/// Its drivers are stripped: the functions are those that the ethdev library calls.
fn stock(scratch: &Scratch) -> Result<()> {
    let (app, _testpmd) = testpmd::forwarding(scratch)?;
    let profile = profile(scratch, &app, "2s")?;
    let worker = lcore(&profile, 1)?;
    for activity in ["driver_rx", "driver_tx", "app"] {
        ensure!(share(worker, activity) > 0.01, "{activity}: {profile:#}");
    }
    let functions = worker["functions"].as_array().context("functions")?;
    let receives = |function: &&Value| function["activity"] == "driver_rx";
    let receiving = functions.iter().find(receives).context("no function receives")?;
    ensure!(receiving["ports"] == serde_json::json!([0]), "{receiving}");
    let file = receiving["module"].as_str().context("module")?;
    ensure!(file.starts_with("librte_net_null"), "{receiving}");
    ensure!(worker["empty_polls"]["of_time"].is_null(), "{profile:#}");
    let text = pmdscope(scratch, &["lcores", "-a", &app, "--profile=99", "--for", "1s"], &[0])?;
    ensure!(text.contains("driver RX of port 0"), "{text}");
    ensure!(text.contains("sampled at 99 Hz"), "{text}");
    Ok(())
}

/// Starts a profile of a minute, and waits until it samples.
fn start(scratch: &Scratch, app: &str) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["lcores", "-a", app, "--profile", "--for", "60s", "--json"]);
    let mut process = Process::spawn("profile", &mut command, scratch.dir())?;
    wait_until("the profile to begin", LIMIT, || {
        if let Some(status) = process.exited()? {
            bail!("the profile ended with {status}: {}", process.output());
        }
        let files = fs::read_dir(format!("/proc/{}/fd", process.pid()))?;
        let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        Ok(targets.any(|target| target.to_string_lossy().contains("[perf_event]")))
    })?;
    Ok(process)
}

fn app_ends(scratch: &Scratch) -> Result<()> {
    let (app, testpmd) = testpmd::forwarding(scratch)?;
    let mut profile = start(scratch, &app)?;
    // Enough for a report, however seldom it gets a CPU.
    let enough = process_cpu_ns(testpmd.pid())? + 1_000_000_000;
    wait_until("the app to run for a second", LIMIT, || {
        Ok(process_cpu_ns(testpmd.pid())? >= enough)
    })?;
    drop(testpmd);
    let status = profile.wait(LIMIT)?;
    let output = profile.output();
    ensure!(status.success(), "{status}: {output}");
    let profile = document(&["lcores", "--profile"], &output)?;
    let worker = lcore(&profile["apps"][0], 1)?;
    ensure!(worker["ended"] == true && worker["samples"].as_u64() > Some(0), "{output}");
    ensure!(share(worker, "driver_rx") > 0.0, "functions are known though the app has ended");
    Ok(())
}

fn killed(scratch: &Scratch) -> Result<()> {
    let (app, mut testpmd) = testpmd::forwarding(scratch)?;
    let mut first = start(scratch, &app)?;
    first.signal(Signal::KILL)?;
    first.wait(LIMIT)?;
    let tracer = |pid: u32| -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.lines().any(|line| line == "TracerPid:\t0"))
    };
    ensure!(testpmd.exited()?.is_none() && tracer(testpmd.pid())?, "{}", testpmd.output());
    // An interrupted profile is printed as far as it got.
    let mut second = start(scratch, &app)?;
    second.signal(Signal::INT)?;
    let status = second.wait(LIMIT)?;
    ensure!(matches!(status.code(), Some(0 | 1)), "{status}: {}", second.output());
    ensure!(second.output().contains("\"lcores\""), "{}", second.output());
    let mut check = Command::new(programs::pmdscope()?);
    let (code, out, err) =
        run(check.args(["lcores", "-a", &app, "--profile", "--for", "1s"]), scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{code}: {out}{err}");
    Ok(())
}
