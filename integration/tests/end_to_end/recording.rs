//! Recordings of real apps: killed recorders, full disks, bounded directories, incidents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pmdscope_integration::disk::Disk;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, documents, pmdscope, pmdscope_json};

/// What a recorder may lose when it is killed: a second, and time that a busy machine keeps the CPU.
const LOSS: Duration = Duration::from_secs(4);

fn record(scratch: &Scratch, app: &str, to: &Path, args: &[&str]) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["record", "-a", app, "-w"]).arg(to).args(args);
    Process::spawn("record", &mut command, scratch.dir())
}

/// The models of the only app of a recording, and the notes about the recording.
fn replay(scratch: &Scratch, path: &Path, states: u64) -> Result<(Vec<Value>, String)> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["top", "--json", "-i", "0.1", "-n", &states.to_string(), "--replay"]).arg(path);
    let (code, out, notes) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "top --replay ended with {code}: {notes}");
    let documents = documents(&["top"], &out)?;
    let models = documents.iter().map(|document| document["apps"][0]["model"].clone());
    Ok((models.collect(), notes))
}

fn realtime_ns(model: &Value) -> Result<u64> {
    model["sample"]["realtime_ns"].as_u64().with_context(|| format!("no time in {model:#}"))
}

fn now_ns() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}

pub(crate) fn killed(scratch: &Scratch) -> Result<()> {
    let (app, testpmd) = testpmd::forwarding(scratch)?;
    let file = scratch.path("x.jsonl.zst");
    let mut recorder = record(scratch, &app, &file, &["-i", "0.1"])?;
    // Longer than what it may lose.
    sleep(LOSS + Duration::from_secs(1));
    recorder.signal(Signal::KILL)?;
    let killed_ns = now_ns()?;
    recorder.wait(LIMIT)?;
    drop(testpmd);

    ensure!(!file.exists(), "a file that is not complete has the name of one that is");
    let part = scratch.path("x.jsonl.zst.part");
    let (models, notes) = replay(scratch, &part, 1)?;
    let lost = killed_ns.saturating_sub(realtime_ns(&models[0])?);
    ensure!(u128::from(lost) < LOSS.as_nanos(), "{lost} ns are lost");
    ensure!(notes.contains("its recorder was killed"), "{notes}");
    ensure!(models[0]["ports"][0]["rx_pps"].as_f64().is_some_and(|pps| pps > 1000.0));
    let path = part.display().to_string();
    pmdscope(scratch, &["check", "-r", &path], &[0])?;
    let lcores = pmdscope(scratch, &["lcores", "-r", &path], &[0])?;
    ensure!(lcores.lines().any(|line| line.starts_with(&app)), "{lcores}");
    let wrong = pmdscope(scratch, &["check", "--replay", &path, "-a", "nobody"], &[1])?;
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(())
}

pub(crate) fn full_disk(scratch: &Scratch) -> Result<()> {
    let disk = Disk::mount(&scratch.path("disk"), "1m")?;
    let filler = disk.path().join("filler");
    let pair = Pair::start(scratch, PairOptions::default())?;
    let file = disk.path().join("x.jsonl.zst");
    let mut recorder = record(scratch, pair.app(), &file, &["-i", "0.1"])?;
    wait_until("the recorder to write", LIMIT, || {
        Ok(fs::metadata(disk.path().join("x.jsonl.zst.part")).is_ok_and(|part| part.len() > 0))
    })?;
    // Takes all space that is left; a short write is not an error.
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    wait_until("the recorder to notice", LIMIT, || Ok(recorder.output().contains("; retrying")))?;
    sleep(Duration::from_millis(500));
    fs::remove_file(&filler)?;
    wait_until("the recorder to go on", LIMIT, || {
        Ok(recorder.output().contains("recording resumed"))
    })?;
    sleep(Duration::from_secs(1));
    let end_ns = now_ns()?;
    let summary = recorder.interrupt()?;
    drop(pair);

    ensure!(summary.contains("rounds not written"), "{summary}");
    let (models, notes) = replay(scratch, &file, 200)?;
    ensure!(notes.contains("could not be written: No space left on device"), "{notes}");
    ensure!(!notes.contains("damaged"), "{notes}");
    let last = realtime_ns(models.last().context("no states")?)?;
    ensure!(end_ns.saturating_sub(last) < 1_000_000_000, "the last second is missing");
    Ok(())
}

pub(crate) fn always(scratch: &Scratch) -> Result<()> {
    const KEEP: u64 = 4;
    let dir = scratch.path("always");
    let app = scratch.prefix("testpmd");
    let keep = format!("{KEEP}s");
    let arguments = ["--always", "--keep", &keep, "--rotate-age", "1s"];
    // It waits for an app that does not run yet.
    let mut recorder = record(scratch, &app, &dir, &arguments)?;
    wait_until("the recorder", LIMIT, || Ok(dir.exists()))?;
    let (_, testpmd) = testpmd::forwarding(scratch)?;
    sleep(Duration::from_secs(2 * KEEP));
    recorder.signal(Signal::TERM)?;
    recorder.finish(LIMIT)?;
    drop(testpmd);

    let files = fs::read_dir(&dir)?.collect::<std::io::Result<Vec<_>>>()?;
    let files: Vec<PathBuf> = files.iter().map(fs::DirEntry::path).collect();
    let complete = |path: &PathBuf| path.to_string_lossy().ends_with("Z.jsonl.zst");
    ensure!(files.iter().all(complete), "{files:?}");
    ensure!((2..=8).contains(&files.len()), "{files:?}");
    let (models, notes) = replay(scratch, &dir, 30)?;
    ensure!(models.len() == 30 && !notes.contains("damaged"), "{} states; {notes}", models.len());
    let times = models.iter().map(realtime_ns).collect::<Result<Vec<_>>>()?;
    ensure!(times.is_sorted() && times[29] - times[0] > 2_000_000_000, "{times:?}");
    Ok(())
}

pub(crate) fn incident(scratch: &Scratch) -> Result<()> {
    let options =
        PairOptions { leak: Some("1/64".to_owned()), mbufs: 8191, ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let file = scratch.path("x.jsonl.zst");
    let mut recorder = record(scratch, pair.app(), &file, &["-i", "0.2"])?;
    wait_until("lost mbufs to be named", LIMIT, || {
        Ok(pmdscope(scratch, &["leaks", "-a", pair.app()], &[0, 1])?.contains("leak.c:"))
    })?;
    let live = pmdscope(scratch, &["leaks", "-a", pair.app(), "--explain"], &[0, 1])?;
    // The last recorded sample must have them, too.
    sleep(Duration::from_secs(2));
    let alive = Timestamp::now().to_string();
    pair.reflector.signal(Signal::KILL)?;
    sleep(Duration::from_secs(2));
    recorder.interrupt()?;
    drop(generator);

    let path = file.display().to_string();
    let found = pmdscope(scratch, &["check", "--replay", &path], &[1])?;
    for expected in ["leak.c:", "unreachable", "    when: 20", ", still there at the end"] {
        ensure!(found.contains(expected), "no {expected} in {found}");
    }
    let leaks = pmdscope(scratch, &["leaks", "--replay", &path, "--at", &alive], &[1])?;
    ensure!(leaks.contains("leak.c:"), "{leaks}");
    let explained =
        pmdscope(scratch, &["leaks", "--replay", &path, "--at", &alive, "--explain"], &[1])?;
    let lines = |text: &str| text.lines().count();
    ensure!(lines(&explained) > 3 && lines(&live) > 3, "{explained}{live}");
    // The last sample, and a note that the app does not answer now.
    let end = pmdscope_json(scratch, &["top", "--json", "--replay", &path], &[0])?;
    let app = &end["apps"][0];
    ensure!(app["state"] == "lost" && app["model"]["sample"]["ports"][0].is_object(), "{end:#}");
    Ok(())
}
