//! The facts of a good run, which later runs are compared with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pmdscope_files::FileMode;
use pmdscope_telemetry::realtime_ns;
use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::app::AppFacts;
use crate::error::DoctorError;
use crate::facts::HostFacts;

/// The facts of a run that matter when they change. `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    pub(crate) schema: u32,
    /// Wall clock, nanoseconds since the epoch.
    pub(crate) saved_realtime_ns: u64,
    pub(crate) kernel_release: Option<String>,
    pub(crate) kernel_arguments: Option<String>,
    pub(crate) microcode: Option<String>,
    /// Driver of each network device by its address; an inner `None` for no driver. `None` without PCI.
    pub(crate) drivers: Option<BTreeMap<String, Option<String>>>,
    /// Vendor and device id of the same devices.
    pub(crate) device_ids: BTreeMap<String, String>,
    /// Reserved hugepages, by node and size, such as `node0 2048kB`.
    pub(crate) hugepages: Option<BTreeMap<String, u64>>,
    /// CPUs that an interrupt may be delivered to, by the name of the interrupt.
    pub(crate) irq_affinity: Option<BTreeMap<String, String>>,
    /// DPDK version by app.
    pub(crate) dpdk_versions: BTreeMap<String, String>,
    /// Arguments of the EAL by app.
    pub(crate) eal_arguments: BTreeMap<String, String>,
}

impl Baseline {
    pub(crate) fn of(host: &HostFacts, apps: &[AppFacts]) -> Self {
        let devices = host.devices.as_ref().ok();
        let present = || {
            devices
                .into_iter()
                .flatten()
                .filter(|(_, found)| found.sample.present && found.sample.network)
        };
        let samples = || apps.iter().filter_map(|app| Some((&app.name, &app.sample.as_ref()?.app)));
        let hugepages = host.memory.hugepages.as_ref().ok().map(|pools| {
            pools
                .iter()
                .map(|pool| (format!("node{} {}kB", pool.node, pool.kib), pool.total))
                .collect()
        });
        let irqs = host.irqs.list.as_ref().ok();
        Self {
            schema: SCHEMA,
            saved_realtime_ns: realtime_ns(),
            kernel_release: host.kernel.release.clone().ok(),
            kernel_arguments: host.kernel.arguments.clone().ok().map(|arguments| arguments.0),
            microcode: host.cpus.microcode.clone(),
            drivers: devices.map(|_| {
                present().map(|(at, found)| (at.clone(), found.sample.driver.clone())).collect()
            }),
            device_ids: present().map(|(at, found)| (at.clone(), found.id.clone())).collect(),
            hugepages,
            irq_affinity: irqs.map(|irqs| {
                irqs.iter().map(|irq| (irq.name.clone(), irq.allowed.to_string())).collect()
            }),
            dpdk_versions: samples()
                .map(|(name, app)| (name.clone(), app.dpdk_version.clone()))
                .collect(),
            eal_arguments: samples()
                .map(|(name, app)| (name.clone(), app.eal_args.join(" ")))
                .collect(),
        }
    }

    /// Reads a saved baseline from a file.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or was written by a newer version.
    pub fn load(path: &Path) -> Result<Self, DoctorError> {
        let text =
            fs::read(path).map_err(|why| DoctorError::Unreadable { path: path.into(), why })?;
        let baseline: Self = serde_json::from_slice(&text)
            .map_err(|why| DoctorError::Damaged { path: path.into(), why })?;
        if baseline.schema > SCHEMA {
            return Err(DoctorError::Newer { path: path.into(), schema: baseline.schema });
        }
        Ok(baseline)
    }

    /// Writes the baseline to a file, atomically: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), DoctorError> {
        let unwritable = |why| DoctorError::Unwritable { path: path.into(), why };
        let mut text = serde_json::to_vec_pretty(self).map_err(|why| unwritable(why.into()))?;
        text.push(b'\n');
        pmdscope_files::replace(path, &text, FileMode::default()).map_err(unwritable)
    }
}
