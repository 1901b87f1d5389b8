//! DPDK's own sample applications, on two virtual ports.

use std::process::Command;

use anyhow::{Context, Result, bail};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};

use crate::support::{LIMIT, Missing, Needs};

/// Two ports that always have packets.
pub(crate) const LOADED: [&str; 2] = ["net_null0", "net_null1"];
/// Two ports that never have a packet.
pub(crate) const IDLE: [&str; 2] = ["net_null0,no-rx=1", "net_null1,no-rx=1"];

const SYMMETRIC_MP: &str = "symmetric_mp";

/// A sample of one process.
pub(crate) struct SampleApp {
    pub(crate) name: &'static str,
    pub(crate) lcores: &'static str,
    pub(crate) megabytes: &'static str,
    pub(crate) args: &'static [&'static str],
}

/// It keeps packets in a buffer before it sends them.
pub(crate) const L2FWD: SampleApp =
    SampleApp { name: "l2fwd", lcores: "0@1", megabytes: "256", args: &["-p", "3", "-q", "2"] };
/// It drops what it has no route for.
pub(crate) const L3FWD: SampleApp = SampleApp {
    name: "l3fwd",
    lcores: "0@1",
    megabytes: "256",
    args: &["-p", "3", "-P", "--parse-ptype", "--config=(0,0,0),(1,0,0)"],
};
/// The driver calls the app for each burst.
pub(crate) const RXTX_CALLBACKS: SampleApp =
    SampleApp { name: "rxtx_callbacks", lcores: "0@1", megabytes: "256", args: &[] };
/// Workers get packets in cache lines, without a ring.
pub(crate) const DISTRIBUTOR: SampleApp =
    SampleApp { name: "distributor", lcores: "(0-4)@1", megabytes: "1024", args: &["-p", "3"] };

impl SampleApp {
    /// Why it cannot run here.
    pub(crate) fn missing(&self) -> Option<Missing> {
        missing(self.name)
    }

    /// Starts it on these ports; returns its name for `pmdscope` and the process.
    pub(crate) fn start(&self, scratch: &Scratch, ports: [&str; 2]) -> Result<(String, Process)> {
        let app = scratch.prefix(self.name);
        let eal = ["--lcores", self.lcores, "--no-huge", "-m", self.megabytes];
        let ports = ["--vdev", ports[0], "--vdev", ports[1], "--"];
        let process = start(scratch, self.name, &app, &[&eal[..], &ports, self.args].concat())?;
        Ok((app, process))
    }
}

fn missing(sample: &str) -> Option<Missing> {
    let unbuilt = programs::dpdk_sample(sample).is_none();
    let missing = || Missing::Program(format!("DPDK's sample {sample}"));
    Needs::Apps.missing().or_else(|| unbuilt.then(missing))
}

fn start(scratch: &Scratch, name: &str, app: &str, args: &[&str]) -> Result<Process> {
    let mut command = Command::new(programs::dpdk_sample(name).context(name.to_owned())?);
    command.args(["--no-pci", "--file-prefix", app]).args(args);
    Process::spawn(name, &mut command, scratch.dir())
}

/// Why [`symmetric_mp`] cannot run here: its processes share hugepages.
pub(crate) fn symmetric_mp_missing() -> Option<Missing> {
    let ordinary = Memory::available() == Memory::Ordinary;
    let few = || Missing::Machine("too few hugepages are free for two processes".to_owned());
    missing(SYMMETRIC_MP).or_else(|| ordinary.then(few))
}

/// Starts two processes, each of which polls a queue of its own of both ports.
pub(crate) fn symmetric_mp(scratch: &Scratch, ports: [&str; 2]) -> Result<(String, Vec<Process>)> {
    let app = scratch.prefix(SYMMETRIC_MP);
    let mut processes = Vec::new();
    for (role, lcores, number) in [("primary", "0@1", "0"), ("secondary", "1@1", "1")] {
        let args = ["--lcores", lcores, "--proc-type", role];
        let ports = ["--vdev", ports[0], "--vdev", ports[1]];
        let own = ["--", "-p", "3", "--num-procs=2", "--proc-id", number];
        let ports = if role == "primary" { &ports[..] } else { &[] };
        let args = [&args[..], ports, &own].concat();
        processes.push(start(scratch, SYMMETRIC_MP, &app, &args)?);
        let started = processes.last_mut().context("processes")?;
        await_output(started, "Finished Process Init")?;
    }
    Ok((app, processes))
}

/// Waits until a sample has printed this.
pub(crate) fn await_output(process: &mut Process, text: &str) -> Result<()> {
    wait_until(&format!("the sample to print {text:?}"), LIMIT, || {
        if let Some(status) = process.exited()? {
            bail!("it ended ({status}): {}", process.output());
        }
        Ok(process.output().contains(text))
    })
    .map(drop)
}
