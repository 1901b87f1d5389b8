//! Why packets are missed: each cause is injected, and is the first one that `pmdscope check`
//! reports.
//!
//! Of DPDK's virtual devices only `net_pcap` and `net_af_xdp` count what they miss. A virtual machine has
//! no clocks to slow down: the files that report them are injected. It has no PCIe links either: a NIC
//! that misses packets by itself is one that gets frames that are too long for it, and a slow link has
//! unit tests only.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::testpmd;
use pmdscope_integration::tracefs::with_tracefs;
use pmdscope_integration::veth::Veth;
use pmdscope_testing::output;
use rustix::process::{Pid, setpriority_process};
use serde_json::Value;

use crate::interrupts::missing_to_trace;
use crate::support::{
    LIMIT, Missing, Needs, document, missing_program, pmdscope_json, trial_unless,
};

pub(crate) fn trials() -> Vec<Trial> {
    let veth = || Needs::Apps.missing().or_else(without_veth);
    vec![
        trial_unless("missed_by_own_code", veth(), own_code),
        trial_unless("missed_by_a_stolen_core", veth().or_else(without_fifo), stolen_core),
        trial_unless(
            "missed_by_a_stolen_core_that_is_named",
            veth().or_else(without_fifo).or_else(missing_to_trace),
            named_thief,
        ),
        trial_unless("missed_by_an_empty_pool_that_leaks", veth(), empty_pool),
        trial_unless("missed_by_tx_backpressure", veth(), backpressure),
        trial_unless("missed_by_a_hot_queue", veth(), hot_queue),
        trial_unless("missed_by_a_sleeping_lcore", veth(), sleeping),
        trial_unless(
            "missed_by_a_busy_lcore_and_a_slow_clock",
            veth().or_else(|| missing_program(&["unshare", "mount"])),
            busy_and_slow,
        ),
        trial_unless("missed_by_a_ring_too_small", veth(), small_ring),
        trial_unless("missed_by_an_empty_pool_that_is_too_small", veth(), small_pool),
        trial_unless("missed_by_the_nic", veth(), nic),
        trial_unless("missed_for_unknown_reasons", veth(), unknown),
    ]
}

fn without_veth() -> Option<Missing> {
    let error = Veth::new().err()?;
    Some(Missing::Machine(format!("cannot make a veth pair: {error:#}")))
}

fn without_fifo() -> Option<Missing> {
    let tried = output(Command::new("chrt").args(["-f", "1", "true"]));
    let works = tried.is_some_and(|out| out.status.success());
    (!works).then(|| Missing::Machine("cannot run a process by SCHED_FIFO".to_owned()))
}

/// A reflector on the ends of these wires, with further arguments, and a generator that sends to the
/// first.
struct Lossy {
    app: String,
    /// Replaces the directory of CPU 1 in sysfs.
    sysfs: Option<PathBuf>,
    /// Asks for the names of thieves.
    traced: bool,
    _generator: Option<Process>,
    process: Process,
}

impl Lossy {
    fn start(
        scratch: &Scratch,
        device: &str,
        wire: &Veth,
        rate: &str,
        args: &[&str],
    ) -> Result<Self> {
        Self::idle(scratch, device, "leak_mode=always", args)?.and_generator(scratch, wire, rate)
    }

    fn and_generator(self, scratch: &Scratch, wire: &Veth, rate: &str) -> Result<Self> {
        let mut command = Command::new(programs::generator()?);
        eal(&mut command, "0@0", &scratch.prefix("generator"), Memory::Ordinary);
        command.args(["--vdev", &format!("net_af_packet0,iface={}", wire.far())]);
        command.args(["--", "--rate", rate, "--quiet"]);
        let generator = Process::spawn("generator", &mut command, scratch.dir())?;
        Ok(Self { _generator: Some(generator), ..self })
    }

    /// Without a generator; with these settings of libpmdscope.
    fn idle(scratch: &Scratch, device: &str, settings: &str, args: &[&str]) -> Result<Self> {
        let app = scratch.prefix("reflector");
        let mut command = Command::new(programs::reflector()?);
        eal(&mut command, "1@1", &app, Memory::Ordinary);
        command.args(["--vdev", device, "--pmdscope", settings, "--"]).args(args);
        let mut reflector = Process::spawn("reflector", &mut command, scratch.dir())?;
        // Other processes on this machine must not be the reason for missed packets.
        prefer(&reflector)?;
        let ready = format!("/var/run/dpdk/{app}/pmdscope.sock");
        wait_until("the reflector", LIMIT, || {
            let ended = reflector.exited()?;
            ensure!(ended.is_none(), "it ended ({ended:?}):\n{}", reflector.output());
            Ok(std::fs::exists(&ready)?)
        })?;
        Ok(Self { app, sysfs: None, traced: false, _generator: None, process: reflector })
    }

    fn check(&self, scratch: &Scratch) -> Result<Value> {
        let args = ["check", "--json", "-a", &self.app, "--for", "4"];
        if self.traced {
            let program = programs::pmdscope()?;
            let program = program.to_string_lossy();
            let words = [&[&*program], &args[..], &["--interrupts"]].concat();
            let (code, out, err) = run(&mut with_tracefs(&words), scratch.dir(), LIMIT)?;
            ensure!([0, 1].contains(&code), "check ended with {code}:\n{out}{err}");
            return document(&args, &out);
        }
        let Some(sysfs) = &self.sysfs else {
            return pmdscope_json(scratch, &args, &[0, 1]);
        };
        let mut command = Command::new("unshare");
        let mounted = "mount --bind \"$0\" /sys/devices/system/cpu/cpu1 && exec \"$@\"";
        command.args(["-m", "sh", "-c", mounted]).arg(sysfs).arg(programs::pmdscope()?);
        let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
        ensure!([0, 1].contains(&code), "check ended with {code}:\n{out}{err}");
        document(&args, &out)
    }

    /// How often the kernel has taken the CPU from threads of the app, and for how long the hypervisor has
    /// taken CPU 1, ticks: the evidence for stolen cores in `/proc`.
    fn thefts(&self) -> Result<[u64; 2]> {
        let mut preemptions = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.pid()))? {
            // The thread may have ended.
            let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
            let count =
                status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
            preemptions += count.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        }
        let stat = fs::read_to_string("/proc/stat")?;
        let cpu = stat.lines().find_map(|line| line.strip_prefix("cpu1 "));
        let steal = cpu.and_then(|cpu| cpu.split_whitespace().nth(7)).context("no steal time")?;
        Ok([preemptions, steal.parse()?])
    }

    /// Waits for a check that reports this cause before all others, with these words. On a busy machine
    /// other processes do take the CPU: then a stolen core may be reported before it, if `/proc` confirms
    /// that.
    fn is_missing_by(&self, scratch: &Scratch, cause: &str, words: &[&str]) -> Result<Value> {
        let mut last = Value::Null;
        let told = wait_until(&format!("packets missed by {cause}"), LIMIT, || {
            let thefts = self.thefts()?;
            let json = self.check(scratch)?;
            let findings = json["apps"][0]["findings"].as_array().context("no findings")?;
            let missed = findings.iter().find(|finding| finding["lint"] == "rx_missed");
            last = missed.cloned().unwrap_or(json["apps"].clone());
            eprintln!("{cause}: {}", last["causes"]);
            let Some(causes) = last["causes"].as_array() else { return Ok(false) };
            let shares: f64 = causes.iter().filter_map(|cause| cause["share"].as_f64()).sum();
            ensure!(shares <= 1.000_001, "shares of {shares}: {last:#}");
            if cause != "stolen_core" && causes.iter().any(|told| told["cause"] == "stolen_core") {
                ensure!(self.thefts()? != thefts, "nobody took the core: {last:#}");
            }
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
    let mut check = Command::new(programs::pmdscope()?);
    let lines = output(check.args(["check", "-a", &lossy.app, "--for", "2"]));
    let lines = lines.context("no pmdscope")?;
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

/// The same, named.
fn named_thief(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &[])?;
    let lossy = Lossy { traced: true, ..lossy };
    let mut hog = Command::new(programs::thief()?);
    hog.args(["hog", "1", "1000000", "200000", "150000"]);
    let _hog = Process::spawn("hog", &mut hog, scratch.dir())?;
    let words = ["lcore 1", "its CPU was taken for ", "pmdscope-hog (scheduler) "];
    lossy.is_missing_by(scratch, "stolen_core", &words)?;
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
    let words = ["queue 0 gets ", "of the packets of 2 queues", "most of it udp 198.18.0.1:"];
    lossy.is_missing_by(scratch, "hot_queue", &words)?;
    Ok(())
}

fn sleeping(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let sleep = ["--inject-sleep", "600000/1000"];
    let lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &sleep)?;
    lossy.is_missing_by(scratch, "sleeping_lcore", &["slept or waited for "])?;
    Ok(())
}

/// More packets than the app has time for; then its CPU has a slow clock as well, which comes first.
fn busy_and_slow(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let work = ["--work", "200000"];
    let mut lossy = Lossy::start(scratch, &pcap(&wire), &wire, "60k", &work)?;
    lossy.is_missing_by(scratch, "busy_lcore", &["of the polls brought packets"])?;
    let cpufreq = scratch.path("cpu1/cpufreq");
    fs::create_dir_all(&cpufreq)?;
    fs::write(cpufreq.join("scaling_cur_freq"), "1200000\n")?;
    fs::write(cpufreq.join("cpuinfo_max_freq"), "3000000\n")?;
    lossy.sysfs = Some(scratch.path("cpu1"));
    let words = ["CPU 1 runs at 1200 MHz", "it can sustain 3000 MHz"];
    lossy.is_missing_by(scratch, "slow_clock", &words)?;
    Ok(())
}

/// The app calls gaps of more than two seconds a stall, and its ring does not outlast one of 0.6.
fn small_ring(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let stall = ["--inject-stall", "600000/1000"];
    let settings = "leak_mode=always,stall_us=2000000";
    let lossy = Lossy::idle(scratch, &pcap(&wire), settings, &stall)?;
    let lossy = lossy.and_generator(scratch, &wire, "60k")?;
    let words = ["each shorter than a stall", " descriptors would have held it"];
    lossy.is_missing_by(scratch, "ring_too_small", &words)?;
    Ok(())
}

/// The fill ring of the driver alone takes nearly all mbufs.
fn small_pool(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = format!("net_af_xdp0,iface={}", wire.near());
    let few = ["--mbufs", "2080", "--descriptors", "4096"];
    let lossy = Lossy::start(scratch, &device, &wire, "100k", &few)?;
    let words = ["pool reflector_pool has ", " of 2080 mbufs in use"];
    let found = lossy.is_missing_by(scratch, "pool_empty", &words)?;
    let advice = found["advice"].as_str().context("no advice")?;
    ensure!(advice.contains("enlarge the pool"), "{advice}");
    Ok(())
}

/// Frames of which every other one is longer than a buffer of `net_af_xdp`, which misses it.
struct LongFrames {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LongFrames {
    /// At a rate that no ring of 512 descriptors minds.
    fn send(wire: &Veth) -> Result<Self> {
        let [from, to] = wire.address(3000)?;
        let socket = UdpSocket::bind((from, 0))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for size in [64, 2800] {
                    // Frames that the wire does not take are not in any count of the app.
                    let _ = socket.send_to(&[0; 2800][..size], (to, 9));
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for LongFrames {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn nic(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = format!("net_af_xdp0,iface={}", wire.near());
    let _frames = LongFrames::send(&wire)?;
    let lossy = Lossy::idle(scratch, &device, "leak_mode=auto", &[])?;
    lossy.is_missing_by(scratch, "nic_limit", &["% of the polls brought packets"])?;
    Ok(())
}

/// The same with an app of which too little is known to tell.
fn unknown(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = format!("net_af_xdp0,iface={}", wire.near());
    let _frames = LongFrames::send(&wire)?;
    let (app, testpmd) = testpmd::receiving(scratch, &device)?;
    let lossy = Lossy { app, sysfs: None, traced: false, _generator: None, process: testpmd };
    let words = ["checked pools", "if the app is linked with libpmdscope"];
    lossy.is_missing_by(scratch, "unknown", &words)?;
    Ok(())
}
