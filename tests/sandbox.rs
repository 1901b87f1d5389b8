//! What a program in the sandbox can and cannot do.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::io::Write;
use std::process::{Command, Stdio};

use pmdscope_testing::{current_test, skip, skip_without, spawn};

/// Output of a shell script in the sandbox.
fn run(options: &[&str], script: &str) -> String {
    sandbox(options, &["/bin/sh", "-c", script], "")
}

fn sandbox(options: &[&str], command: &[&str], input: &str) -> String {
    let mut sandboxed = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    sandboxed
        .arg("sandbox")
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut sandboxed).unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// True (told aloud) where the kernel does not take files away.
fn no_landlock() -> bool {
    let modules = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let missing = !modules.contains("landlock")
        && run(&["--tell"], "true").contains("does not offer landlock");
    if missing {
        skip(&current_test(), "the kernel has no landlock");
    }
    missing
}

#[test]
fn pipes_go_on_working() {
    assert_eq!(sandbox(&["--offline"], &["/bin/cat"], "through"), "through");
}

#[test]
fn files_can_be_neither_written_nor_read() {
    if no_landlock() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (written, secret) = (dir.path().join("written"), dir.path().join("secret"));
    std::fs::write(&secret, "s3cret\n").unwrap();
    let script = format!(
        "echo x > {}; read line < {}; echo \"got $line\"",
        written.display(),
        secret.display()
    );
    let output = run(&[], &script);
    assert!(output.contains("got \n") && !output.contains("s3cret"), "{output}");
    assert!(!written.exists());
}

#[test]
fn neither_processes_nor_core_files_can_be_made() {
    let output = run(&[], "ulimit -c; /bin/true; echo forked $?");
    assert!(output.starts_with("0\n"), "{output}");
    assert!(!output.contains("forked 0"), "{output}");
}

#[test]
fn root_becomes_nobody_without_groups() {
    let output = sandbox(&[], &["/usr/bin/id"], "");
    if rustix::process::geteuid().is_root() {
        assert!(output.starts_with("uid=65534") && output.contains("groups=65534"), "{output}");
    } else {
        assert!(output.starts_with(&format!("uid={}", rustix::process::getuid().as_raw())));
    }
}

#[test]
fn offline_means_no_connections() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    let command = ["/bin/bash", "-c", &script];
    if !std::fs::exists("/bin/bash").unwrap() {
        return skip_without(&current_test(), "bash");
    }
    let online = sandbox(&[], &command, "");
    assert!(online.contains("connected"), "{online}");
    let offline = sandbox(&["--offline", "--tell"], &command, "");
    let impossible = offline.contains("does not offer");
    assert!(!offline.contains("connected") || impossible, "{offline}");
}

#[test]
fn a_missing_program_is_named() {
    let output = sandbox(&[], &["/nowhere/at/all"], "");
    assert!(output.contains("cannot run /nowhere/at/all"), "{output}");
}
