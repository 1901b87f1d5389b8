//! The script, as bpftrace reads it.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::process::Command;

use pmdscope_testing::{current_test, skip, skip_without};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../integration/interrupts/pollsteal.bt");

/// Shows the program as bpftrace understands it, without running it.
const DRY_RUN: &str =
    "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing || exit 77
exec bpftrace -d \"$1\" 10000 1 2";

#[test]
fn bpftrace_understands_the_script() {
    understands(&current_test(), &std::fs::read_to_string(SCRIPT).unwrap());
}

/// No tracepoint tells who sends IPIs there.
#[test]
fn bpftrace_understands_the_script_as_it_is_before_linux_6_5() {
    let script = std::fs::read_to_string(SCRIPT).unwrap();
    let newer = ["tracepoint:ipi:", "tracepoint:csd:"];
    let blocks = script.split("\n\n").filter(|block| !newer.iter().any(|new| block.contains(new)));
    let older = blocks.collect::<Vec<_>>().join("\n\n");
    assert!(older.len() < script.len());
    understands(&current_test(), &older);
}

fn understands(test: &str, script: &str) {
    if Command::new("bpftrace").arg("--version").output().is_err() {
        return skip_without(test, "bpftrace");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script.bt");
    std::fs::write(&file, script).unwrap();
    // Mounts of its own: this machine is left as it is.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", DRY_RUN, "sh"]).arg(&file);
    let output = command.output().unwrap();
    let (program, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.contains("unshare failed") {
        return skip(test, format!("tracefs cannot be mounted here: {}", errors.trim()));
    }
    assert!(output.status.success(), "{errors}");
    // It shows each probe of the program that it made of it.
    assert!(program.contains("sched_switch"), "{program}\n{errors}");
    assert!(!errors.contains("stdin:") && !errors.contains("script.bt:"), "{errors}");
}
