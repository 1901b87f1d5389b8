//! What is known about drivers: the meaning of their extended counters, and how a port tells its driver.
//!
//! The tables are data, `telemetry/drivers/*.toml`, one file for each driver. A counter that no table
//! has is not ignored if its name seems to count losses: it is unexplained.

mod counter;
mod identity;

use std::collections::HashMap;
use std::sync::OnceLock;

use regex::Regex;
use serde::Deserialize;

pub use self::counter::{
    BasicCounter, BasicMeaning, CounterKind, CounterPlace, CounterUnit, DriverCounter,
};
pub use self::identity::DriverIdentity;

/// File names and texts of the tables.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/drivers.rs"));

/// The table of the counters that DPDK itself names, whatever the driver.
const GENERIC: &str = "ethdev";

/// What is known about one driver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverTable {
    /// DPDK's name of the driver.
    pub driver: String,
    /// Devices of the driver, as text.
    pub title: String,
    /// PCI ids of its devices, `vendor:device` in hexadecimal; `15b3:*` for all of a vendor.
    #[serde(default)]
    pci_ids: Vec<String>,
    /// Beginnings of the names of its virtual devices.
    #[serde(default)]
    vdev_prefixes: Vec<String>,
    /// Regular expressions for other names of its ports.
    #[serde(default)]
    bus_names: Vec<String>,
    /// Extended counters that no other driver has.
    #[serde(default)]
    signature: Vec<String>,
    /// Counters of all packets that arrived from the wire, whatever became of them; the first one of a
    /// port is used.
    #[serde(default)]
    pub arrived: Vec<String>,
    /// Pieces of names, as `vf_` in `vf_rx_errors`, that tell a counter of the port below.
    #[serde(default)]
    below: Vec<String>,
    /// What it adds up in basic counters.
    #[serde(default)]
    basic: Vec<BasicMeaning>,
    /// Its counters.
    #[serde(default, rename = "counter")]
    pub counters: Vec<DriverCounter>,
    #[serde(skip)]
    names: Vec<Regex>,
    /// Indexes of the counters with names without a pattern.
    #[serde(skip)]
    exact: HashMap<String, usize>,
}

/// The meaning of a counter of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterMeaning {
    /// A table has it.
    Known(&'static DriverCounter),
    /// No table has it, but its name seems to count losses.
    Unexplained,
}

/// Returns the tables of all drivers.
pub fn tables() -> &'static [DriverTable] {
    static TABLES: OnceLock<Vec<DriverTable>> = OnceLock::new();
    // A test reads each of them, so none is left out.
    TABLES.get_or_init(|| FILES.iter().filter_map(|(_, text)| parse(text).ok()).collect())
}

/// Returns the meaning of a counter of this driver, or of an unknown one; `None` if it seems to count
/// no losses.
pub fn meaning(driver: Option<&'static DriverTable>, name: &str) -> Option<CounterMeaning> {
    let generic = || tables().iter().find(|table| table.driver == GENERIC);
    if let Some(below) = driver.and_then(|table| table.name_below(name)) {
        return meaning(None, &below);
    }
    let own = driver.and_then(|table| table.counter(name));
    let known = own.or_else(|| generic()?.counter(name));
    if known.is_some() || !counter::seems_loss(name) {
        return known.map(CounterMeaning::Known);
    }
    Some(agreed(name).map_or(CounterMeaning::Unexplained, CounterMeaning::Known))
}

/// Returns the meaning that all drivers with a counter of that name give it; `None` if they disagree.
fn agreed(name: &str) -> Option<&'static DriverCounter> {
    let mut known = tables().iter().filter_map(|table| table.counter(name));
    let first = known.next()?;
    known.all(|other| other.kind == first.kind).then_some(first)
}

impl PartialEq for DriverTable {
    fn eq(&self, other: &Self) -> bool {
        self.driver == other.driver
    }
}

impl DriverTable {
    /// Returns what the driver adds up in a basic counter.
    pub fn basic(&self, counter: BasicCounter) -> Option<&BasicMeaning> {
        self.basic.iter().find(|basic| basic.counter == counter)
    }

    /// Returns the basic counters that the driver never counts.
    pub fn never(&self) -> impl Iterator<Item = BasicCounter> {
        self.basic.iter().filter(|basic| basic.never).map(|basic| basic.counter)
    }

    /// Returns the name that the driver of the port below gives a counter; `None` for one of its own.
    fn name_below(&self, name: &str) -> Option<String> {
        let part = |direction: &str| {
            let rest = name.strip_prefix(direction)?;
            let below = self.below.iter().find_map(|piece| counter::strip(piece, rest))?;
            Some(format!("{direction}{below}"))
        };
        ["", "rx_", "tx_"].into_iter().find_map(part).filter(|_| self.counter(name).is_none())
    }

    /// Returns the counter of that name.
    pub fn counter(&self, name: &str) -> Option<&DriverCounter> {
        let exact = self.exact.get(name).and_then(|at| self.counters.get(*at));
        let by_pattern = || self.counters.iter().find(|counter| counter.is_named(name));
        exact.or_else(by_pattern)
    }
}

/// Parses a table.
fn parse(text: &str) -> Result<DriverTable, String> {
    let mut table: DriverTable = toml::from_str(text).map_err(|error| error.to_string())?;
    let names = table.bus_names.iter().map(|name| Regex::new(name));
    table.names = names.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    for (at, counter) in table.counters.iter().enumerate() {
        for name in counter.names.iter().filter(|name| !name.contains('{')) {
            table.exact.entry(name.clone()).or_insert(at);
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_table_is_complete() {
        let mut drivers = BTreeSet::new();
        for (file, text) in FILES {
            let table = parse(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(*file, format!("{}.toml", table.driver));
            assert!(drivers.insert(table.driver.clone()), "{file} is there twice");
            assert!(!table.title.is_empty(), "{file}");
            for id in &table.pci_ids {
                let (vendor, device) = id.split_once(':').unwrap();
                assert!(vendor.len() == 4 && (device == "*" || device.len() == 4), "{file}: {id}");
            }
            let mut names = BTreeSet::new();
            for counter in &table.counters {
                assert!(!counter.names.is_empty() && !counter.counts.is_empty(), "{file}");
                assert!(!counter.reason.is_empty(), "{file}: {:?}", counter.names);
                for name in &counter.names {
                    assert!(names.insert(name), "{file}: {name} is there twice");
                }
            }
        }
        assert_eq!(tables().len(), FILES.len());
        assert!(drivers.contains(GENERIC));
    }

    #[test]
    fn a_counter_that_no_table_has_is_never_ignored() {
        assert_eq!(meaning(None, "rx_frobnicated_drops"), Some(CounterMeaning::Unexplained));
        assert_eq!(meaning(None, "rx_frobnicated"), None);
        let Some(CounterMeaning::Known(basic)) = meaning(None, "rx_missed_errors") else {
            panic!()
        };
        assert_eq!(basic.kind, CounterKind::Harmless, "the basic counter is judged");
    }

    proptest! {
        #[test]
        fn any_name_has_a_meaning_or_none(name: String, like in "[rt]x_(q|prio)?[0-9]{0,30}_?(drop|err|crc)?") {
            for table in tables() {
                let _ = meaning(Some(table), &name);
            }
            prop_assert_eq!(meaning(None, &like).is_some(), meaning(None, &like).is_some());
        }
    }
}
