//! A user who may not read the runtime directories: every command says so, in the same words.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::unistd::geteuid;
use pmdscope_testing::{output, spawn};
use tempfile::TempDir;

/// Runtime directories of another user, where this is root, else of nobody.
struct Unreadable {
    root: TempDir,
    /// What every command says.
    says: String,
}

/// Killed when dropped.
struct Exporter(Child);

impl Unreadable {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("dpdk");
        fs::create_dir(&dir).unwrap();
        allow(root.path(), 0o777);
        allow(&dir, if geteuid().is_root() { 0o700 } else { 0 });
        let says = format!("cannot read {}: run as root", dir.display());
        Self { root, says }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let pmdscope = env!("CARGO_BIN_EXE_pmdscope");
        let root = geteuid().is_root();
        let mut command = Command::new(if root { "setpriv" } else { pmdscope });
        if root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", pmdscope]);
        }
        command.env("RUNTIME_DIRECTORY", self.root.path()).args(arguments);
        command
    }

    /// Exit code, and what it says on standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = output(&mut self.command(arguments)).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        allow(&self.root.path().join("dpdk"), 0o700);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn allow(dir: &Path, mode: u32) {
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn commands_that_look_for_an_app_say_what_they_cannot_read() {
    // Other apps of this machine, in directories that can be read, are found.
    let unreadable = Unreadable::new();
    for arguments in [
        &["check", "-a", "fwd", "--for", "1", "--config", "none"][..],
        &["capture", "-i", "fwd:0", "-c", "1"],
        &["capture", "-a", "fwd", "-i", "0", "-c", "1"],
        &["top", "-a", "fwd", "--once", "--config", "none"],
    ] {
        let (code, error) = unreadable.run(arguments);
        let begin = format!("pmdscope: error: {}", unreadable.says);
        assert!(code == Some(1) && error.starts_with(&begin), "{arguments:?}: {error}");
    }
    // An error where nothing else runs, else a note.
    let (code, error) = unreadable.run(&["ls", "--config", "none"]);
    let begin = if code == Some(1) { "pmdscope: error: " } else { "pmdscope: " };
    assert!(error.starts_with(&(begin.to_owned() + &unreadable.says)), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_recorder_that_waits_for_apps_says_what_it_cannot_read_once() {
    let unreadable = Unreadable::new();
    let directory = format!("{}/recording/", unreadable.root.path().display());
    let arguments = ["record", "--always", "-q", "--for", "2", "-w", &directory];
    let (code, error) = unreadable.run(&arguments);
    assert_eq!((code, error.matches(&unreadable.says).count()), (Some(0), 1), "{error}");
}

#[test]
fn the_exporter_says_what_it_cannot_read() {
    let unreadable = Unreadable::new();
    let listen = ["export", "--config", "none", "--listen", "127.0.0.1:0"];
    let mut exporter = Exporter(spawn(unreadable.command(&listen).stderr(Stdio::piped())).unwrap());
    let mut errors = BufReader::new(exporter.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    for path in ["/ready", "/ready?app=fwd", "/"] {
        let page = get(path);
        assert!(page.contains(&unreadable.says), "{path}: {page}");
    }
    assert!(get("/ready").starts_with("HTTP/1.0 503"));
    let metrics = get("/metrics");
    let count =
        metrics.lines().find_map(|line| line.strip_prefix("dpdk_exporter_unreadable_directories "));
    assert!(count.is_some_and(|count| count != "0"), "{metrics}");
    exporter.0.kill().unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let warning = format!("warning: {}", unreadable.says);
    assert_eq!(rest.matches(&unreadable.says).count(), 1, "{rest}");
    assert!(rest.contains(&warning), "{rest}");
}
