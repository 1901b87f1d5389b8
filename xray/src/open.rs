//! Opens an app: its process, its memzones, its layout.

use std::sync::Arc;
use std::time::Duration;

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::{Deadline, MemzoneEntry, MemzoneTable};

use crate::budget::ReadBudget;
use crate::error::XrayError;
use crate::layout::Layout;
use crate::memory::ProcessMemory;
use crate::target::{Memzone, XrayTarget};

/// Longest wait for the app to tell its memzones.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl XrayTarget {
    /// Opens a running app; what is read of it later keeps to `budget`.
    ///
    /// # Errors
    /// [`XrayError::UnknownProcess`] for an app in another PID namespace, [`XrayError::NotAllowed`] without
    /// the right to read its memory, [`XrayError::Memzones`] where it does not tell its memzones,
    /// [`XrayError::UnknownLayout`] for a build of DPDK that is not known.
    pub fn open(app: &DiscoveredApp, budget: ReadBudget) -> Result<Self, XrayError> {
        let fetched = MemzoneTable::fetch(&app.dir, &app.socket, Deadline::after(LONGEST_WAIT));
        let table =
            fetched.map_err(|source| XrayError::Memzones { app: app.name.clone(), source })?;
        if table.peer.pid == 0 {
            return Err(XrayError::UnknownProcess { app: app.name.clone() });
        }
        let memory = ProcessMemory::open(table.peer.pid)?.with_budget(budget);
        if memory.start_ticks() != table.peer.start_ticks {
            return Err(XrayError::Ended { pid: table.peer.pid });
        }
        let layout = known_layout(&table.banner.version)?;
        let memzones = table.memzones.into_iter().map(Memzone::from).collect();
        Ok(Self::new(Arc::new(memory), layout, memzones))
    }
}

impl From<MemzoneEntry> for Memzone {
    fn from(entry: MemzoneEntry) -> Self {
        Self { name: entry.name, address: entry.address, bytes: entry.bytes }
    }
}

fn known_layout(version: &str) -> Result<Layout, XrayError> {
    if version.strip_prefix("DPDK 22.11").is_some_and(|rest| !rest.starts_with(char::is_numeric)) {
        return Ok(Layout::DPDK_22_11);
    }
    let why = "this release of pmdscope has only that of 22.11".to_owned();
    Err(XrayError::UnknownLayout { version: version.to_owned(), why })
}
