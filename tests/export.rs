//! The exporter as a process: how it starts, whom it tells, how it ends, and what rights it needs.

#![allow(clippy::unwrap_used)] // Helpers of tests.

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use pmdscope_testing::{current_test, output, skip, spawn};
use support::{Machine, Recording, Running};

/// An exporter on a port that the system chooses; killed when dropped.
struct Exporter {
    process: Child,
    address: String,
}

impl Exporter {
    fn start(command: &mut Command) -> Self {
        command.args(["export", "--config", "none", "--listen", "127.0.0.1:0"]);
        Self::spawn(command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = spawn(command.stderr(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(line.contains("serving metrics at"), "{line}");
        Self { process, address }
    }

    fn get(&self, path: &str) -> String {
        ask(TcpStream::connect(&self.address).unwrap(), path)
    }

    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn pmdscope() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pmdscope"))
}

/// Runs the exporter to its end; exit code, and what it says of what went wrong.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = pmdscope();
    let output = output(command.args(["export", "--config", "none"]).args(arguments)).unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn signals_end_it_well() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut exporter = Exporter::start(&mut pmdscope());
        assert!(exporter.get("/healthz").ends_with("\r\n\r\nok\n"));
        assert_eq!(exporter.end(signal), Some(0));
    }
}

#[test]
fn sighup_reloads_thresholds_and_keeps_the_old_ones_where_the_file_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pmdscope.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write("[thresholds]\npool_used = 0.5\n");
    let mut command = pmdscope();
    command.args(["export", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    let mut process = spawn(command.stderr(Stdio::piped())).unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        line
    };
    let served = line();
    assert!(served.contains("serving metrics at"), "{served}");
    let pid = Pid::from_raw(process.id().try_into().unwrap());
    let hang_up = || kill(pid, Signal::SIGHUP).unwrap();
    hang_up();
    assert_eq!(line(), "pmdscope: thresholds reloaded\n");
    write("[thresholds]\npool_usd = 0.5\n");
    hang_up();
    let wrong = line();
    assert!(wrong.contains("pmdscope.toml:2: ") && wrong.contains("pool_used"), "{wrong}");
    let kept = "pmdscope: warning: thresholds not reloaded; the previous ones stay in force\n";
    assert_eq!(line(), kept);
    fs::remove_file(&file).unwrap();
    hang_up();
    assert!(line().contains("cannot read the configuration"));
    assert_eq!(line(), kept);
    write("");
    hang_up();
    assert_eq!(line(), "pmdscope: thresholds reloaded\n");
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn nothing_is_served_where_it_cannot_be_served_well() {
    let exporter = Exporter::start(&mut pmdscope());
    let (code, error) = refused(&["--listen", &exporter.address]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&exporter.address) && error.contains("in use"), "{error}");
    for (arguments, code, says) in [
        (&["--web-config", "/nonexistent"][..], 2, "/nonexistent"),
        (&["--otlp", "nowhere"], 2, "nowhere"),
        (&["--listen", "9177"], 2, "127.0.0.1:9177"),
    ] {
        let (ended, error) = refused(arguments);
        assert_eq!(ended, Some(code), "{error}");
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_unix_socket_serves_too_and_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let address = format!("unix:{}", socket.display());
    let mut command = pmdscope();
    command.args(["export", "--config", "none", "--listen", &address]);
    let mut exporter = Exporter::spawn(&mut command);
    let answer = ask(UnixStream::connect(&socket).unwrap(), "/healthz");
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    assert_eq!(exporter.end(Signal::SIGTERM), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = pmdscope();
    command.args(["export", "--config", "none", "--once"]);
    let mut once = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    drop(once.stdout.take());
    let output = once.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// Time on a processor so far, clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn without_descriptors_it_waits_and_does_not_spin() {
    let mut command = Command::new("prlimit");
    let exporter =
        Exporter::start(command.args(["--nofile=16:16", env!("CARGO_BIN_EXE_pmdscope")]));
    let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(&exporter.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(200));
    let pid = exporter.process.id();
    let before = ticks(pid);
    std::thread::sleep(Duration::from_secs(1));
    assert!(ticks(pid) - before < 20, "less than a fifth of a processor");
    drop(clients);
    assert!(exporter.get("/healthz").ends_with("ok\n"));
}

#[test]
fn the_service_manager_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let bytes = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    };
    let mut command = pmdscope();
    let mut exporter =
        Exporter::start(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000"));
    let ready = told();
    assert!(ready.contains("READY=1") && ready.contains(&exporter.address), "{ready}");
    for _ in 0..3 {
        assert!(told().contains("WATCHDOG=1"));
    }
    assert_eq!(exporter.end(Signal::SIGTERM), Some(0));
    let last = std::iter::repeat_with(told).find(|text| !text.contains("WATCHDOG=1")).unwrap();
    assert!(last.contains("STOPPING=1"), "{last}");
}

/// What testpmd with two ports has answered.
const TESTPMD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/telemetry/tests/data/dpdk-22.11/testpmd-null.jsonl");
/// How long 200 apps may take to answer, all in turn.
const ALL_ANSWER: Duration = Duration::from_secs(10);
/// Of the exporter, at most: 16 threads ask at once, those that take longer make room for others, and the
/// runtime has its own. It was 186 of 200 apps when each had one.
const THREADS: usize = 100;

/// 200 apps of one host. Number 100 answers nothing while it hangs.
fn two_hundred(machine: &Machine, hangs: &Arc<AtomicBool>) -> Vec<Running> {
    let recording = Recording::read(TESTPMD);
    let run = |number| {
        let (prefix, recording) = (format!("many{number:03}"), recording.clone());
        let hangs = (number == 100).then(|| Arc::clone(hangs));
        machine.serve(&prefix, move |request| {
            let hung = hangs.as_ref().is_some_and(|hangs| hangs.load(Ordering::SeqCst));
            (!hung).then(|| recording.answer(request))
        })
    };
    (0..200).map(run).collect()
}

/// How many of them are up in a scrape, which has all other apps of the machine as well.
fn up(page: &str) -> usize {
    page.lines()
        .filter(|line| line.starts_with("dpdk_up{app=\"many") && line.ends_with("} 1"))
        .count()
}

/// The value of a series.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn one_of_two_hundred_apps_hangs_and_the_others_are_told_of() {
    let (machine, hangs) = (Machine::new(), Arc::new(AtomicBool::new(false)));
    let apps = two_hundred(&machine, &hangs);
    let root = machine.settings().discover.roots.remove(0);
    let exporter = Exporter::start(pmdscope().env("RUNTIME_DIRECTORY", &root));
    let scrape = |running: usize| {
        let end = Instant::now() + ALL_ANSWER;
        loop {
            let page = exporter.get("/metrics");
            // A machine with other work may not answer for all of them at once.
            if up(&page) == running || Instant::now() > end {
                return page;
            }
        }
    };
    let page = scrape(apps.len());
    assert_eq!(up(&page), apps.len());
    let seen = "dpdk_app_last_seen_timestamp_seconds{app=\"many100\"}";

    hangs.store(true, Ordering::SeqCst);
    let page = scrape(apps.len() - 1);
    assert_eq!(up(&page), apps.len() - 1);
    assert!(page.contains("dpdk_up{app=\"many100\"} 0\n"));
    let last_answer = value(&page, seen);
    // Later scrapes have its last answer, with the time of that.
    for _ in 0..3 {
        let page = exporter.get("/metrics");
        assert!(page.contains("dpdk_up{app=\"many100\"} 0\n") && up(&page) > 0);
        assert!((value(&page, seen) - last_answer).abs() < 1e-3, "no answer has a later time");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.process.id())).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    assert!(threads.trim().parse::<usize>().unwrap() <= THREADS, "{threads} threads");

    let mut check = pmdscope();
    check.args(["check", "--for", "2", "--config", "none"]).env("RUNTIME_DIRECTORY", root);
    let found = output(&mut check).unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(1), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("many")).collect();
    assert!(lines.iter().any(|line| line.contains(": warning: unreachable: timed out")), "{text}");
    assert!(lines.len() < 20, "a line for each of {} apps:\n{text}", apps.len());

    hangs.store(false, Ordering::SeqCst);
    eventually(&exporter, "/metrics?app=many100", "dpdk_up{app=\"many100\"} 1\n").unwrap();
}

/// `dpdk-testpmd`, which ends when its standard input does.
struct Testpmd {
    process: Child,
    input: Option<ChildStdin>,
    prefix: String,
}

impl Testpmd {
    /// `None` (told aloud) where it cannot run.
    fn start() -> Option<Self> {
        output(Command::new("dpdk-testpmd").arg("--version"))?;
        if !geteuid().is_root() {
            skip(&current_test(), "needs root");
            return None;
        }
        let prefix = format!("export-{}", std::process::id());
        let mut command = Command::new("dpdk-testpmd");
        command
            .args(["-l", "0-1", "-m", "64", "--no-huge", "--no-pci", "--vdev", "net_null0"])
            .args(["--file-prefix", &prefix, "--", "--interactive", "--no-mlockall"])
            .arg("--total-num-mbufs=2048")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = spawn(&mut command).unwrap();
        let input = process.stdin.take();
        Some(Self { process, input, prefix })
    }

    fn directory(&self) -> String {
        format!("/var/run/dpdk/{}", self.prefix)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        drop(self.input.take());
        let end = Instant::now() + Duration::from_secs(10);
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(self.directory());
    }
}

/// Becomes `nobody` with `capability` alone, which the unit file of the service also gives.
fn unprivileged(capability: &str) -> Command {
    let mut command = Command::new("setpriv");
    let only = format!("-all,{capability}");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
        .args(["--inh-caps", &only, "--ambient-caps", &only, "--bounding-set", &only])
        .arg(env!("CARGO_BIN_EXE_pmdscope"));
    command
}

/// Waits for a page to say something.
fn eventually(exporter: &Exporter, path: &str, says: &str) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let page = exporter.get(path);
        if page.contains(says) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(page);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn nobody_with_one_capability_sees_the_apps_of_root() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/pmdscope-export.service");
    let unit = fs::read_to_string(unit).unwrap();
    for line in ["AmbientCapabilities=CAP_DAC_OVERRIDE", "CapabilityBoundingSet=CAP_DAC_OVERRIDE"] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
    let Some(testpmd) = Testpmd::start() else { return };
    let exporter = Exporter::start(&mut unprivileged("+dac_override"));
    let metrics = format!("/metrics?app={}", testpmd.prefix);
    eventually(&exporter, &metrics, &format!("dpdk_up{{app=\"{}\"}} 1\n", testpmd.prefix)).unwrap();
    let page = exporter.get(&metrics);
    assert!(page.contains("port=\"net_null0\""), "{page}");
    let started = format!("dpdk_app_start_timestamp_seconds{{app=\"{}\"}}", testpmd.prefix);
    assert!(page.contains(&started), "{page}");
}

#[test]
fn of_a_named_app_nothing_else_is_exported_or_listed() {
    let machine = Machine::new();
    let _running = ["fwd", "gen"].map(|name| machine.run(name, &Recording::default()));
    let root = machine.settings().discover.roots.remove(0);
    let config = root.join("pmdscope.toml");
    fs::write(&config, format!("[discovery]\nroots = [{root:?}]\ncontainers = false\n")).unwrap();
    let run = |words: &[&str]| {
        let output = output(pmdscope().args(words).arg("--config").arg(&config)).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, all) = run(&["export", "--once"]);
    assert!(all.contains("\"fwd\"") && all.contains("\"gen\""), "{all}");
    let (code, one) = run(&["export", "--once", "-a", "fwd"]);
    assert!(code == Some(0) && one.contains("\"fwd\"") && !one.contains("\"gen\""), "{one}");
    let (code, listed) = run(&["ls", "-a", "gen"]);
    assert!(code == Some(0) && listed.contains("gen") && !listed.contains("fwd"), "{listed}");
    assert_eq!(run(&["ls", "-a", "other"]).0, Some(1));
}
