//! Samples of the packets of apps that hand out none: each was sent, is whole, and is shown once.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::openvswitch::Switch;
use pmdscope_integration::oracle::{capinfos, tshark_fields};
use pmdscope_integration::pair::{Generator, Link, generate};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::testpmd::{Setup, Testpmd};
use pmdscope_integration::wire::{Captured, Traffic, captured};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, packets_received, pmdscope_json, trial};

const TRAFFIC: Traffic =
    Traffic { src_mac: [2, b'p', b'e', b'e', b'k', 1], sizes: (64, 1514), flows: 4 };
/// Packets that are waited for.
const WANTED: usize = 300;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("an_app_that_hands_out_no_packets_is_sampled", Needs::Pdump, over_vhost),
        trial("samples_over_memif_are_what_was_sent", Needs::Pdump, over_memif),
        trial("open_vswitch_is_sampled", Needs::OpenVswitch, open_vswitch),
        trial("a_sample_of_an_app_that_ends_is_whole", Needs::Pdump, app_ends),
    ]
}

fn over_vhost(scratch: &Scratch) -> Result<()> {
    let (mut testpmd, generator) = forwarding(scratch, Link::Virtio)?;
    let (code, said) = capture(scratch, testpmd.app(), &scratch.path("no.pcapng"), &[])?;
    ensure!(code == 1 && said.contains("--in-memory") && said.contains("--peek"), "{code}: {said}");
    check_sample(scratch, testpmd.app(), true)?;

    let file = scratch.path("none.pcapng");
    let filtered = ["--peek", "--duration", "1", "udp", "dst", "port", "9"];
    let (code, said) = capture(scratch, testpmd.app(), &file, &filtered)?;
    ensure!(code == 0 && captured(&file)?.is_empty(), "{code}: {said}");
    for args in [["--peek", "-Q", "in"], ["--peek", "-Q", "out"]] {
        let (code, said) = capture(scratch, testpmd.app(), &file, &args)?;
        ensure!(code == 1 && said.contains("the direction"), "{code}: {said}");
    }

    let netstat = ["netstat", "--peek", "-a", testpmd.app(), "--json"];
    let report = pmdscope_json(scratch, &netstat, &[0])?;
    let count = |name: &str| report["peek"][name].as_u64().with_context(|| format!("{report:#}"));
    ensure!(count("seen")? > 0 && count("seen")? <= count("received")?, "{report:#}");
    ensure!(report["flows"].as_array().map(Vec::len) == Some(4), "{report:#}");

    let sent = finish(generator)?;
    ensure!(sent > 0 && testpmd.process.exited()?.is_none(), "the app ended");
    Ok(())
}

fn over_memif(scratch: &Scratch) -> Result<()> {
    let (testpmd, generator) = forwarding(scratch, Link::Memif)?;
    check_sample(scratch, testpmd.app(), true)?;
    finish(generator)?;
    Ok(())
}

/// Debian's own, started as it always is.
fn open_vswitch(scratch: &Scratch) -> Result<()> {
    let socket = scratch.path("link.sock");
    let device = format!("net_vhost0,iface={}", socket.display());
    let switch = Switch::start(scratch, &[&device], "")?;
    // It has no counters of a port before it has started it.
    wait_until("the port to be started", LIMIT, || {
        Ok(socket.exists() && packets_received(switch.app()).is_ok())
    })?;
    let generator = generate(
        scratch,
        Link::Virtio,
        &socket,
        &scratch.prefix("generator"),
        Memory::available(),
        &arguments(),
    )?;
    await_packets(switch.app(), 0)?;
    check_sample(scratch, switch.app(), false)?;
    drop(generator);
    Ok(())
}

/// It frees its memory while it is read, or ends between two reads.
fn app_ends(scratch: &Scratch) -> Result<()> {
    let (mut testpmd, generator) = forwarding(scratch, Link::Virtio)?;
    let file = scratch.path("quit.pcapng");
    let mut capture = begin_sample(scratch, &testpmd, &file, &["--exit-with-app"])?;
    testpmd.process.type_line("quit")?;
    testpmd.process.finish(LIMIT)?;
    let said = capture.finish(LIMIT)?;
    check_end(&said, testpmd.app(), &file)?;
    ensure!(!said.contains("waiting for it"), "{said}");
    drop(generator);

    let (mut testpmd, _generator) = forwarding(scratch, Link::Virtio)?;
    let file = scratch.path("killed.pcapng");
    let mut capture = begin_sample(scratch, &testpmd, &file, &[])?;
    testpmd.process.signal(Signal::KILL)?;
    testpmd.process.wait(LIMIT)?;
    wait_until("the end to be told", LIMIT, || Ok(capture.output().contains("waiting for it")))?;
    check_end(&capture.interrupt()?, testpmd.app(), &file)
}

/// A capture that has written packets.
fn begin_sample(
    scratch: &Scratch,
    testpmd: &Testpmd,
    file: &Path,
    args: &[&str],
) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "--peek", "-v", "-i", &format!("{}:0", testpmd.app()), "-w"]);
    let mut capture = Process::spawn("capture", command.arg(file).args(args), scratch.dir())?;
    wait_until("packets to be counted", LIMIT, || {
        ensure!(capture.exited()?.is_none(), "capture ended: {}", capture.output());
        let output = capture.output();
        let mut counts = output.split("Got ").skip(1);
        Ok(counts.any(|count| !count.starts_with('0')))
    })?;
    Ok(capture)
}

/// The end is reported in one line, and the file has whole packets alone, none of them twice.
fn check_end(said: &str, app: &str, file: &Path) -> Result<()> {
    ensure!(said.matches(&format!("{app} has ended")).count() == 1, "{said}");
    ensure!(said.contains("packets seen; the app does not report how many it received"), "{said}");
    ensure!(!said.contains("rror") && !said.contains("cannot"), "{said}");
    let rows = tshark_fields(file, &["frame.interface_name", "_ws.malformed"])?;
    ensure!(rows.iter().all(|row| row[0] == format!("{app}:0")), "{:?}", rows.first());
    ensure!(rows.iter().all(|row| row.get(1).is_none_or(String::is_empty)), "malformed packets");
    let packets: Vec<_> = captured(file)?.into_iter().filter(is_probe).collect();
    ensure!(!packets.is_empty() && packets.len() <= rows.len(), "{} packets", packets.len());
    let mut numbers = HashSet::new();
    for packet in packets {
        let number = packet.sequence()?;
        ensure!(numbers.insert(number), "packet {number} is there twice");
        TRAFFIC.check(&[swapped(packet)], number, usize::MAX)?;
    }
    Ok(())
}

/// It is one of the generator's: the kernel sends some on its own.
fn is_probe(packet: &Captured) -> bool {
    packet.data.get(..12).is_some_and(|macs| macs.contains(&b'p'))
}

/// A stock app that others cannot attach to, with traffic.
fn forwarding(scratch: &Scratch, link: Link) -> Result<(Testpmd, Generator)> {
    let socket = scratch.path("link.sock");
    let device = match link {
        Link::Virtio => format!("net_vhost0,iface={}", socket.display()),
        Link::Memif => {
            format!("net_memif0,role=server,socket={},socket-abstract=no", socket.display())
        }
    };
    let setup = Setup { devices: &[&device], eal: &["--in-memory"], args: Setup::FLAT_OUT.args };
    let testpmd = Testpmd::start(scratch, setup)?;
    let prefix = scratch.prefix("generator");
    let generator = generate(scratch, link, &socket, &prefix, Memory::available(), &arguments())?;
    await_packets(testpmd.app(), 0)?;
    Ok((testpmd, generator))
}

fn arguments() -> Vec<String> {
    let rate = ["--queues", "1", "--rate", "20k"].map(str::to_owned);
    rate.into_iter().chain(TRAFFIC.arguments()).collect()
}

/// Samples, and demands that each packet is one that was sent, byte for byte, and none is there twice.
fn check_sample(scratch: &Scratch, app: &str, swaps_macs: bool) -> Result<()> {
    let file = scratch.path("sample.pcapng");
    let (code, said) =
        capture(scratch, app, &file, &["--peek", "-c", &WANTED.to_string(), "udp", "port", "7"])?;
    ensure!(code == 0 && said.contains("via peek"), "{code}: {said}");
    ensure!(said.contains("packets seen of") && said.contains("the others are missing"), "{said}");
    let packets = captured(&file)?;
    ensure!(packets.len() == WANTED, "{} packets: {said}", packets.len());
    let mut numbers = HashSet::new();
    for packet in packets {
        let number = packet.sequence()?;
        ensure!(numbers.insert(number), "packet {number} is there twice");
        let packet = if swaps_macs { swapped(packet) } else { packet };
        TRAFFIC.check(&[packet], number, usize::MAX)?;
    }
    let told = capinfos(&file)?;
    ensure!(told.contains("Packets are a sample, read from the memory of the app"), "{told}");
    let fields = tshark_fields(&file, &["frame.interface_name", "frame.packet_flags_direction"])?;
    let unknown = |direction: Option<&String>| {
        direction.is_none_or(|way| way.is_empty() || way == "0x00000000" || way == "0x0")
    };
    ensure!(
        fields.iter().all(|row| row[0] == format!("{app}:0") && unknown(row.get(1))),
        "{:?}",
        fields.first()
    );
    Ok(())
}

/// As it was received: the sample has packets as the app let go of them.
fn swapped(mut packet: Captured) -> Captured {
    let (to, rest) = packet.data.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
    packet
}

fn capture(scratch: &Scratch, app: &str, file: &Path, args: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{app}:0"), "-w"]).arg(file).args(args);
    let (code, _, err) = run(&mut command, scratch.dir(), LIMIT)?;
    Ok((code, err))
}

/// Packets that were sent.
fn finish(generator: Generator) -> Result<u64> {
    let summary: Value = generator.stop()?;
    summary["sent"].as_u64().with_context(|| format!("{summary:#}"))
}
