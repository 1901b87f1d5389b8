//! `pmdscope capture` on pipes, and what it says of files that it reads and writes.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use pmdscope_testing::{LIMIT, output, spawn};
use tempfile::TempDir;

/// A pcap file with UDP packets from these ports.
fn pcap(ports: impl Iterator<Item = u16>) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for port in ports {
        let record = [1_700_000_000_u32, port.into(), 46, 46];
        file.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        file.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        file.extend(port.to_be_bytes());
        file.extend([0x27, 0x0f, 0, 12, 0, 0, 1, 2, 3, 4]);
    }
    file
}

fn scratch() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("in.pcap"), pcap(1000..1003)).unwrap();
    dir
}

fn capture(dir: &TempDir, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.arg("capture").args(line.split_whitespace()).current_dir(dir.path());
    command
}

fn run(dir: &TempDir, line: &str) -> Output {
    output(capture(dir, line).stdin(Stdio::null())).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of a program as they come.
fn lines(out: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

#[test]
fn whole_packets_are_shown_while_a_later_one_is_partial() {
    let dir = TempDir::new().unwrap();
    // A packet that passes; and one, and one that does not pass, before a partial one.
    for (filter, whole) in [("", 1000..1001), ("port 1000", 1000..1002)] {
        let mut command = capture(&dir, "-nt -r - ");
        command.args(filter.split_whitespace());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = spawn(piped).unwrap();
        let shown = lines(child.stdout.take().unwrap());
        let count = whole.len();
        let bytes = pcap(whole.chain([1000]));
        let cut = bytes.len() - 20;
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&bytes[..cut]).unwrap();
        let line = shown.recv_timeout(LIMIT);
        assert_eq!(line.unwrap(), "IP 10.0.0.1.1000 > 10.0.0.2.9999: UDP, length 4", "{count}");
        pipe.write_all(&bytes[cut..]).unwrap();
        drop(pipe);
        assert!(child.wait().unwrap().success());
        assert_eq!(shown.iter().count(), 1, "{filter}");
    }
}

#[test]
fn packets_without_a_direction_are_told() {
    let dir = scratch();
    let says = "pmdscope: -Q excluded 3 packets without a direction in the file; -Q inout includes";
    for line in ["-r in.pcap -Q in", "-r in.pcap -Q out --count", "-r in.pcap -Q in -w out"] {
        let found = run(&dir, line);
        assert!(found.status.success(), "{line}: {found:?}");
        assert!(text(&found.stderr).contains(says), "{line}: {found:?}");
    }
    for line in ["-r in.pcap -Q inout", "-r in.pcap -Q in --quiet", "-r in.pcap -Q in tcp"] {
        let found = run(&dir, line);
        assert!(!text(&found.stderr).contains("excluded"), "{line}: {found:?}");
    }
}

#[test]
fn the_name_of_a_file_selects_its_format_and_it_is_told() {
    let dir = scratch();
    let (classic, pcapng) = ([0x4d, 0x3c, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a]);
    for (options, file, magic, says) in [
        (
            "-w out.pcap",
            "out.pcap",
            classic,
            "writing pcap to out.pcap, by its name; --pcapng keeps",
        ),
        ("-w a.pcap --pcapng", "a.pcap", pcapng, "writing pcapng to a.pcap\n"),
        ("-w out.pcapng", "out.pcapng", pcapng, "writing pcapng to out.pcapng\n"),
        ("-w out.cap", "out.cap", pcapng, "writing pcapng to out.cap\n"),
        ("-w b.cap --pcap", "b.cap", classic, "writing pcap to b.cap\n"),
    ] {
        let found = run(&dir, &format!("-r in.pcap {options}"));
        assert!(found.status.success(), "{options}: {found:?}");
        assert!(text(&found.stderr).contains(says), "{options}: {found:?}");
        let written = fs::read(dir.path().join(file)).unwrap();
        let reversed = [magic[3], magic[2], magic[1], magic[0]];
        assert!(written.starts_with(&magic) || written.starts_with(&reversed), "{options}");
        assert_eq!(text(&run(&dir, &format!("-r {file} --count udp")).stdout), "3 packets\n");
    }
    let quiet = run(&dir, "-r in.pcap -w out.pcap --quiet");
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
}

#[test]
fn files_in_lz4_frames_are_read() {
    let dir = scratch();
    // Two frames, one after the other, with blocks that refer to each other.
    let whole = fs::read(dir.path().join("in.pcap")).unwrap();
    let mut frames = Vec::new();
    for half in [&whole[..100], &whole[100..]] {
        fs::write(dir.path().join("half"), half).unwrap();
        let mut lz4 = Command::new("lz4");
        let Some(frame) = output(lz4.args(["-c", "-BD", "half"]).current_dir(dir.path())) else {
            return;
        };
        frames.extend(frame.stdout);
    }
    fs::write(dir.path().join("in.pcap.lz4"), &frames).unwrap();
    let found = run(&dir, "-r in.pcap.lz4 --count");
    assert_eq!(text(&found.stdout), "3 packets\n", "{found:?}");
    fs::write(dir.path().join("cut.lz4"), &frames[..frames.len() - 12]).unwrap();
    let found = run(&dir, "-r cut.lz4 --count");
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(text(&found.stderr).contains("cut.lz4 is cut off"), "{found:?}");
}

#[test]
fn what_cannot_be_meant_is_told_in_a_line() {
    let dir = scratch();
    for (line, code, says) in [
        ("-ni eth0 -r in.pcap", 2, "-r and -V read files and take no interface: leave out -i"),
        ("-r in.pcap -T foo", 2, "expected a packet type of tcpdump: aodv, carp,"),
        ("-r in.pcap -c -5", 2, "invalid value '-5' for '-c <N>': expected a whole number"),
        ("-r in.pcap -c", 2, "a value is required for '-c <N>' but none was supplied"),
        ("-r in.pcap -s -5", 2, "invalid value '-5' for '--snapshot-length <BYTES>': expected"),
        ("-r in.pcap -5", 2, "unexpected argument '-5' found"),
        ("-r in.pcap --skip -1", 2, "invalid value '-1' for '--skip <N>': expected a whole number"),
        (
            "-r in.pcap inbound",
            2,
            "not supported on Ethernet when reading savefiles (for a direction",
        ),
        ("-i lo", 1, "lo is an interface of the kernel: use tcpdump -i lo"),
    ] {
        let found = run(&dir, line);
        let told = text(&found.stderr);
        assert_eq!(found.status.code(), Some(code), "{line}: {found:?}");
        assert!(told.contains(says) && !told.contains("as a value"), "{line}: {found:?}");
        assert_eq!(told.lines().count(), 1, "{line}: {told}");
    }
}
