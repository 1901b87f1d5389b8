//! Commands that were started with hangups ignored, as by nohup(1), go on after one and end by SIGTERM.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use pmdscope_testing::{output, spawn};

fn start(directory: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_pmdscope")]);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stderr(Stdio::null());
    command.env("RUNTIME_DIRECTORY", directory).env("PMDSCOPE_CONFIG", "none");
    spawn(&mut command).unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = output(Command::new("kill").args(["-s", name, &child.id().to_string()])).unwrap();
    assert!(sent.status.success());
}

/// Whether a process has a handler for a signal: one that was sent before would end it.
fn catches(child: &Child, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn a_recorder_that_waits_for_apps_ends_by_sigterm_alone() {
    const SIGTERM: u32 = 15;
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = start(directory.path(), &["record", "--always", "-w", "file.jsonl.zst"]);
    // The limit of the program bounds this.
    while recorder.try_wait().unwrap().is_none() && !catches(&recorder, SIGTERM) {
        thread::sleep(Duration::from_millis(10));
    }
    signal(&recorder, "HUP");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(recorder.try_wait().unwrap(), None, "a hangup has ended it");
    signal(&recorder, "TERM");
    let status = recorder.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(directory.path().join("file.jsonl.zst").exists());
}
