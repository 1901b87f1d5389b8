//! A host within this machine: it has interfaces and mounts of its own, so that apps of one name run on
//! several hosts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{Process, run_to_success, wait_until};
use crate::scratch::Scratch;
use crate::veth::Veth;

const START: Duration = Duration::from_secs(10);

/// Mounts a runtime directory of DPDK that other processes do not see, and waits for the end. The
/// namespaces last as long as this process and those on the host.
const HOLD: &str =
    "mount -t tmpfs host /run/dpdk && ip link set lo up && echo ready && exec sleep infinity";

/// A network and a mount namespace, and a wire to this machine. Dropping it ends both.
pub struct Host {
    holder: Process,
    veth: Veth,
    name: String,
    number: u8,
}

impl Host {
    /// Makes one with a name for its files, and a number that is in its addresses.
    pub fn start(scratch: &Scratch, name: &str, number: u8) -> Result<Self> {
        std::fs::create_dir_all("/run/dpdk")?;
        let veth = Veth::new()?;
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--", "sh", "-c", HOLD]);
        let holder = Process::spawn(name, &mut command, scratch.dir())?;
        let mut host = Self { holder, veth, name: name.to_owned(), number };
        wait_until("the namespaces of a host", START, || {
            if let Some(status) = host.holder.exited()? {
                bail!("{name} ended with {status}: {}", host.holder.output());
            }
            Ok(host.holder.output().contains("ready"))
        })?;
        host.connect()?;
        Ok(host)
    }

    fn connect(&self) -> Result<()> {
        let (near, far) = (self.veth.near(), self.veth.far());
        let pid = self.holder.pid().to_string();
        let address = |address: Ipv4Addr| format!("{address}/30");
        run_to_success(Command::new("ip").args([
            "address",
            "add",
            &address(self.peer()),
            "dev",
            near,
        ]))?;
        run_to_success(Command::new("ip").args(["link", "set", far, "netns", &pid]))?;
        run_to_success(self.command("ip").args([
            "address",
            "add",
            &address(self.address()),
            "dev",
            far,
        ]))?;
        run_to_success(self.command("ip").args(["link", "set", far, "up"])).map(drop)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, of those that are reserved for benchmarks.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, 2)
    }

    /// The address at which it reaches this machine.
    pub fn peer(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, 1)
    }

    /// An address of a port of it.
    pub fn socket(&self, port: u16) -> SocketAddr {
        (self.address(), port).into()
    }

    /// A command that runs on it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.pid().to_string();
        command.args(["--net", "--mount", "--target", &pid, "--"]).arg(program);
        command
    }

    /// Telemetry socket of an app that runs on it, as this machine sees it.
    pub fn telemetry_socket(&self, app: &str) -> PathBuf {
        format!("/proc/{}/root/run/dpdk/{app}/dpdk_telemetry.v2", self.holder.pid()).into()
    }
}
