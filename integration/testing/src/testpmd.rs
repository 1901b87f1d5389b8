//! A `dpdk-testpmd` with a runtime directory of the test's own, for tests of what finds and reads apps.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::limit::spawn;
use crate::skip::{programs_are_required, skip, skip_without};

/// The path of Debian's.
pub const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// Reports a test of testpmd as skipped, and returns true, if testpmd or the free hugepages (of 2 MiB) that
/// the test needs are missing. Where programs are required, a test without its program runs, and fails.
pub fn skip_without_testpmd(test: &str, hugepages: u32) -> bool {
    if !Path::new(TESTPMD).exists() && !programs_are_required() {
        skip_without(test, "dpdk-testpmd");
        return true;
    }
    let few = free_hugepages() < hugepages;
    if few {
        skip(test, format!("it needs {hugepages} free 2 MiB hugepages"));
    }
    few
}

fn free_hugepages() -> u32 {
    let free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    std::fs::read_to_string(free).ok().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// A running testpmd, with 2,048 mbufs; killed when dropped.
pub struct Testpmd(pub Child);

impl Testpmd {
    /// Starts it by `command`, which is testpmd or what starts that, with a runtime directory below `runtime`.
    /// `eal` has the devices, and decides on the kind of memory: `--no-huge`, `--in-memory`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        mut command: Command,
        runtime: &Path,
        prefix: &str,
        eal: &[&str],
    ) -> io::Result<Self> {
        command
            .env("RUNTIME_DIRECTORY", runtime)
            .args(["-l", "0-1", "--no-pci", "-m", "64", "--file-prefix", prefix])
            .args(eal)
            .args(["--", "-i", "--total-num-mbufs=2048"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        spawn(&mut command).map(Self)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
