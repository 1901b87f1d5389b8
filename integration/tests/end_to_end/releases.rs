//! Other releases of DPDK, where `PMDSCOPE_DPDK_RELEASES` names them: their testpmd is observed, and captured
//! from by a helper that was built with them, in the same directory as those of the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{run, run_to_success, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, pmdscope_json, told, trial_unless};
use crate::xray_clean::{ORDINARY, await_sent};
use crate::xray_releases::{VARIABLE, command, each, none_named, places};

/// The helper of a release, where its directory has one.
const HELPER: &str = "pdump";
/// Most that the struct of a callback takes of the heap, with the allocator's own header.
const CALLBACK_BYTES: i64 = 256;

/// An app that sends UDP.
const SENDING: Setup<'_> =
    Setup { args: &["--forward-mode=txonly", "--auto-start"], ..Setup::FLAT_OUT };

pub(crate) fn trials() -> Vec<Trial> {
    let observed = Needs::Apps.missing().or_else(none_named);
    let none = || {
        let how = "pmdscope-pdump-build -o DIR/pdump DIR";
        Missing::Machine(format!("no DIR of {VARIABLE} has a helper: `{how}` builds one"))
    };
    let captured = Needs::Pdump.missing().or_else(|| with_helper().is_empty().then(none));
    vec![
        trial_unless("releases_are_observed", observed, |_| each(&places(), observe)),
        trial_unless("releases_are_captured_from", captured, |_| each(&with_helper(), capture)),
    ]
}

fn with_helper() -> Vec<PathBuf> {
    places().into_iter().filter(|place| place.join(HELPER).exists()).collect()
}

/// pmdscope as it is installed, with the helper of this build, and of all releases that have one.
fn install(scratch: &Scratch) -> Result<PathBuf> {
    let (bin, libexec) = (scratch.path("bin"), scratch.path("libexec/pmdscope"));
    fs::create_dir(&bin)?;
    fs::create_dir_all(&libexec)?;
    let pmdscope = bin.join("pmdscope");
    fs::copy(programs::pmdscope()?, &pmdscope)?;
    fs::copy(programs::pdump()?, libexec.join("pmdscope-pdump"))?;
    for place in with_helper() {
        let helper = place.join(HELPER);
        let told = run_to_success(Command::new(&helper).arg("--version"))?;
        let version = told.split_once("(DPDK ").map(|(_, version)| version).unwrap_or_default();
        let release: Vec<_> = version.split('.').take(2).collect();
        fs::copy(&helper, libexec.join(format!("pdump-{}", release.join("."))))?;
    }
    Ok(pmdscope)
}

/// pmdscope shows what the app reports.
fn observe(place: &Path) -> Result<()> {
    let scratch = &Scratch::new()?;
    let setup = Setup { eal: ORDINARY, ..SENDING };
    let testpmd = Testpmd::start_command(scratch, command(scratch, place)?, setup)?;
    await_sent(testpmd.app(), 0)?;
    let info = telemetry::ask(testpmd.app(), "/info")?;
    let top = pmdscope_json(scratch, &["top", "--once", "--json", "-a", testpmd.app()], &[0])?;
    let sample = &top["apps"][0]["model"]["sample"];
    ensure!(sample["app"]["dpdk_version"] == info["version"], "{info}: {}", sample["app"]);
    let port = &sample["ports"][0];
    ensure!(port["device"] == "net_null0", "{port}");
    ensure!(port["stats"]["tx_packets"].as_u64().is_some_and(|sent| sent > 0), "{port}");
    Ok(())
}

/// Packets come, and the heap of the app is as it was, except for the structs of the callbacks.
fn capture(place: &Path) -> Result<()> {
    let scratch = &Scratch::new()?;
    let testpmd = Testpmd::start_command(scratch, command(scratch, place)?, SENDING)?;
    await_sent(testpmd.app(), 0)?;
    let before = heap(&testpmd)?;
    let mut after = Value::Null;
    let interface = format!("{}:0", testpmd.app());
    let file = scratch.path("release.pcapng").display().to_string();
    let installed = install(scratch)?;
    let pmdscope = |args: &[&str]| {
        let mut command = Command::new(&installed);
        command.args(args).env_remove("PMDSCOPE_PDUMP");
        run(&mut command, scratch.dir(), LIMIT)
    };
    let (code, _, report) = pmdscope(&["capture", "-i", &interface, "-c", "100", "-w", &file])?;
    ensure!(code == 0 && told(&report, "packets captured")? == 100, "capture: {code}: {report}");
    let (code, table, errors) = pmdscope(&["netstat", "-a", testpmd.app(), "--for", "1s"])?;
    ensure!(code == 0 && table.contains("198.18.0.1"), "netstat: {code}: {table}{errors}");
    let back = wait_until("the heap to be as before but for callbacks", LIMIT, || {
        after = heap(&testpmd)?;
        Ok(differ_by_callbacks_at_most(&before, &after))
    });
    back.with_context(|| format!("it was {before}, and is {after}"))?;
    Ok(())
}

/// DPDK never frees the struct of a callback: each of the two captures left one per direction.
fn differ_by_callbacks_at_most(before: &Value, after: &Value) -> bool {
    let grown = |key: &str| Some(after[key].as_i64()? - before[key].as_i64()?);
    match (grown("Alloc_count"), grown("Alloc_size")) {
        (Some(count), Some(bytes)) => {
            (0..=4).contains(&count)
                && (0..=count * CALLBACK_BYTES).contains(&bytes)
                && after["Heap_size"] == before["Heap_size"]
        }
        _ => after == before,
    }
}

/// Size and allocations of the first heap; the same for all apps of releases that do not report
/// them.
fn heap(testpmd: &Testpmd) -> Result<Value> {
    telemetry::ask(testpmd.app(), "/eal/heap_info,0")
}
