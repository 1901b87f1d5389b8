//! Opens an app: its process, its memzones, its layout.

use std::sync::Arc;
use std::time::Duration;

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability};
use pmdscope_telemetry::{Deadline, MemzoneEntry, MemzoneTable, TelemetryClient};

use crate::budget::ReadBudget;
use crate::error::XrayError;
use crate::layout::Layout;
use crate::memory::{Memory, ProcessMemory};
use crate::memory_config::MemoryConfig;
use crate::memzone::Memzone;
use crate::target::XrayTarget;

/// Timeout for the app to report its process or its memzones.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl XrayTarget {
    /// Opens a running app; later reads keep to `budget`. An app that is stopped, or has no
    /// telemetry, can be opened too if its process is known.
    ///
    /// # Errors
    /// [`XrayError::UnknownProcess`] for an app in another PID namespace, [`XrayError::NotAllowed`]
    /// without the right to read its memory, [`XrayError::Memzones`] if they are not found,
    /// [`XrayError::UnknownLayout`] for a build of DPDK that is not known.
    pub fn open(app: &DiscoveredApp, budget: ReadBudget) -> Result<Self, XrayError> {
        let client = connect(app);
        let peer = client.as_ref().map(TelemetryClient::peer);
        let pid = peer.map(|peer| peer.pid).or(app.pid).filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| XrayError::UnknownProcess { app: app.name.clone() })?;
        let memory = ProcessMemory::open(pid)?.with_budget(budget);
        if peer.is_some_and(|peer| peer.start_ticks != memory.start_ticks()) {
            return Err(XrayError::Ended { pid });
        }
        // Vendors add their names before the release.
        let stated = client.map(|client| client.banner().version.clone());
        // Requests wake the app, and may read a memzone while it is freed; reading its memory
        // avoids both.
        let memory = Arc::new(memory);
        match MemoryConfig::find(&*memory) {
            Ok(config) => {
                let target = Self::select(
                    memory,
                    stated.as_ref().unwrap_or(&config.version),
                    config.memzones,
                )?;
                Ok(target.with_zone_array(config.array))
            }
            Err(error @ (XrayError::NoMemoryConfig { .. } | XrayError::Implausible { .. })) => {
                let (version, memzones) = told(app, pid, error)?;
                Self::select(memory, stated.as_ref().unwrap_or(&version), memzones)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the memory of an app that does not answer requests, such as a core file.
    ///
    /// # Errors
    /// [`XrayError::NoMemoryConfig`] or [`XrayError::Implausible`] if the memzones are not in it,
    /// [`XrayError::UnknownLayout`] for a build of DPDK that is not known; as [`Memory::read`].
    pub fn open_memory(memory: Arc<dyn Memory>) -> Result<Self, XrayError> {
        let config = MemoryConfig::find(&*memory)?;
        Self::select(memory, &config.version, config.memzones)
    }

    fn select(
        memory: Arc<dyn Memory>,
        version: &str,
        memzones: Vec<Memzone>,
    ) -> Result<Self, XrayError> {
        let layout = Layout::select(version, &*memory, &memzones)?;
        Ok(Self::new(memory, layout, memzones))
    }
}

/// Asks the process that serves the telemetry socket for its id: the discovered process may have
/// ended since, and another one may have its id.
fn connect(app: &DiscoveredApp) -> Option<TelemetryClient> {
    let is_live = app.state == Reachability::Live;
    let connect = || TelemetryClient::connect(&app.socket, Deadline::after(LONGEST_WAIT));
    is_live.then(connect)?.ok()
}

/// The version and the memzones that the app reports; `found` is the reason why its memory does not
/// show them.
fn told(
    app: &DiscoveredApp,
    pid: u32,
    found: XrayError,
) -> Result<(String, Vec<Memzone>), XrayError> {
    if app.state != Reachability::Live {
        return Err(found);
    }
    match MemzoneTable::fetch(&app.dir, &app.socket, Deadline::after(LONGEST_WAIT)) {
        Ok(table) if table.peer.pid == pid => {
            let memzones = table.memzones.into_iter().map(Memzone::from).collect();
            Ok((table.banner.version, memzones))
        }
        Ok(_) => Err(XrayError::Ended { pid }),
        Err(told) => Err(XrayError::Memzones { found: Box::new(found), told }),
    }
}

impl From<MemzoneEntry> for Memzone {
    fn from(entry: MemzoneEntry) -> Self {
        Self { name: entry.name, address: entry.address, bytes: entry.bytes }
    }
}
