//! What `pmdscope netstat` reports besides conversations: counters, queues, listeners and
//! statistics.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;

use crate::support::{LIMIT, Needs, number, pmdscope, pmdscope_json, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("interfaces_tell_what_dpdk_counted", Needs::Apps, interfaces),
        trial("queues_listeners_and_statistics_add_up", Needs::Apps, views),
    ]
}

/// DPDK's counters, as they are.
fn interfaces(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    pair.generate(scratch, &["--rate", "50000", "--count", "20000"])?.finish(LIMIT)?;
    let report = pmdscope_json(scratch, &["netstat", "-i", "-a", pair.app(), "--json"], &[0])?;
    let stats = telemetry::ask(pair.app(), "/ethdev/stats,0")?;
    let interface = &report["interfaces"][0];
    for (shown, counted) in [
        ("rx_ok", "ipackets"),
        ("rx_err", "ierrors"),
        ("rx_drp", "rx_nombuf"),
        ("rx_ovr", "imissed"),
        ("tx_ok", "opackets"),
        ("tx_err", "oerrors"),
    ] {
        ensure!(interface[shown] == stats[counted], "{shown} is {interface}, {counted} of {stats}");
    }
    ensure!(number(&stats, "ipackets")? == 20_000, "{stats}");
    let text = pmdscope(scratch, &["netstat", "-i", "-a", pair.app()], &[0])?;
    ensure!(text.contains("RX-OK") && text.contains("20,000"), "{text}");
    pair.reflector.interrupt()?;
    Ok(())
}

/// The other views, on two queues.
fn views(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { queues: 2, ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "20000", "--flows", "8"])?;
    let view = |args: &[&str]| {
        let mut all = vec!["netstat", "-a", pair.app(), "--json", "--sample", "1", "--for", "1s"];
        all.extend(args);
        pmdscope_json(scratch, &all, &[0])
    };
    let queues = view(&["--queues"])?;
    let rows = queues["queues"].as_array().context("queues")?;
    ensure!(rows.len() == 2, "{queues:#}");
    let listen = view(&["--listen"])?;
    let listeners = listen["listeners"].as_array().context("listeners")?;
    let echo =
        listeners.iter().find(|listener| listener["port"] == 7 || listener["local"]["port"] == 7);
    ensure!(echo.is_some(), "{listen:#}");
    let statistics = view(&["-s"])?;
    let udp = number(&statistics["protocols"]["udp"], "packets")?;
    ensure!(udp > 1000 && udp == number(&statistics["total"], "packets")?, "{statistics:#}");

    let mut command = Command::new(programs::pmdscope()?);
    command.args(["netstat", "-a", pair.app(), "-c", "--json", "--sample", "1"]);
    let mut continuous = Process::spawn("continuous", &mut command, scratch.dir())?;
    wait_until("three reports", LIMIT, || {
        Ok(continuous.output().matches("\"schema\"").count() >= 3)
    })?;
    continuous.interrupt()?;
    generator.stop()?;
    pair.reflector.interrupt()?;
    Ok(())
}
