//! A running reflector of any system, and generators that send to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::kernel_twin::{KernelGenerator, KernelReflector};
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::pair::{self, Link, PairOptions, eal};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use serde_json::Value;

use crate::plan::{Calls, Load, System};
use crate::sample::{Drops, Watch, Window};

const LIMIT: Duration = Duration::from_secs(60);
/// Time for a reflector to measure its clock and start polling.
const SETTLE: Duration = Duration::from_millis(500);
/// Duration of the measurement without traffic.
const IDLE: Duration = Duration::from_millis(200);
/// The generator's CPU, and the reflector's.
const CPUS: [usize; 2] = [0, 1];

/// A reflector, linked to the place of its generator.
pub(crate) struct Pair {
    reflector: Reflector,
    /// `None` for DPDK on shared memory.
    net: Option<NamespacePair>,
    system: System,
}

enum Reflector {
    Kernel(KernelReflector),
    Dpdk(Process),
    Linked(Box<pair::Pair>),
}

/// Results of one generator.
pub(crate) struct Run {
    pub(crate) summary: Value,
    pub(crate) window: Window,
    pub(crate) drops: Drops,
}

impl Pair {
    pub(crate) fn start(scratch: &Scratch, system: System) -> Result<Self> {
        let linked = |link| {
            let pair = pair::Pair::start(scratch, PairOptions { link, ..PairOptions::default() })?;
            Ok::<_, anyhow::Error>((Reflector::Linked(Box::new(pair)), None))
        };
        let (reflector, net) = match system {
            System::Loopback(calls) => start_kernel(scratch, &[], Side::Near, calls)?,
            System::Veth(calls) => {
                start_kernel(scratch, &[Side::Near, Side::Far], Side::Far, calls)?
            }
            System::AfPacket | System::AfXdp => {
                let net = NamespacePair::new(&[])?;
                (Reflector::Dpdk(start_dpdk(scratch, &net, &device(system))?), Some(net))
            }
            System::Vhost => linked(Link::Virtio)?,
            System::Memif => linked(Link::Memif)?,
        };
        Ok(Self { reflector, net, system })
    }

    fn reflector_pid(&self) -> u32 {
        match &self.reflector {
            Reflector::Kernel(reflector) => reflector.process.pid(),
            Reflector::Dpdk(reflector) => reflector.pid(),
            Reflector::Linked(pair) => pair.reflector.pid(),
        }
    }

    /// CPU of the reflector without traffic.
    pub(crate) fn idle(&self) -> Result<f64> {
        std::thread::sleep(SETTLE);
        Watch::idle(self.reflector_pid(), IDLE)
    }

    /// Runs a generator for this many seconds.
    pub(crate) fn generate(&mut self, scratch: &Scratch, load: Load, seconds: f64) -> Result<Run> {
        let (rate, size) = (load.rate.to_string(), load.frame().to_string());
        let duration = seconds.to_string();
        let args = ["--rate", &rate, "--size", &size, "--duration", &duration, "--quiet"];
        let drops = Drops::now(self.net.as_ref())?;
        let reflector = self.reflector_pid();
        let watch =
            |process: &mut Process| Watch::new(process.pid(), reflector).until_exit(process);
        let (summary, samples) = match (&mut self.reflector, &self.net) {
            (Reflector::Kernel(_), Some(net)) => {
                let mut generator = kernel_generator(scratch, net, self.system, &args)?;
                let samples = watch(&mut generator.process)?;
                (generator.finish(LIMIT)?, samples)
            }
            (Reflector::Linked(pair), _) => {
                let mut generator = pair.generate_and_keep_link(scratch, &args)?;
                let process = &mut generator.process;
                let samples = Watch::new(process.pid(), reflector).until_sent(process)?;
                // The reflector ends before its peer leaves, and is started again for the next one.
                let summary = pair.finish(generator, LIMIT)?;
                pair.restart(scratch)?;
                (summary, samples)
            }
            (_, net) => {
                let net = net.as_ref().context("a namespace")?;
                let (mut generator, json) =
                    dpdk_generator(scratch, net, &device(self.system), &args)?;
                let samples = watch(&mut generator)?;
                generator.finish(LIMIT)?;
                (serde_json::from_str(&std::fs::read_to_string(json)?)?, samples)
            }
        };
        let window = samples.between(&summary)?;
        Ok(Run { summary, window, drops: Drops::now(self.net.as_ref())?.since(&drops) })
    }
}

fn kernel_generator(
    scratch: &Scratch,
    net: &NamespacePair,
    system: System,
    args: &[&str],
) -> Result<KernelGenerator> {
    let (calls, address) = match system {
        System::Veth(calls) => (calls, Side::Far.address()),
        System::Loopback(calls) => (calls, "127.0.0.1"),
        _ => anyhow::bail!("{} has no sockets", system.label()),
    };
    let args = [args, calls.options(), &["--drain", "0.2", "--dst-ip", address]].concat();
    let command = net.pinned(Side::Near, CPUS[0], programs::kernel_generator()?);
    KernelGenerator::spawn(scratch, command, &args)
}

fn start_kernel(
    scratch: &Scratch,
    kernel_sides: &[Side],
    side: Side,
    calls: Calls,
) -> Result<(Reflector, Option<NamespacePair>)> {
    let net = NamespacePair::new(kernel_sides)?;
    let command = net.pinned(side, CPUS[1], programs::kernel_reflector()?);
    let args = [calls.options(), &["--quiet"]].concat();
    Ok((Reflector::Kernel(KernelReflector::spawn(scratch, command, &args)?), Some(net)))
}

fn device(system: System) -> String {
    match system {
        System::AfXdp => format!("net_af_xdp0,iface={INTERFACE}"),
        _ => format!("net_af_packet0,iface={INTERFACE},framecnt=4096"),
    }
}

fn start_dpdk(scratch: &Scratch, net: &NamespacePair, device: &str) -> Result<Process> {
    let prefix = scratch.prefix("reflector");
    let mut command = net.command(Side::Far, programs::reflector()?);
    eal(&mut command, "1@1", &prefix, Memory::available());
    command.args(["--vdev", device, "--", "--quiet"]);
    let mut reflector = Process::spawn("reflector", &mut command, scratch.dir())?;
    let ready = format!("/var/run/dpdk/{prefix}/pmdscope.sock");
    wait_until("the reflector's socket", LIMIT, || {
        ensure!(reflector.exited()?.is_none(), "the reflector ended:\n{}", reflector.output());
        Ok(std::fs::exists(&ready)?)
    })?;
    Ok(reflector)
}

fn dpdk_generator(
    scratch: &Scratch,
    net: &NamespacePair,
    device: &str,
    args: &[&str],
) -> Result<(Process, PathBuf)> {
    let json = scratch.path("generator.json");
    let mut command: Command = net.command(Side::Near, programs::generator()?);
    eal(&mut command, "0@0", &scratch.prefix("generator"), Memory::available());
    command
        .args(["--vdev", device, "--", "--dst-mac", Side::Far.mac(), "--json"])
        .arg(&json)
        .args(args);
    Ok((Process::spawn("generator", &mut command, scratch.dir())?, json))
}
