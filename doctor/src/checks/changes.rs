//! Changes since a saved run.

use std::collections::BTreeMap;
use std::fmt::Display;

use pmdscope_telemetry::host::device::address;

use crate::baseline::Baseline;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, warn};
use crate::tree::{Fact, Unknown};

pub(super) const CHECKS: [Check; 7] = [
    Check {
        id: "changed_kernel",
        group: CheckGroup::Changes,
        title: "The kernel is the same",
        matters: "A new kernel boots with its own drivers, and forgets bindings that were made by \
                  hand.",
        run: kernel,
    },
    Check {
        id: "changed_driver",
        group: CheckGroup::Changes,
        title: "NICs have the same drivers",
        matters: "A NIC that has gone back to its kernel driver is missing in the app at its next \
                  start.",
        run: drivers,
    },
    Check {
        id: "changed_kernel_arguments",
        group: CheckGroup::Changes,
        title: "The kernel command line is the same",
        matters: "Isolation of CPUs, hugepages and the IOMMU are arguments of the kernel.",
        run: arguments,
    },
    Check {
        id: "changed_hugepages",
        group: CheckGroup::Changes,
        title: "The same hugepages are reserved",
        matters: "Hugepages that are reserved after the boot may find memory too fragmented.",
        run: hugepages,
    },
    Check {
        id: "changed_dpdk",
        group: CheckGroup::Changes,
        title: "Apps have the same DPDK and arguments",
        matters: "Another release of DPDK has other drivers, defaults and memory layouts.",
        run: dpdk,
    },
    Check {
        id: "changed_irq_affinity",
        group: CheckGroup::Changes,
        title: "Interrupts have the same CPUs",
        matters: "Interrupts that were moved off poll CPUs come back with a new driver, or by \
                  irqbalance.",
        run: irqs,
    },
    Check {
        id: "changed_microcode",
        group: CheckGroup::Changes,
        title: "The microcode is the same",
        matters: "New microcode can change the cost of a packet by some percent.",
        run: microcode,
    },
];

fn both(evidence: &Evidence) -> Fact<(Baseline, Baseline)> {
    let before = evidence.baseline.ok_or_else(|| Unknown("nothing to compare with".into()))?;
    Ok((before.clone(), Baseline::of(evidence.host, evidence.apps.unwrap_or_default())))
}

fn known<T>(before: Option<T>, now: Option<T>) -> Fact<(T, T)> {
    let before = before.ok_or_else(|| Unknown("it was not known in the saved run".into()))?;
    Ok((before, now.ok_or_else(|| Unknown("it is not known now".into()))?))
}

fn kernel(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (before, now) = known(before.kernel_release, now.kernel_release)?;
    if before == now {
        return Ok(vec![pass(now)]);
    }
    let fix = Fix::advice(
        "check the drivers of the NICs and the other changes, then save this run as good: \
         pmdscope doctor --save FILE",
    );
    Ok(vec![fail(format!("{now}, was {before}"), fix)])
}

fn drivers(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (old, new) = known(before.drivers, now.drivers)?;
    let name = |driver: &Option<String>| driver.as_deref().unwrap_or("no driver").to_owned();
    let mut verdicts = Vec::new();
    for (device, driver) in &old {
        // The file may be from anywhere, and the address becomes part of a command.
        let Some(device) = address(device) else { continue };
        match new.get(&device) {
            Some(current) if current == driver => {}
            Some(current) => {
                let fix = driver.as_deref().and_then(rebind(&device)).unwrap_or_default();
                verdicts.push(fail(
                    format!("{device} is bound to {}, was {}", name(current), name(driver)),
                    fix,
                ));
            }
            None => {
                let fix = Fix::now("echo 1 > /sys/bus/pci/rescan");
                verdicts
                    .push(fail(format!("{device} is gone, was bound to {}", name(driver)), fix));
            }
        }
    }
    let added: Vec<&str> =
        new.keys().filter(|device| !old.contains_key(*device)).map(String::as_str).collect();
    if !added.is_empty() {
        let fix =
            Fix::advice("a new card can renumber the others: compare the -a arguments of the apps");
        verdicts.push(warn(format!("new: {}", added.join(", ")), fix));
    }
    if verdicts.is_empty() {
        verdicts.push(pass(format!("{} devices", new.len())));
    }
    Ok(verdicts)
}

fn rebind(device: &str) -> impl Fn(&str) -> Option<Fix> + '_ {
    move |driver| {
        let sane = !driver.is_empty()
            && driver.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        sane.then(|| {
            Fix::now(format!("modprobe {driver} && dpdk-devbind.py --bind={driver} {device}"))
                .and_persistent(format!("driverctl set-override {device} {driver}"))
                .and_advice("then restart the app: it looks for its NICs only at its start")
        })
    }
}

fn arguments(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (before, now) = known(before.kernel_arguments, now.kernel_arguments)?;
    let words = |line: &str| -> Vec<String> {
        // The image and the root device change with each kernel.
        let other = |word: &&str| !word.starts_with("BOOT_IMAGE=");
        line.split_ascii_whitespace().filter(other).map(str::to_owned).collect()
    };
    let (old, new) = (words(&before), words(&now));
    let gone: Vec<String> = old.iter().filter(|word| !new.contains(word)).cloned().collect();
    let added: Vec<String> = new.iter().filter(|word| !old.contains(word)).cloned().collect();
    if gone.is_empty() && added.is_empty() {
        return Ok(vec![pass("unchanged")]);
    }
    let list = |what: &str, words: &[String]| {
        if words.is_empty() { None } else { Some(format!("{what}: {}", words.join(" "))) }
    };
    let found = [list("gone", &gone), list("new", &added)];
    let plain =
        |word: &&String| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.,=:+/".contains(c));
    let restore: Vec<String> = gone.iter().filter(plain).cloned().collect();
    let fix = if restore.is_empty() { Fix::default() } else { evidence.kernel_arguments(&restore) };
    Ok(vec![warn(found.into_iter().flatten().collect::<Vec<_>>().join("; "), fix)])
}

fn hugepages(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (old, new) = known(before.hugepages, now.hugepages)?;
    let fewer = old.iter().any(|(pool, pages)| new.get(pool).copied().unwrap_or(0) < *pages);
    let fix = Fix::advice("reserve them at boot: default_hugepagesz=1G hugepagesz=1G hugepages=N");
    let text = differences(&old, &new);
    Ok(vec![match (text.is_empty(), fewer) {
        (true, _) => pass("unchanged"),
        (false, true) => fail(text, fix),
        (false, false) => warn(text, fix),
    }])
}

fn dpdk(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let common = |name: &&String| now.dpdk_versions.contains_key(*name);
    let apps: Vec<&String> = before.dpdk_versions.keys().filter(common).collect();
    if apps.is_empty() {
        return Err(Unknown("no app runs that ran in the saved run".into()));
    }
    let verdict = |name: &&String| {
        let pair = |old: &BTreeMap<String, String>, new: &BTreeMap<String, String>| {
            (
                old.get(*name).cloned().unwrap_or_default(),
                new.get(*name).cloned().unwrap_or_default(),
            )
        };
        let (old, new) = pair(&before.dpdk_versions, &now.dpdk_versions);
        let fix =
            || Fix::advice("if that was meant, save this run as good: pmdscope doctor --save FILE");
        if old != new {
            return warn(format!("{name}: {new}, was {old}"), fix());
        }
        let (old, arguments) = pair(&before.eal_arguments, &now.eal_arguments);
        if old != arguments {
            return warn(format!("{name}: arguments {arguments}, were {old}"), fix());
        }
        pass(format!("{name}: {new}"))
    };
    Ok(apps.iter().map(verdict).collect())
}

fn irqs(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (old, new) = known(before.irq_affinity, now.irq_affinity)?;
    let moved: BTreeMap<String, String> = old
        .into_iter()
        .filter(|(name, cpus)| new.get(name).is_some_and(|now| now != cpus))
        .collect();
    let current = new.into_iter().filter(|(name, _)| moved.contains_key(name)).collect();
    let text = differences(&moved, &current);
    let fix = Fix::advice("check irq_affinity and irqbalance of this report");
    Ok(vec![if text.is_empty() { pass("unchanged") } else { warn(text, fix) }])
}

fn microcode(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let (before, now) = both(evidence)?;
    let (before, now) = known(before.microcode, now.microcode)?;
    let fix = Fix::advice("measure the packet rate again");
    Ok(vec![if before == now { pass(now) } else { warn(format!("{now}, was {before}"), fix) }])
}

/// Returns the first few differences, as text.
fn differences<T: Display + PartialEq>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> String {
    const SHOWN: usize = 4;
    let of = |map: &BTreeMap<String, T>, key: &str| {
        map.get(key).map_or("none".to_owned(), ToString::to_string)
    };
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    let changed = keys.filter(|key| old.get(*key) != new.get(*key));
    let all: Vec<String> =
        changed.map(|key| format!("{key}: {}, was {}", of(new, key), of(old, key))).collect();
    let more = all.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let shown: Vec<String> = all.into_iter().take(SHOWN).collect();
    if shown.is_empty() { String::new() } else { shown.join("; ") + &more }
}
