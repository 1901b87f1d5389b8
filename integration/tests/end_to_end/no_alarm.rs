//! `pmdscope check` raises no critical finding about stock apps that lose nothing, idle and under load.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::openvswitch::Switch;
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};

use crate::samples::{IDLE, L2FWD, L3FWD, LOADED, SampleApp, symmetric_mp, symmetric_mp_missing};
use crate::support::{LIMIT, Needs, await_packets, document, trial, trial_of, trial_unless};
use crate::xray_clean::{ORDINARY, await_traffic};

/// How long each app is watched, idle and under load, in seconds; `make no-alarm` sets it.
const SECONDS_VARIABLE: &str = "PMDSCOPE_NO_ALARM_SECONDS";
const SECONDS: u64 = 3;

pub(crate) fn trials() -> Vec<Trial> {
    let samples = [L2FWD, L3FWD].map(|app| {
        let name = format!("no_alarm_about_{}", app.name);
        trial_of(&name, app.missing(), move |scratch| sample(scratch, &app))
    });
    let mut trials = Vec::from(samples);
    trials.extend([
        trial("no_alarm_about_testpmd", Needs::Testpmd, testpmd),
        trial_unless("no_alarm_about_symmetric_mp", symmetric_mp_missing(), several),
        trial("no_alarm_about_vhost", Needs::Testpmd, vhost),
        trial("no_alarm_about_open_vswitch", Needs::OpenVswitch, open_vswitch),
    ]);
    trials
}

/// Watches an app.
fn calm(scratch: &Scratch, app: &str, load: &str) -> Result<()> {
    let seconds = match std::env::var(SECONDS_VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{SECONDS_VARIABLE}={text}"))?,
        Err(_) => SECONDS,
    };
    let args = ["check", "-a", app, "--for", &seconds.to_string(), "--json", "--config", "none"];
    let mut check = Command::new(programs::pmdscope()?);
    let (_, out, err) = run(check.args(args), scratch.dir(), LIMIT + Duration::from_secs(seconds))?;
    let report = document(&args, &out).context(err)?;
    let app = &report["apps"][0];
    let findings = app["findings"].as_array().with_context(|| format!("{report}"))?;
    let critical: Vec<_> = findings.iter().filter(|it| it["severity"] == "critical").collect();
    ensure!(critical.is_empty(), "{load}: {critical:#?}");
    Ok(())
}

fn sample(scratch: &Scratch, sample: &SampleApp) -> Result<()> {
    for (load, ports) in [("idle", IDLE), ("loaded", LOADED)] {
        let (app, mut process) = sample.start(scratch, ports)?;
        wait_until("its ports", LIMIT, || {
            if let Some(status) = process.exited()? {
                bail!("it ended ({status}): {}", process.output());
            }
            Ok(telemetry::number(&app, "/ethdev/link_status,1", "speed").is_ok())
        })?;
        if load == "loaded" {
            await_packets(&app, 0)?;
        }
        calm(scratch, &app, load)?;
    }
    Ok(())
}

fn testpmd(scratch: &Scratch) -> Result<()> {
    for (load, devices) in [("idle", IDLE), ("loaded", LOADED)] {
        let setup = Setup { devices: &devices, eal: ORDINARY, ..Setup::FLAT_OUT };
        let testpmd = Testpmd::start(scratch, setup)?;
        calm(scratch, testpmd.app(), load)?;
    }
    Ok(())
}

fn several(scratch: &Scratch) -> Result<()> {
    for (load, ports) in [("idle", IDLE), ("loaded", LOADED)] {
        let (app, _processes) = symmetric_mp(scratch, ports)?;
        calm(scratch, &app, load)?;
    }
    Ok(())
}

/// A switch for a guest, and the guest: idle as long as the guest sends nothing.
fn vhost(scratch: &Scratch) -> Result<()> {
    let other = Scratch::new()?;
    let socket = scratch.path("vhost.sock");
    let server = format!("net_vhost0,iface={},queues=1", socket.display());
    let client = format!("net_virtio_user0,path={},queues=1,queue_size=1024", socket.display());
    let reflects = ["--forward-mode=macswap", "--auto-start"];
    let setup = Setup { devices: &[&server], eal: &[], args: &reflects };
    let host = Testpmd::start(scratch, setup)?;
    let generates = ["--forward-mode=flowgen"];
    let eal = ["--single-file-segments"];
    let setup = Setup { devices: &[&client], eal: &eal, args: &generates };
    let mut guest = Testpmd::start(&other, setup)?;
    calm(scratch, host.app(), "idle")?;
    guest.process.type_line("start")?;
    await_traffic(host.app(), 0)?;
    calm(scratch, host.app(), "loaded")
}

fn open_vswitch(scratch: &Scratch) -> Result<()> {
    for (load, devices) in [("idle", IDLE), ("loaded", LOADED)] {
        // Each has a database of its own.
        let place = Scratch::new()?;
        let switch = Switch::start(&place, &devices, "")?;
        calm(scratch, switch.app(), load)?;
    }
    Ok(())
}
