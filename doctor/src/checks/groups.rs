//! Control groups: limits of CPU time, and CPUs.

use crate::app::AppFacts;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, quoted, skip};
use crate::facts::{CpuQuota, ProcessFacts};
use crate::tree::Fact;

pub(super) const CHECKS: [Check; 2] = [
    Check {
        id: "cpu_quota",
        group: CheckGroup::Apps,
        title: "No CPU quota stops the app",
        matters: "A poll loop always uses its whole CPU, so a quota stops it for tens of \
                  milliseconds in each period.",
        run: quota,
    },
    Check {
        id: "cpuset",
        group: CheckGroup::Apps,
        title: "Poll CPUs belong to the app's cpuset",
        matters: "A thread cannot stay on a CPU that its control group does not have: the kernel \
                  moves it among others.",
        run: cpuset,
    },
];

fn each(
    evidence: &Evidence,
    judge: impl Fn(&AppFacts, &ProcessFacts) -> Fact<Verdict>,
) -> Fact<Vec<Verdict>> {
    let verdict = |app: &&AppFacts| match evidence.host.processes.get(&app.name) {
        None => skip(format!("{}: its process is not seen from here", app.label())),
        Some(process) => {
            judge(app, process).unwrap_or_else(|why| skip(format!("{}: {why}", app.label())))
        }
    };
    Ok(evidence.running()?.iter().map(verdict).collect())
}

fn quota(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    each(evidence, |app, process| {
        let Some(quota) = process.quota.clone()? else {
            return Ok(pass(format!("{}: none", app.label())));
        };
        let CpuQuota { cpus, group, v1, throttled } = quota;
        let throttled =
            throttled.map(|times| format!(", stopped in {times} periods")).unwrap_or_default();
        let found = format!("{}: {cpus:.2} CPUs by {group}{throttled}", app.label());
        let command = if v1 {
            format!("echo -1 > {}", quoted(&format!("{group}/cpu.cfs_quota_us")))
        } else {
            format!("echo max > {}", quoted(&format!("{group}/cpu.max")))
        };
        let fix =
            Fix::now(command).and_persistent("systemctl set-property UNIT CPUQuota=").and_advice(
                "UNIT is the systemd unit of the app; in Kubernetes: the static CPU \
                         manager policy, and requests equal to limits in whole CPUs, with \
                         --cpu-cfs-quota=false for the node",
            );
        Ok(fail(found, fix))
    })
}

fn cpuset(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    each(evidence, |app, process| {
        let has = process.cpuset.clone()?;
        let polls = app.poll_cpus();
        if polls.is_empty() {
            return Ok(skip(format!("{}: its poll CPUs are not known", app.label())));
        }
        let missing = polls.without(&has);
        if missing.is_empty() {
            return Ok(pass(format!("{}: CPUs {has}", app.label())));
        }
        let fix = Fix::now(format!("systemctl set-property UNIT AllowedCPUs={}", has.with(&polls)))
            .and_advice(
                "UNIT is the systemd unit of the app; in a container: --cpuset-cpus, or \
                         the static CPU manager policy",
            );
        Ok(fail(
            format!("{}: it polls on CPUs {missing}, and its cpuset has {has}", app.label()),
            fix,
        ))
    })
}
