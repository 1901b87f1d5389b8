//! Power management and topology of poll CPUs.

use std::collections::BTreeMap;

use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, pass, warn};
use crate::cpu_set::CpuSet;
use crate::facts::{CpuVendor, PollCpu};
use crate::tree::{Fact, Unknown};

/// Idle states with an exit latency of at most this are harmless, microseconds.
const FAST_EXIT_US: u64 = 10;

/// The capacity of the fastest CPUs.
const FULL_CAPACITY: u64 = 1024;

pub(super) const CHECKS: [Check; 4] = [
    Check {
        id: "c_states",
        group: CheckGroup::Cpus,
        title: "Deep C-states are off",
        matters: "A CPU needs up to hundreds of microseconds to leave a deep C-state, and its \
                  neighbours change their frequency.",
        run: c_states,
    },
    Check {
        id: "governor",
        group: CheckGroup::Cpus,
        title: "The frequency governor is performance",
        matters: "Other governors lower the frequency of a poll CPU, and every change stops it \
                  for some microseconds.",
        run: governor,
    },
    Check {
        id: "smt_siblings",
        group: CheckGroup::Cpus,
        title: "No two poll CPUs share a core",
        matters: "Two poll loops on the hyper-threads of one core have little more than half of \
                  its speed each.",
        run: siblings,
    },
    Check {
        id: "hybrid_cpus",
        group: CheckGroup::Cpus,
        title: "No poll CPU is an efficiency core",
        matters: "An efficiency core does about half the packets per second of a performance core.",
        run: hybrid,
    },
];

fn poll<'a>(evidence: &Evidence<'a>) -> Fact<&'a BTreeMap<u32, PollCpu>> {
    evidence.poll_cpus()?;
    Ok(&evidence.host.poll)
}

fn c_states(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut deep: BTreeMap<String, (u64, CpuSet)> = BTreeMap::new();
    let mut any = false;
    for (cpu, facts) in poll(evidence)? {
        let Some(states) = facts.idle_states.clone()? else { continue };
        any = true;
        for (name, latency) in states.into_iter().filter(|(_, latency)| *latency > FAST_EXIT_US) {
            let (_, cpus) = deep.entry(name).or_insert((latency, CpuSet::default()));
            cpus.0.insert(*cpu);
        }
    }
    if deep.is_empty() {
        return Ok(vec![pass(if any {
            "only states that are left at once"
        } else {
            "the kernel uses none"
        })]);
    }
    let states: Vec<String> = deep
        .iter()
        .map(|(name, (latency, cpus))| format!("{name} ({latency} us) on CPUs {cpus}"))
        .collect();
    let all: CpuSet = deep.values().flat_map(|(_, cpus)| cpus.0.iter().copied()).collect();
    let cpus: Vec<String> = all.0.iter().map(u32::to_string).collect();
    let arguments: &[&str] = match evidence.host.cpus.vendor {
        CpuVendor::Intel => &["intel_idle.max_cstate=1", "processor.max_cstate=1"],
        CpuVendor::Amd => &["processor.max_cstate=1"],
        CpuVendor::Arm | CpuVendor::Other => &["cpuidle.off=1"],
    };
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let fix = evidence.kernel_arguments(&arguments).and_now(format!(
        "for cpu in {}; do for state in /sys/devices/system/cpu/cpu$cpu/cpuidle/state*; do \
         [ \"$(cat $state/latency)\" -gt {FAST_EXIT_US} ] && echo 1 > $state/disable; done; done",
        cpus.join(" ")
    ));
    Ok(vec![warn(states.join("; "), fix)])
}

fn governor(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut slow: BTreeMap<String, CpuSet> = BTreeMap::new();
    let mut any = false;
    for (cpu, facts) in poll(evidence)? {
        let Some(governor) = facts.governor.clone()? else { continue };
        any = true;
        if governor != "performance" {
            slow.entry(governor).or_default().0.insert(*cpu);
        }
    }
    if !any {
        return Err(Unknown(
            "the kernel does not control the frequency here, as in a virtual machine".into(),
        ));
    }
    if slow.is_empty() {
        return Ok(vec![pass("performance")]);
    }
    let found: Vec<String> =
        slow.iter().map(|(governor, cpus)| format!("{governor} on CPUs {cpus}")).collect();
    let all: CpuSet = slow.values().flat_map(|cpus| cpus.0.iter().copied()).collect();
    let fix = Fix::now(format!("cpupower -c {all} frequency-set -g performance"))
        .and_persistent(
            "echo 'governor=performance' > /etc/default/cpupower && systemctl enable cpupower",
        )
        .and_advice("distributions without a cpupower service: tuned-adm profile network-latency");
    Ok(vec![warn(found.join("; "), fix)])
}

fn siblings(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let mut shared: Vec<CpuSet> = Vec::new();
    for facts in poll(evidence)?.values() {
        let both = facts.siblings.clone()?.common(cpus);
        if both.len() > 1 && !shared.contains(&both) {
            shared.push(both);
        }
    }
    if shared.is_empty() {
        return Ok(vec![pass(format!("CPUs {cpus} are on cores of their own"))]);
    }
    let list = shared.iter().map(|set| format!("CPUs {set}")).collect::<Vec<_>>().join(" and ");
    let fix = Fix::advice(
        "start the app with -l on one CPU of each core (lscpu -e shows the cores), or switch SMT \
         off: echo off > /sys/devices/system/cpu/smt/control",
    );
    Ok(vec![warn(format!("{list} poll on one core"), fix)])
}

fn hybrid(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let slower = |(cpu, facts): (&u32, &PollCpu)| {
        facts.capacity.is_some_and(|capacity| capacity < FULL_CAPACITY).then_some(*cpu)
    };
    let weak: CpuSet = poll(evidence)?.iter().filter_map(slower).collect();
    let slow = evidence.host.cpus.slow.with(&weak).common(cpus);
    if slow.is_empty() {
        return Ok(vec![pass("none")]);
    }
    let fix = Fix::advice(
        "start the app with -l on performance cores: cat /sys/devices/cpu_core/cpus, or the CPUs \
         with the highest cpu_capacity",
    );
    Ok(vec![warn(format!("poll CPUs {slow} are efficiency cores"), fix)])
}
