//! Tests that bpftrace accepts the script.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::process::Command;

use pmdscope_testing::{current_test, skip, skip_without};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../integration/interrupts/pollsteal.bt");

/// Prints the program as bpftrace parses it, without running it. Releases with `--dry-run` (0.23 of
/// Debian 13, not 0.17 of Debian 12) run it after `-d`, which needs an argument there.
const DRY_RUN: &str =
    "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing || exit 77
case $(bpftrace --help 2>&1) in *--dry-run*) show='--dry-run -d ast' ;; *) show=-d ;; esac
exec timeout 60 bpftrace $show \"$1\" 10000 1 2";

#[test]
fn bpftrace_understands_the_script() {
    understands(&current_test(), &std::fs::read_to_string(SCRIPT).unwrap());
}

/// Kernels before 6.5 have no tracepoints for the sender of IPIs; the head of the script says how
/// to leave them out.
#[test]
fn bpftrace_understands_the_script_as_it_is_before_linux_6_5() {
    let script = std::fs::read_to_string(SCRIPT).unwrap();
    let sed = script.lines().find_map(|line| line.split_once("sed ")).unwrap().1;
    let (sed, _) = sed.split_once(" >").unwrap();
    let sed = sed.replace("pollsteal.bt", SCRIPT);
    let output = Command::new("sh").args(["-c", &format!("sed {sed}")]).output().unwrap();
    let older = String::from_utf8(output.stdout).unwrap();
    let newer = ["tracepoint:ipi:", "tracepoint:csd:"];
    assert!(newer.iter().all(|new| script.contains(new) && !older.contains(new)), "{older}");
    assert!(script.lines().count() - older.lines().count() < 20, "{older}");
    understands(&current_test(), &older);
}

/// The script as on arm64, and if system calls are not traced.
#[test]
fn bpftrace_understands_the_script_without_most_tracepoints() {
    let script = std::fs::read_to_string(SCRIPT).unwrap();
    let is_kept = |block: &&str| {
        let missing = ["irq", "irq_vectors", "raw_syscalls", "signal", "exceptions", "ipi", "csd"];
        let is_missing =
            |line: &str| missing.iter().any(|it| line.starts_with(&format!("tracepoint:{it}:")));
        !block.lines().any(|line| is_missing(line) || line.starts_with("software:"))
    };
    let least = script.split("\n\n").filter(is_kept).collect::<Vec<_>>().join("\n\n");
    assert!(least.matches("\ntracepoint:").count() == 2, "{least}");
    understands(&current_test(), &least);
}

fn understands(test: &str, script: &str) {
    if Command::new("bpftrace").arg("--version").output().is_err() {
        return skip_without(test, "bpftrace");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script.bt");
    std::fs::write(&file, script).unwrap();
    // A separate mount namespace leaves the machine as it is.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", DRY_RUN, "sh"]).arg(&file);
    let output = command.output().unwrap();
    let (program, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.contains("unshare failed") {
        return skip(test, format!("tracefs cannot be mounted here: {}", errors.trim()));
    }
    assert!(output.status.success(), "{errors}");
    // The output shows each probe of the parsed program.
    assert!(program.contains("sched_switch"), "{program}\n{errors}");
    assert!(!errors.contains("stdin:") && !errors.contains("script.bt:"), "{errors}");
}
