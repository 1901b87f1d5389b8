//! Debian's own `dpdk-testpmd`: an app that knows nothing of pmdscope.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{Process, wait_until};
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(30);

/// One that forwards on one port by itself, and its file-prefix.
pub fn forwarding(scratch: &Scratch) -> Result<(String, Process)> {
    let args = ["--forward-mode=macswap", "--auto-start", "--stats-period=1"];
    start(scratch, "testpmd", &["--vdev", "net_null0"], &args)
}

/// One that found no port, and its file-prefix.
pub fn without_ports(scratch: &Scratch) -> Result<(String, Process)> {
    start(scratch, "blind", &[], &["--stats-period=1"])
}

/// On ordinary memory, so that it takes no hugepages from others.
fn start(scratch: &Scratch, role: &str, eal: &[&str], args: &[&str]) -> Result<(String, Process)> {
    let prefix = scratch.prefix(role);
    let mut command = Command::new("dpdk-testpmd");
    command.args(["-l", "0-1", "--no-pci", "--no-huge", "-m", "256", "--file-prefix", &prefix]);
    command.args(eal).args(["--", "--no-mlockall", "--total-num-mbufs=4096"]).args(args);
    let mut testpmd = Process::spawn(role, &mut command, scratch.dir())?;
    let socket = format!("/var/run/dpdk/{prefix}/dpdk_telemetry.v2");
    wait_until("testpmd's telemetry", START, || {
        if let Some(status) = testpmd.exited()? {
            bail!("testpmd ended at once ({status}):\n{}", testpmd.output());
        }
        Ok(fs::exists(&socket)? && testpmd.output().contains("Port statistics"))
    })?;
    Ok((prefix, testpmd))
}
