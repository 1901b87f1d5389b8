//! Captures of a model app with several threads, checked by the content of the files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_packets::read::{FileItem, FileReader};
use pmdscope_packets::{CallbackSink, DIR_RX, InterfaceStatistics, RunControl, SinkEvent};

use super::super::tests::{App, open, record, serve};
use super::*;
use crate::layout::TEE_END;
use crate::producer::{Listener, Peer, Producer, message};
use crate::source::ReopenApp;

const DURATION: Duration = Duration::from_millis(700);

/// Runs a capture; `runs` are the rings of each run of the app, and `after` gets the app's end of
/// each session.
fn capture(app: &App, threads: usize, runs: &[&[usize]], after: fn(usize, Peer)) -> CaptureReport {
    let into = app.dir.path().to_owned();
    let open: RingSinkOpener = Box::new(move |name| {
        let settings = FileSettings::new(into.join(format!("{name}.pcapng")));
        CaptureFiles::create(&settings).map(|files| Box::new(files) as Box<dyn PacketSink>)
    });
    capture_into(open, DURATION, app, threads, runs, after)
}

/// Like [`capture`], for `duration` and into sinks that `open` opens.
fn capture_into(
    open: RingSinkOpener,
    duration: Duration,
    app: &App,
    threads: usize,
    runs: &[&[usize]],
    after: fn(usize, Peer),
) -> CaptureReport {
    let path = app.dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    let fds = app.rings.iter().map(|ring| (&ring.data, &ring.tail)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (run, rings) in runs.iter().enumerate() {
                let rings = rings.iter().map(|ring| fds[*ring]).collect::<Vec<_>>();
                after(run, serve(&listener, &rings));
            }
        });
        let (ports, session) = self::open(&path).unwrap();
        let again = path.clone();
        let reopen: ReopenApp = Box::new(move || self::open(&again));
        let reopen = (runs.len() > 1).then_some(reopen);
        let (app, session) = ("model".into(), Some(session));
        let source = CaptureSource { app, via: None, ports, session, sample: 1, reopen };
        let settings = CaptureSettings { duration: Some(duration), ..CaptureSettings::default() };
        let capture = CaptureLoop::parallel(vec![source], settings, threads, open).unwrap();
        capture.run(&RunControl::default(), &mut ())
    })
}

/// Opens sinks that panic, at a packet or only at their end.
fn panicking(at_packet: bool) -> RingSinkOpener {
    Box::new(move |_| {
        Ok(Box::new(CallbackSink::new(move |event| {
            assert!(!at_packet && matches!(event, SinkEvent::Packet(_)), "as it is to");
            Ok(())
        })))
    })
}

/// Lengths of the packets, and the statistics.
fn contents(file: &Path) -> (Vec<u32>, Vec<InterfaceStatistics>) {
    let mut reader = FileReader::open(file).unwrap();
    let (mut lengths, mut all) = (Vec::new(), Vec::new());
    while reader.advance().unwrap() {
        match reader.item().unwrap() {
            FileItem::Packet(packet) => lengths.push(packet.len),
            FileItem::Statistics(statistics) => all.push(statistics),
            _ => {}
        }
    }
    (lengths, all)
}

fn files(app: &App) -> Vec<String> {
    let entries = std::fs::read_dir(app.dir.path()).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names = entries.map(|entry| name(entry).into_string().unwrap()).collect::<Vec<_>>();
    names.retain(|name| Path::new(name).extension() != Some("sock".as_ref()));
    names.sort();
    names
}

/// An app with one packet in its first ring, and more packets for the second than fit. Returns also
/// the numbers of packets held and dropped there.
fn busy() -> (App, u64, u64) {
    let mut app = App::new(2);
    app.rings[0].push(record(0, DIR_RX, 10), &[1; 60]);
    let mut held = 0;
    while app.rings[1].push(record(0, DIR_RX, 20), &[2; 1000]) {
        held += 1;
    }
    app.rings[1].push(record(0, DIR_RX, 20), &[2; 1000]);
    app.rings.iter().for_each(Producer::publish);
    (app, held, 2)
}

#[test]
fn each_lcore_has_a_file_with_counts_of_its_own() {
    for threads in [1, 2, 5] {
        let (app, held, dropped) = busy();
        let report = capture(&app, threads, &[&[0, 1]], |_, peer| std::mem::forget(peer));
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!((report.captured, report.rings.records), (held + 1, held + 1));
        assert_eq!((report.rings.dropped, report.nb_rings), (dropped, 2));
        assert_eq!(report.dropped, [("model:0".to_owned(), dropped)]);
        assert_eq!((report.progress.files, report.progress.written), (2, held + 1));
        assert_eq!(files(&app), ["model-lcore0-1.pcapng", "model-lcore1-1.pcapng"]);
        let by_ring = report.by_ring.iter().map(|ring| (ring.captured, ring.dropped));
        assert_eq!(by_ring.collect::<Vec<_>>(), [(1, 0), (held, dropped)]);
        let file = |index: usize| report.by_ring[index].file.clone().unwrap();
        let (lengths, statistics) = contents(&file(0));
        assert_eq!((lengths, statistics[0].received), (vec![60], Some(1)));
        let (lengths, statistics) = contents(&file(1));
        assert_eq!((lengths.len() as u64, statistics.len()), (held, 1));
        assert_eq!((statistics[0].received, statistics[0].dropped), (Some(held + 2), Some(2)));
    }
}

#[test]
fn an_app_that_comes_back_has_files_of_its_own() {
    let mut app = App::new(2);
    // Both rings are of lcore 0, before and after a restart.
    app.rings[1] = Producer::new(crate::layout::RING_MIN_SIZE, 0);
    app.rings[1].anchor(super::super::tests::start(), super::super::tests::second());
    app.rings[0].push(record(0, DIR_RX, 10), &[1; 60]);
    app.rings[1].push(record(0, DIR_RX, 20), &[2; 61]);
    app.rings.iter().for_each(Producer::publish);
    let report = capture(&app, 2, &[&[0], &[1]], |run, peer| match run {
        0 => drop(peer),
        _ => std::mem::forget(peer),
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.captured, report.ended), (2, vec!["model".to_owned()]));
    assert_eq!(files(&app), ["model-lcore0-1.pcapng", "model-lcore0-2.pcapng"]);
    let lengths = |index: usize| contents(report.by_ring[index].file.as_deref().unwrap()).0;
    assert_eq!((lengths(0), lengths(1)), (vec![60], vec![61]));
}

#[test]
fn a_broken_ring_ends_the_capture_and_all_files_are_complete() {
    let (mut app, held, _) = busy();
    app.rings[0].poke(crate::layout::RING_HEADER_SIZE + 96, &[9; 64]);
    app.rings[0].set_head(160);
    let report = capture(&app, 2, &[&[0, 1]], |_, peer| std::mem::forget(peer));
    assert!(matches!(report.failure, Some(CaptureError::Record(_))), "{:?}", report.failure);
    assert_eq!(report.captured, held + 1);
    assert_eq!(files(&app), ["model-lcore0-1.pcapng", "model-lcore1-1.pcapng"]);
}

#[test]
fn an_end_with_an_error_is_told_after_everything_was_written() {
    let (app, held, _) = busy();
    let report = capture(&app, 2, &[&[0, 1]], |_, peer| {
        peer.send(&message(TEE_END, 110, "the ring was not read for 5 s"), &[]);
    });
    assert!(report.failure.unwrap().to_string().ends_with("for 5 s"));
    assert_eq!(report.captured, held + 1);
}

#[test]
fn a_file_that_cannot_be_opened_ends_the_capture() {
    let (app, ..) = busy();
    let taken: PathBuf = app.dir.path().join("model-lcore1-1.pcapng");
    std::fs::create_dir(&taken).unwrap();
    let report = capture(&app, 2, &[&[0, 1]], |_, peer| std::mem::forget(peer));
    let failure = report.failure.unwrap();
    assert!(matches!(failure, CaptureError::Sink(SinkError::Open { .. })), "{failure:?}");
    assert_eq!(contents(&app.dir.path().join("model-lcore0-1.pcapng")).0, [60]);
}

#[test]
fn a_thread_that_panics_ends_the_capture() {
    let (app, ..) = busy();
    // Nothing else ends the capture.
    let duration = Duration::from_secs(3600);
    let report = capture_into(panicking(true), duration, &app, 2, &[&[0, 1]], |_, peer| {
        std::mem::forget(peer);
    });
    assert!(matches!(report.failure, Some(CaptureError::Panicked)), "{:?}", report.failure);
}

#[test]
fn a_panic_at_the_end_of_a_ring_is_an_error() {
    for runs in [&[&[0_usize][..]][..], &[&[0], &[1]]] {
        let (app, ..) = busy();
        let report =
            capture_into(panicking(false), DURATION, &app, 2, runs, |run, peer| match run {
                0 => drop(peer),
                _ => std::mem::forget(peer),
            });
        assert!(matches!(report.failure, Some(CaptureError::Panicked)), "{:?}", report.failure);
    }
}

#[test]
fn an_app_may_count_any_number_of_drops() {
    let app = App::new(2);
    for ring in &app.rings {
        for counter in [crate::layout::PORT_DROPPED, crate::layout::RECORDS] {
            ring.poke(counter, &u64::MAX.to_ne_bytes());
        }
    }
    let report = capture(&app, 2, &[&[0, 1]], |_, peer| std::mem::forget(peer));
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.dropped, [("model:0".to_owned(), u64::MAX)]);
    assert_eq!(report.rings.records, u64::MAX);
}

#[test]
fn names_tell_app_lcore_and_number() {
    let name = |lcore| CaptureRingName { app: "fwd".into(), lcore, sequence: 3 }.to_string();
    assert_eq!([name(Some(12)), name(None)], ["fwd-lcore12-3", "fwd-3"]);
}
