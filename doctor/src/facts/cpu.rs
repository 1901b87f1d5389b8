//! CPUs: their topology, isolation and power management.
//!
//! Nothing here opens `/proc/cpuinfo`: before Linux 5.17 that interrupts every CPU.

use std::collections::BTreeMap;

use crate::cpu_set::CpuSet;
use crate::tree::{Fact, HostTree};

const CPUS: &str = "/sys/devices/system/cpu";

/// The vendor of the CPU, as far as advice depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CpuVendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, which takes the same arguments.
    Amd,
    /// arm64.
    Arm,
    /// Any other.
    #[default]
    Other,
}

/// All CPUs of a host.
#[derive(Clone, Debug)]
pub(crate) struct CpuFacts {
    pub(crate) online: Fact<CpuSet>,
    /// CPUs kept free of other tasks: `isolcpus`, or isolated cpusets.
    pub(crate) isolated: Fact<CpuSet>,
    /// CPUs without a timer tick; empty where the kernel does not support that.
    pub(crate) nohz_full: Fact<CpuSet>,
    /// CPUs on which unbound kernel work runs.
    pub(crate) workqueues: Fact<CpuSet>,
    /// CPUs of each NUMA node.
    pub(crate) nodes: Fact<BTreeMap<u32, CpuSet>>,
    /// Slower, efficiency CPUs of a hybrid processor.
    pub(crate) slow: CpuSet,
    pub(crate) vendor: CpuVendor,
    pub(crate) microcode: Option<String>,
}

/// A CPU on which an app polls.
#[derive(Clone, Debug)]
pub(crate) struct PollCpu {
    /// CPUs of the same core, including this one.
    pub(crate) siblings: Fact<CpuSet>,
    /// Frequency governor; `None` where the kernel does not change the frequency.
    pub(crate) governor: Fact<Option<String>>,
    /// Enabled idle states with their exit latency in microseconds; `None` where there are none.
    pub(crate) idle_states: Fact<Option<Vec<(String, u64)>>>,
    /// Relative speed, 1024 for the fastest CPUs; `None` where all have the same.
    pub(crate) capacity: Option<u64>,
}

impl CpuFacts {
    pub(crate) fn read(tree: &HostTree) -> Self {
        let list =
            |name: &str| tree.text(&format!("{CPUS}/{name}")).map(|text| CpuSet::of_list(&text));
        let modalias = tree.text(&format!("{CPUS}/modalias")).unwrap_or_default();
        let slow = tree.text("/sys/devices/cpu_atom/cpus").map(|text| CpuSet::of_list(&text));
        Self {
            online: list("online"),
            isolated: isolated(tree),
            nohz_full: tree
                .optional_text(&format!("{CPUS}/nohz_full"))
                .map(|text| text.map(|text| CpuSet::of_list(&text)).unwrap_or_default()),
            workqueues: tree
                .text("/sys/devices/virtual/workqueue/cpumask")
                .map(|text| CpuSet::of_mask(&text)),
            nodes: nodes(tree),
            slow: slow.unwrap_or_default(),
            vendor: vendor(&modalias),
            microcode: tree.text(&format!("{CPUS}/cpu0/microcode/version")).ok(),
        }
    }

    /// Returns the NUMA node of a CPU.
    pub(crate) fn node_of(&self, cpu: u32) -> Option<u32> {
        let nodes = self.nodes.as_ref().ok()?;
        nodes.iter().find(|(_, cpus)| cpus.0.contains(&cpu)).map(|(node, _)| *node)
    }

    /// Returns the number of NUMA nodes with CPUs; 1 if that is not known.
    pub(crate) fn node_count(&self) -> usize {
        let with_cpus =
            |nodes: &BTreeMap<u32, CpuSet>| nodes.values().filter(|cpus| !cpus.is_empty()).count();
        self.nodes.as_ref().map_or(1, with_cpus).max(1)
    }
}

/// CPUs are isolated by the kernel command line and, since Linux 6.1, by partitions of cpusets.
fn isolated(tree: &HostTree) -> Fact<CpuSet> {
    let booted = tree.text(&format!("{CPUS}/isolated")).map(|text| CpuSet::of_list(&text))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let cpusets =
        mounts.iter().filter_map(|mount| tree.text(&format!("{mount}/cpuset.cpus.isolated")).ok());
    Ok(cpusets.fold(booted, |all, text| all.with(&CpuSet::of_list(&text))))
}

/// `/sys/devices/system/node` is missing in kernels without NUMA: then all CPUs are on node 0.
fn nodes(tree: &HostTree) -> Fact<BTreeMap<u32, CpuSet>> {
    const NODES: &str = "/sys/devices/system/node";
    let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let Some(names) = tree.optional_names(NODES, |name| number(name).is_some())? else {
        let online = tree.text(&format!("{CPUS}/online"))?;
        return Ok([(0, CpuSet::of_list(&online))].into());
    };
    let cpus = |name: &String| {
        let list = tree.text(&format!("{NODES}/{name}/cpulist")).ok()?;
        Some((number(name)?, CpuSet::of_list(&list)))
    };
    Ok(names.iter().filter_map(cpus).collect())
}

fn vendor(modalias: &str) -> CpuVendor {
    let is_x86 = |vendor: &str| {
        modalias.strip_prefix("cpu:type:x86,ven").is_some_and(|rest| rest.starts_with(vendor))
    };
    match () {
        () if is_x86("0000") => CpuVendor::Intel,
        () if is_x86("0002") || is_x86("0009") => CpuVendor::Amd,
        () if modalias.starts_with("cpu:type:aarch64") => CpuVendor::Arm,
        () => CpuVendor::Other,
    }
}

impl PollCpu {
    pub(crate) fn read(tree: &HostTree, cpu: u32) -> Self {
        let dir = format!("{CPUS}/cpu{cpu}");
        let siblings = tree.text(&format!("{dir}/topology/thread_siblings_list"));
        Self {
            siblings: siblings.map(|text| CpuSet::of_list(&text)),
            governor: governor(tree, &dir),
            idle_states: idle_states(tree, &dir),
            capacity: tree
                .text(&format!("{dir}/cpu_capacity"))
                .ok()
                .and_then(|text| text.parse().ok()),
        }
    }
}

fn governor(tree: &HostTree, dir: &str) -> Fact<Option<String>> {
    if !tree.exists(&format!("{dir}/cpufreq"))? {
        return Ok(None);
    }
    tree.optional_text(&format!("{dir}/cpufreq/scaling_governor"))
}

fn idle_states(tree: &HostTree, dir: &str) -> Fact<Option<Vec<(String, u64)>>> {
    let dir = format!("{dir}/cpuidle");
    let is_state = |name: &str| name.starts_with("state");
    let Some(states) = tree.optional_names(&dir, is_state)? else { return Ok(None) };
    let mut enabled = Vec::new();
    for state in states {
        let text = |file: &str| tree.text(&format!("{dir}/{state}/{file}"));
        if text("disable")? == "0" {
            enabled.push((text("name")?, text("latency")?.parse().unwrap_or(0)));
        }
    }
    Ok(Some(enabled))
}
