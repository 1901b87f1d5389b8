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

use crate::support::{LIMIT, await_packets, packets_received, pmdscope, start_capture};

/// Packets that a machine with other work sends in any of the times here.
const LEAST: usize = 50;
/// More packets than come in the time of the histories here.
const HISTORY: u64 = 12_000;
/// Rounding error of seconds that are floating-point numbers.
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

    /// The only comment has these words and is at the first packet after the moment that it names;
    /// so many seconds before and after are there, no more, and no packet is missing.
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

/// Lets the history fill.
fn await_history(pair: &Pair) -> Result<()> {
    await_packets(pair.app(), packets_received(pair.app())? + HISTORY)
}

/// The stall that fired a trigger, from the comment of the trigger.
struct RecordedStall {
    comment: String,
    us: u64,
    /// Its beginning and end, seconds of their minutes.
    begin: f64,
    end: f64,
}

impl RecordedStall {
    fn read(incident: &Incident) -> Result<Self> {
        let (_, comment) = incident.comments.first().context("no comment")?;
        let stall = comment.split_once("lcore 1: stalled for ").and_then(|(_, rest)| {
            let (us, rest) = rest.split_once(" us from ")?;
            let (begin, end) = rest.split_once(" to ")?;
            Some((us, begin, end))
        });
        let (us, begin, end) = stall.with_context(|| format!("no stall in {comment}"))?;
        let (begin, end) = (second_of_minute(begin)?, second_of_minute(end)?);
        Ok(Self { comment: comment.clone(), us: us.parse()?, begin, end })
    }
}

/// The file of the first stall of a reflector with such stalls.
fn first_stall(scratch: &Scratch, stall: &str) -> Result<(Incident, RecordedStall)> {
    let options = PairOptions { stall: Some(stall.to_owned()), ..PairOptions::default() };
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
    let incident = Incident::read(&found[0])?;
    let stall = RecordedStall::read(&incident)?;
    let began = within_minute(incident.times[0] - stall.begin) < 0.0;
    ensure!(began, "it began before the file: {}", stall.comment);
    Ok((incident, stall))
}

pub(crate) fn stall(scratch: &Scratch) -> Result<()> {
    let (incident, RecordedStall { comment, us, begin, end }) = first_stall(scratch, "30000/6000")?;
    let seconds = us as f64 / 1e6;
    // Both are rounded to microseconds, as is the length.
    ensure!((within_minute(end - begin) - seconds).abs() < 3e-6, "{comment}");
    ensure!(within_minute(second_of_minute(&comment)? - end).abs() < 2e-6, "{comment}");
    let words = ["trigger stall at ", "; lcore 1 (thread ", "; history held: "];
    incident.marked(&words, 1.0 + seconds, 0.5)
}

/// A stall every 10 ms, so that the last four are of the last 40 ms only.
pub(crate) fn many_stalls(scratch: &Scratch) -> Result<()> {
    let (incident, RecordedStall { comment, .. }) = first_stall(scratch, "3000/10")?;
    let count = comment.split_once("(the longest of ").and_then(|(_, rest)| {
        rest.split_once(" stalls since the last sample)")?.0.parse::<u64>().ok()
    });
    ensure!(count.is_some_and(|count| count > 4), "{comment}");
    incident.marked(&["trigger stall at ", "longest gap between two polls "], 2.0, 0.5)
}

pub(crate) fn command(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let arguments = ["--before", "500ms", "--after", "500ms", "--max-triggers", "2"];
    let mut recorder = start(scratch, &pair, &arguments)?;
    await_history(&pair)?;
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
    await_history(&pair)?;
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
    let mut recorder = start(scratch, &pair, &["--before", "500ms", "--after", "60s"])?;
    await_history(&pair)?;
    let pid = recorder.pid().to_string();
    pmdscope(scratch, &["capture", "trigger", &pid], &[0])?;
    await_history(&pair)?;
    sleep(Duration::from_secs(1));
    recorder.signal(Signal::KILL)?;
    recorder.wait(LIMIT)?;
    generator.stop()?;
    let part = fs::read_dir(scratch.dir())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".pcapng.part"))
        .context("no unfinished file")?;
    ensure!(capinfos(&part)?.contains("pcapng"), "{}", part.display());
    let incident = Incident::read(&part)?;
    // All packets except those of the last moment are there, and the whole history.
    incident.marked(&["trigger manual at "], 0.5, 60.0)?;
    // The socket of the dead recorder must be removed.
    let text = pmdscope(scratch, &["capture", "trigger", &pid], &[1])?;
    ensure!(text.is_empty(), "{text}");
    ensure!(!Path::new("/run/pmdscope").join(format!("recorder-{pid}.sock")).exists());
    Ok(())
}

/// Less history than was asked for is reported before, during and after the capture, and in the
/// file.
pub(crate) fn short(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000", "--size", "1000"])?;
    // The last --memory wins: it is full in a second, even where the machine is slow.
    let arguments = ["--before", "60s", "--after", "1s", "--max-triggers", "1", "--memory", "16M"];
    let mut recorder = start(scratch, &pair, &arguments)?;
    let says = |recorder: &Process, text: &str| recorder.output().contains(text);
    wait_until("a warning", LIMIT, || {
        Ok(says(&recorder, "warning: the flight recorder holds ")
            && says(&recorder, " s of the 60 s of --before, because 16 MiB are full"))
    })?;
    recorder.signal(Signal::USR1)?;
    let answer = "; flight recorder: ";
    wait_until("the counters", LIMIT, || Ok(says(&recorder, answer)))?;
    let pid = recorder.pid().to_string();
    pmdscope(scratch, &["capture", "trigger", &pid], &[0])?;
    recorder.finish(LIMIT)?;
    generator.stop()?;
    let output = recorder.output();
    ensure!(
        output.contains("60 s before a trigger and 1 s after it, in 16 MiB, which"),
        "{output}"
    );
    ensure!(
        output.contains(" packets evicted early, 1 trigger; --memory was too small"),
        "{output}"
    );
    let file = only_file(scratch, "-1-manual.pcapng")?;
    let incident = Incident::read(&file)?;
    let [(_, comment)] = incident.comments.as_slice() else {
        anyhow::bail!("comments {:?}", incident.comments);
    };
    let held = comment.split_once("history held: ").and_then(|(_, rest)| rest.split_once(" s of "));
    let (held, rest) = held.with_context(|| format!("no history in {comment}"))?;
    ensure!(rest.starts_with("60 s, --memory is too small"), "{comment}");
    let held = held.parse::<f64>()?;
    let first = within_minute(second_of_minute(comment)? - incident.times[0]);
    // It is rounded to milliseconds.
    ensure!(held > 0.0 && first <= held + 0.001, "{first} s of {held} s: {comment}");
    ensure!(incident.numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "packets are missing");
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
