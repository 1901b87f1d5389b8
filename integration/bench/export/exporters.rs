//! The measured exporters: `pmdscope export`, one for all apps, and DPDK's exporter, one for each.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use pmdscope_integration::exporter::free_address;
use pmdscope_integration::machine::{children, private_bytes, process_cpu_ns, real_time};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::Site;

use crate::http::{ConnectionMode, ScrapeClient};

/// The peer. Distributions name it with and without its suffix.
pub(crate) const PEER: &str = "dpdk-telemetry-exporter.py";
const PEER_NAMES: [&str; 2] = [PEER, "dpdk-telemetry-exporter"];
/// Environment variable with another path of it.
pub(crate) const PEER_VARIABLE: &str = "DPDK_EXPORTER";
/// Its third endpoint, cpu, needs DPDK 23.03, and fails with a traceback at each scrape of older
/// releases.
const PEER_ENDPOINTS: [&str; 2] = ["counters", "memory"];

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The exporter, and how it is scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MeasuredExporter {
    Pmdscope(ConnectionMode),
    /// Uses HTTP 1.0 and closes each connection.
    Peer,
}

impl MeasuredExporter {
    pub(crate) const ALL: [Self; 3] =
        [Self::Pmdscope(ConnectionMode::New), Self::Pmdscope(ConnectionMode::Kept), Self::Peer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pmdscope(ConnectionMode::New) => "pmdscope",
            Self::Pmdscope(ConnectionMode::Kept) => "pmdscope, kept",
            Self::Peer => PEER,
        }
    }

    pub(crate) fn connection(self) -> ConnectionMode {
        match self {
            Self::Pmdscope(connection) => connection,
            Self::Peer => ConnectionMode::New,
        }
    }
}

/// The programs.
#[derive(Debug)]
pub(crate) struct ExporterPrograms {
    pub(crate) pmdscope: PathBuf,
    pub(crate) peer: Option<PathBuf>,
}

/// The processes that together export all apps.
pub(crate) struct RunningExporters(Vec<(Process, SocketAddr)>);

impl RunningExporters {
    /// One `pmdscope export` for all apps of a site.
    pub(crate) fn pmdscope(program: &Path, scratch: &Scratch, site: &Site) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["export", "--listen", &address.to_string()]).args(site.config());
        Ok(Self(vec![(start("pmdscope", &mut command, scratch, address)?, address)]))
    }

    /// One peer for each socket.
    pub(crate) fn peers(program: &Path, scratch: &Scratch, sockets: &[PathBuf]) -> Result<Self> {
        let peer = |(number, socket): (usize, &PathBuf)| {
            let address = free_address()?;
            let mut command = Command::new("python3");
            command.arg(program).args(["-o", &format!("openmetrics://{address}")]);
            command.args(PEER_ENDPOINTS.iter().flat_map(|endpoint| ["-e", endpoint]));
            command.arg("-s").arg(socket);
            let name = format!("peer{number}");
            Ok((start(&name, &mut command, scratch, address)?, address))
        };
        Ok(Self(sockets.iter().enumerate().map(peer).collect::<Result<_>>()?))
    }

    /// A client for each.
    pub(crate) fn clients(&self, connection: ConnectionMode) -> Vec<ScrapeClient> {
        self.0.iter().map(|(_, address)| ScrapeClient::new(*address, connection)).collect()
    }

    /// CPU time that they used so far, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        self.pids()?.into_iter().map(process_cpu_ns).sum()
    }

    /// Gives them real-time priority.
    pub(crate) fn hurry(&self) -> Result<()> {
        self.pids()?.into_iter().try_for_each(real_time)
    }

    /// Their private memory, bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        self.pids()?.into_iter().map(private_bytes).sum()
    }

    /// Their processes: an exporter may be two.
    fn pids(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for (process, _) in &self.0 {
            pids.push(process.pid());
            pids.extend(children(process.pid())?);
        }
        Ok(pids)
    }
}

fn start(
    name: &str,
    command: &mut Command,
    scratch: &Scratch,
    address: SocketAddr,
) -> Result<Process> {
    let mut process = Process::spawn(name, command, scratch.dir())?;
    wait_until(name, START_TIMEOUT, || {
        if let Some(status) = process.exited()? {
            bail!("{name} ended at once ({status}):\n{}", process.output());
        }
        Ok(TcpStream::connect(address).is_ok())
    })?;
    Ok(process)
}

/// Path of the peer on this machine.
pub(crate) fn find_peer() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PEER_VARIABLE) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/bin".into()]);
    dirs.flat_map(|dir| PEER_NAMES.map(|name| dir.join(name))).find(|file| file.is_file())
}
