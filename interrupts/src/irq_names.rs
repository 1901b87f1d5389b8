//! Names and devices of IRQs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most IRQ names that are cached.
const REMEMBERED: usize = 4096;

/// Looks up names of IRQs, and caches them.
#[derive(Debug)]
pub(crate) struct IrqNames {
    sys: PathBuf,
    known: BTreeMap<u64, String>,
}

impl Default for IrqNames {
    fn default() -> Self {
        Self::at(Path::new("/sys"))
    }
}

impl IrqNames {
    /// Uses another root of sysfs, for tests.
    fn at(sys: &Path) -> Self {
        Self { sys: sys.to_owned(), known: BTreeMap::new() }
    }

    /// Returns the name of an IRQ, as `eth0-TxRx-3 (IRQ 41, 0000:03:00.0)`; `action` is its action
    /// as reported by the kernel, or empty.
    pub(crate) fn name(&mut self, irq: u64, action: &str) -> String {
        if let Some(name) = self.known.get(&irq) {
            return name.clone();
        }
        let name = self.look_up(irq, action);
        if self.known.len() < REMEMBERED {
            self.known.insert(irq, name.clone());
        }
        name
    }

    fn look_up(&self, irq: u64, action: &str) -> String {
        let file = self.sys.join(format!("kernel/irq/{irq}/actions"));
        let actions = std::fs::read_to_string(file).unwrap_or_default();
        let actions = actions.trim();
        let action = if actions.is_empty() { action } else { actions };
        let place = match self.device(irq) {
            Some(device) => format!("IRQ {irq}, {device}"),
            None => format!("IRQ {irq}"),
        };
        if action.is_empty() { place } else { format!("{action} ({place})") }
    }

    /// Returns the PCI device that has it among its MSI interrupts, or as its interrupt line.
    fn device(&self, irq: u64) -> Option<String> {
        let devices = std::fs::read_dir(self.sys.join("bus/pci/devices")).ok()?;
        let has = |dir: &Path| {
            let line = || std::fs::read_to_string(dir.join("irq")).ok();
            dir.join(format!("msi_irqs/{irq}")).exists()
                || (irq > 0 && line().is_some_and(|line| line.trim() == irq.to_string()))
        };
        let device = devices.filter_map(Result::ok).find(|device| has(&device.path()))?;
        Some(device.file_name().to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn an_irq_is_named_by_its_action_and_device() {
        let dir = tempfile::tempdir().unwrap();
        create_dir_all(dir.path().join("kernel/irq/41")).unwrap();
        write(dir.path().join("kernel/irq/41/actions"), "eth0-TxRx-3\n").unwrap();
        let device = dir.path().join("bus/pci/devices/0000:03:00.0/msi_irqs");
        create_dir_all(&device).unwrap();
        write(device.join("41"), "msix\n").unwrap();
        let old = dir.path().join("bus/pci/devices/0000:04:00.0");
        create_dir_all(&old).unwrap();
        write(old.join("irq"), "16\n").unwrap();
        let mut names = IrqNames::at(dir.path());
        assert_eq!(names.name(41, ""), "eth0-TxRx-3 (IRQ 41, 0000:03:00.0)");
        assert_eq!(names.name(16, "ahci"), "ahci (IRQ 16, 0000:04:00.0)");
        assert_eq!(names.name(7, "tape"), "tape (IRQ 7)");
        assert_eq!(names.name(9, ""), "IRQ 9");
        drop(dir);
        assert_eq!(names.name(41, ""), "eth0-TxRx-3 (IRQ 41, 0000:03:00.0)", "remembered");
    }
}
