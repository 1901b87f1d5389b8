//! Programs that trace the kernel, on machines where nobody has mounted tracefs.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Mounts it in mounts of its own: the machine is left as it is.
const MOUNT: &str = "mountpoint -q /sys/kernel/tracing || \
    mount -t tracefs nodev /sys/kernel/tracing || exit 77; exec \"$@\"";

/// A command that sees tracefs.
pub fn with_tracefs(words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh"]);
    command.args(words);
    command
}

/// Whether bpftrace can trace here.
///
/// # Errors
/// Why not.
pub fn try_bpftrace() -> Result<()> {
    let output = with_tracefs(&["bpftrace", "-e", "BEGIN { exit(); }"]).output();
    let output = output.context("cannot run unshare")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("bpftrace cannot trace here: {}", errors.trim());
    }
    Ok(())
}
