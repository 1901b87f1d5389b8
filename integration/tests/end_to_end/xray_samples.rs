//! X-ray reports no mbuf as lost in DPDK's own sample applications, each of which keeps packets in its own
//! way.

use std::process::Command;

use anyhow::{Context, Result, bail};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::telemetry;

use crate::support::{LIMIT, Missing, Needs, trial_of, trial_unless};
use crate::xray_clean::{FLOWS, judged_clean};

/// One that runs alone, on two ports.
struct SampleApp {
    name: &'static str,
    lcores: &'static str,
    megabytes: &'static str,
    args: &'static [&'static str],
}

const SAMPLES: [SampleApp; 3] = [
    // Packets wait in a buffer before they are sent.
    SampleApp { name: "l2fwd", lcores: "0@1", megabytes: "256", args: &["-p", "3", "-q", "2"] },
    // The driver calls the app for each burst.
    SampleApp { name: "rxtx_callbacks", lcores: "0@1", megabytes: "256", args: &[] },
    // Workers get them in cache lines, without a ring.
    SampleApp { name: "distributor", lcores: "(0-4)@1", megabytes: "1024", args: &["-p", "3"] },
];

const SEVERAL_PROCESSES: &str = "symmetric_mp";

pub(crate) fn trials() -> Vec<Trial> {
    let alone = SAMPLES.iter().map(|sample| {
        let name = format!("xray_finds_no_loss_in_{}", sample.name);
        trial_of(&name, missing(sample.name), move |scratch| clean(scratch, sample))
    });
    let mut trials: Vec<_> = alone.collect();
    let name = "xray_finds_no_loss_in_symmetric_mp";
    trials.push(trial_unless(name, missing_for_several(), several));
    trials
}

fn missing(sample: &str) -> Option<Missing> {
    let unbuilt = programs::dpdk_sample(sample).is_none();
    let missing = || Missing::Program(format!("DPDK's sample {sample}"));
    Needs::Apps.missing().or_else(|| unbuilt.then(missing))
}

/// Its processes share hugepages.
fn missing_for_several() -> Option<Missing> {
    let ordinary = Memory::available() == Memory::Ordinary;
    let few = || Missing::Machine("too few hugepages are free for two processes".to_owned());
    missing(SEVERAL_PROCESSES).or_else(|| ordinary.then(few))
}

fn clean(scratch: &Scratch, sample: &SampleApp) -> Result<()> {
    let app = scratch.prefix(sample.name);
    let args = ["--lcores", sample.lcores, "--no-huge", "-m", sample.megabytes];
    let ports = ["--vdev", "net_null0", "--vdev", "net_null1", "--"];
    let args = [&args[..], &ports, sample.args].concat();
    let mut process = start(scratch, sample.name, &app, &args)?;
    await_packets(&mut process, &app)?;
    judged_clean(scratch, &app)?;
    Ok(())
}

fn start(scratch: &Scratch, name: &str, app: &str, args: &[&str]) -> Result<Process> {
    let mut command = Command::new(programs::dpdk_sample(name).context(name.to_owned())?);
    command.args(["--no-pci", "--file-prefix", app]).args(args);
    Process::spawn(name, &mut command, scratch.dir())
}

/// Packets have gone all the way.
fn await_packets(process: &mut Process, app: &str) -> Result<()> {
    wait_until("the sample to send", LIMIT, || {
        if let Some(status) = process.exited()? {
            bail!("it ended ({status}): {}", process.output());
        }
        Ok(telemetry::number(app, "/ethdev/stats,1", "opackets").is_ok_and(|sent| sent > FLOWS))
    })
    .map(drop)
}

/// Each process polls its own queue and has packets of the same pool in its own memory.
fn several(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix(SEVERAL_PROCESSES);
    let mut processes = Vec::new();
    for (role, lcores, number) in [("primary", "0@1", "0"), ("secondary", "1@1", "1")] {
        let args = ["--lcores", lcores, "--proc-type", role];
        let ports = ["--vdev", "net_null0", "--vdev", "net_null1"];
        let own = ["--", "-p", "3", "--num-procs=2", "--proc-id", number];
        let ports = if role == "primary" { &ports[..] } else { &[] };
        let args = [&args[..], ports, &own].concat();
        processes.push(start(scratch, SEVERAL_PROCESSES, &app, &args)?);
        let started = processes.last_mut().context("processes")?;
        wait_until("the process to poll", LIMIT, || {
            if let Some(status) = started.exited()? {
                bail!("it ended ({status}): {}", started.output());
            }
            Ok(started.output().contains("Finished Process Init"))
        })?;
    }
    judged_clean(scratch, &app)?;
    Ok(())
}
