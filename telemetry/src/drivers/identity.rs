//! Identifies the driver of a port: by its name, its PCI ids, and the names of its counters.

use super::{DriverTable, GENERIC, counter, tables};
use crate::sample::PortSample;

/// The driver of a port.
#[derive(Clone, Copy, Debug)]
pub struct DriverIdentity {
    /// What is known about the driver.
    pub table: &'static DriverTable,
    /// Whether only the names of some counters suggest this driver.
    pub is_guess: bool,
}

/// Fewest counters with names of a driver that suggest it.
const LEAST_NAMES: usize = 2;

impl PartialEq for DriverIdentity {
    fn eq(&self, other: &Self) -> bool {
        (&self.table.driver, self.is_guess) == (&other.table.driver, other.is_guess)
    }
}

impl DriverIdentity {
    /// Returns the driver of a port; `None` if nothing tells it.
    pub fn of(port: &PortSample) -> Option<Self> {
        let known = by_name(&port.device).or_else(|| by_device(port));
        let certain = known.map(|table| Self { table, is_guess: false });
        certain.or_else(|| Some(Self { table: by_names(port)?, is_guess: true }))
    }

    /// Returns the driver as text, for instance `mlx5`, or `probably ice`.
    pub fn words(&self) -> String {
        let guess = if self.is_guess { "probably " } else { "" };
        format!("{guess}{}", self.table.driver)
    }
}

/// Returns the driver of a virtual device, or of one on another bus.
fn by_name(device: &str) -> Option<&'static DriverTable> {
    let prefix = |table: &'static DriverTable| {
        let prefixes = table.vdev_prefixes.iter();
        let own = prefixes.filter(|prefix| device.starts_with(prefix.as_str()));
        Some((own.map(String::len).max()?, table))
    };
    let longest = tables().iter().filter_map(prefix).max_by_key(|(length, _)| *length);
    let named =
        || tables().iter().find(|table| table.names.iter().any(|name| name.is_match(device)));
    longest.map(|(_, table)| table).or_else(named)
}

/// Returns the driver by PCI ids and by counters that only one driver has. What the app itself reports
/// decides if they contradict each other: it may run on another host.
fn by_device(port: &PortSample) -> Option<&'static DriverTable> {
    let signed = |table: &&DriverTable| {
        table.signature.iter().filter(|name| port.xstats.get(name).is_some()).count()
    };
    let by_counters = tables().iter().filter(|table| signed(table) > 0).max_by_key(signed);
    let by_id = port.pci_id.as_deref().and_then(by_pci_id);
    match (by_id, by_counters) {
        (Some(table), Some(other)) if signed(&table) == 0 => Some(other),
        (Some(table), _) => Some(table),
        (None, other) => other,
    }
}

fn by_pci_id(id: &str) -> Option<&'static DriverTable> {
    let has = |id: &str| tables().iter().find(|table| table.pci_ids.iter().any(|own| own == id));
    has(id).or_else(|| has(&format!("{}:*", id.split(':').next()?)))
}

/// Returns the driver with the most of the port's counters.
fn by_names(port: &PortSample) -> Option<&'static DriverTable> {
    // Names that DPDK gives every port tell nothing.
    let generic = tables().iter().find(|table| table.driver == GENERIC);
    let is_generic = |name: &str| generic.is_some_and(|table| table.counter(name).is_some());
    let losses = port.xstats.names().filter(|name| counter::seems_loss(name));
    let named: Vec<_> = losses.filter(|name| !is_generic(name)).collect();
    let counted = |table: &'static DriverTable| {
        (named.iter().filter(|name| table.counter(name).is_some()).count(), table)
    };
    let drivers = tables().iter().filter(|table| table.driver != GENERIC);
    let most = drivers.map(counted).max_by_key(|(count, _)| *count);
    most.filter(|(count, _)| *count >= LEAST_NAMES).map(|(_, table)| table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(device: &str, pci_id: Option<&str>, xstats: &[&str]) -> Option<String> {
        let xstats = xstats.iter().map(|name| ((*name).to_owned(), 0)).collect();
        let port = PortSample {
            device: device.into(),
            pci_id: pci_id.map(str::to_owned),
            xstats,
            ..PortSample::default()
        };
        DriverIdentity::of(&port).map(|identity| identity.words())
    }

    #[test]
    fn a_driver_is_known_by_its_device_or_its_counters() {
        let nic = "0000:03:00.0";
        assert_eq!(driver(nic, Some("15b3:1017"), &[]).as_deref(), Some("mlx5"));
        assert_eq!(driver(nic, None, &["rx_out_of_buffer"]).as_deref(), Some("mlx5"));
        assert_eq!(driver(nic, Some("1af4:1041"), &["wd_expired"]).as_deref(), Some("ena"));
        assert_eq!(
            driver(nic, None, &["rx_good_packets", "rx_errors", "tx_errors", "rx_q0_errors"]),
            None
        );
        assert_eq!(driver("net_unheard_of0", None, &[]), None);
    }
}
