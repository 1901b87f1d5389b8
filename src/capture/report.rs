//! What `pmdscope capture` tells people, in the words of tcpdump.

use std::process::ExitCode;

use pmdscope_capture::pump::{REORDER_WINDOW, Report};

use super::interface::{Running, Wanted, capture_socket};
use super::say;
use crate::output;

/// The line before the first packet.
pub(super) fn started(wanted: &[Wanted], snaplen: u32) {
    let names = wanted.iter().flat_map(Wanted::names).collect::<Vec<_>>().join(", ");
    say(format_args!(
        "pmdscope: listening on {names}, link-type EN10MB (Ethernet), snapshot length {snaplen} bytes"
    ));
}

/// The statistics after the last packet.
pub(super) fn ended(report: &Report) {
    for app in &report.ended {
        say(format_args!("pmdscope: {app} has ended"));
    }
    for line in statistics(report) {
        say(line);
    }
}

fn statistics(report: &Report) -> Vec<String> {
    let rings = &report.rings;
    let mut lines = vec![
        format!("{} packets captured", report.captured),
        format!("{} packets received by filter", rings.passed_filter()),
        format!(
            "{} packets dropped by full capture rings{}",
            rings.dropped,
            places(&report.dropped)
        ),
    ];
    let window = REORDER_WINDOW.as_millis();
    let late = format!("out of order: their lcore was interrupted for more than {window} ms");
    let optional = [
        (rings.sampled_out, "left out by sampling"),
        (report.unwritten, "lost because they could not be written"),
        (report.late, late.as_str()),
    ];
    let there = optional.iter().filter(|(count, _)| *count > 0);
    lines.extend(there.map(|(count, what)| format!("{count} packets {what}")));
    if report.nb_rings == 0 {
        lines.push("no lcore of the app polls".to_owned());
    }
    lines
}

fn places(dropped: &[(String, u64)]) -> String {
    let places = dropped.iter().map(|(name, count)| format!("{name} {count}"));
    match places.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        places => format!(" ({places}); --ring-size, -s or a filter can help"),
    }
}

/// `-D`: one line per interface on standard output. Code 1 when there is none.
pub(super) fn list_interfaces(running: &[Running]) -> anyhow::Result<ExitCode> {
    let mut lines = Vec::new();
    for one in running {
        let Some(sample) = &one.sample else {
            say(format_args!("pmdscope: {}: cannot be asked for its ports", one.app.name));
            continue;
        };
        let note = if capture_socket(one).is_ok() { "" } else { ", no libpmdscope: no captures" };
        for port in &sample.ports {
            let link = match port.link_up {
                Some(true) => "Up",
                Some(false) => "Down",
                None => "link unknown",
            };
            lines.push(format!("{}:{} ({}) [{link}{note}]", one.app.name, port.id, port.device));
        }
    }
    if lines.is_empty() {
        say("pmdscope: no running DPDK app has a port");
        return Ok(ExitCode::FAILURE);
    }
    output::print(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use pmdscope_capture::ring::Counters;

    use super::*;

    #[test]
    fn statistics_have_the_shape_of_tcpdump() {
        let report = Report { captured: 12, nb_rings: 1, ..Report::default() };
        assert_eq!(
            statistics(&report),
            [
                "12 packets captured",
                "0 packets received by filter",
                "0 packets dropped by full capture rings"
            ]
        );
    }

    #[test]
    fn losses_are_told_with_their_place() {
        let report = Report {
            captured: 12,
            rings: Counters { records: 15, dropped: 3, filtered: 9, sampled_out: 2 },
            dropped: vec![("rte:0".into(), 1), ("rte:1".into(), 2)],
            unwritten: 3,
            ..Report::default()
        };
        let lines = statistics(&report);
        assert_eq!(lines[1], "20 packets received by filter");
        assert!(lines[2].starts_with("3 packets dropped by full capture rings (rte:0 1, rte:1 2)"));
        assert_eq!(lines[3], "2 packets left out by sampling");
        assert_eq!(lines[4], "3 packets lost because they could not be written");
        assert_eq!(lines[5], "no lcore of the app polls");
    }
}
