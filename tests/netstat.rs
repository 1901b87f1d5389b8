//! `pmdscope netstat` as people and programs call it: files, pipes, exit codes.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

use pmdscope_testing::{output, spawn};
use serde_json::Value;
use tempfile::TempDir;

/// As many conversations of one UDP packet of 60 bytes, a millisecond apart.
fn pcap(conversations: u16) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for number in 0..conversations {
        let micros = u32::from(number) * 1000;
        let header = [1_700_000_000 + micros / 1_000_000, micros % 1_000_000, 60, 60];
        file.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, 17);
        frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        frame[34..36].copy_from_slice(&(1024 + number).to_be_bytes());
        frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
        file.extend(frame);
    }
    file
}

/// A directory with a file of so many conversations.
fn scratch(conversations: u16) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("in.pcap"), pcap(conversations)).unwrap();
    dir
}

fn netstat(dir: &TempDir, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.arg("netstat").args(line.split_whitespace()).current_dir(dir.path());
    command.env("PMDSCOPE_CONFIG", "none");
    command
}

fn run(dir: &TempDir, line: &str) -> Output {
    output(netstat(dir, line).stdin(Stdio::null())).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_is_shown_as_text_and_as_json() {
    let dir = scratch(60);
    let shown = run(&dir, "-r in.pcap");
    let lines = text(&shown.stdout);
    assert!(shown.status.success(), "{shown:?}");
    assert_eq!(lines.lines().filter(|line| line.starts_with("udp ")).count(), 50);
    assert!(lines.contains("\n10 more conversations: 10 packets, 600 B (--all shows all)\n"));
    assert!(lines.contains("\ntotal: 60 packets, 3.5 KiB in 60 conversations"), "{lines}");
    let json = run(&dir, "--json -r in.pcap");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["flows"].as_array().unwrap().len(), 60);
    assert_eq!((&json["total"]["packets"], &json["lost"]), (&60.into(), &0.into()));
}

#[test]
fn filters_of_tcpdump_and_of_ss_stand_beside_each_other() {
    let dir = scratch(20);
    let shown = |line: &str| {
        let output = run(&dir, line);
        assert!(output.status.success(), "{line}: {output:?}");
        text(&output.stdout)
    };
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("udp ")).count();
    // In a file without directions, the local end sent the first packet.
    let by_ss = shown("-r in.pcap sport >= 1034 and dport = :53");
    assert_eq!(rows(&by_ss), 10, "{by_ss}");
    assert!(by_ss.contains("10 conversations that do not match: not shown"), "{by_ss}");
    assert!(by_ss.contains("total: 20 packets"), "{by_ss}");
    let by_tcpdump = shown("-r in.pcap udp src portrange 1024-1026");
    assert_eq!(rows(&by_tcpdump), 3, "{by_tcpdump}");
    assert!(by_tcpdump.contains("total: 3 packets"), "{by_tcpdump}");
    let both = shown("-r in.pcap --where sport!=1025 udp src portrange 1024-1026");
    assert_eq!((rows(&both), both.contains("total: 3 packets")), (2, true), "{both}");
    let json: Value =
        serde_json::from_str(&shown("-r in.pcap --json --where=sport<1029&src=10/8")).unwrap();
    assert_eq!(json["flows"].as_array().unwrap().len(), 5);
    let listeners = shown("-l -r in.pcap --where dport=53");
    assert_eq!(rows(&listeners), 1, "{listeners}");

    for (line, said) in [
        ("-r in.pcap --where sport=:7x", "at character 7: no service '7x'"),
        ("-r in.pcap --where sport", "at character 6, the end: expected a port"),
        ("-r in.pcap state established und", "at character 19: expected src, dst"),
        ("-s -r in.pcap dport 53", "use one of tcpdump"),
    ] {
        let output = run(&dir, line);
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{line}: {output:?}");
    }
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let dir = scratch(0);
    let mut command = netstat(&dir, "-l -r - udp src portrange 1024-1033");
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    child.stdin.take().unwrap().write_all(&pcap(20)).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = text(&output.stdout);
    let words = lines.lines().nth(1).unwrap().split_whitespace().take(5).collect::<Vec<_>>();
    assert_eq!(words, ["udp", "10.0.0.1:53", "1", "10", "10"], "{lines}");
}

#[test]
fn a_live_pipe_is_followed_while_it_is_open() {
    let dir = scratch(0);
    let mut command = netstat(&dir, "-c -r - --json");
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut reports = BufReader::new(stdout).lines();
    let mut report_of = |packets: u64| loop {
        let line = reports.next().unwrap().unwrap();
        let report: Value = serde_json::from_str(&line).unwrap();
        if report["total"]["packets"] == packets {
            return report;
        }
    };
    let bytes = pcap(20);
    let (first, rest) = bytes.split_at(24 + 12 * 76);
    stdin.write_all(first).unwrap();
    let before = report_of(12);
    // Nothing comes, and time goes on.
    let silent = report_of(12);
    assert!(silent["now_ns"].as_u64() > before["now_ns"].as_u64(), "{before} {silent}");
    assert_eq!(silent["flows"].as_array().unwrap().len(), 12);
    stdin.write_all(rest).unwrap();
    let after = report_of(20);
    assert_eq!(after["flows"].as_array().unwrap().len(), 20);
    // Two seconds later there are rates over windows.
    while report_of(20)["flows"][0]["window_bps"].as_array().is_none_or(|bps| bps.len() != 3) {}
    drop(stdin);
    // The last report.
    let last = report_of(20);
    assert_eq!(last["flows"].as_array().unwrap().len(), 20);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_broken_file_is_shown_as_far_as_it_goes() {
    let dir = scratch(3);
    let mut bytes = pcap(3);
    bytes.truncate(bytes.len() - 1);
    fs::write(dir.path().join("in.pcap"), bytes).unwrap();
    let output = run(&dir, "-r in.pcap");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("total: 2 packets"), "{output:?}");
    assert!(text(&output.stderr).contains("in.pcap"), "{output:?}");
}

#[test]
fn an_export_that_fails_is_no_success() {
    let dir = scratch(2_000);
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    let export = |dir| run(dir, &format!("-N 1 -r in.pcap --ipfix {address}"));
    let output = export(&dir);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    drop(collector);
    let output = export(&dir);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("messages failed"), "{output:?}");
    assert!(text(&output.stdout).contains("total: 2,000 packets"), "{output:?}");
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let dir = scratch(40_000);
    let mut command = netstat(&dir, "--all -r in.pcap");
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(first.starts_with("Proto"), "{first}");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn all_sockets_of_netstat_are_all_conversations() {
    let dir = scratch(3);
    let plain = run(&dir, "-r in.pcap");
    for line in ["-a -r in.pcap", "-an -r in.pcap", "-r in.pcap -na"] {
        let found = run(&dir, line);
        assert!(found.status.success(), "{line}: {found:?}");
        assert_eq!(text(&found.stdout), text(&plain.stdout), "{line}");
    }
}

#[test]
fn wrong_usage_and_failures_have_exit_codes_of_their_own() {
    let dir = scratch(1);
    for (line, code, told) in [
        ("-i -r in.pcap", 2, "leave out -r"),
        ("-r in.pcap no such filter", 2, "no such filter"),
        ("--replay in.pcap -l", 2, "use -r with -i or --queues"),
        ("-c -r in.pcap", 2, "-c follows one pipe"),
        ("--sample never", 2, "auto"),
        ("-i --sample 4", 2, "'--interfaces' cannot be used with '--sample"),
        ("-rn", 2, "-r of netstat shows the routes of the kernel"),
        ("-su -r in.pcap", 2, "pmdscope netstat -s udp"),
        ("-tunlp", 2, "-p of netstat shows the process of a socket: here -a NAME selects an app"),
        ("-tuw", 2, "-w of netstat shows raw sockets"),
        ("-c 1", 2, "-c -I TIME sets the interval"),
        ("-N -5", 2, "invalid value '-5' for '--top <N>': expected a whole number"),
        ("-r in.pcap -s -t", 2, "'--statistics' cannot be used with '--tcp'"),
        ("-r missing.pcap", 1, "missing.pcap"),
        ("-a nobody", 1, "nobody"),
    ] {
        let output = run(&dir, line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert!(text(&output.stderr).contains(told), "{line}: {output:?}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
    }
    // What is asked of netstat itself is answered in a line.
    for line in ["-rn", "-su", "-tunlp", "-plant", "-tuw", "-c 1"] {
        let told = text(&run(&dir, line).stderr);
        assert_eq!(told.lines().count(), 1, "{line}: {told}");
    }
}
