//! Whatever takes a poll core is detected, timed and named: real thieves, a real app, real
//! tracepoints.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Pair, PairOptions, reflector};
use pmdscope_integration::process::{Process, run, run_to_success, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd;
use pmdscope_integration::tracefs::{try_bpftrace, with_tracefs};
use pmdscope_testing::skip;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, documents, missing_program, trial_unless};

/// Time that each burst of a thief takes.
const BURST_US: u64 = 5_000;

/// Largest relative difference between the traced time and the time that the thief measured.
pub(crate) const TOLERANCE: f64 = 0.1;

pub(crate) fn trials() -> Vec<Trial> {
    let traced = |name: &str, test| trial_unless(name, missing_to_trace(), test);
    let counted = |name: &str, test| trial_unless(name, Needs::Apps.missing(), test);
    vec![
        traced("a_hog_on_a_poll_core_is_caught", hog),
        trial_unless("a_hog_on_a_poll_core_of_a_stock_app_is_caught", missing_stock(), stock),
        traced("handlers_of_signals_are_caught", signals),
        traced("softirqs_of_others_are_caught", softirqs),
        traced("interrupts_from_other_cpus_are_caught", ipis),
        traced("interrupts_of_the_timer_are_caught", timer),
        traced("a_killed_tracer_leaves_nothing_behind", killed),
        trial_unless("a_stolen_core_triggers_a_recorder", missing_to_record(), triggered),
        counted("without_bpftrace_interrupts_are_counted", no_bpftrace),
    ]
}

/// Why nothing can be traced here.
pub(crate) fn missing_to_trace() -> Option<Missing> {
    let needed = || missing_program(&["bpftrace", "unshare", "ip"]);
    let tried = || try_bpftrace().err().map(|error| Missing::Machine(format!("{error:#}")));
    Needs::Apps.missing().or_else(needed).or_else(tried)
}

fn missing_stock() -> Option<Missing> {
    Needs::Testpmd.missing().or_else(missing_to_trace)
}

fn missing_to_record() -> Option<Missing> {
    Needs::Wireshark.missing().or_else(missing_to_trace)
}

/// `pmdscope interrupts` while it runs.
pub(crate) struct Tracing {
    process: Process,
    out: PathBuf,
    /// The command line that determines the schema.
    command: &'static [&'static str],
}

impl Tracing {
    /// Starts it, and waits until it has printed something: all probes are attached then.
    pub(crate) fn start(scratch: &Scratch, app: &str, args: &[&str]) -> Result<Self> {
        let pmdscope = programs::pmdscope()?;
        let out = scratch.path("interrupts.json");
        let mut words = vec!["sh", "-c", "exec \"$@\" >\"$OUT\"", "sh"];
        let program = pmdscope.to_string_lossy();
        words.extend([&*program, "interrupts", "-a", app, "--for", "10m"]);
        words.extend(args);
        let mut command = with_tracefs(&words);
        let process = Process::spawn("interrupts", command.env("OUT", &out), scratch.dir())?;
        let command: &[&str] = match args[0] {
            "--events" => &["interrupts", "--events"],
            _ => &["interrupts"],
        };
        let mut tracing = Self { process, out, command };
        tracing.wait_for_lines(1)?;
        Ok(tracing)
    }

    /// The complete lines printed so far.
    fn printed(&self) -> String {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.printed().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until so many lines have come in addition.
    pub(crate) fn wait_for_lines(&mut self, more: usize) -> Result<()> {
        let wanted = self.lines().len() + more;
        wait_until("output of pmdscope interrupts", 2 * LIMIT, || {
            if let Some(status) = self.process.exited()? {
                bail!("pmdscope interrupts ended with {status}: {}", self.process.output());
            }
            Ok(self.lines().len() >= wanted)
        })?;
        Ok(())
    }

    /// Ends it; returns all that it has printed.
    pub(crate) fn finish(mut self) -> Result<Vec<Value>> {
        self.process.interrupt()?;
        documents(self.command, &self.printed())
    }
}

/// Count and nanoseconds of a thief in all documents.
pub(crate) fn stolen(documents: &[Value], cause: &str, thief: &str) -> (u64, u64) {
    let rows = documents.iter().flat_map(rows);
    let rows = rows.filter(|row| {
        row["cause"] == cause && row["thief"].as_str().is_some_and(|name| name.contains(thief))
    });
    rows.fold((0, 0), |(count, ns), row| {
        (count + row["count"].as_u64().unwrap_or(0), ns + row["stolen_ns"].as_u64().unwrap_or(0))
    })
}

pub(crate) fn rows(document: &Value) -> impl Iterator<Item = &Value> {
    let apps = document["apps"].as_array().into_iter().flatten();
    apps.flat_map(|app| app["stolen"].as_array().into_iter().flatten())
}

/// Runs a thief to its end; returns what it measured.
pub(crate) fn steal(scratch: &Scratch, args: &[&str]) -> Result<Value> {
    let mut command = Command::new(programs::thief()?);
    let (code, out, err) = run(command.args(args), scratch.dir(), 2 * LIMIT)?;
    ensure!(code == 0, "the thief ended with {code}: {err}");
    serde_json::from_str(&out).with_context(|| format!("output of the thief: {out}"))
}

fn number(value: &Value, field: &str) -> Result<u64> {
    value[field].as_u64().with_context(|| format!("no {field} in {value}"))
}

/// All that was taken is not more than there was: nothing is counted twice. Sums are read a little after
/// the clock, later where bpftrace had to wait for a CPU.
fn ensure_possible(documents: &[Value]) -> Result<()> {
    let seconds: f64 = documents.iter().filter_map(|doc| doc["interval_s"].as_f64()).sum();
    let rows = documents.iter().flat_map(rows).filter(|row| row["cause"] != "unexplained");
    let all = rows.filter_map(|row| row["stolen_ns"].as_u64()).sum::<u64>() as f64 / 1e9;
    ensure!(seconds > 0.0 && all <= seconds * (1.0 + TOLERANCE) + 2.0, "{all} s of {seconds} s");
    Ok(())
}

fn hog(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    hog_is_caught(scratch, &app)
}

/// Without libpmdscope: the thread is found by its name and the CPU time that it takes.
fn stock(scratch: &Scratch) -> Result<()> {
    let (app, _testpmd) = testpmd::forwarding(scratch)?;
    hog_is_caught(scratch, &app)
}

/// The app polls on CPU 1.
fn hog_is_caught(scratch: &Scratch, app: &str) -> Result<()> {
    let mut tracing = Tracing::start(scratch, app, &["--json", "-i", "0.5"])?;
    let truth = steal(scratch, &["hog", "1", "40", &BURST_US.to_string(), "50000"])?;
    // Numbers are printed four times a second.
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;

    let (count, ns) = stolen(&documents, "scheduler", "pmdscope-hog");
    ensure!(count >= number(&truth, "count")?, "{count} of {truth}");
    // The hypervisor may take time of both; the thief's own time is the least that it took, and the
    // time on the wall the most.
    let (least, most) = (number(&truth, "cpu_ns")? as f64, number(&truth, "wall_ns")? as f64);
    let range = least * (1.0 - TOLERANCE)..=most * (1.0 + TOLERANCE);
    ensure!(range.contains(&(ns as f64)), "{ns} ns stolen, {truth} measured");
    let hogs = documents.iter().flat_map(rows).filter(|row| row["thief"] == "pmdscope-hog");
    let longest = hogs.filter_map(|row| row["longest_ns"].as_u64()).max().context("no longest")?;
    if truth["real_time"] != true {
        // It shares the CPU: the sum is right, and each part is shorter.
        skip("a_hog_is_caught", "no real-time priority here: longest not checked");
        return ensure_possible(&documents);
    }
    ensure!(longest as f64 >= BURST_US as f64 * 1000.0 * (1.0 - TOLERANCE), "longest {longest}");
    ensure_possible(&documents)
}

fn signals(scratch: &Scratch) -> Result<()> {
    let signal = Some(format!("{BURST_US}/100"));
    let pair = Pair::start(scratch, PairOptions { signal, ..PairOptions::default() })?;
    let mut tracing = Tracing::start(scratch, pair.app(), &["--events", "--min", "1ms"])?;
    let handlers = |tracing: &Tracing| -> Vec<u64> {
        let lines = tracing.lines();
        let events = lines.iter().filter(|event| event["thief"] == "handler of SIGALRM");
        events.filter_map(|event| event["duration_ns"].as_u64()).collect()
    };
    while handlers(&tracing).len() < 31 {
        tracing.wait_for_lines(1)?;
    }
    // Each takes the same CPU time; some are longer by what the hypervisor takes.
    let mut lengths = handlers(&tracing);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2] as f64 / (BURST_US as f64 * 1000.0);
    ensure!((1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&median), "{lengths:?}");
    tracing.finish()?;
    Ok(())
}

/// Two ends of a virtual cable; what arrives at the far one is handled on CPU 1.
struct VirtualCable {
    namespace: String,
}

impl VirtualCable {
    const FAR: &'static str = "198.18.77.2";

    fn plug() -> Result<Self> {
        let namespace = format!("pmdscope-{}", std::process::id());
        let cable = Self { namespace };
        let (ns, near, far) = (&cable.namespace, "pmdscope-near", "pmdscope-far");
        let rps = format!("echo 2 >/sys/class/net/{far}/queues/rx-0/rps_cpus");
        for words in [
            &["netns", "add", ns][..],
            &["link", "add", near, "type", "veth", "peer", "name", far, "netns", ns],
            &["addr", "add", "198.18.77.1/24", "dev", near],
            &["-n", ns, "addr", "add", "198.18.77.2/24", "dev", far],
            &["link", "set", near, "up"],
            &["-n", ns, "link", "set", far, "up"],
            &["netns", "exec", ns, "sh", "-c", &rps],
        ] {
            run_to_success(Command::new("ip").args(words))?;
        }
        Ok(cable)
    }
}

impl Drop for VirtualCable {
    fn drop(&mut self) {
        // The cable ends with its far end.
        let _ = run_to_success(Command::new("ip").args(["netns", "delete", &self.namespace]));
    }
}

fn softirqs(scratch: &Scratch) -> Result<()> {
    let _cable = VirtualCable::plug()?;
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let before = net_rx_of_cpu_1()?;
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let taken = |tracing: &Tracing| stolen(&tracing.lines(), "softirq", "NET_RX");
    let begun = Instant::now();
    // Those that come while another thread has the CPU take nothing from this one.
    while taken(&tracing).0 < 100 && begun.elapsed() < LIMIT {
        for _ in 0..1000 {
            // No process listens at the far end.
            let _ = socket.send_to(&[0; 64], (VirtualCable::FAR, 9));
        }
        sleep(Duration::from_millis(20));
    }
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;
    let all = net_rx_of_cpu_1()? - before;
    let (count, ns) = stolen(&documents, "softirq", "NET_RX");
    ensure!((100..=all).contains(&count) && ns > 0, "{count} of {all} softirqs, {ns} ns");
    let own = stolen(&documents, "softirq", "own system call");
    ensure!(own.0 == 0, "the app makes no system calls: {own:?}");
    ensure_possible(&documents)
}

fn net_rx_of_cpu_1() -> Result<u64> {
    let text = fs::read_to_string("/proc/softirqs")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("NET_RX:"));
    let field = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(field.context("no NET_RX of CPU 1")?.parse()?)
}

fn ipis(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    // Some come while another thread has the CPU.
    let function_calls = |tracing: &Tracing| stolen(&tracing.lines(), "ipi", "function call");
    let begun = Instant::now();
    while function_calls(&tracing).0 < 300 && begun.elapsed() < LIMIT {
        steal(scratch, &["ipi", "1", "1000", "1000"])?;
    }
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;
    // Linux reports the sender since 6.5.
    let by_sender = stolen(&documents, "ipi", "function call by pmdscope-ipi");
    let named = by_sender.0 > 0;
    let (count, ns) = if named { by_sender } else { stolen(&documents, "ipi", "function call") };
    ensure!(count >= 100 && ns > 0, "{count} function calls, {ns} ns");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut version = kernel.split('.').map_while(|part| part.parse::<u32>().ok());
    let tells = (version.next(), version.next()) >= (Some(6), Some(5));
    ensure!(named || !tells, "Linux {kernel} tells who sent it: {documents:?}");
    Ok(())
}

fn timer(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let before = timer_interrupts_of_cpu_1()?;
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    let traced = |documents: &[Value]| stolen(documents, "timer", "local timer");
    let earlier = traced(&tracing.lines()).0;
    let (begun, mut injected) = (Instant::now(), 0);
    // Those that come while another thread has the CPU take nothing from this one.
    while traced(&tracing.lines()).0 < earlier + 500 && begun.elapsed() < LIMIT {
        injected += number(&steal(scratch, &["timer", "1", "2000", "1000"])?, "count")?;
    }
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;
    let all = timer_interrupts_of_cpu_1()? - before;
    let (count, ns) = traced(&documents);
    // Those that come while the hypervisor has the CPU are fewer.
    ensure!(injected > 1000 && all >= injected / 2, "{all} of {injected} came");
    ensure!((earlier + 500..=all).contains(&count) && ns > 0, "{count} of {all}, {ns} ns");
    ensure_possible(&documents)
}

fn timer_interrupts_of_cpu_1() -> Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("LOC:"));
    let field = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(field.context("no timer of CPU 1")?.parse()?)
}

fn killed(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    let bpftrace = children(tracing.process.pid())?;
    ensure!(bpftrace.len() == 1, "{bpftrace:?}");
    tracing.process.signal(Signal::KILL)?;
    tracing.process.wait(LIMIT)?;
    let path = PathBuf::from(format!("/proc/{}/exe", bpftrace[0]));
    wait_until("bpftrace to end", LIMIT, || Ok(fs::read_link(&path).is_err()))?;
    Ok(())
}

/// Shortest theft that triggers the recorder below.
const TRIGGER_US: u64 = 3_000;

fn triggered(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "5000"])?;
    let (pmdscope, interface) = (programs::pmdscope()?, format!("{}:0", pair.app()));
    let (program, file) = (pmdscope.to_string_lossy(), scratch.path("theft.pcapng"));
    let (file, trigger) = (file.to_string_lossy(), format!("stolen>{TRIGGER_US}us"));
    let mut words = vec![&*program, "capture", "-i", &interface, "-Q", "in", "-w", &file];
    words.extend(["--before", "5s", "--after", "200ms", "--memory", "64M", "--trigger", &trigger]);
    let mut recorder = Process::spawn("recorder", &mut with_tracefs(&words), scratch.dir())?;
    let begun = Instant::now();
    let (packets, index) = loop {
        if let Some(status) = recorder.exited()? {
            bail!("the recorder ended with {status}: {}", recorder.output());
        }
        ensure!(begun.elapsed() < 4 * LIMIT, "no file of the hog: {}", recorder.output());
        // It begins to trace after some seconds. Other threads may take the CPU as well.
        steal(scratch, &["hog", "1", "20", &(2 * BURST_US).to_string(), "50000"])?;
        if let Some(found) = file_of_hog(scratch)? {
            break found;
        }
    };
    recorder.interrupt()?;
    generator.stop()?;
    let comment = &packets[index][1];
    ensure!(comment.starts_with("trigger stolen at "), "{comment}");
    let rest = comment.split_once(" taken for ").map(|(_, rest)| rest).context("no time")?;
    let (us, rest) =
        rest.split_once(" us by pmdscope-hog (scheduler) from ").context("no thief")?;
    let us = us.parse::<u64>()?;
    ensure!(us >= TRIGGER_US && rest.contains(" to "), "{comment}");
    // The packets of the time in which the core was taken came together after it.
    ensure!(index > 0 && index + 1 < packets.len(), "packet {index} of {}", packets.len());
    let time = |at: usize| Ok::<f64, anyhow::Error>(packets[at][0].parse::<f64>()?);
    let (first, last) = (time(0)?, time(packets.len() - 1)?);
    ensure!(last - first > us as f64 / 1e6, "from {first} to {last}: {comment}");
    Ok(())
}

/// The packets (time and comment) of a complete file of which the hog was the trigger, and the index of the
/// packet whose comment reports that.
fn file_of_hog(scratch: &Scratch) -> Result<Option<(Vec<Vec<String>>, usize)>> {
    for entry in fs::read_dir(scratch.dir())? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with("-stolen.pcapng") {
            continue;
        }
        let packets = tshark_fields(&path, &["frame.time_epoch", "frame.comment"])?;
        let of_hog = |packet: &Vec<String>| packet[1].contains("pmdscope-hog");
        // The first packet may come after tracing has begun: then there is no history yet.
        if let Some(index) = packets.iter().position(of_hog).filter(|index| *index > 0) {
            return Ok(Some((packets, index)));
        }
    }
    Ok(None)
}

/// Processes that the threads of a process have started.
fn children(pid: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent == Some(&pid.to_string()) {
            found.extend(process.file_name().to_string_lossy().parse::<u32>());
        }
    }
    Ok(found)
}

fn no_bpftrace(scratch: &Scratch) -> Result<()> {
    let (app, _reflector) = reflector(scratch, "net_null0")?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["interrupts", "-a", &app, "--json", "-n", "2"]).env("PATH", "/nonexistent");
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "it ended with {code}: {err}");
    ensure!(err.contains("apt install bpftrace"), "{err}");
    let documents = documents(&["interrupts", "--json"], &out)?;
    let document = documents.last().context("no output")?;
    let app = &document["apps"][0];
    ensure!(app["method"] == "proc" && app["missing"][0].is_string(), "{document:#}");
    let timer = rows(document).find(|row| row["cause"] == "timer").context("no timer")?;
    ensure!(timer["count"].as_u64() > Some(0) && timer["stolen_ns"].is_null(), "{timer}");
    Ok(())
}
