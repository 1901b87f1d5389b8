//! Captures that end in every way, at random moments and under load: each packet that the filter let through is
//! captured, dropped, or counted by what happened to it instead.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::disk::Disk;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;

use crate::support::{LIMIT, Needs, start_capture, trial};

/// Captures of each kind, unless the environment variable says otherwise.
const ROUNDS: u64 = 3;
const ROUNDS_VARIABLE: &str = "PMDSCOPE_END_ROUNDS";

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("each_packet_is_accounted_for_at_any_end", Needs::Apps, ends)]
}

fn ends(scratch: &Scratch) -> Result<()> {
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "400000", "--size", "64-1500"])?;
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let moment = Duration::from_millis(20 + round * 37 % 200);
        let file = scratch.path(&format!("{round}.pcapng"));
        let app = pair.app();
        interrupted(scratch, app, &file, moment).context("interrupted")?;
        counted(scratch, app, &file, 10_000 + round * 777).context("-c")?;
        full(scratch, app, round).context("full disk")?;
        reader_goes(scratch, app, round).context("reader that goes")?;
        reader_is_slow(scratch, app, round).context("slow reader")?;
        reader_stands_still(scratch, app, round).context("reader that stands still")?;
        two(scratch, app, round, moment).context("two captures")?;
    }
    generator.stop()?;
    Ok(())
}

/// What a capture says of its packets at the end.
#[derive(Debug, Default)]
struct Statistics {
    captured: u64,
    received: u64,
    /// Of those received, and not captured.
    others: u64,
}

impl Statistics {
    fn of(report: &str) -> Result<Self> {
        let mut found = Self::default();
        for line in report.lines() {
            let Some((count, what)) = line.split_once(" packet") else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            match what.trim_start_matches('s').trim_start() {
                "captured" => found.captured = count,
                "received by filter" => found.received = count,
                text if text.starts_with("out of order") => {}
                _ => found.others += count,
            }
        }
        let sum = found.captured + found.others;
        ensure!(sum == found.received, "{found:?} of {report}");
        Ok(found)
    }
}

/// A file has as many packets as the capture says.
fn holds(scratch: &Scratch, file: &Path, captured: u64) -> Result<()> {
    let mut command = Command::new(programs::pmdscope()?);
    let (code, out, errors) =
        run(command.args(["capture", "--count", "-r"]).arg(file), scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{code}: {errors}");
    let count = out.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    ensure!(count == Some(captured), "{out} in the file, {captured} captured");
    Ok(())
}

fn interrupted(scratch: &Scratch, app: &str, file: &Path, moment: Duration) -> Result<()> {
    let mut capture = start_capture(scratch, app, file, &[])?;
    std::thread::sleep(moment);
    holds(scratch, file, Statistics::of(&capture.interrupt()?)?.captured)
}

fn counted(scratch: &Scratch, app: &str, file: &Path, count: u64) -> Result<()> {
    let count_text = count.to_string();
    let mut capture = start_capture(scratch, app, file, &["-c", &count_text, "--skip", "5"])?;
    let statistics = Statistics::of(&capture.finish(LIMIT)?)?;
    ensure!(statistics.captured == count, "{statistics:?} of {count}");
    holds(scratch, file, count)
}

fn full(scratch: &Scratch, app: &str, round: u64) -> Result<()> {
    let disk = Disk::mount(&scratch.path(&format!("disk{round}")), "8M")?;
    let file = disk.path().join("full.pcapng");
    let mut capture = start_capture(scratch, app, &file, &[])?;
    std::thread::sleep(Duration::from_millis(300));
    capture.signal(Signal::INT)?;
    capture.wait(LIMIT)?;
    Statistics::of(&capture.output()).map(drop)
}

/// Starts a capture into a pipe, and returns the end of the reader.
fn piped(scratch: &Scratch, app: &str, name: &str) -> Result<(Process, File)> {
    let pipe = scratch.path(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )?;
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits())?;
    let reader = OpenOptions::new().read(true).custom_flags(nonblocking).open(&pipe)?;
    rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::empty())?;
    Ok((start_capture(scratch, app, &pipe, &[])?, reader))
}

fn reader_goes(scratch: &Scratch, app: &str, round: u64) -> Result<()> {
    let (mut capture, mut reader) = piped(scratch, app, &format!("gone{round}"))?;
    reader.read_exact(&mut vec![0; 200_000 + 1000 * usize::try_from(round)?])?;
    drop(reader);
    capture.wait(LIMIT)?;
    Statistics::of(&capture.output()).map(drop)
}

fn reader_is_slow(scratch: &Scratch, app: &str, round: u64) -> Result<()> {
    let (mut capture, mut reader) = piped(scratch, app, &format!("slow{round}"))?;
    reader.read_exact(&mut vec![0; 1 << 16])?;
    std::thread::sleep(Duration::from_millis(200));
    capture.signal(Signal::INT)?;
    std::io::copy(&mut reader, &mut std::io::sink())?;
    capture.wait(LIMIT)?;
    Statistics::of(&capture.output()).map(drop)
}

/// The second signal gives up what a reader that does nothing has not taken, and the statistics follow.
fn reader_stands_still(scratch: &Scratch, app: &str, round: u64) -> Result<()> {
    let (mut capture, reader) = piped(scratch, app, &format!("still{round}"))?;
    std::thread::sleep(Duration::from_millis(100));
    capture.signal(Signal::INT)?;
    std::thread::sleep(Duration::from_millis(50));
    capture.signal(Signal::INT)?;
    capture.wait(LIMIT)?;
    drop(reader);
    Statistics::of(&capture.output()).map(drop)
}

/// Two captures of an app end apart.
fn two(scratch: &Scratch, app: &str, round: u64, moment: Duration) -> Result<()> {
    let files = ["first", "second"].map(|name| scratch.path(&format!("{name}{round}.pcapng")));
    let mut first = start_capture(scratch, app, &files[0], &["udp"])?;
    let mut second = start_capture(scratch, app, &files[1], &["-s", "64"])?;
    std::thread::sleep(moment);
    let report = first.interrupt()?;
    holds(scratch, &files[0], Statistics::of(&report)?.captured)?;
    holds(scratch, &files[1], Statistics::of(&second.interrupt()?)?.captured)
}
