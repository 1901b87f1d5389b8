//! Wireshark's command line, tshark, captures through pmdscope as an extcap program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_testing::output;

use crate::support::{LIMIT, Missing, Needs, is_captured, pmdscope, tee_sessions, trial_unless};

/// Name of the program among the extcaps.
type EndToEnd = fn(&Scratch) -> Result<()>;

const NAME: &str = "pmdscope";

/// The tests, or why none can run: tshark takes extcaps from one directory, and for root no other.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, EndToEnd); 5] = [
        ("tshark_lists_bypassed_ports", lists),
        ("tshark_captures_with_filter_direction_and_count", captures),
        ("tshark_ends_an_idle_capture", idle),
        ("tshark_ends_with_the_app", gone),
        ("unknown_extcap_arguments_are_passed_over", unknown),
    ];
    let missing = || {
        let unusable = || usable_directory().err().map(|why| Missing::Machine(format!("{why:#}")));
        Needs::Wireshark.missing().or_else(unusable)
    };
    tests.map(|(name, test)| trial_unless(name, missing(), test)).into()
}

/// Where tshark looks for extcaps, if a link can be put there.
fn usable_directory() -> Result<PathBuf> {
    let folders = output(Command::new("tshark").args(["-G", "folders"])).context("no tshark")?;
    let text = String::from_utf8_lossy(&folders.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("Extcap path:"));
    let directory = PathBuf::from(line.context("tshark has no extcap directory")?.trim());
    let free = fs::symlink_metadata(directory.join(NAME)).is_err();
    ensure!(free, "{} has an installed pmdscope", directory.display());
    tempfile::tempfile_in(&directory)
        .with_context(|| format!("cannot write to {}", directory.display()))?;
    Ok(directory)
}

/// Tests that install it wait for each other.
static INSTALLATION: Mutex<()> = Mutex::new(());

/// pmdscope among the extcaps, for as long as this lives.
struct Installed {
    link: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Installed {
    fn new() -> Result<Self> {
        let alone = INSTALLATION.lock().unwrap_or_else(PoisonError::into_inner);
        let link = usable_directory()?.join(NAME);
        symlink(programs::pmdscope()?, &link)?;
        Ok(Self { link, _alone: alone })
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}

fn interface(pair: &Pair) -> String {
    format!("pmdscope_{}_0", pair.app())
}

/// Runs tshark to its end; one that runs for longer than [`LIMIT`] is an error.
fn tshark(scratch: &Scratch, args: &[&str]) -> Result<(i32, String)> {
    let (code, out, err) = run(Command::new("tshark").args(args), scratch.dir(), LIMIT)?;
    Ok((code, out + &err))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("path")
}

/// The app is not captured from any more.
fn disarmed(pair: &Pair) -> Result<()> {
    wait_until("the capture to be disarmed", LIMIT, || Ok(tee_sessions(pair.app())? == 0))?;
    Ok(())
}

fn lists(scratch: &Scratch) -> Result<()> {
    let _installed = Installed::new()?;
    let pair = Pair::start(scratch, PairOptions::default())?;
    let (code, output) = tshark(scratch, &["-D"])?;
    let (id, app) = (interface(&pair), pair.app());
    let expected = format!("{id} ({app}: port 0 (net_vhost0))");
    ensure!(code == 0 && output.contains(&expected), "no {expected} in:\n{output}");
    Ok(())
}

fn captures(scratch: &Scratch) -> Result<()> {
    let _installed = Installed::new()?;
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "1000", "--count", "1000000"])?;
    let file = scratch.path("extcap.pcapng");
    let id = interface(&pair);
    let preference = |name: &str, value: &str| {
        let id = id.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        format!("extcap.{id}.{name}:{value}")
    };
    let (direction, snaplen) = (preference("direction", "in"), preference("snaplen", "60"));
    let mut args = vec!["-i", &id, "-f", "udp", "-c", "100", "-w", text(&file)?];
    args.extend(["-o", &direction, "-o", &snaplen]);
    let (code, output) = tshark(scratch, &args)?;
    ensure!(code == 0, "tshark ended with {code}: {output}");
    ensure!(!output.contains("Error"), "{output}");
    disarmed(&pair)?;
    generator.stop()?;
    let fields =
        ["frame.packet_flags_direction", "frame.cap_len", "frame.interface_name", "ip.proto"];
    let rows = tshark_fields(&file, &fields)?;
    let name = format!("{}:0", pair.app());
    let expected = ["0x00000001", "60", &name, "17"];
    ensure!(rows.len() == 100 && rows.iter().all(|row| *row == expected), "{rows:?}");
    Ok(())
}

fn idle(scratch: &Scratch) -> Result<()> {
    let _installed = Installed::new()?;
    let pair = Pair::start(scratch, PairOptions::default())?;
    let file = scratch.path("idle.pcapng");
    let id = interface(&pair);
    let args = ["-i", &id, "-a", "duration:2", "-w", text(&file)?];
    let (code, output) = tshark(scratch, &args)?;
    ensure!(code == 0 && !output.contains("Error"), "tshark ended with {code}: {output}");
    disarmed(&pair)
}

fn gone(scratch: &Scratch) -> Result<()> {
    let _installed = Installed::new()?;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let (id, app) = (interface(&pair), pair.app().to_owned());
    let file = scratch.path("gone.pcapng");
    let mut command = Command::new("tshark");
    command.args(["-i", &id, "-w", text(&file)?]);
    let mut tshark =
        pmdscope_integration::process::Process::spawn("tshark", &mut command, scratch.dir())?;
    wait_until("tshark to capture", LIMIT, || Ok(is_captured(&app)))?;
    pair.reflector.interrupt()?;
    tshark.wait(LIMIT)?;
    Ok(())
}

fn unknown(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let id = interface(&pair);
    let plain = pmdscope(scratch, &["--extcap-interfaces"], &[0])?;
    ensure!(plain.contains(&format!("{{value={id}}}")), "{plain}");
    let future = ["--extcap-interfaces", "--extcap-version=9.9", "--extcap-new", "x", "--newer=y"];
    let listed = pmdscope(scratch, &future, &[0])?;
    ensure!(listed == plain, "{listed}");
    let filter = ["--extcap-interface", &id, "--extcap-capture-filter", "udp port 53"];
    let valid = pmdscope(scratch, &filter, &[0])?;
    let filter = ["--extcap-interface", &id, "--extcap-capture-filter=udp prot 53"];
    let invalid = pmdscope(scratch, &filter, &[0])?;
    if !valid.is_empty() || invalid.is_empty() {
        bail!("filters are judged as {valid:?} and {invalid:?}");
    }
    Ok(())
}
