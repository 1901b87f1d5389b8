//! PCI devices: their addresses, and what the kernel reports about them (`/sys/bus/pci/devices`).

use std::fs;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use crate::sample::{DeviceSample, PcieLinkSample};

/// Kernel drivers that DPDK works beside: a NIC stays usable by DPDK while bound to them.
const BIFURCATED: [&str; 3] = ["mana", "mlx4_core", "mlx5_core"];

/// Kernel drivers that hand a device to user space. Some vendors have a variant of vfio-pci.
const HANDED_OVER: [&str; 2] = ["vfio", "uio"];

/// Returns a PCI address with its domain, as the kernel writes it: `0000:03:00.0` for `3:0.0`. `None`
/// if it is not a PCI address.
pub fn address(text: &str) -> Option<String> {
    let text = text.strip_prefix("pci:").unwrap_or(text);
    let (slot, function) = text.rsplit_once('.')?;
    let mut parts = slot.rsplit(':');
    let (device, bus) = (parts.next()?, parts.next()?);
    let domain = parts.next().unwrap_or("0");
    let function = number(function, 8, 1).filter(|function| *function < 8)?;
    let device = number(device, 16, 2).filter(|device| *device < 32)?;
    let (bus, domain) = (number(bus, 16, 2)?, number(domain, 16, 8)?);
    parts.next().is_none().then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

fn number(text: &str, radix: u32, most: usize) -> Option<u32> {
    let digits = text.len() <= most && text.chars().all(|c| c.is_ascii_hexdigit());
    u32::from_str_radix(text, radix).ok().filter(|_| digits)
}

/// Returns the megatransfers per second of a link speed as the kernel writes it: `8.0 GT/s PCIe`.
fn megatransfers(text: &str) -> Option<u32> {
    let (number, _) = text.trim().split_once(" GT/s")?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digit = tenth.get(..1)?.parse::<u32>().ok()?;
    let gigatransfers = whole.parse::<u32>().ok().filter(|whole| *whole < 1000)?;
    Some(gigatransfers * 1000 + digit * 100)
}

/// Whether a port of this name belongs to this device. The name of a port is the address as the app's
/// arguments spell it; drivers with several ports per PCI device append a suffix.
pub fn is_port_of(port: &str, device: &str) -> bool {
    let (name, rest) = split(port);
    match (address(device), address(name)) {
        (Some(device), Some(port)) => {
            device == port && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
        }
        (None, None) => port == device,
        _ => false,
    }
}

/// Whether the name of a port is that of a PCI device.
pub(crate) fn is_pci(port: &str) -> bool {
    address(split(port).0).is_some()
}

/// Splits the name of a port into the PCI device and the suffix of the driver.
fn split(port: &str) -> (&str, &str) {
    let end = port.rfind('.').map_or(port.len(), |dot| (dot + 2).min(port.len()));
    port.split_at_checked(end).unwrap_or((port, ""))
}

/// Returns the PCI device of a port, as the kernel reports it; `None` for a port without one.
pub fn of_port(port: &str) -> Option<DeviceSample> {
    address(split(port).0).map(|address| PciDevices::default().device(&address))
}

impl DeviceSample {
    /// Whether it is a network device that DPDK cannot use, because it has a kernel driver or none.
    pub fn has_wrong_driver(&self) -> bool {
        let usable = |driver: &str| {
            BIFURCATED.contains(&driver) || HANDED_OVER.iter().any(|part| driver.contains(part))
        };
        self.present && self.network && !self.driver.as_deref().is_some_and(usable)
    }
}

/// The PCI devices of this host.
#[derive(Clone, Debug)]
pub(crate) struct PciDevices(PathBuf);

impl Default for PciDevices {
    fn default() -> Self {
        Self("/sys/bus/pci/devices".into())
    }
}

impl PciDevices {
    /// Returns the devices below another directory.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self(root.into())
    }

    /// Reads the devices at these addresses; empty if the kernel lists no PCI devices at all.
    pub(crate) fn read(&self, addresses: &[String]) -> Vec<DeviceSample> {
        if addresses.is_empty() || !self.0.is_dir() {
            return Vec::new();
        }
        addresses.iter().map(|address| self.device(address)).collect()
    }

    /// Reads the PCIe links of these ports, of those that have one.
    pub(crate) fn links<'a>(&self, ports: impl Iterator<Item = &'a str>) -> Vec<PcieLinkSample> {
        ports.filter_map(|port| self.link(port)).collect()
    }

    fn link(&self, port: &str) -> Option<PcieLinkSample> {
        let dir = self.0.join(address(split(port).0)?);
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        // A virtual function has no link of its own: width 0 or 255, speed "Unknown".
        let width = |file: &str| {
            let lanes = read(file)?.trim().parse::<u32>().ok();
            lanes.filter(|lanes| (1..=64).contains(lanes))
        };
        Some(PcieLinkSample {
            port: port.to_owned(),
            speed_mts: megatransfers(&read("current_link_speed")?)?,
            width: width("current_link_width")?,
            max_speed_mts: megatransfers(&read("max_link_speed")?)?,
            max_width: width("max_link_width")?,
        })
    }

    /// Reads the vendor of the device of a port, as `0x8086`; `None` for a port that is one of
    /// several of a device.
    pub(crate) fn vendor(&self, port: &str) -> Option<String> {
        let (device, "") = split(port) else { return None };
        let vendor = fs::read_to_string(self.0.join(address(device)?).join("vendor")).ok()?;
        Some(vendor.trim().to_owned())
    }

    /// Reads the ids of the device of a port, as `8086:1592`; `None` for a port that is on no PCI device.
    pub(crate) fn ids(&self, port: &str) -> Option<String> {
        let dir = self.0.join(address(split(port).0)?);
        let id = |file: &str| {
            let text = fs::read_to_string(dir.join(file)).ok()?;
            let digits = text.trim().strip_prefix("0x")?.to_owned();
            (digits.len() == 4).then_some(digits)
        };
        Some(format!("{}:{}", id("vendor")?, id("device")?))
    }

    fn device(&self, address: &str) -> DeviceSample {
        let dir = self.0.join(address);
        // The class of network controllers is 0x02; the kernel writes class, subclass and interface.
        let class = fs::read_to_string(dir.join("class")).unwrap_or_default();
        let driver = fs::read_link(dir.join("driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        DeviceSample {
            address: address.into(),
            present: dir.is_dir(),
            network: class.starts_with("0x02"),
            driver,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// Creates a device as in sysfs.
    pub(crate) fn plug(root: &Path, address: &str, class: &str, driver: Option<&str>) {
        let dir = root.join(address);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("class"), format!("{class}\n")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../../../bus/pci/drivers/{driver}"), dir.join("driver")).unwrap();
        }
    }

    #[test]
    fn addresses_have_one_spelling() {
        for text in ["0000:03:00.1", "03:00.1", "3:0.1", "pci:0000:03:00.1", "0:3:0.1"] {
            assert_eq!(address(text).as_deref(), Some("0000:03:00.1"), "{text}");
        }
        assert_eq!(address("1af:Be:1F.7").as_deref(), Some("01af:be:1f.7"));
        for text in
            ["", "03:00", "03:20.0", "03:00.8", "net_null0", "1:2:3:4.0", "+3:00.0", ":.", "3:+0.0"]
        {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn ports_belong_to_the_device_that_they_are_named_after() {
        for port in ["0000:03:00.0", "03:00.0", "0000:03:00.0_port1", "03:00.0 port 1"] {
            assert!(is_port_of(port, "0000:03:00.0") && is_port_of(port, "3:0.0"), "{port}");
        }
        assert!(!is_port_of("0000:03:00.1", "0000:03:00.0"));
        assert!(!is_port_of("net_null0", "0000:03:00.0"));
        assert!(is_port_of("net_null0", "net_null0"));
        assert!(!is_port_of("net_null01", "net_null0"));
    }

    #[test]
    fn ports_on_no_pci_device_have_none() {
        assert_eq!(of_port("net_null0"), None);
        let device = of_port("0000:ff:1f.7_port1").unwrap();
        assert_eq!((device.address.as_str(), device.present), ("0000:ff:1f.7", false));
    }

    #[test]
    fn ids_are_read_from_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), "0000:03:00.0", "0x020000", None);
        let dir = root.path().join("0000:03:00.0");
        let devices = PciDevices::at(root.path());
        assert_eq!(devices.ids("0000:03:00.0"), None, "files are missing");
        fs::write(dir.join("vendor"), "0x15b3\n").unwrap();
        fs::write(dir.join("device"), "0x1017\n").unwrap();
        assert_eq!(devices.ids("03:00.0_representor_vf1").as_deref(), Some("15b3:1017"));
        assert_eq!((devices.ids("net_null0"), devices.ids("0000:04:00.0")), (None, None));
    }

    #[test]
    fn links_are_read_from_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), "0000:03:00.0", "0x020000", Some("vfio-pci"));
        plug(root.path(), "0000:03:00.1", "0x020000", Some("vfio-pci"));
        let write = |address: &str, files: [&str; 4]| {
            let names =
                ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"];
            for (name, text) in names.iter().zip(files) {
                fs::write(root.path().join(address).join(name), format!("{text}\n")).unwrap();
            }
        };
        write("0000:03:00.0", ["2.5 GT/s PCIe", "4", "16.0 GT/s PCIe", "16"]);
        write("0000:03:00.1", ["Unknown", "0", "Unknown", "255"]);
        let ports = ["net_null0", "03:00.0_port1", "0000:03:00.1", "0000:09:00.0"];
        let links = PciDevices::at(root.path()).links(ports.into_iter());
        let expected = PcieLinkSample {
            port: "03:00.0_port1".into(),
            speed_mts: 2500,
            width: 4,
            max_speed_mts: 16_000,
            max_width: 16,
        };
        assert_eq!(links, std::slice::from_ref(&expected));
        assert!(expected.is_reduced());
        assert!(!PcieLinkSample { speed_mts: 16_000, width: 16, ..expected }.is_reduced());
        for text in ["", "GT/s", "x GT/s", "8 GT", "8. GT/s", "99999999999 GT/s", "-1.0 GT/s"] {
            assert_eq!(megatransfers(text), None, "{text}");
        }
    }

    #[test]
    fn devices_are_read_from_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), "0000:03:00.0", "0x020000", Some("ixgbe"));
        plug(root.path(), "0000:03:00.1", "0x020000", Some("vfio-pci"));
        plug(root.path(), "0000:04:00.0", "0x020700", Some("mlx5_core"));
        plug(root.path(), "0000:05:00.0", "0x0b4000", Some("4xxx"));
        plug(root.path(), "0000:06:00.0", "0x020000", None);
        let addresses = ["03:00.0", "03:00.1", "04:00.0", "05:00.0", "06:00.0", "07:00.0"];
        let addresses: Vec<_> = addresses.iter().filter_map(|text| address(text)).collect();
        let devices = PciDevices::at(root.path()).read(&addresses);
        let seen: Vec<_> =
            devices.iter().map(|d| (d.present, d.network, d.has_wrong_driver())).collect();
        assert_eq!(
            seen,
            [
                (true, true, true),
                (true, true, false),
                (true, true, false),
                (true, false, false),
                (true, true, true),
                (false, false, false)
            ]
        );
        assert_eq!(devices[0].driver.as_deref(), Some("ixgbe"));
        assert_eq!(PciDevices::at(Path::new("/nonexistent")).read(&addresses), []);
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_not(port: String, device in "[0-9a-f:.pci_]{0,14}") {
            if let Some(address) = address(&device) {
                prop_assert_eq!(super::address(&address), Some(address));
            }
            let _ = is_port_of(&port, &device);
            let _ = is_port_of(&device, &port);
        }
    }
}
