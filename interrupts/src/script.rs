//! Prepares the bpftrace script for given threads and for the tracepoints that this kernel has.

use std::fmt::Write as _;
use std::path::Path;

/// The script in the repository.
const POLLSTEAL: &str = include_str!("../../integration/interrupts/pollsteal.bt");

/// The lines around the part of the script that names its threads.
const THREADS: (&str, &str) = ("/* threads: from here */", "/* threads: to here */");

/// Tracepoints of which the absence is reported, and what is missing without them.
const NEEDED: [(&str, &str); 6] = [
    ("irq:irq_handler_entry", "interrupts of devices"),
    ("irq_vectors:local_timer_entry", "timer interrupts"),
    ("irq_vectors:call_function_single_entry", "interrupts from other CPUs"),
    ("irq:softirq_entry", "softirqs"),
    ("sched:sched_switch", "other threads and sleep"),
    (PAGE_FAULT, "page faults"),
];

/// The start of a page fault on x86.
const PAGE_FAULT: &str = "exceptions:page_fault_user";

/// Prefixes of the kinds of probes.
const TRACEPOINT: &str = "tracepoint:";
const SOFTWARE_EVENT: &str = "software:";

/// Tracepoints that are left out if system calls are not traced.
const OF_SYSTEM_CALLS: [&str; 3] =
    ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "signal:signal_deliver"];

/// A script that this machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedScript {
    pub(crate) text: String,
    /// The tracepoints that it has, one a line.
    pub(crate) tracepoints: String,
    /// Events that it does not see, and why.
    pub(crate) missing: Vec<String>,
}

/// Prepares the script for `threads`; `events` is the directory of tracepoints.
pub(crate) fn prepare(threads: &[u32], events: &Path, system_calls: bool) -> PreparedScript {
    let exists = |tracepoint: &str| {
        let path = tracepoint.replacen(':', "/", 1);
        events.join(path).is_dir() && (system_calls || !OF_SYSTEM_CALLS.contains(&tracepoint))
    };
    // All kernels have software events; those of page faults are needed only with the tracepoint,
    // since they end what it begins.
    let attaches = |probe: &str| match probe.strip_prefix(TRACEPOINT) {
        Some(tracepoint) => exists(tracepoint),
        None => exists(PAGE_FAULT),
    };
    let text = with_threads(&with_probes(POLLSTEAL, attaches), threads);
    let missing = NEEDED.iter().filter(|(tracepoint, _)| !exists(tracepoint));
    let mut missing: Vec<String> = missing
        .map(|(tracepoint, what)| format!("{what}: no tracepoint {tracepoint} in this kernel"))
        .collect();
    if !system_calls {
        missing.push("system calls and handlers of signals: not asked for".to_owned());
    }
    let tracepoints = tracepoints(&text);
    PreparedScript { text, tracepoints, missing }
}

fn tracepoints(script: &str) -> String {
    let named = script.lines().filter_map(|line| line.strip_prefix(TRACEPOINT));
    named.map(|name| name.trim_end_matches(',').to_owned() + "\n").collect()
}

/// Leaves out the probes that do not exist, and blocks that have no other probe.
fn with_probes(script: &str, exists: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(script.len());
    let mut probes: Vec<&str> = Vec::new();
    let mut in_list = false;
    let mut skips = false;
    for line in script.lines() {
        if line.starts_with(TRACEPOINT) || line.starts_with(SOFTWARE_EVENT) {
            let probe = line.trim_end_matches(',');
            if exists(probe) {
                probes.push(probe);
            }
            in_list = true;
            continue;
        }
        if std::mem::take(&mut in_list) {
            skips = probes.is_empty();
            if !skips {
                out.push_str(&(probes.join(",\n") + "\n"));
            }
            probes.clear();
        }
        if !skips {
            out.push_str(line);
            out.push('\n');
        }
        if line == "}" {
            skips = false;
        }
    }
    out
}

fn with_threads(script: &str, threads: &[u32]) -> String {
    let Some((head, rest)) = script.split_once(THREADS.0) else { return script.to_owned() };
    let Some((_, tail)) = rest.split_once(THREADS.1) else { return script.to_owned() };
    let mut out = head.to_owned();
    for tid in threads {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "@poll[{tid}] = 1;");
    }
    out + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(_: &str) -> bool {
        true
    }

    #[test]
    fn threads_take_the_place_of_parameters() {
        let text = with_threads(POLLSTEAL, &[17, 4711]);
        assert!(text.contains("@poll[17] = 1;\n@poll[4711] = 1;\n"), "{text}");
        assert!(!text.contains("$2") && text.contains("$1"), "only MIN_NS is a parameter");
    }

    #[test]
    fn a_complete_kernel_gets_the_script_as_it_is() {
        assert_eq!(with_probes(POLLSTEAL, all), POLLSTEAL);
    }

    #[test]
    fn missing_tracepoints_are_left_out_with_their_blocks() {
        let one =
            with_probes(POLLSTEAL, |probe| probe != "tracepoint:irq_vectors:thermal_apic_exit");
        assert_eq!(one.lines().count() + 1, POLLSTEAL.lines().count());
        let none = with_probes(POLLSTEAL, |probe| !probe.starts_with("tracepoint:irq_vectors:"));
        assert!(
            !none.contains("local_timer_entry") && !none.contains("@timer[tid, args"),
            "{none}"
        );
        assert!(none.contains("tracepoint:irq:softirq_entry\n/@poll[tid]/\n{"), "{none}");
        let balance = |text: &str| (text.matches('{').count(), text.matches('}').count());
        assert_eq!(balance(&none).0, balance(&none).1);
    }

    #[test]
    fn what_a_kernel_cannot_trace_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sched/sched_switch")).unwrap();
        std::fs::create_dir_all(dir.path().join("raw_syscalls/sys_enter")).unwrap();
        let script = prepare(&[1], dir.path(), true);
        assert_eq!(script.missing.len(), NEEDED.len() - 1);
        assert!(script.text.contains("sys_enter"));
        assert_eq!(script.tracepoints, "raw_syscalls:sys_enter\nsched:sched_switch\n");
        assert!(!script.text.contains("software:minor-faults"), "it would only end what begins");
        let script = prepare(&[1], dir.path(), false);
        assert_eq!(script.missing.len(), NEEDED.len());
        assert!(!script.text.contains("tracepoint:raw_syscalls"), "{}", script.text);
    }
}
