//! Whatever happens to the tools, the app forwards as before.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::oracle::dpdk_telemetry;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;

use crate::support::{column, number, start_capture, tee_sessions};

const RATE: u64 = 100_000;

pub(crate) fn killed_capture(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    sleep(Duration::from_secs(1));
    let before = packets_per_second(pair.app())?;
    let free_before = open_files(&pair.reflector)?;

    for _ in 0..5 {
        let file = scratch.path("killed.pcapng");
        let mut capture = start_capture(scratch, pair.app(), &file, &[])?;
        sleep(Duration::from_millis(300));
        capture.signal(Signal::KILL)?;
        capture.wait(Duration::from_secs(5))?;
        wait_until("the capture to be disarmed", Duration::from_secs(1), || {
            Ok(tee_sessions(pair.app())? == 0)
        })?;
    }

    forwards_as_before(pair.app(), before)?;
    let free_after = open_files(&pair.reflector)?;
    ensure!(free_after == free_before, "open files went from {free_before} to {free_after}");
    let about = dpdk_telemetry(pair.app(), "/pmdscope")?;
    ensure!(number(&about, "abandoned_bytes")? == 0, "{about}");
    generator.stop()?;
    pair.reflector.interrupt()?;
    Ok(())
}

/// A consumer that stops reading: its ring fills, drops are counted, nothing else suffers.
pub(crate) fn stopped_capture(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    let file = scratch.path("stopped.pcapng");
    let capture = start_capture(scratch, pair.app(), &file, &[])?;
    sleep(Duration::from_millis(500));
    let before = packets_per_second(pair.app())?;
    capture.signal(Signal::STOP)?;
    wait_until("the full ring to drop", Duration::from_secs(10), || {
        let tee = dpdk_telemetry(pair.app(), "/pmdscope/tee")?;
        Ok(column(&tee, "dropped")?.iter().sum::<u64>() > 0)
    })?;
    forwards_as_before(pair.app(), before)?;
    // The lease runs out and the app lets the dead session go by itself.
    wait_until("the lease to run out", Duration::from_secs(15), || {
        let tee = dpdk_telemetry(pair.app(), "/pmdscope/tee")?;
        Ok(column(&tee, "armed")?.iter().all(|armed| *armed == 0))
    })?;
    drop(capture);
    generator.stop()?;
    pair.reflector.interrupt()?;
    Ok(())
}

/// The rate is back; a machine that was busy elsewhere gets a few seconds.
fn forwards_as_before(app: &str, before: f64) -> Result<()> {
    let mut rates = Vec::new();
    for _ in 0..5 {
        let rate = packets_per_second(app)?;
        if rate > before * 0.95 {
            return Ok(());
        }
        rates.push(rate);
    }
    bail!("{before:.0} pps before, then {rates:.0?}")
}

/// Packets that the app receives per second, over one second, by DPDK's own counters.
fn packets_per_second(app: &str) -> Result<f64> {
    let start = Instant::now();
    let first = number(&dpdk_telemetry(app, "/ethdev/stats,0")?, "ipackets")?;
    sleep(Duration::from_secs(1));
    let second = number(&dpdk_telemetry(app, "/ethdev/stats,0")?, "ipackets")?;
    Ok((second - first) as f64 / start.elapsed().as_secs_f64())
}

fn open_files(process: &Process) -> Result<usize> {
    let dir = format!("/proc/{}/fd", process.pid());
    Ok(std::fs::read_dir(&dir).with_context(|| dir.clone())?.count())
}
