//! Why packets are missed: each cause is injected, and is the first one that `pmdscope check` tells.
//!
//! Of DPDK's virtual devices only `net_pcap` and `net_af_xdp` count what they miss. A virtual machine
//! has neither PCIe links nor clocks to slow down, so that both have unit tests only.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::veth::Veth;
use rustix::process::{Pid, setpriority_process};
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, pmdscope_json, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    let veth = || Needs::Apps.missing().or_else(without_veth);
    vec![
        trial_unless("missed_by_own_code", veth(), own_code),
        trial_unless("missed_by_a_stolen_core", veth().or_else(without_fifo), stolen_core),
        trial_unless("missed_by_an_empty_pool_that_leaks", veth(), empty_pool),
        trial_unless("missed_by_tx_backpressure", veth(), backpressure),
        trial_unless("missed_by_a_hot_queue", veth(), hot_queue),
    ]
}

fn without_veth() -> Option<Missing> {
    let error = Veth::new().err()?;
    Some(Missing::Machine(format!("cannot make a veth pair: {error:#}")))
}

fn without_fifo() -> Option<Missing> {
    let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
    let works = tried.is_ok_and(|out| out.status.success());
    (!works).then(|| Missing::Machine("cannot run a process by SCHED_FIFO".to_owned()))
}

/// A reflector on the ends of these wires, with further arguments, and a generator that sends to the
/// first.
struct Lossy {
    app: String,
    _generator: Process,
    _reflector: Process,
}

impl Lossy {
    fn start(
        scratch: &Scratch,
        device: &str,
        wire: &Veth,
        rate: &str,
        args: &[&str],
    ) -> Result<Self> {
        let app = scratch.prefix("reflector");
        let mut command = Command::new(programs::reflector()?);
        eal(&mut command, "1@1", &app, Memory::Ordinary);
        command.args(["--vdev", device, "--pmdscope", "leak_mode=always", "--"]).args(args);
        let mut reflector = Process::spawn("reflector", &mut command, scratch.dir())?;
        // What else runs on this machine shall not be what it misses packets by.
        prefer(&reflector)?;
        let ready = format!("/var/run/dpdk/{app}/pmdscope.sock");
        wait_until("the reflector", LIMIT, || {
            let ended = reflector.exited()?;
            ensure!(ended.is_none(), "it ended ({ended:?}):\n{}", reflector.output());
            Ok(std::fs::exists(&ready)?)
        })?;
        let mut command = Command::new(programs::generator()?);
        eal(&mut command, "0@0", &scratch.prefix("generator"), Memory::Ordinary);
        command.args(["--vdev", &format!("net_af_packet0,iface={}", wire.far())]);
        command.args(["--", "--rate", rate, "--quiet"]);
        let generator = Process::spawn("generator", &mut command, scratch.dir())?;
        Ok(Self { app, _generator: generator, _reflector: reflector })
    }

    /// Waits for a check that tells this cause before all others, with these words. On a busy machine
    /// others really do take the CPU, so that a stolen core may be told before it.
    fn is_missing_by(&self, scratch: &Scratch, cause: &str, words: &[&str]) -> Result<Value> {
        let mut last = Value::Null;
        let told = wait_until(&format!("packets missed by {cause}"), LIMIT, || {
            let args = ["check", "--json", "-a", &self.app, "--for", "4"];
            let json = pmdscope_json(scratch, &args, &[0, 1])?;
            let findings = json["apps"][0]["findings"].as_array().context("no findings")?;
            let missed = findings.iter().find(|finding| finding["lint"] == "rx_missed");
            last = missed.cloned().unwrap_or(json["apps"].clone());
            eprintln!("{cause}: {}", last["causes"]);
            let Some(causes) = last["causes"].as_array() else { return Ok(false) };
            let shares: f64 = causes.iter().filter_map(|cause| cause["share"].as_f64()).sum();
            ensure!(shares <= 1.000_001, "shares of {shares}: {last:#}");
            let is_injected =
                |told: &&Value| told["cause"] != "stolen_core" || cause == "stolen_core";
            let Some(first) = causes.iter().find(is_injected) else { return Ok(false) };
            let evidence = first["evidence"].as_str().context("no evidence")?;
            Ok(first["cause"] == cause && words.iter().all(|word| evidence.contains(word)))
        });
        told.with_context(|| format!("{last:#}"))?;
        Ok(last)
    }
}

/// Gives a process most of its CPU whatever else runs on this machine.
fn prefer(process: &Process) -> Result<()> {
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
    Ok(setpriority_process(pid, -10)?)
}

fn pcap(wire: &Veth) -> String {
    format!("net_pcap0,iface={}", wire.near())
}

fn own_code(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let stall = ["--inject-stall", "600000/1000"];
    let lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &stall)?;
    let found = lossy.is_missing_by(scratch, "stalled_lcore", &["own code kept the CPU"])?;
    let evidence = found["evidence"].as_str().context("no evidence")?;
    for word in ["512 descriptors (assumed) last ", "the worst gap was "] {
        ensure!(evidence.contains(word), "{evidence}");
    }
    let lines = Command::new(programs::pmdscope()?)
        .args(["check", "-a", &lossy.app, "--for", "2"])
        .output()?;
    let text = String::from_utf8_lossy(&lines.stdout);
    ensure!(!text.contains("rx_missed") || text.contains("\n    cause: "), "{text}");
    Ok(())
}

/// A thread of a higher class, on the CPU of the poll thread.
fn stolen_core(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &[])?;
    let hog = "while :; do i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; sleep 0.3; done";
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "chrt", "-f", "10", "sh", "-c", hog]);
    let _hog = Process::spawn("hog", &mut command, scratch.dir())?;
    lossy.is_missing_by(scratch, "stolen_core", &["lcore 1", "CPU"])?;
    Ok(())
}

fn empty_pool(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = format!("net_af_xdp0,iface={}", wire.near());
    let leak = ["--mbufs", "5000", "--inject-leak", "1/2"];
    let lossy = Lossy::start(scratch, &device, &wire, "50k", &leak)?;
    let words = ["pool reflector_pool has ", "most lost at leak.c:"];
    let found = lossy.is_missing_by(scratch, "pool_empty", &words)?;
    let advice = found["advice"].as_str().context("no advice")?;
    ensure!(advice.starts_with("stop the leak"), "{advice}");
    Ok(())
}

fn backpressure(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let refusal = ["--inject-refusal", "600000/1000"];
    let lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &refusal)?;
    lossy.is_missing_by(
        scratch,
        "tx_backpressure",
        &["port 0 (net_pcap0)", "a loop that retries"],
    )?;
    Ok(())
}

/// Two queues, of which one gets more than the app can take.
fn hot_queue(scratch: &Scratch) -> Result<()> {
    let (wire, idle) = (Veth::new()?, Veth::new()?);
    let [hot, cold] = [wire.near(), idle.near()];
    let device = format!("net_pcap0,rx_iface={hot},rx_iface={cold},tx_iface={hot},tx_iface={cold}");
    let lossy = Lossy::start(scratch, &device, &wire, "2M", &["--queues", "2"])?;
    lossy.is_missing_by(scratch, "hot_queue", &["queue 0 gets ", "of the packets of 2 queues"])?;
    Ok(())
}
