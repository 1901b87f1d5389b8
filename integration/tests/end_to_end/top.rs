//! Conversations of a real app in `pmdscope top`, and what is left of the capture afterwards: nothing.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Generator, Pair, PairOptions};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::programs;
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, column, documents, number, pmdscope, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("reports_of_top_have_conversations", Needs::Apps, report),
        trial("the_flows_page_captures_while_it_is_shown", Needs::Apps, page),
    ]
}

/// Packets per second that top does not lose even on a busy machine.
const RATE: u64 = 5_000;

/// How far two rates may differ that do not cover the same time: another process may have the CPU
/// meanwhile.
const DEVIATION: f64 = 0.25;

/// A pair that works.
fn working(scratch: &Scratch) -> Result<(Pair, Generator)> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    await_packets(pair.app(), RATE)?;
    Ok((pair, generator))
}

/// Sessions that the app has a ring for.
fn sessions(app: &str) -> Result<usize> {
    let tee = telemetry::ask(app, "/pmdscope/tee")?;
    Ok(column(&tee, "session")?.len())
}

/// Two reports of its only port as CSV, with rates.
fn table(scratch: &Scratch, app: &str) -> Result<()> {
    let args = ["top", "-a", app, "--csv", "ports", "-n", "2", "-i", "0.5"];
    let printed = pmdscope(scratch, &args, &[0])?;
    let rows = printed.lines().map(|line| line.split(',').collect()).collect::<Vec<Vec<_>>>();
    let [names, first, last] = &rows[..] else { anyhow::bail!("two rows: {printed}") };
    ensure!(names[..3] == ["time", "app", "port"] && first[1..3] == [app, "0"], "{printed}");
    let rate = names.iter().position(|name| *name == "rx_pps").context("no rx_pps")?;
    ensure!(first[0] < last[0] && last[rate].parse::<f64>()? > 0.0, "{printed}");
    Ok(())
}

/// The generator's packets are in conversations, each way, and nothing else is.
fn report(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = working(scratch)?;
    let args = ["top", "-a", pair.app(), "--flows", "--once", "--json", "-n", "2"];
    let printed = pmdscope(scratch, &args, &[0])?;
    ensure!(sessions(pair.app())? == 0, "top has left a capture behind");
    table(scratch, pair.app())?;
    let summary = generator.stop()?;
    let sent_pps = summary["rate_achieved"].as_f64().context("rate_achieved")?;
    let documents = documents(&args, &printed)?;
    let [first, last] = &documents[..] else { anyhow::bail!("two reports: {printed}") };
    ensure!(first["flows"][0]["capture"] == "armed", "{}", first["flows"]);
    let [tap] = &last["flows"].as_array().context("flows")?[..] else {
        anyhow::bail!("one app: {}", last["flows"])
    };
    ensure!(tap["app"] == pair.app() && tap["capture"] == "armed", "{tap}");
    judge(&tap["counted"], sent_pps).with_context(|| format!("{tap}"))
}

fn judge(counted: &Value, sent_pps: f64) -> Result<()> {
    let flows = counted["flows"].as_array().context("flows")?;
    ensure!(!flows.is_empty() && number(counted, "lost")? == 0, "conversations, and none lost");
    ensure!(flows.iter().all(|flow| flow["proto"] == 17), "the generator sends UDP");
    let recent = |way: &str| sum(flows.iter().map(|flow| &flow[way]));
    let way = |way: &str| sum(flows.iter().flat_map(|flow| SENDERS.map(|from| &flow[way][from])));
    let [rx, tx] = [way("rx")?, way("tx")?];
    ensure!(rx + tx == number(&counted["total"], "packets")?, "each packet is in one conversation");
    for (way, recent) in [(rx, recent("recent_rx")?), (tx, recent("recent_tx")?)] {
        ensure!(recent > 0 && recent < way, "{recent} of {way} in the last second");
        let ns = number(counted, "now_ns")? - number(counted, "begin_ns")?;
        let pps = way as f64 * 1e9 / ns as f64;
        ensure!((pps / sent_pps - 1.0).abs() < DEVIATION, "{pps:.0}/s of {sent_pps:.0}/s");
    }
    Ok(())
}

const SENDERS: [&str; 2] = ["from_local", "from_remote"];

fn sum<'a>(counts: impl Iterator<Item = &'a Value>) -> Result<u64> {
    counts.map(|counts| number(counts, "packets")).sum()
}

/// The first page does not capture; the fifth does, until top ends.
fn page(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = working(scratch)?;
    let mut command = Command::new(programs::pmdscope()?);
    let mut top = TerminalProcess::spawn(command.args(["top", "-a", pair.app()]), 24, 100)?;
    top.await_shown(&[pair.app()], LIMIT)?;
    ensure!(sessions(pair.app())? == 0, "captured before anybody asked for it");
    top.press("5")?;
    wait_until("a capture", LIMIT, || Ok(sessions(pair.app())? > 0))?;
    top.await_shown(&["198.18."], LIMIT)?;
    top.press("q")?;
    wait_until("the capture to end", LIMIT, || Ok(sessions(pair.app())? == 0))?;
    ensure!(top.wait(LIMIT)?.success(), "{}", top.screen());
    generator.stop()?;
    Ok(())
}
