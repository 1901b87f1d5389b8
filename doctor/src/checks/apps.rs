//! The apps: whether they run, answer, have their ports and CPUs.

use std::collections::BTreeMap;

use pmdscope_telemetry::host::device;

use crate::app::{AppFacts, CaptureFact};
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, skip, warn};
use crate::tree::{Fact, Unknown};

pub(super) const CHECKS: [Check; 6] = [
    Check {
        id: "app_running",
        group: CheckGroup::Apps,
        title: "Expected apps run",
        matters: "An app that the configuration expects and that does not run forwards nothing.",
        run: running,
    },
    Check {
        id: "telemetry",
        group: CheckGroup::Apps,
        title: "Telemetry is reachable",
        matters: "Without the telemetry socket of an app, pmdscope knows only that the app runs.",
        run: telemetry,
    },
    Check {
        id: "app_ports",
        group: CheckGroup::Apps,
        title: "Apps have their ports",
        matters: "An app that starts without its NICs runs and answers, and moves no packet.",
        run: ports,
    },
    Check {
        id: "lcore_cpus",
        group: CheckGroup::Apps,
        title: "Each poll thread has a CPU of its own",
        matters: "Two poll threads on one CPU take turns of milliseconds, and each turn overflows \
                  the queue of the other.",
        run: lcore_cpus,
    },
    Check {
        id: "control_threads",
        group: CheckGroup::Apps,
        title: "Control threads stay off poll CPUs",
        matters: "A control thread on a poll CPU, such as that of telemetry, stops the poll loop \
                  for each of its requests.",
        run: control_threads,
    },
    Check {
        id: "capture",
        group: CheckGroup::Apps,
        title: "Packets can be captured",
        matters: "What cannot be captured now cannot be captured in an incident either.",
        run: capture,
    },
];

fn some(verdicts: Vec<Verdict>, otherwise: &str) -> Fact<Vec<Verdict>> {
    if verdicts.is_empty() { Err(Unknown(otherwise.to_owned())) } else { Ok(verdicts) }
}

fn running(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let verdict = |app: &AppFacts| {
        if !app.absent {
            return pass(app.label());
        }
        let fix = Fix::advice(format!(
            "start {}, or look into the journal of its unit; pmdscope ls --all lists what apps \
             that have ended left behind",
            app.label()
        ));
        fail(format!("{} does not run", app.label()), fix)
    };
    some(
        evidence.apps()?.iter().map(verdict).collect(),
        "no app runs, and the configuration expects none ([[expected]])",
    )
}

fn telemetry(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let apps = evidence.apps()?.iter().filter(|app| !app.absent);
    let verdict = |app: &AppFacts| match &app.unreachable {
        None => pass(format!("{} answers", app.label())),
        Some(why) => fail(
            format!("{}: {why}", app.label()),
            Fix::advice(
                "start the app without --no-telemetry, and run pmdscope as root or as the user of \
                 the app",
            ),
        ),
    };
    some(apps.map(verdict).collect(), "no app runs")
}

fn ports(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let verdict = |app: &&AppFacts| {
        let sample = app.sample.as_ref()?;
        if !sample.ports_are_complete() {
            return Some(skip(format!("{}: its ports could not be read", app.label())));
        }
        let has = |device: &&String| {
            sample.ports.iter().any(|port| device::is_port_of(&port.device, device))
        };
        let missing: Vec<&str> =
            app.expected_devices.iter().filter(|device| !has(device)).map(String::as_str).collect();
        let number = sample.ports.len();
        let fix = || {
            Fix::advice(
                "bind its NICs (see nic_driver), compare its -a and --vdev arguments with: lspci \
                 -D -d ::0200, and restart it",
            )
        };
        Some(if !missing.is_empty() {
            fail(
                format!("{} has {number} ports, and none on {}", app.label(), missing.join(", ")),
                fix(),
            )
        } else if number < app.min_ports {
            fail(format!("{} has {number} ports, and needs {}", app.label(), app.min_ports), fix())
        } else {
            pass(format!("{} has {number}", app.label()))
        })
    };
    Ok(evidence.running()?.iter().filter_map(verdict).collect())
}

fn lcore_cpus(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut users: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut verdicts = Vec::new();
    let apps = evidence.running()?;
    for app in &apps {
        for thread in app.poll_threads.iter().filter(|thread| thread.is_pinned()) {
            for cpu in thread.cpus().0 {
                users.entry(cpu).or_default().push(format!(
                    "lcore {} of {}",
                    thread.lcore,
                    app.label()
                ));
            }
        }
        let wide: Vec<String> = app
            .poll_threads
            .iter()
            .filter(|thread| !thread.is_pinned())
            .map(|thread| format!("lcore {} (CPUs {})", thread.lcore, thread.allowed))
            .collect();
        if !wide.is_empty() {
            let fix = Fix::advice(format!(
                "start {} with -l, or --lcores=ID@CPU, so that each lcore has one CPU",
                app.label()
            ));
            verdicts.push(warn(
                format!("{}: may move between CPUs: {}", app.label(), wide.join(", ")),
                fix,
            ));
        }
    }
    if users.is_empty() && verdicts.is_empty() {
        return Err(Unknown("no poll thread is seen from here".into()));
    }
    for (cpu, users) in users.iter().filter(|(_, users)| users.len() > 1) {
        let fix = Fix::advice("start one of them with -l on other CPUs");
        verdicts.push(fail(format!("CPU {cpu} has {}", users.join(" and ")), fix));
    }
    if verdicts.is_empty() {
        let cpus: Vec<String> = users.keys().map(u32::to_string).collect();
        verdicts.push(pass(format!("CPUs {}", cpus.join(", "))));
    }
    Ok(verdicts)
}

fn control_threads(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let verdict = |app: &&AppFacts| {
        let sample = app.sample.as_ref()?;
        let of_library = sample.library.as_ref().map(|library| library.control_shares_poll_cpu);
        let shares = sample.control_shares_poll_cpu.or(of_library)?;
        if !shares {
            return Some(pass(format!("{}: on other CPUs", app.label())));
        }
        let fix = Fix::advice(format!(
            "leave {} a CPU that is no lcore: it inherits the CPUs of its parent, as by taskset \
             or the cpuset of its container",
            app.label()
        ));
        Some(warn(format!("{}: may run on the CPU of an lcore", app.label()), fix))
    };
    let verdicts = evidence.running()?.iter().filter_map(verdict).collect();
    some(verdicts, "the threads of the apps are not seen from here")
}

fn capture(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let verdict = |app: &&AppFacts| match app.capture.as_ref()? {
        CaptureFact::Possible { via } => Some(pass(format!("{}: by {via}", app.label()))),
        CaptureFact::Impossible { reason } => {
            let fix = Fix::advice("link the app with libpmdscope, or remove what the reason names");
            Some(warn(reason.clone(), fix))
        }
    };
    some(evidence.running()?.iter().filter_map(verdict).collect(), "capture was not checked")
}
