//! Captures, compared packet by packet with what the generator reports as sent.

use std::ops::Range;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::oracle::{capinfos, tshark_fields};
use pmdscope_integration::pair::{Link, Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_testing::{output, spawn};
use rustix::process::Signal;

use crate::support::{LIMIT, is_captured, number, queues_counted, start_capture};

/// Bytes of the UDP payload where the generator puts its sequence number.
const SEQUENCE: Range<usize> = 6..12;

pub(crate) fn virtio(scratch: &Scratch) -> Result<()> {
    agrees(scratch, Link::Virtio)
}

pub(crate) fn memif(scratch: &Scratch) -> Result<()> {
    agrees(scratch, Link::Memif)
}

fn agrees(scratch: &Scratch, link: Link) -> Result<()> {
    let file = scratch.path("rx.pcapng");
    let mut pair = Pair::start(scratch, PairOptions { link, ..PairOptions::default() })?;
    // Room for a second of traffic: the test is about correct files, not about a stolen CPU.
    let arguments = ["-Q", "in", "--ring-size", "16M"];
    let mut capture = start_capture(scratch, pair.app(), &file, &arguments)?;
    let arguments = ["--rate", "20000", "--count", "20000", "--size", "80-1500"];
    let mut generator = pair.generate_and_keep_link(scratch, &arguments)?;
    generator.wait_sent(LIMIT)?;
    let report = capture.interrupt()?;
    let sent = pair.finish(generator, LIMIT)?;

    let fields =
        ["frame.len", "frame.cap_len", "frame.time_epoch", "frame.drop_count", "udp.payload"];
    let packets = tshark_fields(&file, &fields)?;
    ensure!(packets.len() as u64 == number(&sent, "sent")?, "{} packets; {report}", packets.len());
    let mut bytes = 0;
    let mut last_time = number(&sent, "first_send_ns")?;
    for (expected, packet) in packets.iter().enumerate() {
        let [len, caplen, time, drops, payload] = packet.as_slice() else {
            anyhow::bail!("tshark printed {packet:?}");
        };
        ensure!(len == caplen, "packet {expected} was cut: {caplen} of {len}");
        ensure!(drops.is_empty() || drops == "0", "drop count {drops} at packet {expected}");
        bytes += len.parse::<u64>()?;
        ensure!(sequence(payload)? == expected as u64, "packet {expected} has payload {payload}");
        let time = nanoseconds(time)?;
        // Both clocks are read on one machine, but by two processes at two moments.
        ensure!(time + 1_000_000 >= last_time, "packet {expected} at {time} after {last_time}");
        last_time = time;
    }
    ensure!(bytes == number(&sent, "sent_bytes")?, "{bytes} bytes; {sent}");
    // The last packet was sent before it was seen; allow a stolen CPU, not a wrong epoch.
    let late = last_time.saturating_sub(number(&sent, "last_send_ns")?);
    ensure!(late < 2_000_000_000, "the last packet was captured {late} ns after it was sent");
    strictly_monotonic(&packets)?;
    let report = capinfos(&file)?;
    ensure!(report.contains("nanoseconds (9)"), "{report}");
    Ok(())
}

pub(crate) fn strictly_monotonic(packets: &[Vec<String>]) -> Result<()> {
    let times = packets.iter().map(|packet| nanoseconds(&packet[2])).collect::<Result<Vec<_>>>()?;
    ensure!(times.windows(2).all(|pair| pair[0] <= pair[1]), "timestamps go back");
    ensure!(times.iter().any(|time| time % 1000 != 0), "timestamps are not in nanoseconds");
    Ok(())
}

pub(crate) fn options(scratch: &Scratch) -> Result<()> {
    let file = scratch.path("some.pcapng");
    let pair = Pair::start(scratch, PairOptions::default())?;
    let arguments = ["-c", "500", "-s", "64", "-Q", "in", "udp and src port 49155"];
    let mut capture = start_capture(scratch, pair.app(), &file, &arguments)?;
    let arguments = ["--rate", "50000", "--flows", "16", "--size", "256"];
    let generator = pair.generate(scratch, &arguments)?;
    capture.finish(LIMIT)?;
    generator.stop()?;

    let packets = tshark_fields(&file, &["udp.srcport", "frame.cap_len", "frame.len"])?;
    ensure!(packets.len() == 500, "{} packets", packets.len());
    ensure!(packets.iter().all(|packet| packet == &["49155", "64", "256"]), "{:?}", packets[0]);
    Ok(())
}

/// An app that counts its queues on demand has callbacks as soon as a capture is armed.
pub(crate) fn on_demand(scratch: &Scratch) -> Result<()> {
    let file = scratch.path("rx.pcapng");
    let options = PairOptions { on_demand: true, ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let interface = format!("{}:0", pair.app());
    ensure!(queues_counted(pair.app())? == 0, "queues are counted although nobody reads them");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &interface, "-Q", "in", "--ring-size", "16M", "-w"]).arg(&file);
    let mut capture = Process::spawn("capture", &mut command, scratch.dir())?;
    wait_until("the capture to be armed", LIMIT, || Ok(is_captured(pair.app())))?;
    ensure!(queues_counted(pair.app())? == 1, "a capture without callbacks");
    let arguments = ["--rate", "20000", "--count", "20000"];
    let mut generator = pair.generate_and_keep_link(scratch, &arguments)?;
    generator.wait_sent(LIMIT)?;
    let report = capture.interrupt()?;
    let sent = number(&pair.finish(generator, LIMIT)?, "sent")?;
    let packets = tshark_fields(&file, &["frame.number"])?.len() as u64;
    ensure!(packets == sent, "{packets} packets of {sent}; {report}");
    Ok(())
}

pub(crate) fn stream(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let mut command = Command::new(programs::pmdscope()?);
    command
        .args(["capture", "-i", &format!("{}:0", pair.app()), "-Q", "out", "-c", "100", "-w", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut capture = spawn(&mut command)?;
    let stream = capture.stdout.take().context("stdout of capture")?;
    let mut tcpdump = Command::new("tcpdump");
    let tcpdump = output(tcpdump.args(["-n", "-r", "-"]).stdin(stream)).context("no tcpdump")?;
    let status = capture.wait()?;
    generator.stop()?;
    ensure!(status.success(), "capture ended with {status}");
    let lines = String::from_utf8_lossy(&tcpdump.stdout).lines().count();
    ensure!(lines == 100, "tcpdump read {lines} packets: {tcpdump:?}");
    Ok(())
}

/// USR1 asks a running capture for its counters, and a terminal gets a line every second.
pub(crate) fn progress(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "20000"])?;
    let mut capture = start_capture(scratch, pair.app(), &scratch.path("a.pcapng"), &[])?;
    capture.signal(Signal::USR1)?;
    let counters = || Ok(capture.output().contains("packets received by filter"));
    wait_until("the counters", LIMIT, counters)?;
    ensure!(!capture.output().contains("of disk left"), "{}", capture.output());
    capture.interrupt()?;

    let command = format!(
        "{} capture -i {}:0 -w {} --duration 3",
        programs::pmdscope()?.display(),
        pair.app(),
        scratch.path("b.pcapng").display()
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let (code, screen, _) = run(&mut script, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{code}: {screen}");
    let lines = screen.matches("/s, 0 dropped | b.pcapng ").count();
    ensure!(lines >= 2 && screen.contains("of disk left"), "{screen}");
    generator.stop()?;
    Ok(())
}

pub(crate) fn sequence(payload: &str) -> Result<u64> {
    let hex = payload.get(2 * SEQUENCE.start..2 * SEQUENCE.end).context("short payload")?;
    Ok(u64::from_str_radix(hex, 16)?)
}

/// tshark's `seconds.fraction` as nanoseconds; the fraction must have nine digits.
pub(crate) fn nanoseconds(time: &str) -> Result<u64> {
    let (seconds, fraction) = time.split_once('.').context("no fraction")?;
    ensure!(fraction.len() == 9, "{time} has no nanoseconds");
    Ok(seconds.parse::<u64>()? * 1_000_000_000 + fraction.parse::<u64>()?)
}
