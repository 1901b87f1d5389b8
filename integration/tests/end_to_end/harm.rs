//! Whatever happens to the tools, the app forwards as before.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_capture::CaptureSession;
use pmdscope_capture::layout::{ANY, CaptureRequest, QueueSelect};
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry::ask;
use pmdscope_packets::{DIR_RX, DIR_TX};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::support::{
    LIMIT, await_packets, column, number, packets_received, start_capture, tee_sessions, told,
};

/// Packets per second: so few that the descriptors hold those that come while the reflector waits for a CPU.
const RATE: u64 = 25_000;

pub(crate) fn killed_capture(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    await_packets(pair.app(), RATE / 4)?;
    let before = packets_per_second(pair.app())?;
    let files_before = open_files(&pair.reflector)?;

    for _ in 0..3 {
        let file = scratch.path("killed.pcapng");
        let mut capture = start_capture(scratch, pair.app(), &file, &[])?;
        sleep(Duration::from_millis(300));
        capture.signal(Signal::KILL)?;
        capture.wait(LIMIT)?;
        wait_until("the capture to be disarmed", LIMIT, || Ok(tee_sessions(pair.app())? == 0))?;
    }

    is_as_before(&pair, before, files_before)?;
    generator.stop()?;
    pair.reflector.interrupt()?;
    Ok(())
}

/// A consumer that stops reading: its ring fills, drops are counted, nothing else suffers.
pub(crate) fn stopped_capture(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    let file = scratch.path("stopped.pcapng");
    let capture = start_capture(scratch, pair.app(), &file, &[])?;
    await_packets(pair.app(), RATE / 4)?;
    let before = packets_per_second(pair.app())?;
    capture.signal(Signal::STOP)?;
    wait_until("the full ring to drop", LIMIT, || {
        let tee = ask(pair.app(), "/pmdscope/tee")?;
        Ok(column(&tee, "dropped")?.iter().sum::<u64>() > 0)
    })?;
    forwards_as_before(pair.app(), before)?;
    // The lease runs out and the app ends the dead session itself.
    wait_until("the lease to run out", LIMIT, || {
        let tee = ask(pair.app(), "/pmdscope/tee")?;
        Ok(column(&tee, "armed")?.iter().all(|armed| *armed == 0))
    })?;
    drop(capture);
    generator.stop()?;
    pair.reflector.interrupt()?;
    Ok(())
}

/// Garbage on the capture socket, and hundreds of consumers that come and go under traffic.
pub(crate) fn hostile_consumers(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", &RATE.to_string()])?;
    await_packets(pair.app(), RATE / 4)?;
    let before = packets_per_second(pair.app())?;
    let files_before = open_files(&pair.reflector)?;
    let socket = format!("/var/run/dpdk/{}/pmdscope.sock", pair.app());

    for seed in 1..=150 {
        send_garbage(&socket, seed)?;
    }
    let everything = QueueSelect { port: ANY, queue: ANY, dirs: u16::from(DIR_RX | DIR_TX) };
    let request = CaptureRequest { selects: vec![everything], ..CaptureRequest::default() };
    for round in 0..100 {
        // An app that is busy with those before may refuse one, and must take it soon.
        wait_until(&format!("session {round}"), LIMIT, || {
            Ok(CaptureSession::open(socket.as_ref(), &request, LIMIT).is_ok())
        })?;
    }

    is_as_before(&pair, before, files_before)?;
    generator.stop()?;
    pair.reflector.interrupt()?;
    no_mbuf_is_missing(scratch)
}

/// One message of any bytes and any length to a socket that expects a request.
fn send_garbage(socket: &str, seed: u64) -> Result<()> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let length = next() % 9000;
    let garbage = (0..length).map(|_| next().to_le_bytes()[3]).collect::<Vec<_>>();
    let kind = SocketType::SEQPACKET;
    let peer = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&peer, &SocketAddrUnix::new(socket)?)?;
    // The app may have hung up already on a peer that it does not like.
    let _ = rustix::net::send(&peer, &garbage, SendFlags::NOSIGNAL);
    Ok(())
}

/// An app that ends loses no packets: those that it saw are in the file or counted.
pub(crate) fn ended_app(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let file = scratch.path("ended.pcapng");
    let mut capture = start_capture(scratch, pair.app(), &file, &["-Q", "in", "--exit-with-app"])?;
    let arguments = ["--rate", "200000", "--count", "100000"];
    let sent = number(&pair.generate(scratch, &arguments)?.finish(LIMIT)?, "sent")?;
    pair.reflector.interrupt()?;
    let report = capture.finish(LIMIT)?;
    let written = told(&report, "packets captured")?;
    let dropped = told(&report, "packets dropped")?;
    ensure!(written + dropped == sent, "{written} + {dropped} of {sent}: {report}");
    let fields = tshark_fields(&file, &["frame.drop_count"])?;
    ensure!(fields.len() as u64 == written, "{} packets in the file, {report}", fields.len());
    let gaps: u64 = fields.iter().filter_map(|row| row[0].parse::<u64>().ok()).sum();
    ensure!(gaps <= dropped, "{gaps} packets missing in gaps, {dropped} in all");
    no_mbuf_is_missing(scratch)
}

/// Ports that are stopped and started under a capture, time and again.
pub(crate) fn restarted_ports(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { restart: Some("100".to_owned()), ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let file = scratch.path("restarted.pcapng");
    let mut capture = start_capture(scratch, pair.app(), &file, &["-Q", "in"])?;
    let arguments = ["--rate", &RATE.to_string(), "--count", "50000"];
    pair.generate(scratch, &arguments)?.finish(LIMIT)?;
    let report = capture.interrupt()?;
    pair.reflector.interrupt()?;

    let text = std::fs::read_to_string(scratch.path("reflector.json"))?;
    let summary: serde_json::Value = serde_json::from_str(&text)?;
    let received = number(&summary, "received")?;
    ensure!(number(&summary, "restarts")? >= 10 && received > 10_000, "{summary}");
    let written = tshark_fields(&file, &["frame.number"])?.len() as u64;
    let dropped = told(&report, "packets dropped")?;
    ensure!(written + dropped == received, "{written} + {dropped} of {received}: {report}");
    no_mbuf_is_missing(scratch)
}

/// The reflector has ended with a full pool.
fn no_mbuf_is_missing(scratch: &Scratch) -> Result<()> {
    let text = std::fs::read_to_string(scratch.path("reflector.json"))?;
    let summary: serde_json::Value = serde_json::from_str(&text)?;
    ensure!(number(&summary["pool"], "in_use_end")? == 0, "{summary}");
    Ok(())
}

/// No capture is armed, packets are forwarded at the rate before, and neither files nor memory are left.
fn is_as_before(pair: &Pair, rate: f64, files: usize) -> Result<()> {
    wait_until("the captures to be disarmed", LIMIT, || Ok(tee_sessions(pair.app())? == 0))?;
    forwards_as_before(pair.app(), rate)?;
    // Those of earlier clients are closed at some later time.
    wait_until("the files of captures to be closed", LIMIT, || {
        Ok(open_files(&pair.reflector)? <= files)
    })?;
    let about = ask(pair.app(), "/pmdscope")?;
    ensure!(number(&about, "abandoned_bytes")? == 0, "{about}");
    Ok(())
}

/// The rate is back; a machine that was busy elsewhere gets some seconds.
fn forwards_as_before(app: &str, before: f64) -> Result<()> {
    // A generator that had no CPU for a while catches up, faster than its rate.
    let before = before.min(RATE as f64);
    let mut rates = Vec::new();
    for _ in 0..20 {
        let rate = packets_per_second(app)?;
        if rate > before * 0.95 {
            return Ok(());
        }
        rates.push(rate);
    }
    bail!("{before:.0} pps before, then {rates:.0?}")
}

/// Packets that the app receives per second, over one second, by DPDK's own counters.
fn packets_per_second(app: &str) -> Result<f64> {
    let first = packets_received(app)?;
    let start = Instant::now();
    sleep(Duration::from_secs(1));
    let second = packets_received(app)?;
    Ok((second - first) as f64 / start.elapsed().as_secs_f64())
}

fn open_files(process: &Process) -> Result<usize> {
    let dir = format!("/proc/{}/fd", process.pid());
    Ok(std::fs::read_dir(&dir).with_context(|| dir.clone())?.count())
}
