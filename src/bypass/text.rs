//! Bypasses as text.

use std::fmt::Write as _;

use pmdscope_bypass::{BypassDownResult, BypassPhase, BypassStatus};
use pmdscope_telemetry::interface::FilterMode;

use crate::output::one_line;

/// What `up` prints.
pub(super) fn prepared(status: &BypassStatus, app: Option<&str>) -> String {
    let BypassStatus { interface, queue, .. } = status;
    let flows = status.flows.join(", ");
    let mut text =
        format!("{interface} queue {queue}: {flows} for an app, all else for the kernel\n");
    let _ = writeln!(text, "steering: {}", steering(status));
    if status.phase == BypassPhase::Running {
        text += "The app that runs has the new flows.\n";
    } else {
        let prefix = app.map_or_else(String::new, |app| format!(" --file-prefix={app}"));
        let _ = writeln!(
            text,
            "Start the app, in this network namespace, with\n  {}{prefix}",
            status.vdev
        );
        text += "as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK\n";
    }
    let _ = writeln!(text, "To undo it: pmdscope bypass down {interface}");
    text + &problems(status)
}

/// What `status` prints.
pub(super) fn status(bypasses: &[BypassStatus]) -> String {
    if bypasses.is_empty() {
        return "no bypass\n".to_owned();
    }
    bypasses.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(status: &BypassStatus) -> String {
    let BypassStatus { interface, queue, .. } = status;
    if status.phase == BypassPhase::Elsewhere {
        let inode = status.network_namespace;
        return format!(
            "{interface} queue {queue}: in another network namespace (net:[{inode}])\n"
        );
    }
    let driver = if status.driver.is_empty() { "unknown driver" } else { &status.driver };
    let user = match (&status.app, status.phase) {
        (Some(app), _) => {
            one_line(&format!("polled by {} (pid {}, {})", app.prefix, app.pid, app.device))
        }
        (None, BypassPhase::Running) => "polled by an app of another namespace".to_owned(),
        (None, _) => "no app polls it, the kernel gets all packets".to_owned(),
    };
    let mut text = format!("{interface} ({driver}) queue {queue}: {user}\n");
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "  {label:<10} {value}");
    };
    line("flows", &status.flows.join(", "));
    line("steering", &steering(status));
    line("program", program(status));
    if let Some(counts) = status.counts {
        line("bypassed", &counts.bypassed.to_string());
        line("to kernel", &(counts.kernel + counts.no_socket + counts.other_queue).to_string());
    }
    if status.phase == BypassPhase::Waiting {
        line("app option", &status.vdev);
    }
    text + &queues(status) + &problems(status)
}

fn steering(status: &BypassStatus) -> String {
    match &status.steering_unsupported {
        None => "by ntuple filters and the RSS table of the NIC".to_owned(),
        Some(reason) => one_line(&format!(
            "none, {reason}: flows bypass the kernel where they arrive on queue {}",
            status.queue
        )),
    }
}

fn program(status: &BypassStatus) -> &'static str {
    match status.mode {
        Some(FilterMode::Native) => "attached, in the driver",
        Some(FilterMode::Generic) => "attached, in the network stack",
        None => "not attached",
    }
}

fn queues(status: &BypassStatus) -> String {
    if status.queues.is_empty() {
        return String::new();
    }
    let number =
        |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let row = |queue: &str, packets: &str, dropped: &str, redirected: &str, mark: &str| {
        format!("  {queue:>5} {packets:>14} {dropped:>12} {redirected:>14} {mark}")
            .trim_end()
            .to_owned()
            + "\n"
    };
    let mut text = row("queue", "received", "dropped", "redirected", "");
    for queue in &status.queues {
        let mark = if queue.queue == status.queue { "bypass" } else { "" };
        let values = [queue.packets, queue.dropped, queue.redirected].map(number);
        text += &row(&queue.queue.to_string(), &values[0], &values[1], &values[2], mark);
    }
    text
}

fn problems(status: &BypassStatus) -> String {
    let line = |problem: &String| one_line(&format!("  problem: {problem}")) + "\n";
    status.problems.iter().map(line).collect()
}

/// What `down` prints.
pub(super) fn taken_down(done: &[BypassDownResult]) -> String {
    if done.is_empty() {
        return "no bypass\n".to_owned();
    }
    let mut text = String::new();
    for down in done {
        let interface = &down.interface;
        if down.undone.is_empty() {
            let _ = writeln!(text, "{interface}: nothing to undo");
        } else {
            let _ = writeln!(text, "{interface}: {}", down.undone.join(", "));
        }
        if let Some(app) = &down.app {
            let app = one_line(&format!("{} (pid {})", app.prefix, app.pid));
            let _ =
                writeln!(text, "{interface}: {app} still runs, and gets no more packets: stop it");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_bypass::{BypassApp, BypassCounts};
    use pmdscope_telemetry::interface::InterfaceQueueSample;

    use super::*;

    fn queue(queue: u32, packets: u64, redirected: Option<u64>) -> InterfaceQueueSample {
        InterfaceQueueSample { queue, packets: Some(packets), dropped: Some(0), redirected }
    }

    fn running() -> BypassStatus {
        let app =
            BypassApp { pid: 123, prefix: "dns".to_owned(), device: "net_af_xdp0".to_owned() };
        BypassStatus {
            interface: "eth0".to_owned(),
            index: 2,
            network_namespace: 4_026_531_840,
            driver: "veth".to_owned(),
            queue: 1,
            flows: vec!["udp:53".to_owned(), "tcp:853".to_owned()],
            phase: BypassPhase::Running,
            app: Some(app),
            steered_by_nic: false,
            steering_unsupported: Some("the driver has no ntuple filters".to_owned()),
            mode: Some(FilterMode::Native),
            counts: Some(BypassCounts {
                kernel: 3000,
                bypassed: 5000,
                no_socket: 0,
                other_queue: 1,
            }),
            rx_packets: Some(8001),
            rx_dropped: Some(0),
            queues: vec![queue(0, 3001, None), queue(1, 5000, Some(5000))],
            vdev: "--vdev=net_af_xdp0,iface=eth0,...".to_owned(),
            object: "/run/pmdscope-bypass/eth0.o".into(),
            problems: vec!["1 packet came to another queue".to_owned()],
        }
    }

    fn waiting() -> BypassStatus {
        BypassStatus {
            phase: BypassPhase::Waiting,
            app: None,
            steered_by_nic: true,
            steering_unsupported: None,
            mode: None,
            counts: None,
            queues: Vec::new(),
            problems: Vec::new(),
            ..running()
        }
    }

    #[test]
    fn what_is_prepared_is_told_with_the_option_of_the_app() {
        let all = [prepared(&waiting(), Some("dns")), prepared(&running(), None)];
        assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn the_state_of_every_bypass_is_told() {
        let elsewhere = BypassStatus { phase: BypassPhase::Elsewhere, ..running() };
        assert_snapshot!(status(&[running(), waiting(), elsewhere]));
        assert_eq!(status(&[]), "no bypass\n");
    }

    #[test]
    fn what_was_undone_is_told() {
        let undone =
            vec!["detached the XDP program".to_owned(), "restored the MTU 1500".to_owned()];
        let all = [
            BypassDownResult { interface: "eth0".to_owned(), undone, app: running().app },
            BypassDownResult { interface: "eth1".to_owned(), undone: Vec::new(), app: None },
        ];
        assert_snapshot!(taken_down(&all));
    }
}
