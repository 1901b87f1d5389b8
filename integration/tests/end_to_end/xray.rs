//! X-ray against an app without libpmdscope that knows what it lost, and what it holds where.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::stock_pipeline::{StockPipeline, StockSetup, Truth};
use serde_json::Value;

use crate::support::{Needs, number, pmdscope_json, trial, trial_of};

/// Bugs that lose mbufs, each as a real app had it.
pub(crate) const FAULTS: [&str; 7] = [
    "tx-reject",
    "off-by-one",
    "early-return",
    "clone",
    "segment",
    "ring-overflow",
    "double-queue",
];
/// Enough mbufs to distinguish a count from an accident.
pub(crate) const ENOUGH: u64 = 20;
const PACKETS: &str = "pipeline_packets";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<_> = FAULTS.iter().map(|fault| fault_trial(fault)).collect();
    trials.extend([
        trial("xray_agrees_on_all_faults_at_once", Needs::Apps, all_faults),
        trial("xray_names_each_holder", Needs::Apps, holders),
        trial("xray_names_holders_of_a_stripped_app", Needs::Apps, stripped),
        trial("xray_counts_stack_pools", Needs::Apps, stack_pools),
        trial("xray_reads_apps_in_memory_and_on_hugepages", Needs::Apps, memories),
    ]);
    trials
}

fn fault_trial(fault: &'static str) -> Trial {
    let name = format!("xray_agrees_on_{}", fault.replace('-', "_"));
    trial_of(&name, Needs::Apps.missing(), move |scratch| one_fault(scratch, fault))
}

/// Arguments of `pmdscope` for scans that follow each other sooner than people need them.
pub(crate) fn scan_args(app: &str) -> [&str; 8] {
    ["leaks", "-a", app, "--json", "-i", "0.1", "--scan-interval", "0.2"]
}

/// What `pmdscope leaks` found by scans of the memory of an app; the parts add up.
pub(crate) fn scan(scratch: &Scratch, app: &str) -> Result<Value> {
    let mut leaks = pmdscope_json(scratch, &scan_args(app), &[0, 1])?;
    let scan = leaks["apps"][0]["scan"].take();
    ensure!(scan.is_object(), "no scan in {leaks:#}");
    adds_up(&scan)?;
    Ok(scan)
}

/// Mbufs of each pool are somewhere, and those that are held have a holder.
pub(crate) fn adds_up(scan: &Value) -> Result<()> {
    for pool in pools(scan)? {
        let by_lcore = pool["caches"].as_object().context("caches")?;
        let cached: u64 = by_lcore.values().filter_map(Value::as_u64).sum();
        let parts = ["common", "held", "lost", "moving", "not_judged"];
        let parts = parts.iter().map(|part| number(pool, part)).sum::<Result<u64>>()?;
        ensure!(parts + cached == number(pool, "size")?, "{} of {}", parts + cached, brief(pool));
        let holders = pool["holders"].as_array().context("holders")?;
        let held = holders.iter().map(|it| number(it, "mbufs")).sum::<Result<u64>>()?;
        ensure!(held == number(pool, "held")?, "holders have {held}: {}", brief(pool));
    }
    Ok(())
}

/// A report or a pool of it for messages: without the list of lost mbufs.
pub(crate) fn brief(part: &Value) -> String {
    let mut part = part.clone();
    let shorten = |pool: &mut Value| {
        if let Some(pool) = pool.as_object_mut() {
            pool.remove("lost_mbufs");
        }
    };
    part["pools"].as_array_mut().into_iter().flatten().for_each(shorten);
    shorten(&mut part);
    format!("{part:#}")
}

pub(crate) fn pools(scan: &Value) -> Result<&Vec<Value>> {
    scan["pools"].as_array().with_context(|| format!("no pools in {}", brief(scan)))
}

fn pool<'a>(scan: &'a Value, name: &str) -> Result<&'a Value> {
    let found = pools(scan)?.iter().find(|pool| pool["name"] == name);
    found.with_context(|| format!("no pool {name} in {}", brief(scan)))
}

/// At rest nothing moves: each mbuf is judged, and correctly.
pub(crate) fn agrees(scan: &Value, truth: &Truth) -> Result<()> {
    for (name, known) in &truth.pools {
        let pool = pool(scan, name)?;
        let lost = number(pool, "lost")?;
        let told = brief(pool);
        ensure!(lost == known.lost, "{name} lost {}, the scan says {lost}: {told}", known.lost);
        let in_use = ["held", "lost", "moving", "not_judged"];
        let in_use = in_use.iter().map(|part| number(pool, part)).sum::<Result<u64>>()?;
        ensure!(in_use == known.in_use, "{in_use} of {} in use: {told}", known.in_use);
        let listed = pool["lost_mbufs"].as_array().context("lost_mbufs")?.len();
        ensure!(u64::try_from(listed)? == lost, "{listed} of {lost} lost mbufs are listed");
    }
    Ok(())
}

fn lost(scan: &Value) -> Result<BTreeMap<String, u64>> {
    let counts = pools(scan)?
        .iter()
        .map(|pool| Ok((pool["name"].as_str().context("name")?.to_owned(), number(pool, "lost")?)));
    counts.collect()
}

/// Those that are scanned in motion, too: one lost when it is sent, one between stages.
const IN_MOTION: [&str; 2] = ["tx-reject", "ring-overflow"];

/// Equal at rest. In motion what was lost before stays lost, and no more than the truth is.
fn one_fault(scratch: &Scratch, fault: &str) -> Result<()> {
    let rule = format!("{fault}:1/16384");
    let setup = StockSetup { args: &["--fault", &rule], ..StockSetup::PLAIN };
    let mut app = StockPipeline::start(scratch, setup)?;
    let before = app.rest_with_lost(ENOUGH)?;
    let scan_at_rest = scan(scratch, app.app())?;
    app.go_on()?;
    agrees(&scan_at_rest, &before)?;
    if IN_MOTION.contains(&fault) {
        let moving = lost(&scan(scratch, app.app())?)?;
        let after = app.rest()?;
        for (name, known) in &before.pools {
            let (least, most) = (known.lost, after.pools[name].lost);
            let told = moving[name];
            ensure!((least..=most).contains(&told), "{name} lost {least} to {most}, told {told}");
        }
    }
    app.process.interrupt()?;
    Ok(())
}

/// Faults mixed with clones, chains and drops that are correct.
fn all_faults(scratch: &Scratch) -> Result<()> {
    let rules = FAULTS.map(|fault| format!("{fault}:1/65536"));
    let mut args = vec!["--mix"];
    args.extend(rules.iter().flat_map(|rule| ["--fault", rule.as_str()]));
    let setup = StockSetup { args: &args, lcores: "0@1", ..StockSetup::PLAIN };
    let mut app = StockPipeline::start(scratch, setup)?;
    let truth = app.rest_with_lost(5 * ENOUGH)?;
    agrees(&scan(scratch, app.app())?, &truth)
}

/// Holders of one kind in a pool, and of one name where `name` is given.
fn held_by(pool: &Value, kind: &str, name: Option<&str>) -> Result<u64> {
    let holders = pool["holders"].as_array().context("holders")?;
    let of = |holder: &Value| {
        let symbol = holder.get("symbol").or_else(|| holder.get("name"));
        holder["kind"] == kind && name.is_none_or(|name| symbol.is_some_and(|it| it == name))
    };
    holders.iter().filter(|it| of(&it["holder"])).map(|it| number(it, "mbufs")).sum()
}

fn holders(scratch: &Scratch) -> Result<()> {
    // The worker is a thread of its own, then the main thread.
    for lcores in ["0@0,1@1", "0@1"] {
        let setup = StockSetup { lcores, args: &["--hold-places"], ..StockSetup::PLAIN };
        let mut app = StockPipeline::start(scratch, setup)?;
        let truth = app.rest()?;
        let scan = scan(scratch, app.app())?;
        agrees(&scan, &truth)?;
        for held in &truth.held {
            let named = matches!(held.kind.as_str(), "global" | "ring");
            let name = named.then_some(held.name.as_str());
            let alike = truth.held.iter().filter(|other| {
                let same = other.kind == held.kind && other.pool == held.pool;
                same && name.is_none_or(|name| other.name == name)
            });
            let wanted: u64 = alike.map(|it| it.mbufs).sum();
            let told = held_by(pool(&scan, &held.pool)?, &held.kind, name)?;
            ensure!(told == wanted, "{held:?}: {wanted} in all, told {told}: {}", brief(&scan));
        }
        details(pool(&scan, PACKETS)?, lcores)?;
    }
    Ok(())
}

/// Sizes of heap elements, names of threads, lines of variables.
fn details(pool: &Value, lcores: &str) -> Result<()> {
    let holders = pool["holders"].as_array().context("holders")?;
    let holder = |mbufs: u64, kind: &str| {
        let found = holders.iter().find(|it| it["mbufs"] == mbufs && it["holder"]["kind"] == kind);
        found
            .map(|it| &it["holder"])
            .with_context(|| format!("no {kind} of {mbufs}: {}", brief(pool)))
    };
    let element = holder(37, "heap_element")?;
    ensure!(number(element, "bytes")? >= 37 * 8, "{element}");
    let worker = if lcores.contains(',') { "worker" } else { "pmdscope-pipeli" };
    for (mbufs, kind) in [(7, "stack"), (5, "thread_local")] {
        let thread = holder(mbufs, kind)?;
        ensure!(thread["thread"].as_str().is_some_and(|it| it.contains(worker)), "{thread}");
    }
    let global = holder(23, "global")?;
    ensure!(global["module"] == "pmdscope-pipeline-stock", "{global}");
    ensure!(global["place"].as_str().is_some_and(|it| it.starts_with("places.c:")), "{global}");
    Ok(())
}

/// Without symbols variables have no names, and all else is the same.
fn stripped(scratch: &Scratch) -> Result<()> {
    let args = ["--hold-places", "--fault", "early-return:1/16384"];
    let setup = StockSetup { stripped: true, args: &args, ..StockSetup::PLAIN };
    let mut app = StockPipeline::start(scratch, setup)?;
    let truth = app.rest_with_lost(ENOUGH)?;
    let scan = scan(scratch, app.app())?;
    agrees(&scan, &truth)?;
    let globals = truth.held.iter().filter(|it| it.kind == "global" && it.pool == PACKETS);
    let wanted: u64 = globals.map(|it| it.mbufs).sum();
    let told = held_by(pool(&scan, PACKETS)?, "global", None)?;
    ensure!(told == wanted, "{wanted} in globals, told {told}: {}", brief(&scan));
    Ok(())
}

/// Pools whose free mbufs are on an `rte_stack`, with and without locks.
fn stack_pools(scratch: &Scratch) -> Result<()> {
    for handler in ["stack", "lf_stack"] {
        let eal = format!("--mbuf-pool-ops-name={handler}");
        let setup = StockSetup {
            eal: &[&eal],
            args: &["--fault", "early-return:1/16384"],
            ..StockSetup::PLAIN
        };
        let mut app = StockPipeline::start(scratch, setup)?;
        let truth = app.rest_with_lost(ENOUGH)?;
        agrees(&scan(scratch, app.app())?, &truth).context(handler)?;
    }
    Ok(())
}

/// Apps that share no configuration, in one file per segment, in legacy memory, on hugepages.
fn memories(scratch: &Scratch) -> Result<()> {
    let mut cases: Vec<(Memory, &[&str])> = vec![(Memory::Ordinary, &["--no-shconf"])];
    match Memory::available() {
        Memory::Huge => cases.extend([
            (Memory::Huge, ["--single-file-segments"].as_slice()),
            (Memory::Huge, &["--in-memory"]),
            (Memory::Huge, &["--legacy-mem"]),
        ]),
        Memory::Ordinary => eprintln!("SKIP: X-ray of an app on hugepages: too few are free"),
    }
    for (memory, eal) in cases {
        let args = ["--hold-places", "--fault", "early-return:1/16384"];
        let setup = StockSetup { memory, eal, args: &args, ..StockSetup::PLAIN };
        let mut app = StockPipeline::start(scratch, setup)?;
        let truth = app.rest_with_lost(ENOUGH)?;
        agrees(&scan(scratch, app.app())?, &truth)
            .with_context(|| format!("{memory:?} {eal:?}"))?;
    }
    Ok(())
}
