//! Injected faults are visible in the commands that an operator uses.

use anyhow::{Context, Result};
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use serde_json::Value;

use crate::support::{LIMIT, pmdscope, pmdscope_json};

pub(crate) fn finding(scratch: &Scratch) -> Result<()> {
    // On a busy machine bursts are few and large: the pool must become empty soon all the same.
    let options =
        PairOptions { leak: Some("1/4".to_owned()), mbufs: 4095, ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "5000"])?;
    wait_until("mbufs that are lost", LIMIT, || Ok(in_use(scratch, pair.app())? > 50))?;

    let mut text = String::new();
    wait_until("the finding pool_exhausting and its line", 2 * LIMIT, || {
        text = pmdscope(scratch, &["check", "-a", pair.app(), "--for", "2"], &[0, 1])?;
        Ok(["pool_exhausting", "reflector_pool", "leak.c:"].iter().all(|part| text.contains(part)))
    })
    .with_context(|| text.clone())?;
    drop(generator);
    Ok(())
}

fn in_use(scratch: &Scratch, app: &str) -> Result<u64> {
    let top = top(scratch, app)?;
    let pools = top["apps"][0]["model"]["sample"]["pools"].as_array().context("pools")?;
    pools
        .iter()
        .find(|pool| pool["name"] == "reflector_pool")
        .and_then(|pool| pool["occupancy"]["in_use"].as_u64())
        .with_context(|| format!("no in-use count of reflector_pool in {top:#}"))
}

pub(crate) fn stall(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { stall: Some("5000/50".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    wait_until("stalls of 5 ms", LIMIT, || {
        let top = top(scratch, pair.app())?;
        let lcore = &top["apps"][0]["model"]["sample"]["lcores"][0];
        Ok(lcore["stalls"].as_u64().is_some_and(|stalls| stalls >= 10)
            && lcore["gap_max_us"].as_u64().is_some_and(|gap| gap >= 5000))
    })?;
    Ok(())
}

fn top(scratch: &Scratch, app: &str) -> Result<Value> {
    pmdscope_json(scratch, &["top", "-a", app, "--once", "--json", "-i", "0.5"], &[0])
}
