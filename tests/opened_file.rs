//! `pmdscope FILE`: opens what the file is.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};
use pmdscope_testing::output;

fn run(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.args(line.split_whitespace()).current_dir(directory);
    output(command.env("PMDSCOPE_CONFIG", "none").stdin(Stdio::null())).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A recording of an app that never answered.
fn record(path: &Path) {
    let options = RecordingOptions { path: path.to_owned(), ..RecordingOptions::default() };
    let begin_ns = 1_795_251_360_000_000_000;
    let mut recorder = TelemetryRecorder::create(options, begin_ns).unwrap();
    let mut fleet = FleetState::default();
    let (app, reason) = ("fwd".to_owned(), "silent".to_owned());
    fleet.apply(FleetEvent::Lost { app, class: ErrorClass::Timeout, reason, finding: None });
    fleet.realtime_ns = begin_ns;
    recorder.record(&fleet, 0).unwrap();
    recorder.finish().unwrap();
}

/// A file of Ethernet without packets.
fn capture(path: &Path) {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_is_opened_by_its_content() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("incident.jsonl.zst"));
    fs::rename(dir.path().join("incident.jsonl.zst"), dir.path().join("recording")).unwrap();
    capture(&dir.path().join("packets"));
    let counted = run(dir.path(), "packets --count");
    assert_eq!((text(&counted.stdout).as_str(), counted.status.code()), ("0 packets\n", Some(0)));
    let checked = run(dir.path(), "recording");
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert_eq!(text(&checked.stdout), text(&run(dir.path(), "check -r recording").stdout));
    assert!(text(&checked.stdout).contains("fwd"), "{checked:?}");
    let reported = run(dir.path(), "recording --once");
    assert_eq!(text(&reported.stdout), text(&run(dir.path(), "top --once -r recording").stdout));
    assert!(reported.status.success(), "{reported:?}");
}

#[test]
fn a_word_that_is_no_file_is_a_mistyped_command() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "x").unwrap();
    fs::create_dir(dir.path().join("doc")).unwrap();
    for (line, told) in [
        ("tpo", "unrecognized subcommand 'tpo'"),
        ("doc", "unrecognized subcommand 'doc'"),
        ("absent.pcapng", "cannot open absent.pcapng: No such file"),
        ("notes.txt", "notes.txt is neither a command nor a capture, recording or bundle"),
    ] {
        let output = run(dir.path(), line);
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(text(&output.stderr).contains(told), "{line}: {output:?}");
    }
}

#[test]
fn the_command_that_reads_a_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("x.jsonl.zst"));
    capture(&dir.path().join("y.pcap"));
    let output = run(dir.path(), "capture -r x.jsonl.zst --count");
    assert!(text(&output.stderr).contains("pmdscope top -r x.jsonl.zst plays it"), "{output:?}");
    let output = run(dir.path(), "check -r y.pcap");
    assert!(text(&output.stderr).contains("pmdscope capture -r y.pcap reads it"), "{output:?}");
    // The same option reads both in `netstat`.
    let output = run(dir.path(), "netstat -r y.pcap");
    assert!(output.status.success(), "{output:?}");
    let output = run(dir.path(), "netstat -i -r x.jsonl.zst");
    assert!(!text(&output.stderr).contains("not a capture file"), "{output:?}");
    let output = run(dir.path(), "lcores -r x.jsonl.zst");
    assert!(text(&output.stderr).contains("fwd: silent"), "{output:?}");
}
