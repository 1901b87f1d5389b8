//! An app that knows nothing of pmdscope: Debian's own dpdk-testpmd.

use anyhow::{Result, ensure};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd;

use crate::support::{LIMIT, pmdscope, pmdscope_json};

pub(crate) fn testpmd_is_seen(scratch: &Scratch) -> Result<()> {
    let (app, testpmd) = testpmd::forwarding(scratch)?;
    let list = pmdscope_json(scratch, &["ls", "--json"], &[0])?;
    let listed = list["apps"].as_array().into_iter().flatten().find(|entry| entry["app"] == app);
    ensure!(listed.is_some_and(|entry| entry["level"] == 0), "{list:#}");

    let once = ["top", "-a", &app, "--once", "--json", "-i", "1"];
    let top = pmdscope_json(scratch, &once, &[0])?;
    let model = &top["apps"][0]["model"];
    ensure!(model["ports"][0]["rx_pps"].as_f64().is_some_and(|pps| pps > 1000.0), "{top:#}");
    ensure!(model["sample"]["library"].is_null(), "{top:#}");

    let text = pmdscope(scratch, &["top", "-a", &app, "--once"], &[0])?;
    ensure!(text.contains("net_null0"), "{text}");
    ensure!(!text.contains('\u{1b}'), "escape codes in: {text}");

    pmdscope(scratch, &["check", "-a", &app], &[0])?;
    drop(testpmd);
    wait_until("testpmd to vanish from ls", LIMIT, || {
        let list = pmdscope(scratch, &["ls", "--json"], &[0, 1])?;
        Ok(!list.contains(&app))
    })?;
    Ok(())
}
