//! Incidents of production, each named by one `pmdscope check` of three seconds, or of five for restarts, in
//! its first line. It is repeated only where that line reports that this machine is too busy.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Link, Pair, PairOptions, eal};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::{programs, telemetry};
use rustix::process::{Pid, setpriority_process};

use crate::support::{LIMIT, Needs, await_packets, no_core_files, trial};

/// Length of one check.
const SECONDS: u32 = 3;
/// Length of a check that must see several processes, one after the other.
const SECONDS_OF_RESTARTS: u32 = 5;

/// Packets per second that leave a virtual link idle most of the time.
const RATE: &str = "28000";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("incident_no_device", Needs::Apps, no_device),
        trial("incident_slow_leak", Needs::Apps, slow_leak),
        trial("incident_clone_leak", Needs::Apps, clone_leak),
        trial("incident_own_code_stalls", Needs::Apps, own_code),
        trial("incident_hot_queue", Needs::Apps, hot_queue),
        trial("incident_pool_below_descriptors", Needs::Apps, small_pool),
        trial("incident_peer_stops_reading", Needs::Apps, deaf_peer),
        trial("incident_flapping_port", Needs::Apps, flapping_port),
        trial("incident_restarts_after_an_error", Needs::Apps, restarts_after_an_error),
        trial("incident_restarts_after_a_crash", Needs::Apps, restarts_after_a_crash),
        trial("a_busy_machine_is_no_incident", Needs::Apps, busy_machine),
    ]
}

/// What one check must find, and how long it observes.
struct Incident<'a> {
    seconds: u32,
    exit: i32,
    lint: &'a str,
    /// Words of the first line.
    words: &'a [&'a str],
}

/// Exit code and lines of one check.
fn check(scratch: &Scratch, app: &str, seconds: u32) -> Result<(i32, String)> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["check", "-q", "-a", app, "--for", &seconds.to_string()]);
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    eprint!("{out}");
    ensure!(err.is_empty(), "{err}");
    Ok((code, out))
}

/// The first line of one check must name this lint with these words, and its exit code be this one.
fn named(scratch: &Scratch, app: &str, exit: i32, lint: &str, words: &[&str]) -> Result<()> {
    finds(scratch, app, &Incident { seconds: SECONDS, exit, lint, words })
}

fn finds(scratch: &Scratch, app: &str, incident: &Incident<'_>) -> Result<()> {
    let lint = format!(": {}: ", incident.lint);
    wait_until(&format!("a machine that lets a check find{lint}"), LIMIT, || {
        let (code, out) = check(scratch, app, incident.seconds)?;
        let first = out.lines().next().unwrap_or_default();
        let mut words = [lint.as_str()].into_iter().chain(incident.words.iter().copied());
        let found = code == incident.exit && words.all(|word| first.contains(word));
        ensure!(
            found || is_busy(first),
            "exit code {code}, expected{lint}{:?}:\n{out}",
            incident.words
        );
        Ok(found)
    })?;
    Ok(())
}

/// The first finding was caused by other processes: they had the CPU of a poll loop, or of what answers,
/// so that the app could not be asked, or not to the end of a round.
fn is_busy(line: &str) -> bool {
    let is = |lint: &str, causes: &[&str]| {
        line.contains(&format!(": {lint}: "))
            && (causes.is_empty() || causes.iter().any(|cause| line.contains(cause)))
    };
    is("stall", &["the kernel took its CPU away", "the hypervisor took its CPU away"])
        || is("partly_seen", &["timed out while waiting", "the connection "])
        || is("lcore_stolen", &[])
        || is("unreachable", &[])
}

fn no_device(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix("blind");
    let mut command = Command::new(programs::idle_app()?);
    eal(&mut command, "1@1", &app, Memory::Ordinary);
    let _blind = started(scratch, "blind", &mut command, &app)?;
    named(scratch, &app, 1, "no_ports", &["has no ports"])
}

fn slow_leak(scratch: &Scratch) -> Result<()> {
    pipeline_loses(scratch, "early-return:1/16384", "faults.c:")
}

fn clone_leak(scratch: &Scratch) -> Result<()> {
    pipeline_loses(scratch, "clone:1/4096", "after clone")
}

/// A pipeline that has forwarded for a while when the check begins.
fn pipeline_loses(scratch: &Scratch, fault: &str, words: &str) -> Result<()> {
    let app = scratch.prefix("pipeline");
    let mut command = Command::new(programs::pipeline()?);
    eal(&mut command, "0@0,1@1", &app, Memory::available());
    command.args(["--vdev", "net_null0", "--", "--rate", "300k", "--stamp-packets"]);
    command.args(["--leak-mode", "always", "--fault", fault]);
    let _pipeline = started(scratch, "pipeline", &mut command, &app)?;
    thread::sleep(Duration::from_secs(1));
    named(scratch, &app, 1, "leak", &["lost at", words])
}

/// Gives the first thread of a process most of its CPU whatever else runs on this machine, and leaves
/// some to those that answer telemetry.
fn prefer(process: &Process) -> Result<()> {
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
    Ok(setpriority_process(pid, -10)?)
}

/// Starts an app and waits until it can be asked.
fn started(scratch: &Scratch, name: &str, command: &mut Command, app: &str) -> Result<Process> {
    let mut process = Process::spawn(name, command, scratch.dir())?;
    let socket = telemetry::socket(app);
    wait_until(name, LIMIT, || {
        let ended = process.exited()?;
        ensure!(ended.is_none(), "{name} ended at once ({ended:?}):\n{}", process.output());
        Ok(socket.exists())
    })?;
    Ok(process)
}

/// A gap that a ring of 512 packets does not outlast at this rate.
fn own_code(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { stall: Some("5000/10".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "200000"])?;
    prefer(&pair.reflector)?;
    prefer(&generator.process)?;
    await_packets(pair.app(), 0)?;
    named(scratch, pair.app(), 1, "stall", &["the app's own code kept it"])
}

fn hot_queue(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions { queues: 4, ..PairOptions::default() })?;
    let generator = pair.generate(scratch, &["--rate", "8000", "--hot-queue", "0:9"])?;
    prefer(&pair.reflector)?;
    prefer(&generator.process)?;
    await_packets(pair.app(), 0)?;
    named(
        scratch,
        pair.app(),
        0,
        "queue_imbalance",
        &["queue 0 gets", "% of the packets of 4 queues"],
    )
}

/// The app posts its whole pool to a ring of twice that size.
fn small_pool(scratch: &Scratch) -> Result<()> {
    let memory = Memory::available();
    let socket = scratch.path("link.sock");
    let peer = scratch.prefix("generator");
    let mut command = Command::new(programs::generator()?);
    eal(&mut command, "0@0", &peer, memory);
    command.args(["--vdev", &format!("net_vhost0,iface={}", socket.display())]);
    command.args(["--", "--rate", RATE, "--wait-link", "60"]);
    let _peer = started(scratch, "generator", &mut command, &peer)?;
    wait_until("the socket", LIMIT, || Ok(socket.exists()))?;

    let app = scratch.prefix("reflector");
    let mut command = Command::new(programs::reflector()?);
    eal(&mut command, "1@1", &app, memory);
    let device = format!("net_virtio_user0,path={},queue_size=1024", socket.display());
    command.args(["--single-file-segments", "--vdev", &device, "--", "--mbufs", "512"]);
    let _reflector = started(scratch, "reflector", &mut command, &app)?;
    thread::sleep(Duration::from_secs(1));
    let words = ["is smaller than the receive descriptors: 512 mbufs", "1024 RX"];
    named(scratch, &app, 1, "rx_nombuf", &words)
}

fn deaf_peer(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions { link: Link::Virtio, ..PairOptions::default() })?;
    let _generator = pair.generate(scratch, &["--rate", RATE, "--deaf-after", "1"])?;
    thread::sleep(Duration::from_millis(1500));
    named(
        scratch,
        pair.app(),
        1,
        "tx_stuck",
        &["nothing was sent by port 0", "packets/s are offered"],
    )
}

fn flapping_port(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { restart: Some("1000/300".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let _generator = pair.generate(scratch, &["--rate", RATE])?;
    await_packets(pair.app(), 0)?;
    named(scratch, pair.app(), 1, "port_flap", &["port 0", "was stopped", "times"])
}

fn restarts_after_an_error(scratch: &Scratch) -> Result<()> {
    restarts(scratch, "exit", "exit status 3")
}

fn restarts_after_a_crash(scratch: &Scratch) -> Result<()> {
    restarts(scratch, "sigsegv", "killed by SIGSEGV")
}

/// An app that ends soon in this way, and a supervisor that starts it again immediately.
fn restarts(scratch: &Scratch, way: &str, reason: &str) -> Result<()> {
    no_core_files()?;
    let app = scratch.prefix("mayfly");
    let over = AtomicBool::new(false);
    let supervise = || -> Result<()> {
        while !over.load(Ordering::Relaxed) {
            let mut command = Command::new(programs::exit_app(2)?);
            eal(&mut command, "1@1", &app, Memory::Ordinary);
            command.args(["--", way, "300"]);
            Process::spawn("mayfly", &mut command, scratch.dir())?.wait(LIMIT)?;
        }
        Ok(())
    };
    let reason = if kernel_tells_ends()? { reason } else { "exit reasons: unknown" };
    let words = ["starts in", reason];
    let seconds = SECONDS_OF_RESTARTS;
    let incident = Incident { seconds, exit: 1, lint: "restart_loop", words: &words };
    thread::scope(|scope| {
        let supervisor = scope.spawn(supervise);
        let socket = telemetry::socket(&app);
        let found = wait_until("the first start", LIMIT, || Ok(socket.exists()))
            .and_then(|_| finds(scratch, &app, &incident));
        over.store(true, Ordering::Relaxed);
        supervisor.join().ok().context("the supervisor")??;
        found
    })
}

/// Whether the kernel reports how a process ended that is not a child: Linux 6.15 and later.
fn kernel_tells_ends() -> Result<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    Ok((numbers.next(), numbers.next()) >= (Some(6), Some(15)))
}

/// Both CPUs have another thread to run, which costs this app no packet: descriptors hold those of half a second.
fn busy_machine(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let _generator = pair.generate(scratch, &["--rate", "1000"])?;
    let mut hogs = Vec::new();
    for name in ["hog0", "hog1"] {
        let mut hog = Command::new("sh");
        hogs.push(Process::spawn(name, hog.args(["-c", "while :; do :; done"]), scratch.dir())?);
    }
    thread::sleep(Duration::from_secs(1));
    let (code, out) = check(scratch, pair.app(), SECONDS)?;
    ensure!(code == 0, "exit code {code}:\n{out}");
    ensure!(!hogs.is_empty() && out.lines().all(|line| line.contains(": info: ")), "{out}");
    Ok(())
}
