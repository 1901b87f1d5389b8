//! Numbers: DPDK's own client, `top` and `ls` compared with those of the generator.

use anyhow::{Context, Result, ensure};
use pmdscope_integration::oracle::DpdkTelemetry;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    LIMIT, await_packets, column, number, packets_received, pmdscope, pmdscope_json,
    queues_counted, text_column,
};

pub(crate) fn dpdk_tools(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions { queues: 4, ..PairOptions::default() })?;
    let generator = pair.generate(scratch, &["--rate", "100000"])?;
    // So that each queue has seen some.
    await_packets(pair.app(), 20_000)?;
    let mut client = DpdkTelemetry::connect(pair.app())?;
    let about = client.ask("/pmdscope")?;
    for table in text_column(&about, "tables")? {
        every_page(&mut client, table)?;
    }
    parts_add_up(&client.ask("/pmdscope/pools")?)?;
    queues_saw_traffic(&client.ask("/pmdscope/queues")?)?;
    ensure!(client.ask("/pmdscope/pools,99999")?.is_null());
    ensure!(client.ask("/pmdscope/pools,x")?.is_null());
    generator.stop()?;
    Ok(())
}

/// Follows `next` and also asks for every row by itself: both ways see the same rows.
fn every_page(client: &mut DpdkTelemetry, table: &str) -> Result<()> {
    let first = client.ask(&format!("/pmdscope/{table}"))?;
    let total = number(&first, "total")?;
    for offset in 0..total {
        let page = client.ask(&format!("/pmdscope/{table},{offset}"))?;
        ensure!(number(&page, "offset")? == offset, "{page}");
        ensure!(number(&page, "total")? == total, "{page}");
        let next = page["next"].as_u64().unwrap_or(total);
        ensure!(next > offset && next <= total, "{page}");
    }
    Ok(())
}

fn parts_add_up(pools: &Value) -> Result<()> {
    let names = text_column(pools, "name")?;
    ensure!(!names.is_empty(), "no pools: {pools}");
    let [size, common] = [column(pools, "size")?, column(pools, "common")?];
    let [cached, in_use] = [column(pools, "cached")?, column(pools, "in_use")?];
    for (row, name) in names.iter().enumerate() {
        let sum = common[row] + cached[row] + in_use[row];
        ensure!(sum == size[row], "{name}: parts make {sum} of {}", size[row]);
    }
    Ok(())
}

fn queues_saw_traffic(queues: &Value) -> Result<()> {
    let directions = text_column(queues, "dir")?;
    let [packets, empty] = [column(queues, "packets")?, column(queues, "empty")?];
    let [polls, depth] = [column(queues, "polls")?, column(queues, "depth_supported")?];
    ensure!(directions.len() == 8, "4 queues each way: {queues}");
    let buckets = usize::try_from(number(queues, "bursts_buckets")?)?;
    let bursts = column(queues, "bursts")?;
    for (row, direction) in directions.iter().enumerate() {
        ensure!(packets[row] > 0, "{direction} queue in row {row} is idle: {queues}");
        let filled: u64 = bursts[row * buckets..(row + 1) * buckets].iter().sum();
        ensure!(polls[row] - empty[row] == filled, "burst histogram of row {row}: {queues}");
        // net_vhost reports how many packets wait; no driver of 22.11 does so for transmit.
        ensure!(depth[row] == u64::from(*direction == "rx"), "depth of row {row}: {queues}");
    }
    Ok(())
}

/// Largest relative error of a rate, which is a floating-point number.
const ROUNDING: f64 = 1e-6;

/// Rates are those of the counters that they are computed from, however long a sample takes; and all that
/// was sent is counted once nothing more is sent.
pub(crate) fn top(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "100000"])?;
    wait_until("packets", LIMIT, || Ok(packets_received(pair.app())? > 0))?;
    let arguments = ["top", "-a", pair.app(), "--json", "-i", "0.5", "-n", "4"];
    let (mut last, mut rates): (Option<(u64, u64)>, usize) = (None, 0);
    for line in pmdscope(scratch, &arguments, &[0])?.lines() {
        let model = &serde_json::from_str::<Value>(line)?["apps"][0]["model"];
        let depth = &model["sample"]["queues"][0]["depth_high_water"]["ever"];
        ensure!(depth.as_u64().is_some_and(|depth| depth > 0), "no queue depth: {model:#}");
        let now = (number(&model["sample"], "monotonic_ns")?, received(model)?);
        let shown = model["ports"][0]["rx_pps"].as_f64();
        if let Some(((last_ns, last_packets), shown)) = last.zip(shown) {
            let seconds = (now.0 - last_ns) as f64 / 1e9;
            let counted = (now.1 - last_packets) as f64 / seconds;
            ensure!(counted > 0.0, "nothing was received in {seconds} s: {model:#}");
            ensure!((shown - counted).abs() <= counted * ROUNDING, "{shown}, not {counted} pps");
            rates += 1;
        }
        last = Some(now);
    }
    ensure!(rates >= 2, "{rates} rates");

    let sent = number(&generator.stop()?, "sent")?;
    let mut all = 0;
    wait_until("all packets to be counted", LIMIT, || {
        let top = pmdscope_json(
            scratch,
            &["top", "-a", pair.app(), "--once", "--json", "-i", "0"],
            &[0],
        )?;
        all = received(&top["apps"][0]["model"])?;
        Ok(all >= sent)
    })
    .with_context(|| format!("{all} of {sent} packets"))?;
    ensure!(all == sent, "{all} packets, {sent} were sent");
    Ok(())
}

/// Packets of port 0, received or missed.
fn received(model: &Value) -> Result<u64> {
    let stats = &model["sample"]["ports"][0]["stats"];
    Ok(number(stats, "rx_packets")? + number(stats, "rx_missed")?)
}

/// Of an app that counts its queues on demand, `top` shows them once it has asked, and `check` finds nothing.
pub(crate) fn on_demand(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { on_demand: true, ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    await_packets(pair.app(), 1000)?;
    ensure!(queues_counted(pair.app())? == 0, "queues are counted although nobody reads them");
    let arguments = ["top", "-a", pair.app(), "--json", "-i", "0.5", "-n", "4"];
    let lines = pmdscope(scratch, &arguments, &[0])?;
    let last: Value = serde_json::from_str(lines.lines().last().context("no sample")?)?;
    let model = &last["apps"][0]["model"];
    ensure!(model["queues"].as_array().is_some_and(|queues| queues.len() == 2), "{model:#}");
    ensure!(model["queues"][0]["pps"].as_f64().is_some_and(|pps| pps > 0.0), "{model:#}");
    pmdscope(scratch, &["check", "-a", pair.app(), "--for", "3"], &[0])?;
    generator.stop()?;
    Ok(())
}

pub(crate) fn ls(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "1000"])?;
    wait_until("ls to name both apps", LIMIT, || {
        let names = names(scratch)?;
        Ok([pair.app(), pair.generator_app()].iter().all(|app| names.iter().any(|n| n == app)))
    })?;
    pair.reflector.signal(Signal::KILL)?;
    pair.reflector.wait(LIMIT)?;
    let names = names(scratch)?;
    ensure!(!names.iter().any(|name| name == pair.app()), "a killed app is listed: {names:?}");
    drop(generator);
    Ok(())
}

fn names(scratch: &Scratch) -> Result<Vec<String>> {
    let list = pmdscope_json(scratch, &["ls", "--json"], &[0, 1])?;
    let apps = list["apps"].as_array().with_context(|| format!("{list}"))?;
    Ok(apps.iter().filter_map(|app| app["app"].as_str().map(str::to_owned)).collect())
}
