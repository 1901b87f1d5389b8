//! A reflector and a generator, two DPDK processes joined by a virtual link.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{Process, wait_until};
use crate::programs;
use crate::scratch::{Memory, Scratch};
use crate::telemetry;

const START: Duration = Duration::from_secs(20);

/// The virtual link between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Generator on `net_virtio_user`, reflector on `net_vhost`.
    Virtio,
    /// Generator on a `net_memif` client, reflector on the server.
    Memif,
}

/// How the reflector is started.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// The link.
    pub link: Link,
    /// Queue pairs on each side.
    pub queues: u16,
    /// Lcores of the reflector, for instance `1@1,2@1`.
    pub lcores: String,
    /// Mbufs in the reflector's pool.
    pub mbufs: u32,
    /// `--inject-leak`, for instance `1/64`.
    pub leak: Option<String>,
    /// `--inject-stall`, for instance `3000/100`.
    pub stall: Option<String>,
    /// `--inject-signal`, for instance `5000/100`.
    pub signal: Option<String>,
    /// `--inject-faults`: at each SIGUSR2.
    pub faults: bool,
    /// `--inject-restart`, for instance `300` or `1000/200`.
    pub restart: Option<String>,
    /// `--inject-corruption`, for instance `1/10`.
    pub corruption: Option<String>,
    /// Queues are counted on demand.
    pub on_demand: bool,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            link: Link::Virtio,
            queues: 1,
            lcores: "1@1".to_owned(),
            mbufs: 16383,
            leak: None,
            stall: None,
            signal: None,
            faults: false,
            restart: None,
            corruption: None,
            on_demand: false,
        }
    }
}

/// A running reflector, ready to be linked to a generator.
pub struct Pair {
    /// The reflector.
    pub reflector: Process,
    options: PairOptions,
    memory: Memory,
    socket: PathBuf,
    generator_prefix: String,
    reflector_prefix: String,
}

impl Pair {
    /// Starts the reflector and waits until it polls.
    pub fn start(scratch: &Scratch, options: PairOptions) -> Result<Self> {
        let memory = Memory::available();
        let socket = scratch.path("link.sock");
        let reflector_prefix = scratch.prefix("reflector");
        let reflector = start_reflector(scratch, &options, memory, &reflector_prefix, &socket)?;
        let generator_prefix = scratch.prefix("generator");
        Ok(Self { reflector, options, memory, socket, generator_prefix, reflector_prefix })
    }

    /// Starts the reflector again after it has ended.
    pub fn restart(&mut self, scratch: &Scratch) -> Result<()> {
        // A reflector that was killed leaves its sockets behind.
        for stale in [self.socket.clone(), capture_socket(&self.reflector_prefix)] {
            let _ = std::fs::remove_file(stale);
        }
        let Self { options, memory, reflector_prefix, socket, .. } = self;
        self.reflector = start_reflector(scratch, options, *memory, reflector_prefix, socket)?;
        Ok(())
    }

    /// DPDK file-prefix of the reflector: its name for `pmdscope`.
    pub fn app(&self) -> &str {
        &self.reflector_prefix
    }

    /// DPDK file-prefix of the generator.
    pub fn generator_app(&self) -> &str {
        &self.generator_prefix
    }

    /// Starts a generator that keeps the link up after its packets; see [`Self::finish`].
    pub fn generate_and_keep_link(&self, scratch: &Scratch, args: &[&str]) -> Result<Generator> {
        self.generate(scratch, &[args, &["--keep-link", "60"][..]].concat())
    }

    /// Waits until all packets are sent, ends both, the reflector first, and returns the
    /// generator's summary. The driver of memif crashes a reflector that polls while its peer
    /// leaves.
    pub fn finish(&mut self, mut generator: Generator, limit: Duration) -> Result<Value> {
        generator.wait_sent(limit)?;
        self.reflector.interrupt()?;
        generator.stop()
    }

    /// Starts a generator with further arguments; its summary goes to `generator.json`.
    pub fn generate(&self, scratch: &Scratch, args: &[&str]) -> Result<Generator> {
        let queues = self.options.queues.to_string();
        let own = ["--queues", &queues].into_iter().chain(args.iter().copied());
        let own: Vec<_> = own.map(str::to_owned).collect();
        let (link, prefix) = (self.options.link, &self.generator_prefix);
        generate(scratch, link, &self.socket, prefix, self.memory, &own)
    }
}

/// Starts a generator at the other end of a link; its summary goes to `generator.json`.
pub fn generate(
    scratch: &Scratch,
    link: Link,
    socket: &Path,
    prefix: &str,
    memory: Memory,
    args: &[String],
) -> Result<Generator> {
    let json = scratch.path("generator.json");
    let queues = args.iter().skip_while(|arg| *arg != "--queues").nth(1);
    let mut command = Command::new(programs::generator()?);
    eal(&mut command, "0@0", prefix, memory);
    command.args(["--vdev", &generator_device(link, socket, queues.map_or("1", String::as_str))]);
    if link == Link::Virtio {
        // vhost-user passes one descriptor per memory segment, and takes eight at most.
        command.arg("--single-file-segments");
    }
    command.arg("--").args(args).arg("--json").arg(&json);
    let process = Process::spawn("generator", &mut command, scratch.dir())?;
    Ok(Generator { process, json })
}

fn generator_device(link: Link, socket: &Path, queues: &str) -> String {
    let socket = socket.display();
    match link {
        Link::Virtio => {
            format!("net_virtio_user0,path={socket},queues={queues},queue_size=1024")
        }
        Link::Memif => {
            format!("net_memif0,role=client,socket={socket},socket-abstract=no")
        }
    }
}

/// A reflector on a device that needs no other end, and its file-prefix.
pub fn reflector(scratch: &Scratch, device: &str) -> Result<(String, Process)> {
    reflector_named(scratch, "reflector", device)
}

/// The same with a file-prefix that begins with `name`.
pub fn reflector_named(scratch: &Scratch, name: &str, device: &str) -> Result<(String, Process)> {
    let prefix = scratch.prefix(name);
    let mut command = Command::new(programs::reflector()?);
    eal(&mut command, "1@1", &prefix, Memory::available());
    command.args(["--vdev", device, "--"]);
    let process = started(&mut command, scratch, &prefix, || true)?;
    Ok((prefix, process))
}

fn start_reflector(
    scratch: &Scratch,
    options: &PairOptions,
    memory: Memory,
    prefix: &str,
    socket: &Path,
) -> Result<Process> {
    let mut command = Command::new(programs::reflector()?);
    eal(&mut command, &options.lcores, prefix, memory);
    command.args(["--vdev", &reflector_device(options.link, options.queues, socket)]);
    if options.on_demand {
        command.arg("--pmdscope=queue_counters=on_demand");
    }
    command.args(["--", "--queues", &options.queues.to_string()]);
    command.args(["--mbufs", &options.mbufs.to_string()]);
    command.arg("--json").arg(scratch.path("reflector.json"));
    if let Some(leak) = &options.leak {
        command.args(["--inject-leak", leak]);
    }
    if let Some(stall) = &options.stall {
        command.args(["--inject-stall", stall]);
    }
    if let Some(signal) = &options.signal {
        command.args(["--inject-signal", signal]);
    }
    if options.faults {
        command.arg("--inject-faults");
    }
    if let Some(restart) = &options.restart {
        command.args(["--inject-restart", restart]);
    }
    if let Some(corruption) = &options.corruption {
        command.args(["--inject-corruption", corruption]);
    }
    started(&mut command, scratch, prefix, || socket.exists())
}

fn started(
    command: &mut Command,
    scratch: &Scratch,
    prefix: &str,
    is_linked: impl Fn() -> bool,
) -> Result<Process> {
    let mut reflector = Process::spawn("reflector", command, scratch.dir())?;
    let ready = capture_socket(prefix);
    wait_until("the reflector's capture socket", START, || {
        if let Some(status) = reflector.exited()? {
            bail!("the reflector ended at once ({status}):\n{}", reflector.output());
        }
        // The library answers a moment after its socket is there.
        let answers = || telemetry::number(prefix, "/pmdscope", "tee_sessions").is_ok();
        Ok(std::fs::exists(&ready)? && is_linked() && answers())
    })?;
    Ok(reflector)
}

fn capture_socket(prefix: &str) -> PathBuf {
    format!("/var/run/dpdk/{prefix}/pmdscope.sock").into()
}

/// Whether a generator that keeps the link up has sent all packets.
pub fn has_sent(generator: &Process) -> bool {
    generator.output().contains("all packets sent")
}

/// A running generator.
pub struct Generator {
    /// The process.
    pub process: Process,
    json: PathBuf,
}

impl Generator {
    /// Waits until all packets are sent by a generator that keeps the link up.
    pub fn wait_sent(&mut self, limit: Duration) -> Result<()> {
        wait_until("the generator's last packet", limit, || {
            if let Some(status) = self.process.exited()? {
                bail!("the generator ended ({status}):\n{}", self.process.output());
            }
            Ok(has_sent(&self.process))
        })?;
        Ok(())
    }

    /// Waits for the end and returns the summary.
    pub fn finish(mut self, limit: Duration) -> Result<Value> {
        self.process.finish(limit)?;
        self.summary()
    }

    /// Ends it as ^C does and returns the summary.
    pub fn stop(mut self) -> Result<Value> {
        self.process.interrupt()?;
        self.summary()
    }

    fn summary(&self) -> Result<Value> {
        let text = std::fs::read_to_string(&self.json)
            .with_context(|| format!("the generator's summary {}", self.json.display()))?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn reflector_device(link: Link, queues: u16, socket: &Path) -> String {
    let socket = socket.display();
    match link {
        Link::Virtio => format!("net_vhost0,iface={socket},queues={queues}"),
        Link::Memif => format!("net_memif0,role=server,socket={socket},socket-abstract=no"),
    }
}

/// EAL arguments of a process with these lcores, for instance `0@0,1@1`.
pub fn eal(command: &mut Command, lcores: &str, prefix: &str, memory: Memory) {
    command.args(["--lcores", lcores, "--no-pci", "--file-prefix", prefix]);
    command.args(["-m", "128"]);
    if memory == Memory::Ordinary {
        command.arg("--no-huge");
    }
}
