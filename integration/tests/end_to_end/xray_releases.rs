//! X-ray of other releases of DPDK, where `PMDSCOPE_DPDK_RELEASES` names them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};

use crate::support::{Missing, Needs, number, trial_unless};
use crate::xray::{brief, pools};
use crate::xray_clean::{ORDINARY, await_sent, await_traffic, judged_clean, stop};

/// Directories with a build or an installation of DPDK, or the root of another distribution that has one.
const VARIABLE: &str = "PMDSCOPE_DPDK_RELEASES";

pub(crate) fn trials() -> Vec<Trial> {
    let unset = std::env::var_os(VARIABLE).is_none();
    let reason = || Missing::Machine(format!("{VARIABLE} names no other release of DPDK"));
    let missing = Needs::Apps.missing().or_else(|| unset.then(reason));
    vec![trial_unless("xray_reads_other_releases", missing, releases)]
}

fn releases(_: &Scratch) -> Result<()> {
    let named = std::env::var_os(VARIABLE).context(VARIABLE)?;
    let mut failed = Vec::new();
    for place in std::env::split_paths(&named) {
        match release(&place) {
            Ok(version) => eprintln!("{}: {version}", place.display()),
            Err(error) => failed.push(format!("{}: {error:#}", place.display())),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Nothing is lost, in chains and alone, and an idle testpmd has no mbufs in use.
fn release(place: &Path) -> Result<String> {
    let scratch = Scratch::new()?;
    let args = ["--forward-mode=macswap", "--auto-start"];
    let setup = Setup { eal: ORDINARY, args: &args, ..Setup::FLAT_OUT };
    let mut testpmd = Testpmd::start_command(&scratch, command(place)?, setup)?;
    await_traffic(testpmd.app(), 0)?;
    judged_clean(&scratch, testpmd.app()).context("macswap")?;
    stop(&mut testpmd)?;
    testpmd.process.type_line("set fwd txonly")?;
    testpmd.process.type_line("set txpkts 200,200,200")?;
    testpmd.process.type_line("start")?;
    await_sent(testpmd.app(), 0)?;
    judged_clean(&scratch, testpmd.app()).context("txonly")?;
    stop(&mut testpmd)?;
    let idle = judged_clean(&scratch, testpmd.app()).context("idle")?;
    let [pool] = &pools(&idle)?[..] else { anyhow::bail!("one pool: {}", brief(&idle)) };
    let in_use = number(pool, "held")? + number(pool, "moving")?;
    ensure!(in_use == 0, "an idle testpmd on net_null has no mbufs: {}", brief(pool));
    ensure!(number(pool, "size")? == 8192, "{}", brief(pool));
    let info = telemetry::ask(testpmd.app(), "/info")?;
    Ok(info["version"].as_str().context("version")?.to_owned())
}

/// What starts the testpmd of a release.
fn command(place: &Path) -> Result<Command> {
    let programs = ["build/app/dpdk-testpmd", "bin/dpdk-testpmd"].map(|path| place.join(path));
    // In the root of a distribution /bin is often a link to /usr/bin.
    if place.join("usr/bin/dpdk-testpmd").exists() {
        // Its mounts go with its namespace.
        let script = "for dir in proc sys dev run; do mount --rbind /$dir \"$0/$dir\" || exit 1; done; \
                      exec chroot \"$0\" stdbuf -oL dpdk-testpmd \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(place);
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
