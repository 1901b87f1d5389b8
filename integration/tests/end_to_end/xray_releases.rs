//! X-ray of other releases of DPDK, where `PMDSCOPE_DPDK_RELEASES` names them: apps without faults, and
//! one that loses mbufs and counts them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::stock_pipeline::{StockPipeline, StockSetup};
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};

use crate::support::{Missing, Needs, number, trial_unless};
use crate::xray::{ENOUGH, FAULTS, agrees, brief, pools, scan};
use crate::xray_clean::{ORDINARY, await_sent, await_traffic, judged_clean, stop};

/// Directories with a build or an installation of DPDK, or the root of another distribution that has one.
pub(crate) const VARIABLE: &str = "PMDSCOPE_DPDK_RELEASES";

/// Longest time to compile the leaky app.
const BUILD: Duration = Duration::from_secs(180);
/// Exit code of `leaky.sh` where `libdpdk.pc` or gcc is missing.
const NOTHING_TO_BUILD_WITH: i32 = 77;

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Needs::Apps.missing().or_else(none_named);
    let read = |_: &Scratch| each(&places(), release);
    vec![trial_unless("xray_reads_other_releases", missing, read)]
}

/// The directories that the variable names.
pub(crate) fn places() -> Vec<PathBuf> {
    let named = std::env::var_os(VARIABLE);
    named.iter().flat_map(std::env::split_paths).collect()
}

/// Why no other release can be tested.
pub(crate) fn none_named() -> Option<Missing> {
    let reason = || Missing::Machine(format!("{VARIABLE} names no other release of DPDK"));
    places().is_empty().then(reason)
}

/// Tests every place, also after one that fails.
pub(crate) fn each(places: &[PathBuf], test: fn(&Path) -> Result<()>) -> Result<()> {
    let mut failed = Vec::new();
    for place in places {
        if let Err(error) = test(place) {
            failed.push(format!("{}: {error:#}", place.display()));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn release(place: &Path) -> Result<()> {
    let version = clean(&Scratch::new()?, place)?;
    let lost = match leaky(&Scratch::new()?, place)? {
        Some(lost) => format!("{lost} lost mbufs found"),
        None => "SKIP the leaky app: no libdpdk.pc or no gcc to build it with".to_owned(),
    };
    eprintln!("{}: {version}, {lost}", place.display());
    Ok(())
}

/// Nothing is lost, in chains and alone, and an idle testpmd has no mbufs in use; its version.
fn clean(scratch: &Scratch, place: &Path) -> Result<String> {
    let args = ["--forward-mode=macswap", "--auto-start"];
    let setup = Setup { eal: ORDINARY, args: &args, ..Setup::FLAT_OUT };
    let mut testpmd = Testpmd::start_command(scratch, command(scratch, place)?, setup)?;
    await_traffic(testpmd.app(), 0)?;
    judged_clean(scratch, testpmd.app()).context("macswap")?;
    stop(&mut testpmd)?;
    testpmd.process.type_line("set fwd txonly")?;
    testpmd.process.type_line("set txpkts 200,200,200")?;
    testpmd.process.type_line("start")?;
    await_sent(testpmd.app(), 0)?;
    judged_clean(scratch, testpmd.app()).context("txonly")?;
    stop(&mut testpmd)?;
    let idle = judged_clean(scratch, testpmd.app()).context("idle")?;
    let [pool] = &pools(&idle)?[..] else { anyhow::bail!("one pool: {}", brief(&idle)) };
    let in_use = number(pool, "held")? + number(pool, "moving")?;
    ensure!(in_use == 0, "an idle testpmd on net_null has no mbufs: {}", brief(pool));
    ensure!(number(pool, "size")? == 8192, "{}", brief(pool));
    let info = telemetry::ask(testpmd.app(), "/info")?;
    Ok(info["version"].as_str().context("version")?.to_owned())
}

/// Sources of the leaky app, below `integration/apps`; those that it shares with others as well.
const LEAKY: [&str; 6] = ["common", "generator", "level0", "pipeline", "reflector", "leaky.sh"];

/// Builds the app that counts what it loses with the headers and libraries of a release, and lets it lose mbufs
/// in every way: as many are found. `None` if there is nothing to build it with.
fn leaky(scratch: &Scratch, place: &Path) -> Result<Option<u64>> {
    let sources = programs::root().join("integration/apps");
    let mut copy = Command::new("cp");
    copy.arg("-r").args(LEAKY.map(|name| sources.join(name))).arg(scratch.dir());
    let (code, _, err) = run(&mut copy, scratch.dir(), BUILD)?;
    ensure!(code == 0, "{err}");
    let mut build = Command::new("sh");
    if is_root(place) {
        build = chrooted(place, scratch, "sh");
        build.arg("/mnt/leaky.sh");
    } else {
        build.arg(scratch.path("leaky.sh")).env("PKG_CONFIG_PATH", package_path(place)?);
    }
    let (code, out, err) = run(&mut build, scratch.dir(), BUILD)?;
    if code == NOTHING_TO_BUILD_WITH {
        return Ok(None);
    }
    ensure!(code == 0, "cannot build the leaky app: {out}{err}");
    lose(scratch, place).map(Some)
}

/// Lets the app lose mbufs, and counts them.
fn lose(scratch: &Scratch, place: &Path) -> Result<u64> {
    let command = if is_root(place) {
        chrooted(place, scratch, "/mnt/leaky")
    } else {
        let mut command = Command::new(scratch.path("leaky"));
        command.env("LD_LIBRARY_PATH", libraries(place)?);
        command
    };
    let rules = FAULTS.map(|fault| format!("{fault}:1/65536"));
    let mut args = vec!["--mix"];
    args.extend(rules.iter().flat_map(|rule| ["--fault", rule.as_str()]));
    let setup = StockSetup { args: &args, lcores: "0@1", ..StockSetup::PLAIN };
    let mut app = StockPipeline::start_command(scratch, command, setup)?;
    let truth = app.rest_with_lost(5 * ENOUGH)?;
    agrees(&scan(scratch, app.app())?, &truth).context("leaky")?;
    Ok(truth.lost())
}

/// Whether it is the root of a distribution.
fn is_root(place: &Path) -> bool {
    place.join("usr/bin/dpdk-testpmd").exists()
}

/// Where `libdpdk.pc` of a build or of an installation is.
fn package_path(place: &Path) -> Result<std::ffi::OsString> {
    let libraries = libraries(place)?;
    let directories = std::env::split_paths(&libraries).map(|dir| dir.join("pkgconfig"));
    let build = place.join("build/meson-uninstalled");
    Ok(std::env::join_paths(directories.chain([build]))?)
}

/// A program in the root of a distribution, where the directory of the test is `/mnt`.
fn chrooted(root: &Path, scratch: &Scratch, program: &str) -> Command {
    // Its mounts end with its namespace.
    let script = "for dir in proc sys dev run; do mount --rbind /$dir \"$0/$dir\" || exit 1; done; \
                  mount --bind \"$1\" \"$0/mnt\" || exit 1; root=$0; shift; exec chroot \"$root\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(root);
    command.arg(scratch.dir()).arg(program);
    command
}

/// The command that starts the testpmd of a release.
pub(crate) fn command(scratch: &Scratch, place: &Path) -> Result<Command> {
    let programs = ["build/app/dpdk-testpmd", "bin/dpdk-testpmd"].map(|path| place.join(path));
    // In the root of a distribution /bin is often a link to /usr/bin.
    if is_root(place) {
        let mut command = chrooted(place, scratch, "stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        return Ok(command);
    }
    let program = programs.iter().find(|program| program.exists());
    let program = program.context("no dpdk-testpmd in build/app, bin or usr/bin of it")?;
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(program).env("LD_LIBRARY_PATH", libraries(place)?);
    Ok(command)
}

/// Directories of an installation that hold libraries: `lib`, `lib64` or one of the architecture.
fn libraries(place: &Path) -> Result<std::ffi::OsString> {
    let mut directories: Vec<PathBuf> = vec![place.join("lib64"), place.join("lib")];
    for entry in std::fs::read_dir(place.join("lib")).into_iter().flatten().flatten() {
        directories.push(entry.path());
    }
    Ok(std::env::join_paths(directories)?)
}
