//! The leak ledger against a pipeline that reports itself what it lost, when and where.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use serde_json::Value;

use crate::support::{LIMIT, Needs, number, pmdscope, pmdscope_json, trial};

/// Bugs that lose mbufs, each as a real app had it.
const FAULTS: [&str; 7] = [
    "tx-reject",
    "off-by-one",
    "early-return",
    "clone",
    "segment",
    "ring-overflow",
    "double-queue",
];
/// Longest wait for the site of a lost mbuf, also where other processes keep the CPUs busy.
const FOUND_WITHIN: Duration = Duration::from_secs(180);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("frequent_leaks_are_named", Needs::Wireshark, often),
        trial("rare_leaks_are_named", Needs::Wireshark, seldom),
        trial("a_single_lost_mbuf_is_named", Needs::Wireshark, once),
        trial("frequent_leaks_are_named_by_need", Needs::Apps, often_by_need),
        trial("rare_leaks_are_named_by_need", Needs::Apps, seldom_by_need),
        trial("a_single_lost_mbuf_is_missed_by_need", Needs::Apps, single_by_need),
        trial("misuse_of_mbufs_is_a_finding", Needs::Apps, misuse),
        trial("steady_traffic_has_no_leak", Needs::Apps, steady),
        trial("bursty_traffic_has_no_leak", Needs::Apps, bursty),
        trial("idle_time_has_no_leak", Needs::Apps, idle),
    ]
}

fn often(scratch: &Scratch) -> Result<()> {
    matrix(scratch, "1/4096")
}

fn seldom(scratch: &Scratch) -> Result<()> {
    matrix(scratch, "1/131072")
}

fn once(scratch: &Scratch) -> Result<()> {
    matrix(scratch, "once")
}

/// With stamps from the start, every fault is found, its line named and its packet dumped. Without,
/// the line of a single mbuf cannot be known: see [`often_by_need`].
fn matrix(scratch: &Scratch, when: &str) -> Result<()> {
    let mut seconds = Vec::new();
    let mut failed = Vec::new();
    for fault in FAULTS {
        match found(scratch, fault, when) {
            Ok(time) => seconds.push(time),
            Err(error) => failed.push(format!("{fault}:{when}: {error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    eprintln!("lost mbufs ({when}) were named after {seconds:.1?} s, median {median:.1} s");
    Ok(())
}

/// Seconds from the first lost mbuf to its site.
fn found(scratch: &Scratch, fault: &str, when: &str) -> Result<f64> {
    let rule = format!("{fault}:{when}");
    let mut pipeline = Pipeline::start(scratch, &["--fault", &rule, "--leak-mode", "always"])?;
    let site = pipeline.wait_for_site(scratch)?;
    let dump = scratch.path("leaked.pcapng");
    let dump_name = dump.display().to_string();
    pmdscope(
        scratch,
        &["leaks", "-a", &pipeline.app, "--write", &dump_name, "-N", "4096"],
        &[0, 1],
    )?;
    let truth = pipeline.stop()?;

    let fault = &truth["faults"][fault];
    let line = fault["site"].as_str().with_context(|| format!("no site in {fault}"))?;
    let named = site["site"].as_str().unwrap_or_default();
    ensure!(named.ends_with(line), "named {named}, lost at {line}");
    ensure!(number(&site, "count")? <= number(fault, "injected")?, "{site} of {fault}");
    dumped(&dump, line, fault)?;
    let (lost, known) = (number(fault, "first_realtime_ns")?, number(&site, "first_realtime_ns")?);
    Ok(known.saturating_sub(lost) as f64 / 1e9)
}

/// By default stamps are written only when a pool loses mbufs. What was lost before is counted, what
/// is lost afterwards is named.
fn often_by_need(scratch: &Scratch) -> Result<()> {
    by_need(scratch, "1/4096")
}

fn seldom_by_need(scratch: &Scratch) -> Result<()> {
    by_need(scratch, "1/131072")
}

fn by_need(scratch: &Scratch, when: &str) -> Result<()> {
    let mut seconds = Vec::new();
    for fault in FAULTS {
        let mut pipeline = Pipeline::start(scratch, &["--fault", &format!("{fault}:{when}")])?;
        let site = pipeline.wait_for_site(scratch).with_context(|| fault.to_owned())?;
        let truth = pipeline.stop()?;
        let fault = &truth["faults"][fault];
        let line = fault["site"].as_str().with_context(|| format!("no site in {fault}"))?;
        ensure!(site["site"].as_str().is_some_and(|site| site.ends_with(line)), "{site} {fault}");
        let lost = number(fault, "first_realtime_ns")?;
        let known = number(&site, "first_realtime_ns")?;
        seconds.push(known.saturating_sub(lost) as f64 / 1e9);
    }
    eprintln!("stamped by need, lost mbufs ({when}) were named after {seconds:.1?} s");
    Ok(())
}

/// One mbuf, lost before anything was stamped: it is reported as lost nevertheless.
fn single_by_need(scratch: &Scratch) -> Result<()> {
    let mut pipeline = Pipeline::start(scratch, &["--fault", "early-return:once"])?;
    wait_until("the one lost mbuf", Duration::from_secs(30), || {
        let leaks = pipeline.leaks(scratch)?;
        adds_up(&leaks)?;
        let ledgers = leaks["apps"][0]["ledger"].as_array().context("ledger")?;
        let lost: u64 = ledgers.iter().map(|l| number(l, "leaked")).sum::<Result<u64>>()?;
        ensure!(lost <= 1, "{lost} mbufs are called lost: {leaks:#}");
        Ok(lost == 1)
    })?;
    pipeline.stop()?;
    Ok(())
}

/// The dumped packets name the line, and one is a packet that the fault lost.
fn dumped(file: &Path, line: &str, fault: &Value) -> Result<()> {
    let packets = tshark_fields(file, &["frame.comment"])?;
    ensure!(!packets.is_empty(), "no lost packet was dumped");
    ensure!(packets.iter().any(|packet| packet[0].contains(line)), "{packets:?} not at {line}");
    let lost = fault["packets"].as_array().context("lost packets")?;
    let bytes = std::fs::read(file)?;
    let holds = |hex: &Value| {
        hex.as_str()
            .and_then(unhex)
            .is_some_and(|lost| bytes.windows(lost.len()).any(|w| w == lost))
    };
    ensure!(lost.iter().any(holds), "none of the lost packets is in the dump: {fault}");
    Ok(())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

fn misuse(scratch: &Scratch) -> Result<()> {
    for (fault, lint) in [("double-free", "double_free"), ("use-after-free", "use_after_free")] {
        let rule = format!("{fault}:1/4096");
        let arguments = ["--fault", &rule, "--leak-mode", "always"];
        let mut pipeline = Pipeline::start(scratch, &arguments)?;
        wait_until(&format!("the finding {lint}"), FOUND_WITHIN, || {
            Ok(pmdscope(scratch, &["check", "-a", &pipeline.app], &[0, 1])?.contains(lint))
        })?;
        pipeline.process.exited()?.map_or(Ok(()), |status| bail!("pipeline ended: {status}"))?;
    }
    Ok(())
}

fn steady(scratch: &Scratch) -> Result<()> {
    clean(scratch, &["--mix", "--leak-mode", "always"], Duration::from_secs(8))
}

fn bursty(scratch: &Scratch) -> Result<()> {
    let arguments = ["--mix", "--pattern", "bursty", "--hold", "200", "--leak-mode", "always"];
    clean(scratch, &arguments, Duration::from_secs(15))
}

/// Busy, idle for many times as long as an mbuf may be held, busy again.
fn idle(scratch: &Scratch) -> Result<()> {
    let arguments = ["--mix", "--pattern", "idle:15", "--leak-mode", "always"];
    clean(scratch, &arguments, Duration::from_secs(25))
}

/// Nothing is lost, so nothing may be called lost, at any moment.
fn clean(scratch: &Scratch, arguments: &[&str], length: Duration) -> Result<()> {
    let mut pipeline = Pipeline::start(scratch, arguments)?;
    let end = Instant::now() + length;
    while Instant::now() < end {
        let leaks = pipeline.leaks(scratch)?;
        ensure!(leaks["leaks"] == false, "a false leak: {leaks:#}");
        adds_up(&leaks)?;
        sleep(Duration::from_millis(500));
    }
    let truth = pipeline.stop()?;
    ensure!(number(&truth, "received")? > 100_000, "hardly any packets: {truth}");
    Ok(())
}

/// The parts of each ledger make the size of its pool.
fn adds_up(leaks: &Value) -> Result<()> {
    let ledgers = leaks["apps"][0]["ledger"].as_array().context("ledger")?;
    ensure!(!ledgers.is_empty(), "no ledger in {leaks}");
    let parts =
        ["common", "cached", "rx_posted", "tx_pending", "rings", "held", "leaked", "unplaced"];
    for ledger in ledgers {
        let sum = parts.iter().map(|part| number(ledger, part)).sum::<Result<u64>>()?;
        ensure!(sum == number(ledger, "size")?, "parts make {sum}: {ledger}");
    }
    Ok(())
}

/// The faulty pipeline on a port that feeds itself.
struct Pipeline {
    process: Process,
    app: String,
    truth: PathBuf,
}

impl Pipeline {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Result<Self> {
        let app = scratch.prefix("pipeline");
        let truth = scratch.path("truth.json");
        let mut command = Command::new(programs::pipeline()?);
        eal(&mut command, "0@0,1@1", &app, Memory::available());
        command.args(["--vdev", "net_null0", "--", "--stamp-packets", "--quiet", "--json"]);
        command.arg(&truth).args(arguments);
        let mut process = Process::spawn("pipeline", &mut command, scratch.dir())?;
        let socket = format!("/var/run/dpdk/{app}/pmdscope.sock");
        wait_until("the pipeline", LIMIT, || {
            if let Some(status) = process.exited()? {
                bail!("the pipeline ended at once ({status}): {}", process.output());
            }
            Ok(std::fs::exists(&socket)?)
        })?;
        let pipeline = Self { process, app, truth };
        wait_until("the ledger", LIMIT, || {
            let leaks = pipeline.leaks(scratch)?;
            Ok(leaks["apps"][0]["ledger"].as_array().is_some_and(|ledgers| !ledgers.is_empty()))
        })?;
        Ok(pipeline)
    }

    /// The report of `leaks` about it. On a busy machine its telemetry thread may not answer in
    /// time.
    fn leaks(&self, scratch: &Scratch) -> Result<Value> {
        let arguments = ["leaks", "-a", &self.app, "--json", "-i", "0.1"];
        let mut leaks = Value::Null;
        wait_until("an answer of the pipeline", LIMIT, || {
            leaks = pmdscope_json(scratch, &arguments, &[0, 1])?;
            Ok(leaks["apps"][0]["state"] != "lost")
        })?;
        Ok(leaks)
    }

    /// The first site that is reported to lose mbufs.
    fn wait_for_site(&self, scratch: &Scratch) -> Result<Value> {
        let mut first = None;
        wait_until("a site that loses mbufs", FOUND_WITHIN, || {
            let leaks = self.leaks(scratch)?;
            adds_up(&leaks)?;
            let sites = leaks["apps"][0]["sites"].as_array().into_iter().flatten();
            first = sites
                .into_iter()
                .find(|site| site["kind"] != "pinned" && site["site"] != "before arming")
                .cloned();
            Ok(first.is_some())
        })?;
        first.context("no site")
    }

    /// Ends it as ^C does; returns its own report of what it lost.
    fn stop(&mut self) -> Result<Value> {
        self.process.interrupt()?;
        let text = std::fs::read_to_string(&self.truth)?;
        Ok(serde_json::from_str(&text)?)
    }
}
