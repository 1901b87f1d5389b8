//! The memzones of an app: memory that it has reserved by name.

use std::path::Path;

use crate::client::{LIST_LIMIT, SocketPeer, TelemetryClient};
use crate::commands::{MemzoneId, TelemetryCommand};
use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::lock::AppLock;
use crate::reply::{MemzoneInfo, SocketBanner};

/// A memzone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemzoneEntry {
    /// Its name.
    pub name: String,
    /// First address in the app.
    pub address: u64,
    /// Length, bytes.
    pub bytes: u64,
}

/// The memzones of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemzoneTable {
    /// The banner of the app.
    pub banner: SocketBanner,
    /// The process that answered.
    pub peer: SocketPeer,
    /// The memzones, sorted by address.
    pub memzones: Vec<MemzoneEntry>,
    /// Number of listed memzones that no longer existed when they were requested.
    pub vanished: usize,
    /// Whether the list may be incomplete: DPDK truncates lists at 512 entries.
    pub cut: bool,
}

impl MemzoneTable {
    /// Queries the app at `socket`, while holding the lock of its runtime directory `dir`: the
    /// parameters of two concurrent clients may be mixed up, and some that are harmless elsewhere
    /// crash the app as the id of a memzone. So nothing is requested without the lock.
    ///
    /// # Errors
    /// As [`TelemetryClient::connect`], [`AppLock::open`] and [`AppLock::hold`], or when a reply is lost.
    pub fn fetch(dir: &Path, socket: &Path, deadline: Deadline) -> Result<Self, TelemetryError> {
        let lock = AppLock::open(dir)?;
        let _held = lock.hold(deadline)?;
        let mut client = TelemetryClient::connect(socket, deadline)?;
        client.memzones(deadline)
    }
}

impl TelemetryClient {
    /// Requests the memzones. The caller must hold the [`AppLock`] of the app.
    fn memzones(&mut self, deadline: Deadline) -> Result<MemzoneTable, TelemetryError> {
        let mut ids: Vec<u32> = self.request(&TelemetryCommand::MemzoneList, deadline)?;
        let cut = ids.len() >= LIST_LIMIT;
        ids.sort_unstable();
        ids.dedup();
        let (mut memzones, mut vanished) = (Vec::with_capacity(ids.len()), 0);
        for id in ids {
            // One at a time: after a reply about something else, nothing more may be requested.
            let info = TelemetryCommand::MemzoneInfo(MemzoneId(id));
            match self.request::<MemzoneInfo>(&info, deadline) {
                Ok(info) if info.id.0 == u64::from(id) => memzones.push(info.into()),
                Ok(info) => {
                    let got = format!("memzone {}", info.id.0);
                    return Err(TelemetryError::Mismatch { got });
                }
                Err(TelemetryError::Null) => vanished += 1,
                Err(error) => return Err(error),
            }
        }
        memzones.sort_by_key(|zone: &MemzoneEntry| zone.address);
        Ok(MemzoneTable {
            banner: self.banner().clone(),
            peer: self.peer(),
            memzones,
            vanished,
            cut,
        })
    }
}

impl From<MemzoneInfo> for MemzoneEntry {
    fn from(info: MemzoneInfo) -> Self {
        Self { name: info.name, address: info.address.0, bytes: info.bytes.0 }
    }
}
