//! Interrupts, and the CPUs that they may be delivered to.

use std::collections::BTreeMap;

use crate::cpu_set::CpuSet;
use crate::tree::{Fact, HostTree};

/// The interrupts of a host.
#[derive(Clone, Debug)]
pub(crate) struct IrqFacts {
    /// CPUs that interrupts of new devices are delivered to.
    pub(crate) default: Fact<CpuSet>,
    /// Interrupts with a handler.
    pub(crate) list: Fact<Vec<Irq>>,
}

/// One interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Irq {
    pub(crate) number: u32,
    /// Its handlers, usually the name of a device and a queue.
    pub(crate) name: String,
    /// CPUs that it may be delivered to.
    pub(crate) allowed: CpuSet,
    /// CPUs that it is delivered to; `allowed` if the kernel does not report it.
    pub(crate) effective: CpuSet,
    /// Interrupts on each poll CPU since boot, as far as the kernel reports them.
    pub(crate) counts: BTreeMap<u32, u64>,
}

impl IrqFacts {
    pub(crate) fn read(tree: &HostTree, poll_cpus: &CpuSet) -> Self {
        let default = tree.text("/proc/irq/default_smp_affinity");
        Self { default: default.map(|text| CpuSet::of_mask(&text)), list: list(tree, poll_cpus) }
    }
}

fn list(tree: &HostTree, poll_cpus: &CpuSet) -> Fact<Vec<Irq>> {
    let numbers = tree.names("/proc/irq", |name| name.parse::<u32>().is_ok())?;
    let counts =
        tree.text("/proc/interrupts").map(|text| counts(&text, poll_cpus)).unwrap_or_default();
    let irq = |number: &String| {
        let dir = format!("/proc/irq/{number}");
        let file = |name: &str| tree.text(&format!("{dir}/{name}")).ok();
        let number = number.parse().ok()?;
        // Each handler has a directory here. No handler has the name of one of the files.
        let handlers = tree.names(&dir, |name| !FILES.contains(&name)).ok()?;
        let allowed = CpuSet::of_list(&file("smp_affinity_list")?);
        let effective = file("effective_affinity_list").map(|text| CpuSet::of_list(&text));
        let effective = effective.filter(|set| !set.is_empty()).unwrap_or_else(|| allowed.clone());
        let counts = counts.get(&number).cloned().unwrap_or_default();
        let irq = Irq { number, name: handlers.join(", "), allowed, effective, counts };
        (!handlers.is_empty()).then_some(irq)
    };
    Ok(numbers.iter().filter_map(irq).collect())
}

const FILES: [&str; 7] = [
    "affinity_hint",
    "effective_affinity",
    "effective_affinity_list",
    "node",
    "smp_affinity",
    "smp_affinity_list",
    "spurious",
];

/// The first line of `/proc/interrupts` names the CPUs; lines of interrupts begin with their number.
fn counts(text: &str, poll_cpus: &CpuSet) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let mut lines = text.lines();
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse::<u32>().ok();
    let cpus: Vec<Option<u32>> =
        lines.next().unwrap_or_default().split_ascii_whitespace().map(cpu).collect();
    let line = |line: &str| {
        let (number, counts) = line.split_once(':')?;
        let counts = cpus.iter().zip(counts.split_ascii_whitespace());
        let polled = counts.filter_map(|(cpu, count)| {
            cpu.filter(|cpu| poll_cpus.0.contains(cpu)).zip(count.parse().ok())
        });
        Some((number.trim().parse().ok()?, polled.collect()))
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_counted_by_cpu() {
        let text =
            "           CPU0       CPU2\n 24:  7  8  PCI-MSI 1-edge  eth0-0\nNMI:  1 2  Non\n";
        let counts = counts(text, &CpuSet::of_list("2"));
        assert_eq!(counts, [(24, [(2, 8)].into())].into());
    }
}
