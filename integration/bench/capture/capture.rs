//! One capture by pmdscope or by its peer, and the counts of packets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::machine::{Machine, cpu_ns, own_group, real_time};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::{oracle, scratch::Scratch};
use rustix::process::Signal;

use crate::traffic::count_packets;

/// The peer, as installed by Debian's package `dpdk`.
pub(crate) const DUMPCAP: &str = "dpdk-dumpcap";

const START: Duration = Duration::from_secs(10);
/// Time from its first line until the peer's callbacks are in the app.
const ATTACH: Duration = Duration::from_millis(400);
/// Time from pmdscope's first line until it has its rings and their clocks.
const SETTLE: Duration = Duration::from_millis(100);
/// Time to write the packets in rings and in the merge. The peer leaves its ring full when it is
/// stopped.
const DRAIN: Duration = Duration::from_millis(250);
const STOP: Duration = Duration::from_secs(30);
/// Files with this many packets are also counted by capinfos.
const CHECKED: std::ops::Range<u64> = 1000..1_000_000;

/// The capturing program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// `pmdscope capture`.
    Pmdscope,
    /// `dpdk-dumpcap`.
    Dumpcap,
}

impl Who {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pmdscope => "pmdscope",
            Self::Dumpcap => DUMPCAP,
        }
    }
}

/// Settings of a capture.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) who: Who,
    pub(crate) prefix: &'a str,
    pub(crate) device: &'a str,
    pub(crate) snaplen: Option<u32>,
    pub(crate) filter: Option<&'a str>,
    /// `None` is `/dev/null`.
    pub(crate) file: Option<&'a Path>,
}

/// A capture that runs.
pub(crate) struct Capture {
    who: Who,
    process: Process,
    cpu_before: u64,
    ring_bytes: Option<u64>,
}

/// Results of a capture at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Packets in the file; to `/dev/null`, packets that were not lost.
    pub(crate) written: u64,
    /// Packets that the capture itself reports as lost.
    pub(crate) lost: u64,
    /// CPU time of the capturing process between its start and its end.
    pub(crate) cpu_ns: u64,
    /// Bytes of its ring, if known.
    pub(crate) ring_bytes: Option<u64>,
}

/// Starts captures.
pub(crate) struct Captures<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) scratch: &'a Scratch,
    pub(crate) pmdscope: PathBuf,
    /// At real-time priority.
    pub(crate) fifo: bool,
    /// Additional arguments for pmdscope.
    pub(crate) args: Vec<String>,
}

impl Captures<'_> {
    /// Starts a capture and waits until it captures packets.
    pub(crate) fn start(&self, order: &Order<'_>) -> Result<Capture> {
        let mut command = Command::new("setsid");
        command.args(["taskset", "-c", &self.machine.others()]);
        let ready = match order.who {
            Who::Pmdscope => self.pmdscope(&mut command, order),
            Who::Dumpcap => dumpcap(&mut command, order),
        };
        let name = order.who.name();
        let mut process = Process::spawn(name, &mut command, self.scratch.dir())?;
        wait_until(name, START, || {
            if let Some(status) = process.exited()? {
                bail!("{name} ended at once ({status}):\n{}", process.output());
            }
            Ok(process.output().contains(ready))
        })?;
        own_group(process.pid())?;
        sleep(if order.who == Who::Dumpcap { ATTACH } else { SETTLE });
        if self.fifo {
            // Not earlier: the peer would then take the CPU that the app needs for its answer.
            real_time(process.pid())?;
        }
        let (cpu_before, ring_bytes) = (cpu_ns(process.pid())?, ring_bytes(process.pid()));
        Ok(Capture { who: order.who, process, cpu_before, ring_bytes })
    }

    fn pmdscope(&self, command: &mut Command, order: &Order<'_>) -> &'static str {
        let interface = format!("{}:{}", order.prefix, order.device);
        command.arg(&self.pmdscope).args(["capture", "-i", &interface, "-Q", "in"]);
        command.args(&self.args);
        if let Some(snaplen) = order.snaplen {
            command.args(["-s", &snaplen.to_string()]);
        }
        command.arg("-w").arg(target(order));
        command.args(order.filter);
        "listening on"
    }
}

/// The peer with its defaults, but without its counter on the terminal.
fn dumpcap(command: &mut Command, order: &Order<'_>) -> &'static str {
    command.args([DUMPCAP, "--file-prefix", order.prefix, "-i", order.device, "-q"]);
    if let Some(snaplen) = order.snaplen {
        command.args(["-s", &snaplen.to_string()]);
    }
    if let Some(filter) = order.filter {
        command.args(["-f", filter]);
    }
    command.arg("-w").arg(target(order));
    "File:"
}

fn target<'a>(order: &Order<'a>) -> &'a Path {
    order.file.unwrap_or(Path::new("/dev/null"))
}

impl Capture {
    /// Ends the capture once it has written its packets. `offered` packets passed its filter.
    pub(crate) fn stop(mut self, offered: u64, file: Option<&Path>) -> Result<Ended> {
        sleep(DRAIN);
        let cpu_ns = cpu_ns(self.process.pid())?.saturating_sub(self.cpu_before);
        self.process.signal(Signal::INT)?;
        self.process.wait(STOP)?;
        let output = self.process.output();
        let (captured, lost) = match self.who {
            Who::Pmdscope => pmdscope_report(&output),
            Who::Dumpcap => dumpcap_report(&output, offered),
        }
        .with_context(|| format!("{} reported:\n{output}", self.who.name()))?;
        let written = match file {
            None => captured,
            Some(file) => self.count(file, captured)?,
        };
        Ok(Ended { written, lost, cpu_ns, ring_bytes: self.ring_bytes })
    }

    /// Counts the packets in the file, and checks that pmdscope reports the same number.
    fn count(&self, file: &Path, captured: u64) -> Result<u64> {
        let counted = count_packets(file)?;
        ensure!(
            self.who == Who::Dumpcap || counted == captured,
            "pmdscope reported {captured} packets, but wrote {counted}"
        );
        Ok(counted)
    }
}

/// Packets captured and lost, from tcpdump's statistics.
fn pmdscope_report(output: &str) -> Option<(u64, u64)> {
    let counts = output.lines().filter_map(|line| {
        let (count, what) = line.split_once(" packets ")?;
        Some((count.parse::<u64>().ok()?, what))
    });
    let (mut captured, mut lost) = (None, 0);
    for (count, what) in counts {
        match what.split(' ').next() {
            Some("captured") => captured = Some(count),
            Some("dropped" | "lost") => lost += count,
            _ => {}
        }
    }
    Some((captured?, lost))
}

/// The peer prints packets "received", which include dropped ones, and the dropped ones.
fn dumpcap_report(output: &str, offered: u64) -> Option<(u64, u64)> {
    let line = output.lines().find(|line| line.starts_with("Packets received/dropped"))?;
    let (_, counts) = line.split_once("': ")?;
    let dropped = counts.split(['/', ' ']).nth(1)?.parse::<u64>().ok()?;
    Some((offered.saturating_sub(dropped), dropped))
}

/// Size of the ring of a pmdscope, from its mappings; there is only one, for the single polling
/// lcore.
fn ring_bytes(pid: u32) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.contains("memfd:pmdscope-ring"))?;
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).ok());
    Some((to? - from?).next_power_of_two() >> 1)
}

/// Compares our count of the packets of a file with that of capinfos, if it is not too large.
pub(crate) fn check_count(file: &Path, counted: u64) -> Result<bool> {
    if !CHECKED.contains(&counted) || !oracle::installed("capinfos") {
        return Ok(false);
    }
    let report = oracle::capinfos(file)?;
    let line = report.lines().find_map(|line| line.strip_prefix("Number of packets:"));
    let said = line.context("capinfos without a number of packets")?.trim();
    ensure!(said == counted.to_string(), "capinfos counts {said} packets, this bench {counted}");
    Ok(true)
}
