//! Faults of stock apps that X-ray alone can name: free mbufs that nobody can allocate, mbufs that are free
//! twice, and the structures of DPDK's libraries that hold the others.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use serde_json::Value;

use crate::support::{LIMIT, Needs, number, pmdscope, pmdscope_json, trial};
use crate::xray::{brief, scan};
use crate::xray_holders::held;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("check_names_mbufs_in_caches_of_idle_lcores", Needs::Apps, cached),
        trial("check_names_mbufs_that_are_free_twice", Needs::Apps, double_free),
        trial("check_names_mbufs_used_after_free", Needs::Apps, use_after_free),
        trial("xray_counts_only_live_entries_of_an_event_ring", Needs::Apps, events),
        trial("xray_names_hashes_reorder_buffers_and_fragments", Needs::Apps, tables),
        trial("xray_finds_mbufs_in_lost_blocks_of_malloc", Needs::Apps, wrappers),
    ]
}

/// Starts the app with a port that always has packets, and waits until its fault is there.
pub(crate) fn start(scratch: &Scratch, mode: &str) -> Result<(String, Process)> {
    start_with(scratch, mode, "net_null0")
}

/// As [`start`], with this virtual device.
pub(crate) fn start_with(scratch: &Scratch, mode: &str, vdev: &str) -> Result<(String, Process)> {
    let app = scratch.prefix("faulty");
    let mut command = Command::new(programs::faulty_app()?);
    command.args(["--lcores", "0@0,(1-7)@1", "--no-pci", "--no-huge", "-m", "64"]);
    command.args(["--file-prefix", &app, "--vdev", vdev, "--", mode]);
    let mut process = Process::spawn("faulty", &mut command, scratch.dir())?;
    wait_until("the fault", LIMIT, || {
        let ready = process.output().contains("from now on");
        match process.exited()? {
            Some(status) if !ready => bail!("it ended ({status}): {}", process.output()),
            _ => Ok(ready),
        }
    })?;
    Ok((app, process))
}

/// What `check` says of this kind; other findings are allowed.
pub(crate) fn finding(scratch: &Scratch, app: &str, lint: &str) -> Result<Value> {
    let check = pmdscope_json(scratch, &["check", "-a", app, "--json"], &[1])?;
    let findings = check["apps"][0]["findings"].as_array().context("findings")?;
    let found = findings.iter().find(|finding| finding["lint"] == lint);
    found.cloned().with_context(|| format!("no {lint} in {check:#}"))
}

fn cached(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "cached")?;
    let found = finding(scratch, &app, "mbufs_cached")?;
    ensure!(found["severity"] == "critical" && found["subject"] == "packets", "{found:#}");
    let evidence = found["evidence"].as_str().context("evidence")?;
    ensure!(
        evidence.starts_with("caches of lcores ") && evidence.contains(" of 2047 mbufs"),
        "{found:#}"
    );
    ensure!(evidence.contains("the pool needs ") && evidence.contains(" of 8 lcores"), "{found:#}");
    // The port is silent because of it: no advice to look at its peer.
    let text = pmdscope(scratch, &["check", "-a", &app], &[1])?;
    ensure!(!text.contains("rx_flat"), "{text}");
    let doctor = pmdscope(scratch, &["doctor", "-a", &app], &[0, 1])?;
    ensure!(doctor.contains("3,072 in caches and 256 in bursts of 8 lcores"), "{doctor}");
    ensure!(evidence.contains("3072 in caches + 256 in bursts of 8 lcores"), "{found:#}");
    Ok(())
}

fn double_free(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "double-free")?;
    let found = finding(scratch, &app, "pool_corrupt")?;
    ensure!(found["severity"] == "critical" && found["subject"] == "packets", "{found:#}");
    let evidence = found["evidence"].as_str().context("evidence")?;
    ensure!(evidence.starts_with("4 objects are free twice"), "{found:#}");
    ensure!(evidence.contains(" in the common part, twice"), "{found:#}");
    Ok(())
}

fn use_after_free(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "use-after-free")?;
    let found = finding(scratch, &app, "pool_corrupt")?;
    let evidence = found["evidence"].as_str().context("evidence")?;
    ensure!(evidence.contains("free with a reference count of 2"), "{found:#}");
    Ok(())
}

/// 40 mbufs went through the ring and back; half of them are in it now.
fn events(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "events")?;
    let scan = scan(scratch, &app)?;
    let of_ring = |it: &Value| it["kind"] == "ring" && it["name"] == "events";
    let mbufs = held(&scan, of_ring)?;
    ensure!(mbufs == 20, "{mbufs} in the ring: {}", brief(&scan));
    let others = held(&scan, |it| it["kind"] == "global")?;
    ensure!(others == 20, "{others} in the array: {}", brief(&scan));
    Ok(())
}

fn tables(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "tables")?;
    let scan = scan(scratch, &app)?;
    for (library, name) in
        [("rte_hash", Some("flows")), ("rte_reorder", Some("in_order")), ("rte_ip_frag", None)]
    {
        let is_it = |it: &Value| {
            it["kind"] == "structure" && it["library"] == library && it["name"].as_str() == name
        };
        let mbufs = held(&scan, is_it)?;
        ensure!(mbufs == 24, "{library} holds {mbufs}: {}", brief(&scan));
    }
    let pool = &scan["pools"][0];
    ensure!(number(pool, "lost")? == 0, "{}", brief(&scan));
    Ok(())
}

/// 24 mbufs are in blocks that nothing refers to, unless a stack still has the last ones, and 24 in a list of blocks.
fn wrappers(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "wrappers")?;
    let scan = scan(scratch, &app)?;
    let lost = number(&scan["pools"][0], "lost_in_blocks")?;
    ensure!((20..=24).contains(&lost), "{lost} in lost blocks: {}", brief(&scan));
    let held = held(&scan, |it| it["kind"] == "process_heap")?;
    ensure!((24..=28).contains(&held), "{held} in blocks of a list: {}", brief(&scan));
    Ok(())
}
