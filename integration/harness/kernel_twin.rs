//! The generator and the reflector over sockets of the kernel, in network namespaces.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::namespaces::{NamespacePair, Side};
use crate::process::{Process, wait_until};
use crate::programs;
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(20);

/// A reflector that listens.
pub struct KernelReflector {
    /// The process.
    pub process: Process,
    json: std::path::PathBuf,
}

impl KernelReflector {
    /// Starts it on one side and waits until it listens.
    pub fn start(
        scratch: &Scratch,
        net: &NamespacePair,
        side: Side,
        args: &[&str],
    ) -> Result<Self> {
        Self::spawn(scratch, net.command(side, programs::kernel_reflector()?), args)
    }

    /// Starts it by such a command and waits until it listens.
    pub fn spawn(scratch: &Scratch, mut command: Command, args: &[&str]) -> Result<Self> {
        let json = scratch.path("kernel-reflector.json");
        command.arg("--json").arg(&json).args(args);
        let mut process = Process::spawn("kernel-reflector", &mut command, scratch.dir())?;
        wait_until("the kernel reflector to listen", START, || {
            if let Some(status) = process.exited()? {
                bail!("the kernel reflector ended at once ({status}):\n{}", process.output());
            }
            Ok(process.output().contains("listening"))
        })?;
        Ok(Self { process, json })
    }

    /// Ends it as ^C does and returns the summary.
    pub fn stop(mut self) -> Result<Value> {
        self.process.interrupt()?;
        read(&self.json)
    }
}

/// A generator that runs.
pub struct KernelGenerator {
    /// The process.
    pub process: Process,
    json: std::path::PathBuf,
}

impl KernelGenerator {
    /// Starts it in the near namespace.
    pub fn start(scratch: &Scratch, net: &NamespacePair, args: &[&str]) -> Result<Self> {
        Self::spawn(scratch, net.command(Side::Near, programs::kernel_generator()?), args)
    }

    /// Starts it by such a command.
    pub fn spawn(scratch: &Scratch, mut command: Command, args: &[&str]) -> Result<Self> {
        let json = scratch.path("kernel-generator.json");
        command.arg("--json").arg(&json).args(args);
        let process = Process::spawn("kernel-generator", &mut command, scratch.dir())?;
        Ok(Self { process, json })
    }

    /// Waits for the end and returns the summary.
    pub fn finish(mut self, limit: Duration) -> Result<Value> {
        self.process.finish(limit)?;
        read(&self.json)
    }
}

/// Why `io_uring` cannot be used, as the programs report it; `None` where it can.
pub fn uring_missing(scratch: &Scratch) -> Result<Option<String>> {
    let mut command = Command::new(programs::kernel_reflector()?);
    command.args([
        "--io",
        "uring",
        "--listen",
        "127.0.0.1",
        "--port",
        "49007",
        "--duration",
        "0.001",
    ]);
    let (code, _, err) = crate::process::run(&mut command, scratch.dir(), START)?;
    match code {
        0 => Ok(None),
        _ if err.contains("io_uring is not available") => Ok(Some(err.trim().to_owned())),
        _ => bail!("pmdscope-kernel-reflector ended with {code}: {err}"),
    }
}

fn read(path: &std::path::Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}
