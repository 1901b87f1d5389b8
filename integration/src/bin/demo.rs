//! `make demo`: a generator and a reflector exchange packets; watch and capture them.
//!
//! On a terminal it opens `pmdscope top`. Without one, or with `DEMO_SECONDS=N`, it runs N seconds,
//! leaves its evidence in `demo-out/` and says by its exit status whether all of it holds.
//! `DEMO_LEAK=1/N` makes the reflector forget one mbuf in N bursts.

use std::env;
use std::fs;
use std::io::IsTerminal;
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
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

const RATE: &str = "200000";
const DEFAULT_SECONDS: u64 = 15;
const REPORT_EVERY: Duration = Duration::from_secs(5);
const CAPTURED_PACKETS: u64 = 20_000;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<()> {
    let seconds = match env::var("DEMO_SECONDS") {
        Ok(text) => Some(text.parse().with_context(|| format!("DEMO_SECONDS={text}"))?),
        Err(_) if std::io::stdout().is_terminal() => None,
        Err(_) => Some(DEFAULT_SECONDS),
    };
    let stop = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, Arc::clone(&stop))?;
    flag::register(SIGTERM, Arc::clone(&stop))?;

    let scratch = Scratch::new()?;
    let options = PairOptions { leak: env::var("DEMO_LEAK").ok(), ..PairOptions::default() };
    if Memory::available() == Memory::Ordinary {
        println!("demo: no free hugepages, so the apps run with --no-huge: slower, same numbers");
    }
    let pair = Pair::start(&scratch, options)?;
    let generator = pair.generate(&scratch, &["--rate", RATE])?;
    let pids = [pair.reflector.pid(), generator.process.pid()];

    match seconds {
        None => watch(&pair, generator)?,
        Some(seconds) => report(&pair, generator, Duration::from_secs(seconds), &stop)?,
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

/// The directory `demo-out`, made anew.
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
