//! The BPF maps of a filter, and the format of their entries.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use pmdscope_telemetry::interface::SourceSample;

use crate::error::XdpError;
use crate::prefix::{Prefix, PrefixAction};
use crate::settings::{SETTINGS_SIZE, Settings};
use crate::verdict::{COUNTERS, Counter, WITH_SOURCE};

/// Number of sources that are reported.
const TOP: usize = 10;

/// Most entries per system call.
const BATCH: u32 = 8192;

/// Names of the maps with the sizes of key and value, as in `filter.h`.
const MAPS: [(&str, u32, u32); 5] = [
    ("counters", 4, 16),
    ("settings", 4, SETTINGS_SIZE),
    ("prefixes4", 8, 4),
    ("prefixes6", 20, 4),
    ("sources", 16, 8),
];

/// Key and value of a map entry.
type Entry = (Vec<u8>, Vec<u8>);

/// The maps of one filter.
#[derive(Debug)]
pub(crate) struct Tables {
    maps: HashMap<String, MapHandle>,
}

impl Tables {
    /// Returns the tables; `None` if these are not the maps of this version's filter.
    pub(crate) fn new(maps: impl Iterator<Item = MapHandle>) -> Option<Self> {
        let maps = maps.map(|map| (map.name().to_string_lossy().into_owned(), map));
        let maps = maps.collect::<HashMap<_, _>>();
        let is_ours = |(name, key, value): &(&str, u32, u32)| {
            maps.get(*name).is_some_and(|m| m.key_size() == *key && m.value_size() == *value)
        };
        let has_counters = maps.get("counters").is_some_and(|m| m.max_entries() == COUNTERS);
        (MAPS.iter().all(is_ours) && has_counters).then_some(Self { maps })
    }

    /// Reads packets and bytes by verdict, and those dropped with a source.
    pub(crate) fn counters(&self) -> Result<Vec<Counter>, XdpError> {
        let failed = |error| XdpError::bpf("read the counters of a filter", error);
        let map = self.map("counters")?;
        let mut counters = Vec::new();
        for index in 0..COUNTERS {
            let cpus = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
            let mut sum = Counter::default();
            for cpu in cpus.iter().flatten() {
                sum.packets += number(cpu, 0);
                sum.bytes += number(cpu, 8);
            }
            counters.push(sum);
        }
        Ok(counters)
    }

    /// Returns the sources with most dropped packets, and the number of dropped packets that the table
    /// does not contain.
    pub(crate) fn top_sources(&self) -> Result<(Vec<SourceSample>, u64), XdpError> {
        // Read first, so that packets dropped in between do not count as missing.
        let counted = self.counters()?.get(WITH_SOURCE as usize).map_or(0, |c| c.packets);
        let mut sources = Vec::new();
        for (key, value) in self.entries("sources")? {
            let Ok(address) = <[u8; 16]>::try_from(key.as_slice()) else { continue };
            let address = Ipv6Addr::from(address);
            let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
            sources.push(SourceSample { address, packets: number(&value, 0) });
        }
        let listed = sources.iter().map(|source| source.packets).sum::<u64>();
        sources.sort_unstable_by_key(|source| (std::cmp::Reverse(source.packets), source.address));
        sources.truncate(TOP);
        Ok((sources, counted.saturating_sub(listed)))
    }

    pub(crate) fn settings(&self) -> Result<Settings, XdpError> {
        let what = "read the settings of a filter";
        let found = self.map("settings")?.lookup(&[0; 4], MapFlags::ANY);
        let found = found.map_err(|error| XdpError::bpf(what, error))?;
        let settings = found.as_deref().and_then(Settings::of_bytes);
        settings.ok_or(XdpError::Bpf { what, reason: "they are not there".to_owned() })
    }

    pub(crate) fn change(&self, settings: &Settings) -> Result<(), XdpError> {
        let changed = self.map("settings")?.update(&[0; 4], &settings.to_bytes(), MapFlags::ANY);
        changed.map_err(|error| XdpError::bpf("change the settings of a filter", error))
    }

    /// Returns the listed prefixes in ascending order.
    pub(crate) fn prefixes(&self) -> Result<Vec<(Prefix, PrefixAction)>, XdpError> {
        let mut prefixes = Vec::new();
        for name in ["prefixes4", "prefixes6"] {
            for (key, value) in self.entries(name)? {
                prefixes.extend(Prefix::of_key(&key).zip(PrefixAction::of_value(&value)));
            }
        }
        prefixes.sort_unstable();
        Ok(prefixes)
    }

    pub(crate) fn list(&self, prefix: Prefix, action: PrefixAction) -> Result<(), XdpError> {
        let map = self.map(table_of(prefix))?;
        map.update(&prefix.key(), &action.value(), MapFlags::ANY).map_err(|error| {
            match XdpError::bpf("list prefixes", error) {
                XdpError::Bpf { reason, .. } if reason.contains("No space") => {
                    let reason = format!("the list is full, with {} prefixes", map.max_entries());
                    XdpError::List { prefix, reason }
                }
                XdpError::Bpf { reason, .. } => XdpError::List { prefix, reason },
                error => error,
            }
        })
    }

    /// Removes a prefix; returns false if it was not listed.
    pub(crate) fn unlist(&self, prefix: Prefix) -> Result<bool, XdpError> {
        match self.map(table_of(prefix))?.delete(&prefix.key()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(XdpError::bpf("take a prefix off the list", error)),
        }
    }

    fn map(&self, name: &'static str) -> Result<&MapHandle, XdpError> {
        let missing = || XdpError::Bpf { what: name, reason: "no such map".to_owned() };
        self.maps.get(name).ok_or_else(missing)
    }

    fn entries(&self, name: &'static str) -> Result<Vec<Entry>, XdpError> {
        let map = self.map(name)?;
        let batch = map.max_entries().min(BATCH);
        let entries = map.lookup_batch(batch, MapFlags::ANY, MapFlags::ANY);
        Ok(entries.map_err(|error| XdpError::bpf("read a table of a filter", error))?.collect())
    }
}

fn table_of(prefix: Prefix) -> &'static str {
    if prefix.address().is_ipv4() { "prefixes4" } else { "prefixes6" }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    number.map_or(0, |number| u64::from_ne_bytes(*number))
}
