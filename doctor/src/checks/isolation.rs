//! Whether the kernel keeps its own work, and other tasks, off poll CPUs.

use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, pass, warn};
use crate::cpu_set::CpuSet;
use crate::tree::{Fact, Unknown};

pub(super) const CHECKS: [Check; 4] = [
    Check {
        id: "isolcpus",
        group: CheckGroup::Isolation,
        title: "Poll CPUs are isolated (isolcpus)",
        matters: "On a CPU that is not isolated, any task may be scheduled in the middle of a \
                  poll loop, for milliseconds.",
        run: isolcpus,
    },
    Check {
        id: "nohz_full",
        group: CheckGroup::Isolation,
        title: "Poll CPUs have no timer tick (nohz_full)",
        matters: "The timer tick interrupts a poll loop 100 to 1000 times a second.",
        run: nohz_full,
    },
    Check {
        id: "rcu_nocbs",
        group: CheckGroup::Isolation,
        title: "RCU callbacks stay off poll CPUs (rcu_nocbs)",
        matters: "RCU frees memory of the kernel in softirqs, on the CPU that asked for it.",
        run: rcu_nocbs,
    },
    Check {
        id: "workqueue_mask",
        group: CheckGroup::Isolation,
        title: "Kernel work stays off poll CPUs (workqueue)",
        matters: "Unbound work of the kernel, such as writing back files, runs on any CPU of this \
                  mask.",
        run: workqueues,
    },
];

/// Returns the poll CPUs that are not in `set`; `None` if all are.
fn missing(cpus: &CpuSet, set: &CpuSet) -> Option<CpuSet> {
    Some(cpus.without(set)).filter(|missing| !missing.is_empty())
}

fn name(set: &CpuSet) -> String {
    if set.is_empty() { "no CPU".into() } else { format!("CPUs {set}") }
}

fn boot(evidence: &Evidence, arguments: &[String]) -> Fix {
    if evidence.other_cpus().is_empty() {
        return Fix::advice(
            "apps poll on all CPUs: leave at least one to the kernel, then add the kernel argument",
        );
    }
    evidence.kernel_arguments(arguments)
}

fn isolcpus(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let isolated = evidence.host.cpus.isolated.clone()?;
    let Some(open) = missing(cpus, &isolated) else {
        return Ok(vec![pass(format!("CPUs {isolated} are isolated"))]);
    };
    let fix = boot(evidence, &[format!("isolcpus=managed_irq,domain,{cpus}")]);
    Ok(vec![warn(format!("poll CPUs {open} are not isolated; isolated: {}", name(&isolated)), fix)])
}

fn nohz_full(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let tickless = evidence.host.cpus.nohz_full.clone()?;
    let Some(ticking) = missing(cpus, &tickless) else {
        return Ok(vec![pass(format!("CPUs {tickless}"))]);
    };
    let fix = boot(evidence, &[format!("nohz_full={cpus}")]);
    Ok(vec![warn(
        format!("poll CPUs {ticking} have a timer tick; without one: {}", name(&tickless)),
        fix,
    )])
}

/// CPUs without a timer tick have their RCU callbacks offloaded as well.
fn rcu_nocbs(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let arguments = evidence.host.kernel.arguments.clone()?;
    let online = evidence.host.cpus.online.clone().unwrap_or_default();
    let named = match arguments.value("rcu_nocbs") {
        None => CpuSet::default(),
        Some("" | "all") => online,
        Some(list) => CpuSet::of_list(list),
    };
    let offloaded = named.with(&evidence.host.cpus.nohz_full.clone().unwrap_or_default());
    let Some(own) = missing(cpus, &offloaded) else {
        return Ok(vec![pass(format!("CPUs {offloaded}"))]);
    };
    let fix = boot(evidence, &[format!("rcu_nocbs={cpus}")]);
    Ok(vec![warn(
        format!("poll CPUs {own} run RCU callbacks; offloaded: {}", name(&offloaded)),
        fix,
    )])
}

fn workqueues(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let mask = evidence.host.cpus.workqueues.clone()?;
    let shared = mask.common(cpus);
    if shared.is_empty() {
        return Ok(vec![pass(format!("CPUs {mask}"))]);
    }
    let others = evidence.other_cpus();
    if others.is_empty() {
        return Err(Unknown("apps poll on all CPUs".into()));
    }
    let file = "/sys/devices/virtual/workqueue/cpumask";
    let fix = Fix::now(format!("echo {} > {file}", others.mask())).and_persistent(format!(
        "echo 'w {file} - - - - {}' > /etc/tmpfiles.d/pmdscope-workqueue.conf",
        others.mask()
    ));
    Ok(vec![warn(format!("kernel work may run on the poll CPUs {shared}"), fix)])
}
