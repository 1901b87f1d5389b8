//! Programs that trace the kernel, also on machines where tracefs is not mounted.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_testing::spawn;

/// Mounts it in a separate mount namespace: the mounts of the machine do not change.
const MOUNT: &str = "mountpoint -q /sys/kernel/tracing || \
    mount -t tracefs nodev /sys/kernel/tracing || exit 77; exec \"$@\"";

/// A command that sees tracefs.
pub fn with_tracefs(words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh"]);
    command.args(words);
    command
}

/// Prints the process id that the kernel has for bpftrace itself.
const PRINT_PID: &str = "BEGIN { printf(\"pid %d\\n\", pid); exit(); }";

/// Whether bpftrace can trace here, and calls processes by the ids that they have here.
///
/// # Errors
/// Why not.
pub fn try_bpftrace() -> Result<()> {
    let mut command = with_tracefs(&["bpftrace", "-e", PRINT_PID]);
    let child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let child = child.context("cannot run unshare")?;
    let ours = format!("pid {}", child.id());
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("bpftrace cannot trace here: {}", errors.trim());
    }
    ensure!(
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line == ours),
        "bpftrace cannot trace here: this PID namespace is not the one of the host"
    );
    Ok(())
}
