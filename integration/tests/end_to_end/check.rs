//! What `pmdscope check` reports about a queue that gets most packets.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Generator, Pair, PairOptions};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, number, pmdscope_json, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_hot_queue_is_told_with_its_conversation", Needs::Apps, hot),
        trial("a_hot_queue_of_many_conversations_blames_none", Needs::Apps, spread),
        trial("a_hot_queue_that_cannot_be_captured_is_told", Needs::Apps, taken),
        trial("a_killed_check_leaves_no_capture", Needs::Apps, killed),
    ]
}

/// The second of two queues gets eight times as many packets, most of them of the first of 64 flows.
const HOT: [&str; 6] = ["--rate", "60000", "--flows", "64", "--hot-queue", "1:8"];
/// The captures that an app allows at the same time.
const SESSIONS: u64 = 4;

/// A reflector on two queues that receives from a generator with these arguments.
fn start(scratch: &Scratch, args: &[&str]) -> Result<(Pair, Generator)> {
    let pair = Pair::start(scratch, PairOptions { queues: 2, ..PairOptions::default() })?;
    let generator = pair.generate(scratch, args)?;
    await_packets(pair.app(), 10_000)?;
    Ok((pair, generator))
}

/// Captures that run in the app.
fn captures(pair: &Pair) -> Result<u64> {
    telemetry::number(pair.app(), "/pmdscope", "tee_sessions")
}

/// What `check` reports about the imbalance, and the severity of that finding.
fn imbalance(scratch: &Scratch, app: &str) -> Result<(String, String)> {
    let report = pmdscope_json(scratch, &["check", "-a", app, "--for", "3", "--json"], &[0, 1])?;
    let findings = report["apps"][0]["findings"].as_array().context("findings")?;
    let found = findings.iter().find(|finding| finding["lint"] == "queue_imbalance");
    let found = found.with_context(|| format!("no imbalance in {report}"))?;
    let text = |field: &str| Some(found[field].as_str()?.to_owned());
    text("evidence").zip(text("severity")).with_context(|| format!("{found}"))
}

fn hot(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, &HOT)?;
    let (evidence, severity) = imbalance(scratch, pair.app())?;
    ensure!(evidence.starts_with("queue 1 gets "), "{evidence}");
    let (_, cause) = evidence.split_once("most of it ").with_context(|| evidence.clone())?;
    let (flow, share) = cause.split_once(", ").with_context(|| evidence.clone())?;
    ensure!(flow == "udp 198.19.0.1:7 <-> 198.18.0.1:49152", "{evidence}");
    let (percent, packets) = share.split_once(" % of ").with_context(|| evidence.clone())?;
    let percent = percent.parse::<u32>()?;
    // Seven of eight packets, and one in 64 of the rest.
    ensure!((80..=95).contains(&percent), "{evidence}");
    let packets = packets.split_once(" sampled packets").with_context(|| evidence.clone())?.0;
    ensure!(packets.replace(',', "").parse::<u64>()? > 100, "{evidence}");
    // Neither a NIC that misses packets nor a queue without a pause.
    ensure!(["info", "warning"].contains(&severity.as_str()), "{severity}");
    ensure!(captures(&pair)? == 0, "a capture was left behind");
    unharmed(scratch, pair, generator)
}

fn spread(scratch: &Scratch) -> Result<()> {
    // All 64 flows on the first queue.
    let args = ["--rate", "60000", "--flows", "64", "--queues", "1"];
    let (pair, generator) = start(scratch, &args)?;
    let (evidence, _) = imbalance(scratch, pair.app())?;
    ensure!(evidence.starts_with("queue 0 gets "), "{evidence}");
    let (_, cause) = evidence.split_once("; ").with_context(|| evidence.clone())?;
    ensure!(evidence.contains("no single conversation: the largest has "), "{cause}");
    ensure!(captures(&pair)? == 0, "a capture was left behind");
    unharmed(scratch, pair, generator)
}

fn taken(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, &HOT)?;
    let running =
        (0..SESSIONS).map(|number| capture(scratch, &pair, number)).collect::<Result<Vec<_>>>()?;
    wait_until("all captures to be armed", LIMIT, || Ok(captures(&pair)? == SESSIONS))?;
    let (evidence, _) = imbalance(scratch, pair.app())?;
    ensure!(evidence.contains("its conversations are not known"), "{evidence}");
    ensure!(evidence.contains("captures are open, the app's limit"), "{evidence}");
    drop(running);
    unharmed(scratch, pair, generator)
}

/// A capture that takes no packet.
fn capture(scratch: &Scratch, pair: &Pair, number: u64) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{}:0", pair.app()), "-w"]);
    command.arg(scratch.path(&format!("{number}.pcapng"))).args(["arp"]);
    Process::spawn(&format!("capture-{number}"), &mut command, scratch.dir())
}

fn killed(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, &HOT)?;
    // A capture lasts a quarter of a second, which a busy machine may miss.
    let mut check = (0..ATTEMPTS).find_map(|_| check_that_captures(scratch, &pair).transpose());
    let check = check.take().context("no check was seen to capture")?;
    let mut check = check?;
    check.signal(Signal::KILL)?;
    check.wait(LIMIT)?;
    wait_until("the app to disarm", LIMIT, || Ok(captures(&pair)? == 0))?;
    unharmed(scratch, pair, generator)
}

const ATTEMPTS: u32 = 5;

/// A check while it captures; `None` when the capture was not seen.
fn check_that_captures(scratch: &Scratch, pair: &Pair) -> Result<Option<Process>> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["check", "-a", pair.app(), "--for", "3"]);
    let mut check = Process::spawn("check", &mut command, scratch.dir())?;
    let mut is_seen = false;
    wait_until("check to capture", LIMIT, || {
        is_seen = captures(pair)? > 0;
        Ok(is_seen || check.exited()?.is_some())
    })?;
    Ok(is_seen.then_some(check))
}

/// The app has forwarded to the end, and no mbuf is missing. A busy machine may cost packets.
fn unharmed(scratch: &Scratch, mut pair: Pair, generator: Generator) -> Result<()> {
    let summary = generator.stop()?;
    ensure!(number(&summary, "received")? > 0, "nothing came back: {summary}");
    pair.reflector.interrupt()?;
    let summary = std::fs::read_to_string(scratch.path("reflector.json"))?;
    let summary: Value = serde_json::from_str(&summary)?;
    ensure!(number(&summary["pool"], "in_use_end")? == 0, "mbufs are missing: {summary}");
    Ok(())
}
