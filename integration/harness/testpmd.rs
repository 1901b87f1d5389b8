//! Debian's own `dpdk-testpmd`: an app that knows nothing of pmdscope.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::callbacks;
use crate::container::{Container, only_child};
use crate::machine::threads_cpu_ns;
use crate::process::{Process, wait_until};
use crate::scratch::Scratch;
use crate::telemetry;

const START: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(10);
/// Starts it; its output goes to a file, which would otherwise be buffered.
const UNBUFFERED: [&str; 3] = ["stdbuf", "-oL", "dpdk-testpmd"];
/// Name of the pool that it makes.
const POOL: &str = "mb_pool_0";

/// One that forwards on one port without further commands, and its file-prefix.
pub fn forwarding(scratch: &Scratch) -> Result<(String, Process)> {
    let args = ["--forward-mode=macswap", "--auto-start", "--stats-period=1"];
    start(scratch, "testpmd", &["--vdev", "net_null0"], &args)
}

/// One that only receives, from this device, and its file-prefix.
pub fn receiving(scratch: &Scratch, device: &str) -> Result<(String, Process)> {
    let args = ["--forward-mode=rxonly", "--auto-start", "--stats-period=1"];
    start(scratch, "testpmd", &["--vdev", device], &args)
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
    await_telemetry(&mut testpmd, &telemetry::socket(&prefix), "Port statistics")?;
    Ok((prefix, testpmd))
}

fn await_telemetry(testpmd: &mut Process, socket: &Path, ready: &str) -> Result<()> {
    wait_until("testpmd's telemetry", START, || {
        if let Some(status) = testpmd.exited()? {
            bail!("testpmd ended at once ({status}):\n{}", testpmd.output());
        }
        Ok(fs::exists(socket)? && testpmd.output().contains(ready))
    })?;
    Ok(())
}

/// One on hugepages, with a console, to which secondary processes can attach.
pub struct Testpmd {
    /// The process; of one in a container, the one that has started it in there.
    pub process: Process,
    prefix: String,
    pid: u32,
    runtime_dir: PathBuf,
    hugepages: PathBuf,
}

/// The arguments that it is started with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Virtual devices.
    pub devices: &'a [&'a str],
    /// Further EAL arguments; any about memory or lcores take the place of ours.
    pub eal: &'a [&'a str],
    /// Further arguments of its own.
    pub args: &'a [&'a str],
}

impl Setup<'_> {
    /// Forwards packets as fast as possible on a port that generates them.
    pub const FLAT_OUT: Self = Self {
        devices: &["net_null0"],
        eal: &[],
        args: &["--forward-mode=macswap", "--auto-start"],
    };

    /// Receives packets and drops them.
    pub const RECEIVING: Self =
        Self { args: &["--forward-mode=rxonly", "--auto-start"], ..Self::FLAT_OUT };
}

/// Where its files are, seen from here.
struct Place {
    runtime_dir: PathBuf,
    hugepages: PathBuf,
    /// It is the child of the process that was started.
    is_contained: bool,
}

impl Testpmd {
    /// Starts one and waits until its ports are up.
    pub fn start(scratch: &Scratch, setup: Setup<'_>) -> Result<Self> {
        let mut command = Command::new(UNBUFFERED[0]);
        command.args(&UNBUFFERED[1..]);
        Self::start_command(scratch, command, setup)
    }

    /// The same as another user; `command` starts it, without arguments of its own, with this
    /// `$RUNTIME_DIRECTORY` and directory of hugepages.
    pub fn start_as(
        scratch: &Scratch,
        mut command: Command,
        runtime_root: &Path,
        hugepages: &Path,
        setup: Setup<'_>,
    ) -> Result<Self> {
        command.args(UNBUFFERED).env("RUNTIME_DIRECTORY", runtime_root);
        command.arg("--huge-dir").arg(hugepages);
        let prefix = scratch.prefix("testpmd");
        let place = Place {
            runtime_dir: runtime_root.join("dpdk").join(&prefix),
            hugepages: hugepages.to_owned(),
            is_contained: false,
        };
        Self::start_at(scratch, command, setup, prefix, place)
    }

    /// The same in a container.
    pub fn start_in(scratch: &Scratch, container: &Container, setup: Setup<'_>) -> Result<Self> {
        let mut command = container.command(UNBUFFERED[0]);
        command.args(&UNBUFFERED[1..]);
        let prefix = scratch.prefix("testpmd");
        let place = Place {
            runtime_dir: container.runtime_dir(&prefix),
            hugepages: container.root().join("dev/hugepages"),
            is_contained: true,
        };
        Self::start_at(scratch, command, setup, prefix, place)
    }

    /// The same of another build: `command` starts it, without arguments of its own.
    pub fn start_command(scratch: &Scratch, command: Command, setup: Setup<'_>) -> Result<Self> {
        let prefix = scratch.prefix("testpmd");
        let place = Place {
            runtime_dir: telemetry::runtime_dir(&prefix),
            hugepages: "/dev/hugepages".into(),
            is_contained: false,
        };
        Self::start_at(scratch, command, setup, prefix, place)
    }

    fn start_at(
        scratch: &Scratch,
        mut command: Command,
        setup: Setup<'_>,
        prefix: String,
        place: Place,
    ) -> Result<Self> {
        if !setup.eal.contains(&"--lcores") {
            command.args(["--lcores", "0@0,1@1"]);
        }
        if !setup.eal.contains(&"-m") {
            command.args(["-m", "128"]);
        }
        command.args(["--no-pci", "--file-prefix", &prefix]).args(setup.eal);
        for device in setup.devices {
            command.args(["--vdev", device]);
        }
        command.args(["--", "-i", "--no-mlockall", "--total-num-mbufs=8192"]).args(setup.args);
        let mut process = Process::spawn_with_console(&prefix, &mut command, scratch.dir())?;
        let Place { runtime_dir, hugepages, is_contained } = place;
        await_telemetry(&mut process, &telemetry::socket_in(&runtime_dir), "\nDone\n")?;
        let pid = match is_contained {
            false => process.pid(),
            true => only_child(process.pid()).context("testpmd has ended")?,
        };
        Ok(Self { process, prefix, pid, runtime_dir, hugepages })
    }

    /// Its process id on the host.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its runtime directory, seen from the host.
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// Its reply to one request.
    pub fn ask(&self, request: &str) -> Result<Value> {
        telemetry::ask_at(&telemetry::socket_in(&self.runtime_dir), request)
    }

    fn number(&self, request: &str, field: &str) -> Result<u64> {
        let reply = self.ask(request)?;
        reply[field].as_u64().with_context(|| format!("no number {field} in {request}: {reply}"))
    }

    /// The number of its hugepage files.
    pub fn hugepages(&self) -> Result<usize> {
        let ours = format!("{}map_", self.prefix);
        let names = fs::read_dir(&self.hugepages)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter(|name| name.to_string_lossy().starts_with(&ours)).count())
    }

    /// Its file-prefix: its name for `pmdscope`.
    pub fn app(&self) -> &str {
        &self.prefix
    }

    /// Gives a command and returns what is printed from then until a line has `last` in it.
    pub fn console(&mut self, command: &str, last: &str) -> Result<String> {
        let before = self.process.output().len();
        self.process.type_line(command)?;
        let mut answer = String::new();
        wait_until(&format!("testpmd's answer to {command:?}"), ANSWER, || {
            if let Some(status) = self.process.exited()? {
                bail!("testpmd ended ({status}):\n{}", self.process.output());
            }
            self.process.output().get(before..).unwrap_or_default().clone_into(&mut answer);
            Ok(answer
                .lines()
                .rev()
                .skip(usize::from(!answer.ends_with('\n')))
                .any(|line| line.contains(last)))
        })?;
        Ok(answer)
    }

    /// Mbufs of its pool that are in no cache and not in the pool.
    pub fn mbufs_in_use(&mut self) -> Result<u64> {
        let dump = self.console(&format!("dump_mempool {POOL}"), "common_pool_count=")?;
        let field = |name: &str| {
            let mut lines = dump.lines().rev();
            let value = lines.find_map(|line| line.trim().strip_prefix(name));
            value
                .and_then(|value| value.trim().parse::<u64>().ok())
                .with_context(|| format!("no {name} in {dump}"))
        };
        let available = field("total_cache_count=")? + field("common_pool_count=")?;
        field("populated_size=")?
            .checked_sub(available)
            .with_context(|| format!("too many mbufs: {dump}"))
    }

    /// Switches promiscuous mode of a port `on` or `off`.
    pub fn set_promiscuous(&mut self, port: u16, mode: &str) -> Result<()> {
        self.process.type_line(&format!("set promisc {port} {mode}"))?;
        let wanted = u64::from(mode == "on");
        let request = format!("/ethdev/info,{port}");
        wait_until("promiscuous mode to be set", ANSWER, || {
            Ok(self.number(&request, "promiscuous")? == wanted)
        })?;
        Ok(())
    }

    /// Queues with a callback, of those that each port has.
    pub fn hooks(&self) -> Result<usize> {
        callbacks::hooked(self.pid, u16::try_from(self.ports()?.len())?, 1)
    }

    /// Packets that its ports have received, and CPU time of the lcores that forward, nanoseconds.
    pub fn forwarded(&self) -> Result<(u64, u64)> {
        let mut packets = 0;
        for port in self.ports()? {
            packets += self.number(&format!("/ethdev/stats,{port}"), "ipackets")?;
        }
        let spent = threads_cpu_ns(self.pid, |name| name.starts_with("rte-worker"))?;
        Ok((packets, spent))
    }

    /// Its ports.
    pub fn ports(&self) -> Result<Vec<u64>> {
        let list = self.ask("/ethdev/list")?;
        let ports: Vec<_> =
            list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        ensure!(!ports.is_empty(), "testpmd has no ports: {list}");
        Ok(ports)
    }
}
