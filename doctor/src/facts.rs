//! The facts about a host that the checks need.

mod cpu;
mod device;
mod hugepage_files;
mod irq;
mod kernel;
mod memory;
mod process;

use std::collections::BTreeMap;

pub(crate) use self::cpu::{CpuFacts, CpuVendor, PollCpu};
pub(crate) use self::device::{IommuFacts, NetworkDevice, PcieLink};
pub(crate) use self::hugepage_files::LeftFiles;
pub(crate) use self::irq::{Irq, IrqFacts};
pub(crate) use self::kernel::{Distribution, KernelFacts};
pub(crate) use self::memory::{HugepagePool, MemoryFacts};
pub(crate) use self::process::{CpuQuota, ProcessFacts};
use crate::app::AppFacts;
use crate::cpu_set::CpuSet;
use crate::tree::{Fact, HostTree, Unknown};

/// The facts about a host. Each is known, or has a reason why it is not.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts {
    pub(crate) kernel: KernelFacts,
    pub(crate) cpus: CpuFacts,
    /// The CPUs on which apps poll, or will poll.
    pub(crate) poll_cpus: Fact<CpuSet>,
    /// Details of these CPUs.
    pub(crate) poll: BTreeMap<u32, PollCpu>,
    pub(crate) memory: MemoryFacts,
    pub(crate) iommu: IommuFacts,
    /// Network devices, and other devices that apps name, by PCI address.
    pub(crate) devices: Fact<BTreeMap<String, NetworkDevice>>,
    pub(crate) irqs: IrqFacts,
    /// The processes of apps, by the name of the app.
    pub(crate) processes: BTreeMap<String, ProcessFacts>,
}

impl HostFacts {
    /// Reads all facts. `cpus` are those on which apps will poll, if the user names them.
    pub(crate) fn read(tree: &HostTree, apps: &[AppFacts], cpus: Option<&CpuSet>) -> Self {
        let kernel = KernelFacts::read(tree);
        let all = CpuFacts::read(tree);
        let poll_cpus = poll_cpus(apps, cpus, &all);
        let poll: CpuSet = poll_cpus.clone().unwrap_or_default();
        let named = apps.iter().flat_map(|app| app.expected_devices.iter().cloned());
        let used = apps.iter().filter_map(|app| app.sample.as_ref());
        let ports =
            used.clone().flat_map(|sample| sample.ports.iter().map(|port| port.device.clone()));
        let arguments =
            used.flat_map(|sample| sample.devices.iter().map(|device| device.address.clone()));
        let process =
            |app: &AppFacts| Some((app.name.clone(), ProcessFacts::read(tree, app.pid()?)));
        Self {
            poll: poll.0.iter().map(|cpu| (*cpu, PollCpu::read(tree, *cpu))).collect(),
            memory: MemoryFacts::read(tree),
            iommu: IommuFacts::read(tree),
            devices: device::read(tree, named.chain(ports).chain(arguments)),
            irqs: IrqFacts::read(tree, &poll),
            processes: apps.iter().filter_map(process).collect(),
            kernel,
            cpus: all,
            poll_cpus,
        }
    }
}

/// Returns the CPUs that apps poll on or that the user names; before the first start, the isolated ones.
fn poll_cpus(apps: &[AppFacts], cpus: Option<&CpuSet>, all: &CpuFacts) -> Fact<CpuSet> {
    let polled: CpuSet = apps.iter().flat_map(|app| app.poll_cpus().0).collect();
    let polled = cpus.map_or(polled.clone(), |cpus| cpus.with(&polled));
    if !polled.is_empty() {
        return Ok(polled);
    }
    if apps.iter().any(|app| app.sample.is_some()) {
        return Err(Unknown(
            "the CPUs on which the apps poll are not known from here; name them with --cpus".into(),
        ));
    }
    match &all.isolated {
        Ok(isolated) if !isolated.is_empty() => Ok(isolated.clone()),
        _ => Err(Unknown(
            "no app runs and no CPU is isolated; name the CPUs of the app with --cpus".into(),
        )),
    }
}
