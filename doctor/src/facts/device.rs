//! PCI network devices, their drivers, links and IOMMU groups.

use std::collections::{BTreeMap, BTreeSet};

use pmdscope_telemetry::host::device::address;
use pmdscope_telemetry::sample::DeviceSample;

use crate::tree::{Fact, HostTree};

const DEVICES: &str = "/sys/bus/pci/devices";

/// A PCI device.
#[derive(Clone, Debug)]
pub(crate) struct NetworkDevice {
    /// As in samples of telemetry: address, presence, class and driver.
    pub(crate) sample: DeviceSample,
    /// Vendor and device id, for instance `8086:1592`.
    pub(crate) id: String,
    /// NUMA node; `None` where the firmware does not report it.
    pub(crate) node: Option<u32>,
    /// The present link, and the best link of the card; `None` for virtual devices.
    pub(crate) link: Option<(PcieLink, PcieLink)>,
    /// IOMMU group.
    pub(crate) iommu_group: Option<String>,
    /// Its kernel network interfaces.
    pub(crate) interfaces: Vec<String>,
}

/// The link of a device to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PcieLink {
    /// Transfers of a lane, 10^9 per second.
    pub(crate) gt_s: f64,
    /// Lanes.
    pub(crate) lanes: u32,
}

impl PcieLink {
    /// Returns Mbit/s after encoding: 8b/10b up to 5 GT/s, 128b/130b above.
    pub(crate) fn mbps(self) -> f64 {
        let encoding = if self.gt_s <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        self.gt_s * 1000.0 * encoding * f64::from(self.lanes)
    }
}

impl std::fmt::Display for PcieLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "x{} at {} GT/s", self.lanes, self.gt_s)
    }
}

/// The IOMMU and the drivers that hand devices to user space.
#[derive(Clone, Debug)]
pub(crate) struct IommuFacts {
    /// Number of IOMMU groups; 0 without an IOMMU.
    pub(crate) groups: Fact<usize>,
    /// Whether vfio without an IOMMU is allowed.
    pub(crate) noiommu: bool,
    /// The loaded ones of the modules `vfio_pci`, `uio_pci_generic` and `igb_uio`.
    pub(crate) modules: Fact<BTreeSet<String>>,
    /// Address and driver of each device of an IOMMU group, for groups with a network device.
    pub(crate) members: BTreeMap<String, Vec<(String, Option<String>)>>,
}

impl IommuFacts {
    pub(crate) fn read(tree: &HostTree) -> Self {
        let is_group = |name: &str| name.parse::<u32>().is_ok();
        let groups = tree.optional_names("/sys/kernel/iommu_groups", is_group);
        let noiommu = tree.text("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
        Self {
            groups: groups.map(|groups| groups.map_or(0, |groups| groups.len())),
            noiommu: noiommu.is_ok_and(|text| matches!(text.as_str(), "Y" | "1")),
            modules: modules(tree),
            members: members(tree),
        }
    }
}

fn modules(tree: &HostTree) -> Fact<BTreeSet<String>> {
    let mut loaded = BTreeSet::new();
    for module in ["vfio_pci", "uio_pci_generic", "igb_uio"] {
        if tree.exists(&format!("/sys/module/{module}"))? {
            loaded.insert(module.to_owned());
        }
    }
    Ok(loaded)
}

/// Returns the devices of the IOMMU groups that contain a network device.
fn members(tree: &HostTree) -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let mut groups = BTreeMap::new();
    let devices = tree.names(DEVICES, |name| address(name).is_some()).unwrap_or_default();
    for device in devices.iter().filter(|device| is_network(tree, device)) {
        let Ok(Some(group)) = tree.link_name(&format!("{DEVICES}/{device}/iommu_group")) else {
            continue;
        };
        if group.parse::<u32>().is_err() || groups.contains_key(&group) {
            continue;
        }
        let dir = format!("/sys/kernel/iommu_groups/{group}/devices");
        let members = tree.names(&dir, |name| address(name).is_some()).unwrap_or_default();
        let driver = |member: String| {
            let driver = tree.link_name(&format!("{DEVICES}/{member}/driver")).ok().flatten();
            (member, driver)
        };
        groups.insert(group, members.into_iter().map(driver).collect());
    }
    groups
}

fn class(tree: &HostTree, device: &str) -> String {
    tree.text(&format!("{DEVICES}/{device}/class")).unwrap_or_default()
}

/// The class of network controllers is 0x02.
fn is_network(tree: &HostTree, device: &str) -> bool {
    class(tree, device).starts_with("0x02")
}

/// Reads all network devices, and those of `named` that are PCI addresses, whether present or not.
pub(crate) fn read(
    tree: &HostTree,
    named: impl Iterator<Item = String>,
) -> Fact<BTreeMap<String, NetworkDevice>> {
    let present = tree.names(DEVICES, |name| address(name).is_some())?;
    let network = present.iter().filter(|device| is_network(tree, device)).cloned();
    let all: BTreeSet<String> = network.chain(named.filter_map(|name| address(&name))).collect();
    let device = |address: String| (address.clone(), device(tree, &address, &present));
    Ok(all.into_iter().map(device).collect())
}

fn device(tree: &HostTree, address: &str, present: &[String]) -> NetworkDevice {
    let file = |name: &str| tree.text(&format!("{DEVICES}/{address}/{name}"));
    let link_name =
        |name: &str| tree.link_name(&format!("{DEVICES}/{address}/{name}")).ok().flatten();
    let present = present.iter().any(|other| other == address);
    let sample = DeviceSample {
        present,
        network: present && is_network(tree, address),
        driver: link_name("driver"),
        address: address.to_owned(),
    };
    let hex = |name: &str| file(name).unwrap_or_default().trim_start_matches("0x").to_owned();
    let link = |which: &str| {
        let speed = file(&format!("{which}_link_speed")).ok()?;
        let lanes = file(&format!("{which}_link_width")).ok()?.parse::<u32>().ok()?;
        // "8.0 GT/s PCIe", or "Unknown" for a virtual device.
        let gt_s = speed.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
        (lanes > 0 && lanes <= 32 && gt_s > 0.0 && gt_s < 1000.0)
            .then_some(PcieLink { gt_s, lanes })
    };
    let interfaces = tree.optional_names(&format!("{DEVICES}/{address}/net"), |_| true);
    NetworkDevice {
        id: format!("{}:{}", hex("vendor"), hex("device")),
        node: file("numa_node").ok().and_then(|node| node.parse().ok()),
        link: link("current").zip(link("max")),
        iommu_group: link_name("iommu_group"),
        interfaces: interfaces.ok().flatten().unwrap_or_default(),
        sample,
    }
}
