//! Interrupts that are delivered to poll CPUs.

use pmdscope_render::number::count;

use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, warn};
use crate::cpu_set::CpuSet;
use crate::facts::Irq;
use crate::tree::{Fact, Unknown};

/// Fewer interrupts since boot are those of the boot itself, or of events as rare.
const MANY: u64 = 1000;

/// Number of interrupts that are named individually.
const SHOWN: usize = 4;

pub(super) const CHECKS: [Check; 3] = [
    Check {
        id: "irq_affinity",
        group: CheckGroup::Isolation,
        title: "No interrupt comes to a poll CPU",
        matters: "An interrupt takes a poll CPU for microseconds, and at 100 Gbit/s a queue \
                  overflows in that time.",
        run: affinity,
    },
    Check {
        id: "irq_default_affinity",
        group: CheckGroup::Isolation,
        title: "New interrupts stay off poll CPUs (irqaffinity)",
        matters: "A driver that is loaded later places its interrupts by this mask, on poll CPUs \
                  as well.",
        run: default,
    },
    Check {
        id: "irqbalance",
        group: CheckGroup::Isolation,
        title: "irqbalance leaves poll CPUs alone",
        matters: "irqbalance moves interrupts to CPUs that look idle, minutes after they were \
                  moved away by hand.",
        run: irqbalance,
    },
];

/// Checks the interrupts: those that may be delivered to any CPU are moved to the other CPUs.
fn affinity(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let list = evidence.host.irqs.list.as_ref().map_err(Clone::clone)?;
    let others = evidence.other_cpus();
    let there = |irq: &&Irq| !irq.effective.common(cpus).is_empty();
    let (comes, other): (Vec<&Irq>, Vec<&Irq>) = list.iter().partition(there);
    let may: Vec<&Irq> =
        other.into_iter().filter(|irq| !irq.allowed.common(cpus).is_empty()).collect();
    let active =
        |irq: &&&Irq| irq.counts.values().any(|count| *count >= MANY) || irq.counts.is_empty();
    let (active, silent): (Vec<&Irq>, Vec<&Irq>) = comes.into_iter().partition(|irq| active(&irq));
    let mut verdicts = Vec::new();
    if !active.is_empty() {
        verdicts
            .push(fail(text("come to poll CPUs", &active, cpus), away(&active, &others, evidence)));
    }
    let rest: Vec<&Irq> = silent.into_iter().chain(may).collect();
    if !rest.is_empty() {
        verdicts.push(warn(
            text("may come to poll CPUs, and hardly have yet", &rest, cpus),
            away(&rest, &others, evidence),
        ));
    }
    if verdicts.is_empty() {
        verdicts.push(pass(format!("none of {} comes to CPUs {cpus}", list.len())));
    }
    Ok(verdicts)
}

fn text(what: &str, irqs: &[&Irq], cpus: &CpuSet) -> String {
    let one = |irq: &&Irq| {
        let counts: Vec<String> = irq
            .counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(cpu, number)| format!("{} on CPU {cpu}", count(*number)))
            .collect();
        let counts =
            if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
        format!("{} {}{counts}", irq.number, irq.name)
    };
    let shown: Vec<String> = irqs.iter().take(SHOWN).map(one).collect();
    let more = irqs.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} of the interrupts {what} ({cpus}): {}{more}", irqs.len(), shown.join("; "))
}

fn away(irqs: &[&Irq], others: &CpuSet, evidence: &Evidence) -> Fix {
    if others.is_empty() {
        return Fix::advice("apps poll on all CPUs: give interrupts a CPU of their own");
    }
    let numbers: Vec<String> = irqs.iter().map(|irq| irq.number.to_string()).collect();
    let fix = evidence.kernel_arguments(&[format!("irqaffinity={others}")]);
    let fix = fix.and_now(format!(
        "for irq in {}; do echo {others} > /proc/irq/$irq/smp_affinity_list; done",
        numbers.join(" ")
    ));
    fix.and_advice(
        "an interrupt that refuses (I/O error) is managed by its driver: \
                    isolcpus=managed_irq,domain,CPUS keeps it away",
    )
}

fn default(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let cpus = evidence.poll_cpus()?;
    let default = evidence.host.irqs.default.clone()?;
    let shared = default.common(cpus);
    if shared.is_empty() {
        return Ok(vec![pass(format!("CPUs {default}"))]);
    }
    let others = evidence.other_cpus();
    if others.is_empty() {
        return Err(Unknown("apps poll on all CPUs".into()));
    }
    let fix = evidence.kernel_arguments(&[format!("irqaffinity={others}")]);
    let fix = fix.and_now(format!("echo {} > /proc/irq/default_smp_affinity", others.mask()));
    Ok(vec![warn(format!("CPUs {default}, among them the poll CPUs {shared}"), fix)])
}

fn irqbalance(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let kernel = &evidence.host.kernel;
    if !kernel.irqbalance.clone()? {
        return Ok(vec![pass("it does not run")]);
    }
    let cpus = evidence.poll_cpus()?;
    let banned = kernel.irqbalance_settings.as_deref().map(banned).unwrap_or_default();
    // Without a list of its own, irqbalance spares isolated and tickless CPUs.
    let facts = &evidence.host.cpus;
    let own = facts
        .isolated
        .clone()
        .unwrap_or_default()
        .with(&facts.nohz_full.clone().unwrap_or_default());
    let spared = if banned.is_empty() { own } else { banned };
    let exposed = cpus.without(&spared);
    if exposed.is_empty() {
        return Ok(vec![pass("it runs, and leaves the poll CPUs alone")]);
    }
    let fix = Fix::now("systemctl stop irqbalance")
        .and_persistent(format!(
            "echo 'IRQBALANCE_BANNED_CPULIST={cpus}' >> \
                                 /etc/default/irqbalance && systemctl restart irqbalance"
        ))
        .and_advice("or disable it: systemctl disable --now irqbalance");
    Ok(vec![warn(format!("it runs, and may use the poll CPUs {exposed}"), fix)])
}

/// Returns the CPUs that the settings ban: a list, or the older mask.
fn banned(settings: &str) -> CpuSet {
    let value = |name: &str| {
        let line = settings.lines().rev().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix('='))
            .map(|text| text.trim_matches(['"', '\'']).to_owned())
    };
    let list = value("IRQBALANCE_BANNED_CPULIST").map(|text| CpuSet::of_list(&text));
    let mask = value("IRQBALANCE_BANNED_CPUS").map(|text| CpuSet::of_mask(&text));
    list.or(mask).unwrap_or_default()
}
