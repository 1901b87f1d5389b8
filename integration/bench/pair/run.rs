//! Starts two processes on a link, and measures the packets that come back to the first.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pmdscope_integration::cache_line::{RoundTrips, round_trip_ns};
use pmdscope_integration::frames::{UDP, Way, frame, write_pcap};
use pmdscope_integration::machine::own_group;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use serde_json::Value;

use crate::link::{IMIX, Link, Size, TestpmdTraffic};

const START: Duration = Duration::from_secs(30);
const WARM_UP: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_millis(1500);
/// Packets that must be back before the warm-up begins.
const RUNNING: u64 = 10_000;
/// Options of the generator at a set rate: whole bursts, as at its highest rate. Packets that leave one
/// at a time cost more calls of the driver than 90 % of that rate allows.
const PACED: [&str; 2] = ["--pace", "bursts"];
/// 90 % of what these two processes reach: their rate differs from run to run by more than a tenth.
const RATE: [&str; 2] = ["--rate", "90%"];
/// Options of the reflector that must not lose packets: longer than a virtual CPU usually pauses.
const RETRY: [&str; 2] = ["--retry", "20000"];

/// The processes on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// Two of testpmd; the reflector swaps MAC addresses only.
    Macswap,
    /// Two of testpmd; the reflector swaps MAC and IP addresses and ports, as ours does.
    FiveTupleSwap,
    Pmdscope,
}

impl Peer {
    pub(crate) const ALL: [Self; 3] = [Self::Macswap, Self::FiveTupleSwap, Self::Pmdscope];

    /// Forwarding mode of the reflecting testpmd.
    pub(crate) fn forward_mode(self) -> Option<&'static str> {
        match self {
            Self::Macswap => Some("macswap"),
            Self::FiveTupleSwap => Some("5tswap"),
            Self::Pmdscope => None,
        }
    }
}

/// Results without limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlimited {
    /// Packets per second that come back.
    pub(crate) rate: f64,
    pub(crate) round_trips: RoundTrips,
}

/// Results at a set rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Requested packets per second, and those sent.
    pub(crate) asked: f64,
    pub(crate) achieved: f64,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// Latencies, nanoseconds.
    pub(crate) p50_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) seconds: u64,
    pub(crate) round_trips: RoundTrips,
}

impl Held {
    /// False if the pair was slower than in the seconds before.
    pub(crate) fn reached(&self) -> bool {
        self.achieved >= self.asked * 0.99
    }
}

/// The programs, and the CPUs of the two sides.
#[derive(Debug)]
pub(crate) struct PairBench {
    pub(crate) cpus: (usize, usize),
    pub(crate) generator: PathBuf,
    pub(crate) reflector: PathBuf,
    /// Packets that a queue holds: the same on both sides, and for testpmd and our apps, as are the mbufs.
    pub(crate) descriptors: u32,
}

impl PairBench {
    /// Measures a peer that sends as fast as it can.
    pub(crate) fn unlimited(&self, peer: Peer, link: Link, size: Size) -> Result<Unlimited> {
        match peer {
            Peer::Pmdscope => self.returned(peer, link, |scratch, socket| {
                self.start_generator(link, scratch, socket, &["--size", size.generator()])
            }),
            Peer::Macswap | Peer::FiveTupleSwap => self.returned(peer, link, |scratch, socket| {
                let mut device = link.client(socket, self.descriptors);
                let mode = match size.testpmd() {
                    TestpmdTraffic::Flowgen(txpkts) => {
                        vec!["--forward-mode=flowgen".to_owned(), format!("--txpkts={txpkts}")]
                    }
                    TestpmdTraffic::Replay => {
                        device.extend(replay_device(scratch)?);
                        vec!["--forward-mode=io".to_owned()]
                    }
                };
                self.start_testpmd("generator", self.cpus.0, device, scratch, &mode)
            }),
        }
        .with_context(|| format!("{peer:?}, {} {}", link.name(), size.name()))
    }

    /// Measures what a generator gets back from the reflector of a peer.
    fn returned(
        &self,
        peer: Peer,
        link: Link,
        start_generator: impl FnOnce(&Scratch, &Path) -> Result<(String, Process)>,
    ) -> Result<Unlimited> {
        let scratch = Scratch::new()?;
        let socket = scratch.path("link.sock");
        let reflector = self.start_reflector(peer, link, &scratch, &socket, &[])?;
        let (app, mut generator) = start_generator(&scratch, &socket)?;
        let rate = self.returned_rate(&app, &mut generator);
        // The sending side ends first: memif has problems if the other one does.
        drop(generator);
        drop(reflector);
        rate
    }

    /// What the driver of an app receives, in a window after a warm-up.
    fn returned_rate(&self, app: &str, process: &mut Process) -> Result<Unlimited> {
        let received = || telemetry::number(app, "/ethdev/stats,0", "ipackets");
        wait_until("packets that come back", START, || {
            alive(process)?;
            Ok(received().unwrap_or(0) > RUNNING)
        })?;
        sleep(WARM_UP);
        let before_ns = round_trip_ns(self.cpus)?;
        let (begin, before) = (Instant::now(), received()?);
        sleep(WINDOW);
        let (after, time) = (received()?, begin.elapsed());
        let round_trips = RoundTrips { before_ns, after_ns: round_trip_ns(self.cpus)? };
        let packets = after.checked_sub(before).context("the counters began anew")?;
        Ok(Unlimited { rate: packets as f64 / time.as_secs_f64(), round_trips })
    }

    /// Sends at a part of the highest rate for some time, after a warm-up of two thirds of that: a busy
    /// virtual CPU may be moved to another core of the host after half a minute.
    pub(crate) fn hold(&self, link: Link, size: Size, time: Duration) -> Result<Held> {
        let scratch = Scratch::new()?;
        let socket = scratch.path("link.sock");
        let json = scratch.path("generator.json");
        let reflector = self.start_reflector(Peer::Pmdscope, link, &scratch, &socket, &RETRY)?;
        let seconds = time.as_secs();
        let (duration, json_path) = (seconds.to_string(), json.display().to_string());
        let warm_up = time * 2 / 3;
        let warm_up_s = warm_up.as_secs_f64().to_string();
        let args = ["--size", size.generator(), "--warm-up", &warm_up_s];
        let args = [&args[..], &["--duration", &duration, "--json", &json_path]].concat();
        let args = [&args[..], &RATE, &PACED].concat();
        let (_, mut generator) = self.start_generator(link, &scratch, &socket, &args)?;
        let before_ns = round_trip_ns(self.cpus)?;
        generator.finish(warm_up + time + START)?;
        let round_trips = RoundTrips { before_ns, after_ns: round_trip_ns(self.cpus)? };
        drop(reflector);
        let summary: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
        let number = |value: &Value, key: &str| {
            value[key].as_f64().with_context(|| format!("no {key} in {summary}"))
        };
        let count = |value: &Value, key: &str| {
            value[key].as_u64().with_context(|| format!("no {key} in {summary}"))
        };
        let latency = &summary["latency_ns"];
        Ok(Held {
            asked: number(&summary, "rate_asked")?,
            achieved: number(&summary, "rate_achieved")?,
            sent: count(&summary, "sent")?,
            lost: count(&summary, "lost")?,
            p50_ns: count(latency, "p50")?,
            p99_9_ns: count(latency, "p99_9")?,
            seconds,
            round_trips,
        })
    }

    fn start_reflector(
        &self,
        peer: Peer,
        link: Link,
        scratch: &Scratch,
        socket: &Path,
        args: &[&str],
    ) -> Result<Process> {
        let cpu = self.cpus.1;
        let mut process = match peer.forward_mode() {
            None => {
                let prefix = scratch.prefix("reflector");
                let mut command = eal(&self.reflector, &format!("1@{cpu}"), &prefix);
                command.args(link.server(socket, self.descriptors)).arg("--");
                command.args(self.app_args()).args(args);
                Process::spawn("reflector", &mut command, scratch.dir())?
            }
            Some(mode) => {
                let args = [format!("--forward-mode={mode}")];
                let device = link.server(socket, self.descriptors);
                self.start_testpmd("reflector", cpu, device, scratch, &args)?.1
            }
        };
        wait_until("the socket of the link", START, || {
            alive(&mut process)?;
            Ok(socket.exists())
        })?;
        own_group(process.pid())?;
        Ok(process)
    }

    fn start_generator(
        &self,
        link: Link,
        scratch: &Scratch,
        socket: &Path,
        args: &[&str],
    ) -> Result<(String, Process)> {
        let prefix = scratch.prefix("generator");
        let mut command = eal(&self.generator, &format!("0@{}", self.cpus.0), &prefix);
        command.args(link.client(socket, self.descriptors)).arg("--").args(self.app_args());
        command.args(args);
        let mut process = Process::spawn("generator", &mut command, scratch.dir())?;
        await_telemetry(&mut process, &prefix)?;
        Ok((prefix, process))
    }

    /// Arguments of the generator and the reflector.
    fn app_args(&self) -> Vec<String> {
        let (descriptors, mbufs) = (self.descriptors.to_string(), self.mbufs().to_string());
        ["--quiet", "--descriptors", &descriptors, "--mbufs", &mbufs].map(str::to_owned).into()
    }

    /// Those of both queues of two ports, and of bursts and caches.
    fn mbufs(&self) -> u32 {
        4 * self.descriptors + 12_288
    }

    /// With a console, as it would end otherwise: its main lcore does not forward and has nothing
    /// to do.
    fn start_testpmd(
        &self,
        role: &str,
        cpu: usize,
        device: Vec<String>,
        scratch: &Scratch,
        args: &[String],
    ) -> Result<(String, Process)> {
        let prefix = scratch.prefix(role);
        let lcores = format!("0@{cpu},1@{cpu}");
        let descriptors = self.descriptors;
        let mut command = eal(Path::new(crate::TESTPMD), &lcores, &prefix);
        command.args(device).args(["--", "-i", "--auto-start", "--no-mlockall"]);
        command.args(["--disable-link-check", "--burst=32"]);
        command.args([format!("--txd={descriptors}"), format!("--rxd={descriptors}")]);
        command.arg(format!("--total-num-mbufs={}", self.mbufs())).args(args);
        let mut process = Process::spawn_with_console(role, &mut command, scratch.dir())?;
        await_telemetry(&mut process, &prefix)?;
        Ok((prefix, process))
    }
}

/// A device that sends the packets of IMIX again and again, and drops what it is given.
fn replay_device(scratch: &Scratch) -> Result<Vec<String>> {
    let way = Way {
        proto: UDP,
        from: SocketAddr::from(([198, 18, 0, 1], 1024)),
        to: SocketAddr::from(([198, 19, 0, 1], 9)),
        vlan: None,
    };
    let frames: Vec<_> = IMIX.map(|size| frame(way, 0, 0, size)).into_iter().collect();
    let file = scratch.path("imix.pcap");
    write_pcap(&file, &frames)?;
    let device = format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display());
    Ok(vec!["--vdev".to_owned(), device])
}

/// A DPDK process in a session of its own, on hugepages.
fn eal(program: &Path, lcores: &str, prefix: &str) -> Command {
    let mut command = Command::new("setsid");
    command.arg(program).args(["--lcores", lcores, "--no-pci", "-m", "256"]);
    command.args(["--file-prefix", prefix, "--log-level", "lib.*:error"]);
    command
}

fn alive(process: &mut Process) -> Result<()> {
    match process.exited()? {
        Some(status) => bail!("it ended at once ({status}):\n{}", process.output()),
        None => Ok(()),
    }
}

fn await_telemetry(process: &mut Process, prefix: &str) -> Result<()> {
    let socket = telemetry::socket(prefix);
    wait_until("DPDK telemetry", START, || {
        alive(process)?;
        Ok(socket.exists())
    })?;
    own_group(process.pid())
}
