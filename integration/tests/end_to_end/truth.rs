//! Captures, byte for byte: what the generator sent is in the files, whatever happens to the files.

use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::disk::Disk;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::wire::{Captured, Traffic, captured, captured_in_turn};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, is_captured, number, start_capture};

const SMALL: Traffic =
    Traffic { src_mac: [2, b'p', b'm', b'd', b's', 9], sizes: (66, 200), flows: 16 };
const MILLION: u64 = 1_000_000;
/// Room for a second of traffic: these tests are about correct files, not about a stolen CPU.
const ROOM: [&str; 4] = ["-Q", "in", "--ring-size", "64M"];

/// A million packets into rotated, compressed and classic files at the same time.
pub(crate) fn million(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let wanted: [(&str, &[&str]); 3] = [
        ("plain.pcapng", &["-C", "20"]),
        ("packed.pcapng.zst", &["-C", "20", "--count-before-extension"]),
        ("classic.pcap.gz", &["--pcap", "--nano", "-s", "100"]),
    ];
    let mut captures = Vec::new();
    for (name, arguments) in wanted {
        let arguments = [&ROOM[..], arguments].concat();
        captures.push(start_capture(scratch, pair.app(), &scratch.path(name), &arguments)?);
    }
    let sent = generate(&pair, scratch, &SMALL, "150k", MILLION)?;
    ensure!(number(&sent, "sent")? == MILLION, "{sent}");
    for capture in &mut captures {
        let report = capture.interrupt()?;
        ensure!(report.contains(&format!("{MILLION} packets captured")), "{report}");
    }
    pair.reflector.interrupt()?;

    let plain = rotated(scratch.dir(), "plain.")?;
    ensure!(plain.len() > 3, "only {plain:?}");
    let packed = rotated(scratch.dir(), "packed")?;
    ensure!(packed.len() > 3, "only {packed:?}");
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            check_whole(&captured_in_turn(&plain)?, usize::MAX).context("plain")?;
            check_whole(&captured(&scratch.path("classic.pcap.gz"))?, 100).context("classic")
        });
        check_whole(&captured_in_turn(&packed)?, usize::MAX).context("packed")?;
        first.join().map_err(|_| anyhow::anyhow!("a check panicked"))?
    })
}

fn check_whole(packets: &[Captured], snaplen: usize) -> Result<()> {
    ensure!(packets.len() as u64 == MILLION, "{} packets", packets.len());
    ensure!(packets.is_sorted_by_key(|packet| packet.ns), "timestamps go back");
    SMALL.check(packets, 0, snaplen)
}

/// Files of one capture in the order in which they were begun.
fn rotated(dir: &Path, start: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(start) && !name.contains(".log") {
            let digits = name.chars().filter(char::is_ascii_digit).collect::<String>();
            found.push((digits.parse::<u64>().unwrap_or(0), dir.join(name)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The time of a captured packet is that of its sending, by the sender's own TSC.
pub(crate) fn timestamps(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let arguments = SMALL.arguments();
    let arguments =
        arguments.iter().map(String::as_str).chain(["--rate", "20k"]).collect::<Vec<_>>();
    let mut generator = pair.generate(scratch, &arguments)?;
    let socket = format!("/var/run/dpdk/{}/pmdscope.sock", pair.generator_app());
    wait_until("the generator's capture socket", LIMIT, || {
        if let Some(status) = generator.process.exited()? {
            bail!("the generator ended with {status}: {}", generator.process.output());
        }
        Ok(std::fs::exists(&socket)?)
    })?;
    let file = scratch.path("times.pcapng");
    let arguments = ["-Q", "out", "--exit-with-app", "--ring-size", "16M"];
    let mut capture = start_capture(scratch, pair.generator_app(), &file, &arguments)?;
    // However long others kept it from its start. The file has its name at the end.
    let part = scratch.path("times.pcapng.part");
    wait_until("6 MB of packets", LIMIT, || {
        Ok(std::fs::metadata(&part).is_ok_and(|file| file.len() > 6_000_000))
    })?;
    let sent = generator.stop()?;
    capture.finish(LIMIT)?;
    pair.reflector.interrupt()?;

    let packets = captured(&file)?;
    ensure!(packets.len() > 25_000, "only {} packets", packets.len());
    ensure!(packets.is_sorted_by_key(|packet| packet.ns), "timestamps go back");
    SMALL.check(&packets, packets[0].sequence()?, usize::MAX)?;
    let mut late = Vec::new();
    for packet in packets.windows(3).filter(|three| is_alone(three)).map(|three| &three[1]) {
        late.push(i128::from(packet.ns) - realtime(&sent["clock"], packet.tsc()?)?);
    }
    ensure!(late.len() > 1000, "only {} packets were sent alone", late.len());
    late.sort_unstable();
    let [p1, median, p90] = [1, 50, 90].map(|percent| late[late.len() * percent / 100]);
    // The lcore may lose its CPU between taking the stamp and sending: not for most packets.
    ensure!(p1 > -1000 && p90 < 1000, "1 % {p1}, median {median}, 90 % {p90} ns after sending");
    Ok(())
}

/// The middle packet is a burst of its own: one of several waits until all are made.
fn is_alone(packets: &[Captured]) -> bool {
    packets[0].ns < packets[1].ns && packets[1].ns < packets[2].ns
}

/// Wall clock of a TSC value between two moments that the generator has reported.
fn realtime(clock: &Value, tsc: u64) -> Result<i128> {
    let field = |name| number(clock, name).map(i128::from);
    let (start_tsc, start_ns) = (field("start_tsc")?, field("start_ns")?);
    let (ticks, nanos) = (field("end_tsc")? - start_tsc, field("end_ns")? - start_ns);
    // The packet carries the lower 48 bits.
    let since_start = (i128::from(tsc) - start_tsc).rem_euclid(1 << 48);
    Ok(start_ns + since_start * nanos / ticks)
}

/// A full disk pauses the capture; what is missing afterwards has been counted.
pub(crate) fn full_disk(scratch: &Scratch) -> Result<()> {
    let disk = Disk::mount(&scratch.path("disk"), "48m")?;
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 40 << 20])?;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let file = disk.path().join("out.pcapng");
    let mut capture = start_capture(scratch, pair.app(), &file, &ROOM)?;
    let traffic = Traffic { sizes: (500, 600), ..SMALL };
    let arguments = traffic.arguments();
    let arguments = arguments.iter().map(String::as_str).chain(["--rate", "10k"]);
    let generator = pair.generate(scratch, &arguments.collect::<Vec<_>>())?;
    wait_until("the disk to be full", LIMIT, || Ok(disk.free()? == 0))?;
    sleep(Duration::from_millis(500));
    std::fs::remove_file(&filler)?;
    sleep(Duration::from_millis(500));
    let sent = generator.stop()?;
    let report = capture.interrupt()?;
    pair.reflector.interrupt()?;

    let fields = tshark_fields(&file, &["frame.drop_count"])?;
    let gaps: u64 = fields.iter().filter_map(|row| row[0].parse::<u64>().ok()).sum();
    let packets = captured(&file)?;
    let seen = packets.len() as u64 + gaps;
    ensure!(seen == number(&sent, "sent")?, "{seen} of {sent}; {report}");
    if gaps == 0 {
        traffic.check(&packets, 0, usize::MAX)?;
    }
    Ok(())
}

/// After an app was killed and restarted the capture continues, in a new section of the same file.
pub(crate) fn restarted_app(scratch: &Scratch) -> Result<()> {
    const EACH: usize = 20_000;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let file = scratch.path("both.pcapng");
    let mut capture = start_capture(scratch, pair.app(), &file, &ROOM)?;
    generate(&pair, scratch, &SMALL, "20k", EACH as u64)?;
    pair.reflector.signal(Signal::KILL)?;
    pair.reflector.wait(LIMIT)?;
    wait_until("the end to be noticed", LIMIT, || Ok(capture.output().contains("has ended")))?;
    pair.restart(scratch)?;
    wait_until("the capture to go on", LIMIT, || {
        // An app that is starting may answer without a number.
        Ok(is_captured(pair.app()))
    })?;
    generate(&pair, scratch, &SMALL, "20k", EACH as u64)?;
    let report = capture.interrupt()?;
    pair.reflector.interrupt()?;

    let packets = captured(&file)?;
    ensure!(packets.len() == 2 * EACH, "{} packets; {report}", packets.len());
    let (first, second) = packets.split_at(EACH);
    SMALL.check(first, 0, usize::MAX)?;
    SMALL.check(second, 0, usize::MAX)?;
    let sections = tshark_fields(&file, &["frame.section_number"])?;
    let second = sections.iter().filter(|row| row == &&["2"]).count();
    ensure!(second == EACH, "{second} packets in the second section");
    Ok(())
}

fn generate(
    pair: &Pair,
    scratch: &Scratch,
    traffic: &Traffic,
    rate: &str,
    count: u64,
) -> Result<Value> {
    let (arguments, count) = (traffic.arguments(), count.to_string());
    let rest = ["--rate", rate, "--count", &count];
    let arguments = arguments.iter().map(String::as_str).chain(rest).collect::<Vec<_>>();
    pair.generate(scratch, &arguments)?.finish(LIMIT)
}
