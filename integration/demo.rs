//! `make demo`: a generator and a reflector exchange packets; watch and capture them.

use std::env;
use std::fs;
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::oracle;
use pmdscope_integration::pair::{Generator, Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

const HELP: &str = "\
Usage: pmdscope-demo

Starts two DPDK apps, generator and reflector, that exchange packets, and shows
them in `pmdscope top` until you press q. In the background or without a
terminal they run until SIGINT or SIGTERM, for an hour at most. While other apps
have these names, those of the demo have its process id behind theirs.

Environment:
  DEMO_SECONDS=N    run N seconds, and leave a capture, JSON and findings in
                    demo-out/, which is cleared first
  DEMO_LEAK=1/N     the reflector forgets one mbuf in N bursts
  PMDSCOPE_NO_HUGE  do without hugepages

Exit status: 0 if all went well, 1 if not, 2 on a usage error.
";

/// File-prefixes of the apps where they are free.
const NAMES: [&str; 2] = ["generator", "reflector"];
const RATE: &str = "200000";
/// Longest time in the background.
const BACKGROUND: Duration = Duration::from_secs(3600);
/// Time between two checks of the apps in the background.
const APP_POLL_INTERVAL: Duration = Duration::from_millis(100);
const REPORT_EVERY: Duration = Duration::from_secs(5);
const CAPTURED_PACKETS: u64 = 20_000;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match env::args_os().nth(1) {
        None => {}
        Some(help) if help == "--help" || help == "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("demo: unexpected argument {}; see pmdscope-demo --help", other.display());
            return ExitCode::from(2);
        }
    }
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How it runs.
enum Mode {
    /// With `top` on the terminal.
    Top,
    /// Until a signal ends it.
    Background,
    /// For a time, at the end of which there is evidence.
    Unattended(Duration),
}

impl Mode {
    fn new() -> Result<Self> {
        match env::var("DEMO_SECONDS") {
            Ok(text) => {
                let seconds = text.parse().with_context(|| format!("DEMO_SECONDS={text}"))?;
                Ok(Self::Unattended(Duration::from_secs(seconds)))
            }
            Err(_) if has_terminal() => Ok(Self::Top),
            Err(_) => Ok(Self::Background),
        }
    }
}

/// Whether there is a terminal that we may use: a background job would be stopped for using it.
fn has_terminal() -> bool {
    let foreground = tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
    stdin().is_terminal() && stdout().is_terminal() && foreground
}

fn demo() -> Result<()> {
    let mode = Mode::new()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))?;
    }

    let scratch = Scratch::with_plain_prefixes(&NAMES)?;
    let options = PairOptions { leak: env::var("DEMO_LEAK").ok(), ..PairOptions::default() };
    if Memory::available() == Memory::Ordinary {
        println!("demo: no free hugepages, so the apps run with --no-huge: slower, same numbers");
    }
    let mut pair = Pair::start(&scratch, options)?;
    let generator = pair.generate(&scratch, &["--rate", RATE])?;
    let pids = [pair.reflector.pid(), generator.process.pid()];
    let apps = [pair.generator_app(), pair.app()];
    if apps != NAMES {
        println!(
            "demo: another app has one of the names {}: these are called {}",
            NAMES.join(" and "),
            apps.join(" and ")
        );
    }

    match mode {
        Mode::Top => watch(&pair, generator)?,
        Mode::Background => stay(&mut pair, generator, &stop)?,
        Mode::Unattended(length) => report(&pair, generator, length, &stop)?,
    }
    drop(pair);
    all_gone(&scratch, &pids)
}

/// Interactive: `top` owns the terminal until the user quits it.
fn watch(pair: &Pair, generator: Generator) -> Result<()> {
    println!("capture from another terminal:");
    println!("  target/release/pmdscope capture -i {}:0 -c 1000 -w /tmp/demo.pcapng", pair.app());
    sleep(Duration::from_secs(2));
    let status = Command::new(programs::pmdscope()?).arg("top").status().context("run top")?;
    drop(generator);
    ensure!(status.success(), "top ended with {status}");
    Ok(())
}

/// Waits for a signal, the end of an app, or the longest time in the background.
fn stay(pair: &mut Pair, mut generator: Generator, stop: &AtomicBool) -> Result<()> {
    println!(
        "demo: {} and {} exchange packets, for an hour at most; kill {} ends them",
        pair.generator_app(),
        pair.app(),
        std::process::id()
    );
    let end = Instant::now() + BACKGROUND;
    let mut ended = false;
    while !ended && !stop.load(Ordering::Relaxed) && Instant::now() < end {
        sleep(APP_POLL_INTERVAL);
        ended = pair.reflector.exited()?.is_some() || generator.process.exited()?.is_some();
    }
    // A signal to all processes of a job may end the apps first.
    sleep(APP_POLL_INTERVAL);
    ensure!(!ended || stop.load(Ordering::Relaxed), "an app of the demo has ended");
    Ok(())
}

/// Unattended: print, capture, check, and leave the evidence in `demo-out/`.
fn report(pair: &Pair, generator: Generator, length: Duration, stop: &AtomicBool) -> Result<()> {
    let out = Evidence::create()?;
    let end = Instant::now() + length;
    let mut capture = out.capture(pair.app())?;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let next = Instant::now() + REPORT_EVERY;
        println!("{}", pmdscope(&out.dir, &["top", "-a", pair.app(), "--once"], &[0])?);
        sleep(next.min(end).saturating_duration_since(Instant::now()));
    }
    let top = pmdscope(&out.dir, &["top", "-a", pair.app(), "--once", "--json"], &[0])?;
    fs::write(out.dir.join("top.json"), top)?;
    let check = pmdscope(&out.dir, &["check", "-a", pair.app()], &[0, 1])?;
    print!("{check}");
    fs::write(out.dir.join("check.txt"), check)?;

    capture.finish(LIMIT)?;
    let summary = generator.stop()?;
    fs::write(out.dir.join("generator.json"), format!("{summary:#}\n"))?;
    let received = summary["received"].as_u64().context("generator.json: received")?;
    ensure!(received > 0, "the generator received nothing back");
    println!("demo: {received} packets came back; evidence is in {}", out.dir.display());
    out.verify_capture()
}

/// The directory `demo-out`, which is emptied first.
struct Evidence {
    dir: PathBuf,
}

impl Evidence {
    fn create() -> Result<Self> {
        let dir = programs::root().join("demo-out");
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("clear {}", dir.display()))?;
        }
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir })
    }

    fn capture_file(&self) -> PathBuf {
        self.dir.join("capture.pcapng")
    }

    fn capture(&self, app: &str) -> Result<Process> {
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["capture", "-i", &format!("{app}:0"), "-c", &CAPTURED_PACKETS.to_string()]);
        command.arg("-w").arg(self.capture_file());
        Process::spawn("capture", &mut command, &self.dir)
    }

    fn verify_capture(&self) -> Result<()> {
        let packets = oracle::tshark_fields(&self.capture_file(), &["frame.number"])?.len() as u64;
        ensure!(packets == CAPTURED_PACKETS, "tshark reads {packets} packets in the capture");
        println!("demo: tshark opens the capture: {packets} packets");
        Ok(())
    }
}

fn pmdscope(dir: &Path, args: &[&str], accepted: &[i32]) -> Result<String> {
    let (code, out, err) = run(Command::new(programs::pmdscope()?).args(args), dir, LIMIT)?;
    if !accepted.contains(&code) {
        bail!("pmdscope {} ended with {code}: {err}", args.join(" "));
    }
    Ok(out)
}

fn all_gone(scratch: &Scratch, pids: &[u32]) -> Result<()> {
    for pid in pids {
        wait_until("the demo's processes to end", LIMIT, || {
            Ok(!fs::exists(format!("/proc/{pid}"))?)
        })?;
    }
    let left = scratch.hugepage_files();
    ensure!(left.is_empty(), "hugepage files were left behind: {left:?}");
    Ok(())
}
