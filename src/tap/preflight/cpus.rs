//! Where the helper runs: beside the app's poll loops and not among them.

use std::collections::BTreeSet;

use anyhow::Context;
use pmdscope_telemetry::polling::polled_cpus;
use rustix::thread::{CpuSet, sched_getaffinity};

/// The CPUs of this process that the app does not poll on; all of them when it polls on all.
pub(super) fn beside(pid: u32) -> anyhow::Result<BTreeSet<u32>> {
    let all = sched_getaffinity(None).context("cannot find the CPUs of this process")?;
    let is_ours = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| all.is_set(cpu));
    let ours = (0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX)).filter(is_ours).collect();
    Ok(choose(ours, &polled_cpus(pid)))
}

fn choose(ours: BTreeSet<u32>, polled: &BTreeSet<u32>) -> BTreeSet<u32> {
    let idle = &ours - polled;
    if idle.is_empty() { ours } else { idle }
}

/// The same as the kernel writes them: `0,2-3`.
pub(super) fn list(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_the_app_polls_on_are_left_to_it() {
        let choose = |ours: &[u32], polled: &[u32]| {
            let set = |cpus: &[u32]| cpus.iter().copied().collect::<BTreeSet<_>>();
            list(&choose(set(ours), &set(polled)))
        };
        assert_eq!(choose(&[0, 1, 2, 3, 5], &[1]), "0,2-3,5");
        assert_eq!(choose(&[0, 1, 2], &[7]), "0-2");
        assert_eq!(choose(&[1], &[0, 1]), "1");
    }

    #[test]
    fn there_is_always_a_cpu() {
        assert!(!beside(std::process::id()).unwrap().is_empty());
    }
}
