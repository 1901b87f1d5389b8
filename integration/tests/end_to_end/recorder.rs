//! The flight recorder: files of what came before and after a moment, judged by tshark.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::oracle::{capinfos, tshark_fields};
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;

use crate::support::{LIMIT, pmdscope, start_capture};

/// Packets that a machine with other work sends in any of the times here.
const LEAST: usize = 50;
/// What is lost where seconds are floating-point numbers.
const ROUNDING: f64 = 1e-6;

/// A file, by its packets.
struct Incident {
    path: PathBuf,
    /// Seconds since 1970.
    times: Vec<f64>,
    /// Numbers in the capture.
    numbers: Vec<u64>,
    /// Index and text of each comment.
    comments: Vec<(usize, String)>,
}

impl Incident {
    fn read(path: &Path) -> Result<Self> {
        let fields = ["frame.time_epoch", "frame.packet_id", "frame.comment"];
        let packets = tshark_fields(path, &fields)?;
        let times = packets.iter().map(|packet| Ok(packet[0].parse()?)).collect::<Result<_>>()?;
        let numbers = packets.iter().map(|packet| Ok(packet[1].parse()?)).collect::<Result<_>>()?;
        let comments = packets.iter().enumerate().filter(|(_, packet)| !packet[2].is_empty());
        let comments = comments.map(|(index, packet)| (index, packet[2].clone())).collect();
        Ok(Self { path: path.to_owned(), times, numbers, comments })
    }

    /// The only comment has these words and stands at the first packet after the moment that it
    /// names; so many seconds before and after are there, no more, and no packet is missing.
    fn marked(&self, words: &[&str], before: f64, after: f64) -> Result<()> {
        let [(index, comment)] = self.comments.as_slice() else {
            anyhow::bail!("{}: comments {:?}", self.path.display(), self.comments);
        };
        ensure!(words.iter().all(|word| comment.contains(word)), "comment {comment}");
        ensure!(self.numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "packets are missing");
        ensure!(*index > LEAST, "{index} packets before the moment");
        ensure!(self.times.len() - index > LEAST, "{} packets with {index}", self.times.len());
        let moment = second_of_minute(comment)?;
        let since = |packet: usize| within_minute(self.times[packet] - moment);
        ensure!(since(*index) >= -ROUNDING && since(index - 1) < ROUNDING, "at {index}: {comment}");
        let (first, last) = (since(0), since(self.times.len() - 1));
        ensure!(
            first >= -before - ROUNDING && last <= after + ROUNDING,
            "from {first} to {last} s"
        );
        Ok(())
    }
}

/// The seconds of the time in a comment.
fn second_of_minute(comment: &str) -> Result<f64> {
    let (time, _) = comment.split_once('Z').with_context(|| format!("no time in {comment}"))?;
    let (_, seconds) = time.rsplit_once(':').with_context(|| format!("no time in {comment}"))?;
    Ok(seconds.parse()?)
}

/// A difference of times of which one is known within its minute only, from -30 to 30 s.
fn within_minute(difference: f64) -> f64 {
    (difference + 30.0).rem_euclid(60.0) - 30.0
}

/// Complete files of recorders, by name.
fn files(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(scratch.dir())?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcapng"))
        .collect();
    files.sort();
    Ok(files)
}

fn only_file(scratch: &Scratch, ending: &str) -> Result<PathBuf> {
    let found = files(scratch)?;
    let [file] = found.as_slice() else { anyhow::bail!("files {found:?}") };
    ensure!(file.to_string_lossy().ends_with(ending), "{} is not {ending}", file.display());
    Ok(file.clone())
}

fn start(scratch: &Scratch, pair: &Pair, arguments: &[&str]) -> Result<Process> {
    let file = scratch.path("incident.pcapng");
    let common = ["-Q", "in", "--ring-size", "4M", "--memory", "64M"];
    start_capture(scratch, pair.app(), &file, &[&common, arguments].concat())
}

pub(crate) fn stall(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { stall: Some("30000/6000".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let interface = format!("{}:0", pair.app());
    // The first stall may come at any time: there must be packets before.
    pmdscope(scratch, &["capture", "-i", &interface, "-c", "1000", "-w", "/dev/null"], &[0])?;
    let arguments = ["--before", "1s", "--after", "500ms", "--trigger", "stall"];
    let mut recorder = start(scratch, &pair, &arguments)?;
    wait_until("a file", LIMIT, || Ok(!files(scratch)?.is_empty()))?;
    recorder.interrupt()?;
    generator.stop()?;
    // A stolen CPU is a stall as well: there may be more files.
    let found = files(scratch)?;
    ensure!(found[0].to_string_lossy().ends_with("-1-stall.pcapng"), "{found:?}");
    Incident::read(&found[0])?.marked(&["trigger stall at ", "lcore 1", "stalled"], 1.0, 0.5)
}

pub(crate) fn command(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let arguments = ["--before", "500ms", "--after", "500ms", "--max-triggers", "2"];
    let mut recorder = start(scratch, &pair, &arguments)?;
    sleep(Duration::from_secs(2));
    let pid = recorder.pid().to_string();
    let arguments = ["capture", "trigger", &pid, "--comment", "it hurts here"];
    let first = pmdscope(scratch, &arguments, &[0])?;
    ensure!(first.trim_end().ends_with("-1-manual.pcapng"), "{first}");
    wait_until(
        "the first file to be complete",
        LIMIT,
        || Ok(Path::new(first.trim_end()).exists()),
    )?;
    recorder.signal(Signal::USR2)?;
    recorder.finish(LIMIT)?;
    generator.stop()?;

    let found = files(scratch)?;
    ensure!(found.len() == 2 && found[0] == Path::new(first.trim_end()), "{found:?}");
    ensure!(found[1].to_string_lossy().ends_with("-2-signal.pcapng"), "{found:?}");
    let words = ["trigger manual at ", "it hurts here"];
    Incident::read(&found[0])?.marked(&words, 0.5, 0.5)?;
    Incident::read(&found[1])?.marked(&["trigger signal at "], 0.5, 0.5)?;
    pmdscope(scratch, &["capture", "trigger", &pid], &[1])?;
    Ok(())
}

pub(crate) fn packet(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000", "--flows", "1"])?;
    let trigger = ["--trigger", "filter:udp and greater 1000", "--max-triggers", "1"];
    let times = ["--before", "500ms", "--after", "500ms"];
    let mut recorder = start(scratch, &pair, &[&trigger[..], &times].concat())?;
    sleep(Duration::from_secs(2));
    ensure!(recorder.exited()?.is_none(), "{}", recorder.output());
    generator.stop()?;
    let generator = pair.generate(scratch, &["--rate", "20000", "--size", "1200"])?;
    recorder.finish(LIMIT)?;
    generator.stop()?;
    let file = only_file(scratch, "-1-filter.pcapng")?;
    let incident = Incident::read(&file)?;
    let [(index, comment)] = incident.comments.as_slice() else {
        anyhow::bail!("comments {:?}", incident.comments);
    };
    ensure!(comment.contains("matches 'udp and greater 1000'"), "{comment}");
    let lengths = tshark_fields(&file, &["frame.len"])?;
    let first = lengths.iter().position(|packet| packet[0] == "1200");
    ensure!(first == Some(*index), "the first large packet is {first:?}, marked is {index}");
    Ok(())
}

pub(crate) fn killed(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let mut recorder = start(scratch, &pair, &["--before", "1s", "--after", "60s"])?;
    sleep(Duration::from_secs(2));
    let pid = recorder.pid().to_string();
    pmdscope(scratch, &["capture", "trigger", &pid], &[0])?;
    sleep(Duration::from_secs(2));
    recorder.signal(Signal::KILL)?;
    recorder.wait(LIMIT)?;
    generator.stop()?;
    let part = fs::read_dir(scratch.dir())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".pcapng.part"))
        .context("no unfinished file")?;
    ensure!(capinfos(&part)?.contains("pcapng"), "{}", part.display());
    let incident = Incident::read(&part)?;
    // All but the last moment is there, the history whole.
    incident.marked(&["trigger manual at "], 1.0, 60.0)?;
    // The dead recorder's socket is nobody's.
    let text = pmdscope(scratch, &["capture", "trigger", &pid], &[1])?;
    ensure!(text.is_empty(), "{text}");
    ensure!(!Path::new("/run/pmdscope").join(format!("recorder-{pid}.sock")).exists());
    Ok(())
}

pub(crate) fn quiet(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let mut recorder = start(scratch, &pair, &["--before", "1s", "--trigger", "rx_missed"])?;
    sleep(Duration::from_millis(500));
    recorder.interrupt()?;
    ensure!(files(scratch)?.is_empty(), "{:?}", files(scratch)?);
    let mut command = Command::new(programs::pmdscope()?);
    let arguments = ["capture", "--before", "1s", "--trigger", "rx_mised", "-w", "x.pcapng"];
    let (code, _, told) = run(command.args(arguments), scratch.dir(), LIMIT)?;
    ensure!(code == 2 && told.contains("rx_missed"), "{told}");
    Ok(())
}
