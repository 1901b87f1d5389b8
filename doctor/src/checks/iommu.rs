//! The IOMMU, and the modules that hand devices to user space.

use std::collections::BTreeSet;

use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, skip, warn};
use crate::facts::{CpuVendor, NetworkDevice};
use crate::tree::{Fact, Unknown};

/// Drivers that do not prevent vfio from taking a group: they do not use the devices for DMA.
const HARMLESS: [&str; 2] = ["pcieport", "pci-stub"];

pub(super) const CHECKS: [Check; 4] = [
    Check {
        id: "iommu",
        group: CheckGroup::Nics,
        title: "The IOMMU is on",
        matters: "Without an IOMMU, vfio-pci refuses the NIC, or lets it write to any memory of \
                  the host.",
        run: iommu,
    },
    Check {
        id: "iommu_group",
        group: CheckGroup::Nics,
        title: "IOMMU groups are handed over as a whole",
        matters: "vfio refuses a NIC (\"group is not viable\") while another device of its group \
                  has a kernel driver.",
        run: groups,
    },
    Check {
        id: "vfio_module",
        group: CheckGroup::Nics,
        title: "vfio-pci is loaded",
        matters: "A NIC cannot be bound to a module that is not loaded, as after a boot without \
                  modules-load.d.",
        run: module,
    },
    Check {
        id: "uio_driver",
        group: CheckGroup::Nics,
        title: "No NIC is on uio",
        matters: "uio_pci_generic turns the NIC off when any secondary process ends, and uio \
                  protects no memory.",
        run: uio,
    },
];

/// Returns the NICs that are used through vfio or uio, or will have to be.
fn candidates<'a>(evidence: &Evidence<'a>) -> Fact<Vec<&'a NetworkDevice>> {
    let used = super::nics::in_use(evidence)?;
    let shared = |found: &&&NetworkDevice| {
        !matches!(found.sample.driver.as_deref(), Some("mlx5_core" | "mlx4_core" | "mana"))
    };
    let used: Vec<_> =
        used.iter().filter(shared).filter(|found| found.sample.present).copied().collect();
    if used.is_empty() {
        Err(Unknown("no NIC is used through vfio or uio".into()))
    } else {
        Ok(used)
    }
}

fn driver(found: &NetworkDevice) -> &str {
    found.sample.driver.as_deref().unwrap_or_default()
}

fn iommu(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let facts = &evidence.host.iommu;
    let groups = facts.groups.clone()?;
    let argument = match evidence.host.cpus.vendor {
        CpuVendor::Amd => "amd_iommu=on",
        CpuVendor::Arm => "iommu.passthrough=1",
        CpuVendor::Intel | CpuVendor::Other => "intel_iommu=on",
    };
    let fix = || {
        let fix = evidence.kernel_arguments(&[argument.into(), "iommu=pt".into()]);
        fix.and_advice("and enable it in the firmware (VT-d, AMD-Vi or SMMU)")
    };
    if groups > 0 {
        return Ok(vec![pass(format!("{groups} IOMMU groups"))]);
    }
    let used = candidates(evidence)?;
    let on_vfio = used.iter().any(|found| driver(found).contains("vfio"));
    Ok(vec![match (facts.noiommu, on_vfio) {
        (true, _) => warn("off, and vfio runs in the unsafe no-IOMMU mode", fix()),
        (false, true) => fail("off, and NICs are bound to vfio-pci", fix()),
        (false, false) => warn("off: there are no IOMMU groups", fix()),
    }])
}

fn groups(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let used = candidates(evidence)?;
    let grouped = used.iter().filter_map(|found| Some((*found, found.iommu_group.as_ref()?)));
    let mut seen = BTreeSet::new();
    let verdict = |(found, group): (&NetworkDevice, &String)| {
        let members = evidence.host.iommu.members.get(group)?;
        let kept = |(address, driver): &&(String, Option<String>)| {
            let driver = driver.as_deref().unwrap_or_default();
            let free = driver.is_empty() || driver.contains("vfio") || HARMLESS.contains(&driver);
            !free && *address != found.sample.address
        };
        let kept: Vec<_> = members.iter().filter(kept).collect();
        if kept.is_empty() {
            return Some(pass(format!(
                "group {group} of {} has no other device in use",
                found.sample.address
            )));
        }
        let names: Vec<String> = kept
            .iter()
            .map(|(address, driver)| format!("{address} ({})", driver.as_deref().unwrap_or("-")))
            .collect();
        let bind = |fix: Fix, (address, _): &&(String, Option<String>)| {
            fix.and_now(format!("dpdk-devbind.py --bind=vfio-pci {address}"))
                .and_persistent(format!("driverctl set-override {address} vfio-pci"))
        };
        let fix = kept.iter().fold(Fix::default(), bind);
        let fix = fix.and_advice("or move the card to a slot with an IOMMU group of its own");
        Some(fail(
            format!("group {group} of {} also holds {}", found.sample.address, names.join(", ")),
            fix,
        ))
    };
    let once = |(_, group): &(&NetworkDevice, &String)| seen.insert((*group).clone());
    let verdicts: Vec<_> =
        grouped.filter(once).collect::<Vec<_>>().into_iter().filter_map(verdict).collect();
    if verdicts.is_empty() {
        Err(Unknown("no NIC in use has an IOMMU group".into()))
    } else {
        Ok(verdicts)
    }
}

fn module(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let modules = evidence.host.iommu.modules.clone()?;
    if modules.contains("vfio_pci") {
        return Ok(vec![pass("loaded")]);
    }
    let used = candidates(evidence)?;
    let fix = Fix::now("modprobe vfio-pci")
        .and_persistent("echo vfio-pci > /etc/modules-load.d/vfio-pci.conf");
    if used.iter().any(|found| found.sample.has_wrong_driver()) {
        return Ok(vec![fail("not loaded, and a NIC has to be bound to it", fix)]);
    }
    Ok(vec![skip("not loaded, and no NIC in use needs it")])
}

fn uio(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let verdict = |found: &&NetworkDevice| {
        let (address, driver) = (&found.sample.address, driver(found));
        if !driver.contains("uio") {
            return pass(format!(
                "{address} is on {}",
                if driver.is_empty() { "no driver" } else { driver }
            ));
        }
        let fix = Fix::now("modprobe vfio-pci")
            .and_now(format!("dpdk-devbind.py --bind=vfio-pci {address}"))
            .and_persistent(format!("driverctl set-override {address} vfio-pci"))
            .and_advice("end the app first: it loses the NIC");
        warn(format!("{address} is on {driver}"), fix)
    };
    Ok(candidates(evidence)?.iter().map(verdict).collect())
}
