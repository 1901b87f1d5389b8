//! The XDP program in the kernel: its counters and settings. It is found by its id, without pinned
//! files.

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ObjectBuilder};
use serde::{Deserialize, Serialize};

use crate::error::BypassError;
use crate::redirect_object::{PROGRAM_NAME, SETTINGS_SIZE};

/// Name of the map of counters.
const COUNTS: &str = "bypass_counts";

/// Packets that the interface received since the XDP program was attached, by outcome. The sum of the four
/// counts is all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassCounts {
    /// Packets of no selected flow: passed to the kernel.
    pub kernel: u64,
    /// Packets sent to the socket of the app, including packets for which the socket had no room.
    pub bypassed: u64,
    /// Packets of a selected flow while no app polled the queue: passed to the kernel.
    pub no_socket: u64,
    /// Packets of a selected flow on another queue, which the socket of the app does not serve: passed to the
    /// kernel.
    pub other_queue: u64,
}

/// A program in the kernel.
pub(crate) struct LoadedProgram {
    pub(crate) name: String,
    maps: Vec<u32>,
}

impl LoadedProgram {
    /// Returns the program with this id; `None` if it was unloaded.
    pub(crate) fn find(id: u32) -> Option<Self> {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let program = ProgInfoIter::with_query_opts(options).find(|program| program.id == id)?;
        Some(Self { name: program.name.to_string_lossy().into_owned(), maps: program.map_ids })
    }

    /// Returns whether it is the program of `integration/bypass`.
    pub(crate) fn is_bypass(&self) -> bool {
        self.name == PROGRAM_NAME
    }

    /// Reads its counters.
    pub(crate) fn counts(&self) -> Result<BypassCounts, BypassError> {
        let map = self.map(|map| map.name() == COUNTS, "the counters")?;
        let count = |verdict: u32| -> Result<u64, BypassError> {
            let values = map.lookup_percpu(&verdict.to_ne_bytes(), MapFlags::ANY);
            let values =
                values.map_err(|error| bpf("read the counters of the XDP program", &error))?;
            let values = values.unwrap_or_default();
            let numbers = values.iter().filter_map(|value| value.as_slice().try_into().ok());
            Ok(numbers.map(u64::from_ne_bytes).fold(0, u64::wrapping_add))
        };
        Ok(BypassCounts {
            kernel: count(0)?,
            bypassed: count(1)?,
            no_socket: count(2)?,
            other_queue: count(3)?,
        })
    }

    /// Changes its settings while it runs.
    pub(crate) fn set_settings(&self, settings: &[u8; SETTINGS_SIZE]) -> Result<(), BypassError> {
        let is_data = |map: &MapHandle| {
            map.map_type() == MapType::Array && map.value_size() as usize == SETTINGS_SIZE
        };
        let map = self.map(is_data, "the settings")?;
        map.update(&0u32.to_ne_bytes(), settings, MapFlags::ANY)
            .map_err(|error| bpf("change the settings of the XDP program", &error))
    }

    fn map(
        &self,
        is_it: impl Fn(&MapHandle) -> bool,
        what: &str,
    ) -> Result<MapHandle, BypassError> {
        let mut failure = "it has no such map".to_owned();
        for id in &self.maps {
            match MapHandle::from_map_id(*id) {
                Ok(map) if is_it(&map) => return Ok(map),
                Ok(_) => {}
                Err(error) => failure = error.to_string(),
            }
        }
        Err(BypassError::Bpf { what: format!("open {what} of the XDP program"), reason: failure })
    }
}

/// Checks that this kernel accepts the object file: loads it and unloads it at once.
pub(crate) fn verify(object: &[u8]) -> Result<(), BypassError> {
    libbpf_rs::set_print(None);
    let load = || ObjectBuilder::default().name("pmdscope")?.open_memory(object)?.load().map(drop);
    load().map_err(|error| bpf("load the XDP program", &error))
}

fn bpf(what: &str, error: &libbpf_rs::Error) -> BypassError {
    BypassError::Bpf { what: what.to_owned(), reason: error.to_string() }
}
