//! Where the helper runs: on other CPUs than the app's poll loops.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Context;
use pmdscope_telemetry::host::{cpu_ranges, polled_cpus};
use rustix::thread::{CpuSet, sched_getaffinity};

/// CPUs for a helper. They are written as the kernel does: `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelperCpus {
    set: BTreeSet<u32>,
    /// The app polls on all of them.
    pub(super) crowded: bool,
}

impl HelperCpus {
    /// Those of this process that the app does not poll on; all of them when it polls on all.
    pub(super) fn beside(pid: u32) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot find the CPUs of this process")?;
        let is_ours = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| all.is_set(cpu));
        let ours = (0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX)).filter(is_ours);
        Ok(Self::choose(ours.collect(), &polled_cpus(pid)))
    }

    fn choose(ours: BTreeSet<u32>, polled: &BTreeSet<u32>) -> Self {
        let idle = &ours - polled;
        let crowded = idle.is_empty();
        Self { set: if crowded { ours } else { idle }, crowded }
    }
}

impl fmt::Display for HelperCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cpu_ranges(&self.set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_the_app_polls_on_are_left_to_it() {
        let choose = |ours: &[u32], polled: &[u32]| {
            let set = |cpus: &[u32]| cpus.iter().copied().collect::<BTreeSet<_>>();
            let cpus = HelperCpus::choose(set(ours), &set(polled));
            (cpus.to_string(), cpus.crowded)
        };
        assert_eq!(choose(&[0, 1, 2, 3, 5], &[1]), ("0,2-3,5".into(), false));
        assert_eq!(choose(&[0, 1, 2], &[7]), ("0-2".into(), false));
        assert_eq!(choose(&[1], &[0, 1]), ("1".into(), true));
    }

    #[test]
    fn there_is_always_a_cpu() {
        assert!(!HelperCpus::beside(std::process::id()).unwrap().to_string().is_empty());
    }
}
