//! Messages at the start and the end of a capture, in the format of tcpdump.

use std::time::Duration;

use pmdscope_capture::{CaptureReport, REORDER_WINDOW, RingReport, Transport};
use pmdscope_packets::file::FileEvent;
use pmdscope_packets::recorder::RecorderStatus;
use pmdscope_packets::{SinkProgress, read};
use pmdscope_render::number;

use super::args::{Args, EventFilter};
use super::{say, status};
use crate::attach::target::CaptureTarget;
use crate::attach::transport;
use crate::{output, sampling};

/// The line before the first packet.
pub(super) fn started(wanted: &[CaptureTarget], snaplen: u32, verbose: bool) {
    let names = wanted.iter().map(listening).collect::<Vec<_>>().join(", ");
    say(format_args!(
        "pmdscope: listening on {names}, link-type EN10MB (Ethernet), snapshot length {snaplen} bytes"
    ));
    for line in wanted.iter().filter(|_| verbose).filter_map(helper) {
        say(line);
    }
}

/// What the flight recorder can hold, before the first packet.
pub(super) fn recording(status: &RecorderStatus) -> String {
    let (before, after) = (status.before().as_secs_f64(), status.after().as_secs_f64());
    let memory = status.memory() >> 20;
    let limit = status.sustained_rate().map_or(String::new(), |rate| {
        format!(", which hold all of it up to {}/s", number::bytes(rate))
    });
    format!(
        "pmdscope: flight recorder: {before} s before a trigger and {after} s after it, in {memory} \
         MiB{limit}"
    )
}

/// Memory is too small for the history that was asked for.
pub(super) fn short_history(status: &RecorderStatus, held: Duration) -> String {
    let (before, held) = (status.before().as_secs_f64(), held.as_secs_f64());
    let memory = status.memory() >> 20;
    let enough = memory as f64 * before / held;
    let advice = if enough.is_finite() {
        format!("at this rate --memory {:.0}M would hold it", enough.ceil())
    } else {
        "raise --memory".to_owned()
    };
    format!(
        "pmdscope: warning: the flight recorder holds {held:.3} s of the {before} s of --before, because \
         {memory} MiB are full: {advice}; -s, --sample or a filter save memory"
    )
}

/// What the flight recorder holds at the end.
fn recorded(status: &RecorderStatus) -> String {
    let least = status.least_held().map_or(String::new(), |least| {
        let before = status.before().as_secs_f64();
        format!("; --memory was too small: at times only {:.3} of {before} s", least.as_secs_f64())
    });
    format!("flight recorder: {}{least}", status::recorder(status))
}

/// The format that files have, unless nothing is to be printed.
pub(super) fn writing(args: &Args) {
    if let Some(line) = args.files.announcement().filter(|_| !args.quiet) {
        say(line);
    }
}

/// The ports of an app, and how its packets are had if not from itself.
fn listening(wanted: &CaptureTarget) -> String {
    let names = wanted.names().collect::<Vec<_>>().join(", ");
    wanted.transport.via().map_or(names.clone(), |via| format!("{names} via {via}"))
}

/// Where the helper of an app runs.
fn helper(wanted: &CaptureTarget) -> Option<String> {
    let Transport::Pdump(pdump) = &wanted.transport else { return None };
    let beside =
        if pdump.crowded { " shared with poll loops of the app: no other CPU is free" } else { "" };
    let (app, cpus) = (&wanted.app, &pdump.cpus);
    Some(format!("pmdscope: pmdscope-pdump of {app} runs on CPUs {cpus}{beside}"))
}

/// The statistics after the last packet.
/// For so many seconds nothing could be written.
pub(super) fn ended(
    wanted: &[CaptureTarget],
    report: &CaptureReport,
    recorder: Option<&RecorderStatus>,
    idle: Option<(f64, String)>,
) {
    let helped = wanted.iter().filter(|wanted| matches!(wanted.transport, Transport::Pdump(_)));
    let helped = helped.map(|wanted| wanted.app.clone()).collect::<Vec<_>>();
    for line in statistics(report, Some(&helped)) {
        say(line);
    }
    if let Some(status) = recorder {
        say(recorded(status));
    }
    if let Some((seconds, reason)) = idle {
        say(format_args!("{} without writing: {reason}", number::seconds(seconds)));
    }
}

/// The counters of a capture that runs, as tcpdump prints them on SIGUSR1.
pub(super) fn at_once(report: &CaptureReport, recorder: Option<&RecorderStatus>) -> String {
    let recorder = recorder.map(|status| format!("; {}", recorded(status))).unwrap_or_default();
    format!("pmdscope: {}{recorder}", statistics(report, None).join(", "))
}

/// The same of files that are being read.
pub(super) fn replayed(report: &read::ReplayReport) -> String {
    let (read, captured) = (packets(report.read), packets(report.captured));
    let undirected = match report.undirected {
        0 => String::new(),
        count => format!(", {} without a direction excluded by -Q", packets(count)),
    };
    format!("pmdscope: {captured} captured, {read} read{undirected}")
}

/// A number of packets, as tcpdump writes it.
pub(super) fn packets(count: u64) -> String {
    format!("{count} {}", number::plural_noun(count, "packet"))
}

/// What happened to a file, where it is of interest.
pub(super) fn file(event: &FileEvent, filter: EventFilter) {
    match event {
        FileEvent::Closed(path) if filter.names => {
            let _ = output::print_line(&path.display().to_string());
        }
        FileEvent::Deleted(path) if filter.deleted => {
            say(format_args!("pmdscope: deleted {}", path.display()));
        }
        FileEvent::Waiting { name, packets: left } if filter.waiting => {
            say(waiting(name, *left));
        }
        FileEvent::Closed(_) | FileEvent::Deleted(_) | FileEvent::Waiting { .. } => {}
        FileEvent::Trouble(what) => say(format_args!("pmdscope: {what}")),
    }
}

/// What the end of a capture waits for.
pub(super) fn waiting(name: &str, left: u64) -> String {
    let left = packets(left);
    format!("pmdscope: waiting for {name} to take {left}; ^C again gives them up")
}

/// Packets of files that `-Q` excludes because their direction is unknown, if there are any.
pub(super) fn undirected(count: u64) {
    if count > 0 {
        say(format!(
            "pmdscope: -Q excluded {} without a direction in the file; -Q inout includes them",
            packets(count)
        ));
    }
}

/// Packets that did not arrive, if there are any.
pub(super) fn unwritten(progress: &SinkProgress) {
    if progress.lost > 0 {
        say(format!("{} lost: could not be written", packets(progress.lost)));
    }
}

/// With the apps that are helped to hand out packets, there is advice.
fn statistics(report: &CaptureReport, helped: Option<&[String]>) -> Vec<String> {
    let rings = &report.rings;
    let mut lines = vec![
        format!("{} captured", packets(report.captured)),
        format!("{} received by filter", packets(rings.passed_filter())),
        format!(
            "{} dropped by full capture rings{}",
            packets(rings.dropped),
            places(&report.dropped, helped)
        ),
    ];
    let window = REORDER_WINDOW.as_millis();
    let late = format!("out of order: their lcore was interrupted for more than {window} ms");
    let unwritten = if report.reader_gone {
        "lost because their reader closed before it took them"
    } else {
        "lost: could not be written"
    };
    let sampled = left_out(report);
    let optional = [
        (rings.sampled_out, sampled.as_str()),
        (report.skipped, "skipped (--skip)"),
        (report.surplus, "not written: they came after the last one that was asked for"),
        (report.unwritten, unwritten),
        (report.late, late.as_str()),
    ];
    let there = optional.iter().filter(|(count, _)| *count > 0);
    lines.extend(there.map(|(count, what)| format!("{} {what}", packets(*count))));
    if report.progress.files > 1 {
        let bytes = number::bytes(report.progress.bytes);
        lines.push(format!("{} files, {bytes}", report.progress.files));
    }
    lines.extend(report.by_ring.iter().map(ring));
    if report.nb_rings == 0 {
        lines.push("no lcore of the app polls".to_owned());
    }
    lines.extend(sampling::fixed(&report.fixed));
    lines
}

/// Why packets were left out, and how many.
fn left_out(report: &CaptureReport) -> String {
    let (mean, last) = (report.rings.mean_sample(), report.sample);
    let most = match report.highest_sample {
        most if most > last => format!(", at most 1 in {most}"),
        _ => String::new(),
    };
    format!("left out by sampling (1 in {mean:.2} kept on average, 1 in {last} at the end{most})")
}

/// The result of a ring that has a separate file.
fn ring(ring: &RingReport) -> String {
    let (captured, dropped) = (packets(ring.captured), ring.dropped);
    format!("{}: {captured}, {dropped} dropped, {}", ring.name, number::bytes(ring.bytes))
}

fn places(dropped: &[(String, u64)], helped: Option<&[String]>) -> String {
    if dropped.is_empty() {
        return String::new();
    }
    let places = dropped.iter().map(|(name, count)| format!("{name} {count}"));
    let places = places.collect::<Vec<_>>().join(", ");
    let names = dropped.iter().map(|(name, _)| name.as_str());
    let advice = helped
        .map(|helped| transport::cure(names, helped, "--ring-size, -s or a filter can help"))
        .map_or(String::new(), |cure| format!("; {cure}"));
    format!(" ({places}){advice}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use insta::assert_snapshot;
    use pmdscope_capture::{CaptureRingName, RingCounters};
    use pmdscope_packets::recorder::{FlightRecorder, RecorderSettings};
    use pmdscope_packets::{NullSink, Packet, PacketSink};

    use super::*;

    #[test]
    fn statistics_have_the_shape_of_tcpdump() {
        let report = CaptureReport { captured: 12, nb_rings: 1, ..CaptureReport::default() };
        assert_eq!(
            statistics(&report, None),
            [
                "12 packets captured",
                "0 packets received by filter",
                "0 packets dropped by full capture rings"
            ]
        );
    }

    #[test]
    fn one_packet_is_no_plural_and_a_signal_gets_one_line() {
        let report = CaptureReport { captured: 1, nb_rings: 1, ..CaptureReport::default() };
        let expected = "pmdscope: 1 packet captured, 0 packets received by filter, 0 packets \
                        dropped by full capture rings";
        assert_eq!(at_once(&report, None), expected);
    }

    /// A recorder of 10 s in 16 MiB, after this many packets of 1500 bytes, one every half millisecond.
    fn recorder(packets: u64) -> Arc<RecorderStatus> {
        let settings = RecorderSettings {
            path: "/x/incident.pcapng".into(),
            before: Duration::from_secs(10),
            after: Duration::from_millis(500),
            memory: pmdscope_packets::recorder::MIN_MEMORY,
            max_incidents: None,
            filters: Vec::new(),
        };
        let open = Box::new(|_: &Path| Ok(Box::new(NullSink::default()) as _));
        let (mut recorder, _) = FlightRecorder::start(settings, open).unwrap();
        for id in 0..packets {
            let packet = Packet {
                interface: 0,
                // In the future, so that what is held does not depend on the clock.
                ns: (1 << 62) + id * 500_000,
                data: &[7; 1500],
                len: 1500,
                dir: 1,
                queue: None,
                lcore: None,
                weight: 1,
                dropped: 0,
                id,
                comment: "",
                options: &[],
            };
            recorder.packet(&packet).unwrap();
        }
        recorder.flush().unwrap();
        recorder.status()
    }

    #[test]
    fn a_recorder_says_what_its_memory_can_hold() {
        assert_snapshot!(recording(&recorder(0)), @"pmdscope: flight recorder: 10 s before a trigger and 0.5 s after it, in 16 MiB, which hold all of it up to 1.5 MiB/s");
        let fits = recorder(1000);
        assert_eq!(fits.least_held(), None);
        assert!(!recorded(&fits).contains("too small"), "{}", recorded(&fits));
    }

    #[test]
    fn a_memory_that_is_too_small_is_told() {
        let fast = recorder(20_000);
        let held = fast.least_held().unwrap();
        assert_snapshot!(short_history(&fast, held), @"pmdscope: warning: the flight recorder holds 5.046 s of the 10 s of --before, because 16 MiB are full: at this rate --memory 32M would hold it; -s, --sample or a filter save memory");
        assert_snapshot!(recorded(&fast), @"flight recorder: 0.0 of 10.0 s held in 15 of 16 MiB, 9,744 packets evicted early, 0 triggers; --memory was too small: at times only 5.046 of 10 s");
        let report = CaptureReport { nb_rings: 1, ..CaptureReport::default() };
        let line = at_once(&report, Some(&fast));
        assert!(line.ends_with(&format!("capture rings; {}", recorded(&fast))), "{line}");
    }

    #[test]
    fn files_are_counted() {
        let progress = SinkProgress { files: 3, bytes: 5 << 20, ..SinkProgress::default() };
        let lines =
            statistics(&CaptureReport { nb_rings: 1, progress, ..CaptureReport::default() }, None);
        assert_eq!(lines[3..], ["3 files, 5.0 MiB"]);
    }

    #[test]
    fn each_ring_with_a_file_has_a_line() {
        let name = CaptureRingName { app: "fwd".into(), lcore: Some(2), sequence: 1 };
        let (file, bytes) = (Some("all/fwd-lcore2-1.pcapng".into()), 3 << 20);
        let ring =
            RingReport { name, captured: 9, received: 11, dropped: 2, unwritten: 0, bytes, file };
        let report = CaptureReport { nb_rings: 1, by_ring: vec![ring], ..CaptureReport::default() };
        let lines = statistics(&report, None);
        assert_eq!(lines[3..], ["fwd-lcore2-1: 9 packets, 2 dropped, 3.0 MiB"]);
    }

    #[test]
    fn losses_are_told_with_their_place() {
        let report = CaptureReport {
            captured: 12,
            rings: RingCounters { records: 15, dropped: 3, filtered: 9, sampled_out: 2 },
            dropped: vec![("rte:0".into(), 1), ("rte:1".into(), 2)],
            unwritten: 3,
            sample: 2,
            highest_sample: 4,
            fixed: vec!["old".into()],
            ..CaptureReport::default()
        };
        let lines = statistics(&report, Some(&[]));
        assert!(lines[2].ends_with("; --ring-size, -s or a filter can help"), "{}", lines[2]);
        let helped = statistics(&report, Some(&["rte".to_owned()]));
        assert!(helped[2].contains("; for pdump") && !helped[2].contains("-s or a filter"));
        assert_eq!(lines[1], "20 packets received by filter");
        assert!(lines[2].starts_with("3 packets dropped by full capture rings (rte:0 1, rte:1 2)"));
        let sampled = "2 packets left out by sampling (1 in 1.11 kept on average, 1 in 2 at the end, at most 1 in 4)";
        assert_eq!(lines[3], sampled);
        assert_eq!(lines[4], "3 packets lost: could not be written");
        assert_eq!(lines[5], "no lcore of the app polls");
        assert!(lines[6].starts_with("old: libpmdscope is too old"), "{}", lines[6]);
        let gone = CaptureReport { reader_gone: true, ..report };
        let lost = "3 packets lost because their reader closed before it took them";
        assert_eq!(statistics(&gone, None)[4], lost);
    }
}
