//! The generator and the reflector over sockets: every packet is accounted for, whatever carries it.
//! Compared with the kernel's own counters and tcpdump.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::kernel_twin::{KernelGenerator, KernelReflector, uring_missing};
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LIMIT, Missing, Needs, missing_program, number, trial_unless};

/// The receive buffers hold all of them, so that a stall loses none.
const PACKETS: u64 = 5000;
const RATE: &str = "5000";
/// Without FCS.
const FRAME: u64 = 128;
/// Ethernet, IPv4 and UDP.
const HEADERS: u64 = 42;
/// Room for all packets.
const AF_PACKET: &str = "net_af_packet0,iface=wire,framecnt=8192";

pub(crate) fn trials() -> Vec<Trial> {
    let no_namespaces = || {
        let error = NamespacePair::new(&[]).err()?;
        Some(Missing::Machine(format!("no network namespaces: {error:#}")))
    };
    let missing = |needs: Needs, programs: &[&str]| {
        needs.missing().or_else(|| missing_program(programs)).or_else(no_namespaces)
    };
    let twin = |name, test| trial_unless(name, missing(Needs::Apps, &[]), test);
    let uring = missing(Needs::Apps, &[]).or_else(|| {
        let scratch = Scratch::new().ok()?;
        uring_missing(&scratch).ok()?.map(Missing::Machine)
    });
    let gro = missing(Needs::Apps, &["tcpdump"]);
    let dpdk = || missing(Needs::Apps, &["ethtool"]);
    vec![
        twin("kernel_twins_agree_over_loopback", loopback),
        twin("kernel_twins_agree_over_veth", veth),
        twin("kernel_twins_send_segments", segments),
        trial_unless("kernel_twins_receive_segments", gro, joined_segments),
        twin("kernel_twins_share_a_port", shared_port),
        trial_unless("kernel_twins_use_io_uring", uring, io_uring),
        twin("kernel_twins_name_what_a_full_buffer_lost", full_buffer),
        twin("a_kernel_generator_without_reflector_fails", alone),
        trial_unless("a_kernel_generator_and_a_dpdk_reflector_agree", dpdk(), to_dpdk),
        trial_unless("a_dpdk_generator_and_a_kernel_reflector_agree", dpdk(), from_dpdk),
        trial_unless("kernel_and_bypass_are_compared", missing(Needs::Apps, &["gnuplot"]), compare),
    ]
}

/// Runs both over the wire; their summaries agree with each other. Returns them.
fn round_trip(
    scratch: &Scratch,
    net: &NamespacePair,
    generator: &[&str],
    reflector: &[&str],
) -> Result<(Value, Value)> {
    over(scratch, net, Side::Far, generator, reflector)
}

fn over(
    scratch: &Scratch,
    net: &NamespacePair,
    side: Side,
    generator: &[&str],
    reflector: &[&str],
) -> Result<(Value, Value)> {
    let reflector = KernelReflector::start(scratch, net, side, reflector)?;
    let count = PACKETS.to_string();
    let address = if side == Side::Near { "127.0.0.1" } else { side.address() };
    let mut args = vec!["--rate", RATE, "--count", &count, "--dst-ip", address];
    args.extend(generator);
    let sent = KernelGenerator::start(scratch, net, &args)?.finish(LIMIT)?;
    let reflected = reflector.stop()?;
    nothing_lost(&sent)?;
    for field in ["received", "sent"] {
        ensure!(number(&reflected, field)? == PACKETS, "{field}: {reflected}");
    }
    ensure!(number(&reflected, "received_bytes")? == PACKETS * FRAME, "{reflected}");
    Ok((sent, reflected))
}

fn nothing_lost(sent: &Value) -> Result<()> {
    ensure!(number(sent, "sent")? == PACKETS && number(sent, "received")? == PACKETS, "{sent}");
    for field in ["lost", "duplicates", "reordered", "late", "foreign", "socket_drops"] {
        ensure!(number(sent, field).unwrap_or(0) == 0, "{field}: {sent}");
    }
    Ok(())
}

/// Packets that UDP has received on a side, or sent.
fn udp(net: &NamespacePair, side: Side, name: &str) -> Result<u64> {
    net.counter(side, "Udp", name)
}

fn loopback(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[])?;
    over(scratch, &net, Side::Near, &[], &[])?;
    // Both ends are in this namespace.
    for name in ["InDatagrams", "OutDatagrams"] {
        let counted = udp(&net, Side::Near, name)?;
        ensure!(counted == 2 * PACKETS, "the kernel counted {counted} {name}");
    }
    Ok(())
}

fn veth(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let (sent, _) = round_trip(scratch, &net, &["--batch", "1"], &["--batch", "1"])?;
    let calls = number(&sent["system_calls"], "send")?;
    ensure!(calls >= PACKETS, "{calls} system calls carried {PACKETS} packets one by one");
    for side in [Side::Near, Side::Far] {
        for name in ["InDatagrams", "OutDatagrams"] {
            let counted = udp(&net, side, name)?;
            ensure!(counted == PACKETS, "the kernel counted {counted} {name} on {side:?}");
        }
    }
    Ok(())
}

/// The kernel cuts messages into packets, and counts each packet that it delivers.
fn segments(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let bursts = ["--gso", "--batch", "64"];
    round_trip(scratch, &net, &bursts, &[])?;
    let received = udp(&net, Side::Far, "InDatagrams")?;
    ensure!(received == PACKETS, "the kernel counted {received} packets at the reflector");
    Ok(())
}

/// Messages of several packets arrive as they were sent; their bytes are those of all packets.
fn joined_segments(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let file = scratch.path("wire.pcap");
    let mut command = net.command(Side::Far, "tcpdump");
    command.args(["-i", INTERFACE, "--immediate-mode", "-U", "-B", "65536", "-w"]).arg(&file);
    let mut tcpdump = Process::spawn("tcpdump", command.arg("udp"), scratch.dir())?;
    wait_until("tcpdump to listen", LIMIT, || Ok(tcpdump.output().contains("listening")))?;

    let options = ["--gso", "--gro", "--batch", "64"];
    // At once, so that there are messages of many packets.
    let args = [&options[..], &["--rate", "0"]].concat();
    let (sent, _) = round_trip(scratch, &net, &args, &options)?;
    let calls = number(&sent["system_calls"], "send")?;
    ensure!(calls < PACKETS, "{calls} system calls carried {PACKETS} packets");

    let wanted = 2 * PACKETS * (FRAME - HEADERS);
    let read = || payload_bytes(scratch, &file).map(|(_, bytes)| bytes == wanted);
    wait_until("tcpdump to have written all packets", LIMIT, read)?;
    tcpdump.interrupt()?;
    let (messages, _) = payload_bytes(scratch, &file)?;
    ensure!(messages < 2 * PACKETS, "{messages} messages carried {} packets", 2 * PACKETS);
    Ok(())
}

/// UDP messages in a file, and the bytes of payload in them.
fn payload_bytes(scratch: &Scratch, file: &Path) -> Result<(u64, u64)> {
    let mut command = Command::new("tcpdump");
    let (_, text, _) = run(command.arg("-nnqr").arg(file), scratch.dir(), LIMIT)?;
    let sizes = text.lines().filter_map(|line| line.rsplit_once("length ")?.1.trim().parse().ok());
    Ok(sizes.fold((0, 0), |(messages, bytes), size: u64| (messages + 1, bytes + size)))
}

/// With `SO_REUSEPORT` the kernel spreads flows over the threads of the reflector.
fn shared_port(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let generator = ["--threads", "2", "--flows", "64"];
    let (_, reflected) = round_trip(scratch, &net, &generator, &["--threads", "2"])?;
    let by_thread = &reflected["received_by_thread"];
    let (first, second) = (number(by_thread, "0")?, number(by_thread, "1")?);
    ensure!(first + second == PACKETS, "{reflected}");
    // A fair coin that gives all 64 flows to one side is a broken one.
    ensure!(first > 0 && second > 0, "one thread received all: {reflected}");
    Ok(())
}

fn io_uring(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let plain = ["--io", "uring"];
    let (sent, reflected) = round_trip(scratch, &net, &plain, &plain)?;
    ensure!(sent["io"] == "uring" && reflected["io"] == "uring", "{sent} {reflected}");
    let received = udp(&net, Side::Far, "InDatagrams")?;
    ensure!(received == PACKETS, "the kernel counted {received} packets at the reflector");
    let joined = ["--io", "uring", "--gso", "--gro", "--batch", "64"];
    round_trip(scratch, &net, &joined, &joined)?;
    Ok(())
}

/// The lost packets are those that the kernel reports as dropped at the socket.
fn full_buffer(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near, Side::Far])?;
    let reflector = KernelReflector::start(scratch, &net, Side::Far, &["--buffer", "65536"])?;
    reflector.process.signal(Signal::STOP)?;
    let count = PACKETS.to_string();
    let args = ["--rate", "0", "--count", &count, "--drain", "4", "--dst-ip", Side::Far.address()];
    let generator = KernelGenerator::start(scratch, &net, &args)?;
    wait_until("all packets to be sent", LIMIT, || {
        Ok(udp(&net, Side::Near, "OutDatagrams")? >= PACKETS)
    })?;
    reflector.process.signal(Signal::CONT)?;
    let sent = generator.finish(LIMIT)?;
    let reflected = reflector.stop()?;
    let lost = number(&sent, "lost")?;
    ensure!(lost > 0, "a buffer of 64 KiB held {PACKETS} packets: {reflected}");
    ensure!(number(&reflected, "socket_drops")? == lost, "{lost} lost: {reflected}");
    let counted = udp(&net, Side::Far, "RcvbufErrors")?;
    ensure!(counted == lost, "the kernel counted {counted} of {lost} lost packets");
    ensure!(number(&reflected, "received")? + lost == PACKETS, "{reflected}");
    Ok(())
}

fn alone(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[])?;
    let mut command = net.command(Side::Near, programs::kernel_generator()?);
    command.args(["--count", "100", "--rate", "1000", "--drain", "0.1"]);
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 1, "exit status {code}: {out}{err}");
    ensure!(err.contains("does a reflector listen"), "the error does not say what to do: {err}");
    ensure!(out.contains("ECONNREFUSED"), "refusals are not counted: {out}");
    Ok(())
}

fn to_dpdk(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Near])?;
    net.write_checksums(Side::Near)?;
    let prefix = scratch.prefix("reflector");
    let json = scratch.path("reflector.json");
    let mut command = net.command(Side::Far, programs::reflector()?);
    eal(&mut command, "1@1", &prefix, Memory::available());
    command.args(["--vdev", AF_PACKET, "--", "--json"]).arg(&json);
    let mut reflector = Process::spawn("reflector", &mut command, scratch.dir())?;
    let ready = format!("/var/run/dpdk/{prefix}/pmdscope.sock");
    wait_until("the reflector's socket", LIMIT, || {
        ensure!(reflector.exited()?.is_none(), "the reflector ended:\n{}", reflector.output());
        Ok(std::fs::exists(&ready)?)
    })?;
    let count = PACKETS.to_string();
    let args = ["--rate", RATE, "--count", &count, "--dst-ip", Side::Far.address()];
    let sent = KernelGenerator::start(scratch, &net, &args)?.finish(LIMIT)?;
    reflector.interrupt()?;
    nothing_lost(&sent)?;
    let reflected: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    ensure!(number(&reflected, "received")? == PACKETS, "{reflected}");
    let received = udp(&net, Side::Near, "InDatagrams")?;
    ensure!(received == PACKETS, "the kernel counted {received} packets at the generator");
    Ok(())
}

fn from_dpdk(scratch: &Scratch) -> Result<()> {
    let net = NamespacePair::new(&[Side::Far])?;
    net.write_checksums(Side::Far)?;
    let reflector = KernelReflector::start(scratch, &net, Side::Far, &[])?;
    let json = scratch.path("generator.json");
    let mut command = net.command(Side::Near, programs::generator()?);
    eal(&mut command, "0@0", &scratch.prefix("generator"), Memory::available());
    command.args(["--vdev", AF_PACKET, "--", "--rate", RATE, "--count", &PACKETS.to_string()]);
    command.args(["--dst-mac", Side::Far.mac(), "--dst-ip", Side::Far.address()]);
    command.args(["--src-ip", Side::Near.address(), "--json"]).arg(&json);
    Process::spawn("generator", &mut command, scratch.dir())?.finish(LIMIT)?;
    let reflected = reflector.stop()?;
    let sent = std::fs::read_to_string(&json).context("the generator's summary")?;
    nothing_lost(&serde_json::from_str(&sent)?)?;
    ensure!(number(&reflected, "received")? == PACKETS, "{reflected}");
    let received = udp(&net, Side::Far, "InDatagrams")?;
    ensure!(received == PACKETS, "the kernel counted {received} packets at the reflector");
    Ok(())
}

/// What `make compare` runs, in its shortest form: all its output is about the same runs.
fn compare(scratch: &Scratch) -> Result<()> {
    const SYSTEMS: [&str; 2] = ["kernel, veth, sendmmsg, recvmmsg", "DPDK, memif"];
    let dir = scratch.path("compare");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope-bench-compare"));
    command.args(["--quick", "--only", "memif", "--output"]).arg(&dir);
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "exit status {code}: {out}{err}");

    let text = fs::read_to_string(dir.join("compare.json"))?;
    let json: Value = serde_json::from_str(&text)?;
    ensure!(json["baseline"] == SYSTEMS[0] && json["missing"] == json!([]), "{json:#}");
    let rows = json["results"].as_array().context("results")?;
    let of = |system: &str, size: u64, rate: u64| {
        let mut rows = rows.iter();
        rows.find(|row| row["system"] == system && row["size"] == size && row["rate_asked"] == rate)
    };
    let csv = fs::read_to_string(dir.join("compare.csv"))?;
    ensure!(rows.len() == 8 && csv.lines().count() == 1 + rows.len(), "{csv}{json:#}");
    for (size, rate) in [(64, 0), (1500, 0), (64, 200_000), (1500, 200_000)] {
        for system in SYSTEMS {
            let row = of(system, size, rate).with_context(|| format!("{system} {size}: {csv}"))?;
            agrees(row, &csv, &out).with_context(|| format!("{row:#}\n{csv}{out}"))?;
        }
    }
    for (name, begin) in [("compare.svg", &b"<?xml"[..]), ("compare.png", &b"\x89PNG"[..])] {
        ensure!(fs::read(dir.join(name))?.starts_with(begin), "{name}: {err}");
    }
    Ok(())
}

/// A row of the JSON with the line of its only run in the CSV, and with its place in the tables.
fn agrees(row: &Value, csv: &str, tables: &str) -> Result<()> {
    let (system, size) = (row["system"].as_str().context("system")?, &row["size"]);
    let rate = &row["rate_asked"];
    let begin = format!("0,\"{system}\",{size},{rate},");
    let line = csv.lines().find_map(|line| line.strip_prefix(&begin)).context("no line")?;
    let numbers: Vec<f64> = line.split(',').take(5).map(str::parse).collect::<Result<_, _>>()?;
    let [seconds, sent, received, pps, loss] = numbers[..] else { anyhow::bail!("{line}") };
    ensure!(seconds > 0.3 && received > 0.0 && received <= sent, "{line}");
    ensure!((pps - received / seconds).abs() < pps * 0.01, "{line}");
    ensure!((loss - (1.0 - received / sent)).abs() < 1e-5, "{line}");
    let told = row["pps_back"][1].as_f64().context("pps_back")?;
    ensure!((told - pps).abs() <= 1.0, "{told} is not {pps}");
    ensure!(tables.contains(&format!("| {system} | {:.0} ", told / 1e3)), "not in the tables");
    Ok(())
}
