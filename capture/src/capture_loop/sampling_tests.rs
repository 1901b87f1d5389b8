//! Captures of a model app with a sampling that changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pmdscope_packets::{CallbackSink, DIR_RX, SinkEvent};

use super::super::tests::{App, open, record, serve};
use super::super::{CaptureLoop, CaptureReport, RunControl};
use crate::layout::{ChangeMessage, RING_MIN_SIZE, TEE_SAMPLE};
use crate::producer::{Listener, Peer, Producer};
use crate::source::{CaptureSettings, CaptureSource, ReopenApp};

/// Runs a capture that was requested with a sampling, against one app or its successors.
fn capture(
    app: &App,
    sample: u32,
    settings: CaptureSettings,
    control: &RunControl,
    after: impl Fn(usize, Peer) + Send,
) -> (CaptureReport, Vec<(u16, u32)>) {
    let path = app.dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    let fds = app.rings.iter().map(|ring| (&ring.data, &ring.tail)).collect::<Vec<_>>();
    let weights = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&weights);
    let sink = CallbackSink::new(move |event| {
        if let SinkEvent::Packet(packet) = event {
            noted.lock().unwrap().push((packet.lcore.unwrap(), packet.weight));
        }
        Ok(())
    });
    let report = std::thread::scope(|scope| {
        scope.spawn(move || {
            after(0, serve(&listener, &fds));
            if settings.count.is_some() {
                after(1, serve(&listener, &fds));
            }
        });
        let (ports, session) = open(&path).unwrap();
        let session = Some(session);
        let again = path.clone();
        let reopen: ReopenApp = Box::new(move || open(&again));
        let reopen = settings.count.is_some().then_some(reopen);
        let source =
            CaptureSource { app: "model".into(), via: None, ports, session, sample, reopen };
        CaptureLoop::new(vec![source], settings, Box::new(sink)).run(control, &mut ())
    });
    let weights = weights.lock().unwrap().clone();
    (report, weights)
}

fn asked(sample: u32) -> Vec<u8> {
    ChangeMessage { kind: TEE_SAMPLE, value: sample }.encode().to_vec()
}

fn wanting(sample: u32) -> RunControl {
    let control = RunControl::default();
    control.sample.store(sample, std::sync::atomic::Ordering::Relaxed);
    control
}

#[test]
fn each_ring_weighs_its_packets_by_its_own_markers() {
    let mut app = App::new(2);
    app.rings[0].push(record(0, DIR_RX, 10), &[0; 60]);
    app.rings[1].push(record(0, DIR_RX, 20), &[0; 60]);
    app.rings[0].publish();
    assert!(app.rings[0].resample(64));
    app.rings[0].push(record(0, DIR_RX, 30), &[0; 60]);
    app.rings[1].push(record(0, DIR_RX, 40), &[0; 60]);
    assert!(app.rings[1].resample(2));
    app.rings[1].push(record(0, DIR_RX, 50), &[0; 60]);
    app.rings[0].push(record(0, DIR_RX, 60), &[0; 60]);
    app.rings.iter().for_each(Producer::publish);
    let (report, weights) =
        capture(&app, 8, CaptureSettings::default(), &RunControl::default(), |_, peer| drop(peer));
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(weights, [(0, 8), (1, 8), (0, 64), (1, 8), (1, 2), (0, 64)]);
    assert_eq!((report.sample, report.fixed.len()), (64, 0));
    assert!(report.fill > 0.0 && report.fill < 0.01, "{}", report.fill);
}

#[test]
fn an_app_is_asked_once_for_what_the_control_wants() {
    let app = App::new(1);
    let settings = CaptureSettings {
        duration: Some(Duration::from_millis(200)),
        ..CaptureSettings::default()
    };
    let (report, _) = capture(&app, 1, settings, &wanting(16), |_, peer| {
        assert_eq!(peer.receive(), Some(asked(16)));
        assert_eq!(peer.receive(), None);
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    // It has not changed its sampling.
    assert_eq!((report.sample, report.fixed.len()), (1, 0));
}

#[test]
fn an_unchanged_sampling_rate_is_not_sent_again() {
    for (wanted, sample) in [(0, 4), (4, 4), (1, 0), (1, 1)] {
        let app = App::new(1);
        let settings = CaptureSettings {
            duration: Some(Duration::from_millis(50)),
            ..CaptureSettings::default()
        };
        let (report, _) = capture(&app, sample, settings, &wanting(wanted), |_, peer| {
            assert_eq!(peer.receive(), None);
        });
        assert_eq!(report.sample, sample.max(1));
    }
}

#[test]
fn an_app_with_an_older_library_is_left_alone_and_named() {
    let mut app = App::new(1);
    app.rings.push(Producer::old(RING_MIN_SIZE, 1));
    let settings =
        CaptureSettings { duration: Some(Duration::from_millis(50)), ..CaptureSettings::default() };
    let (report, _) = capture(&app, 4, settings, &wanting(16), |_, peer| {
        assert_eq!(peer.receive(), None);
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.sample, report.fixed), (4, vec!["model".to_owned()]));
}

#[test]
fn an_app_that_has_no_ring_yet_is_not_asked() {
    let app = App { dir: tempfile::tempdir().unwrap(), rings: Vec::new() };
    let settings =
        CaptureSettings { duration: Some(Duration::from_millis(50)), ..CaptureSettings::default() };
    let (report, _) = capture(&app, 1, settings, &wanting(16), |_, peer| {
        assert_eq!(peer.receive(), None);
    });
    assert!(report.fixed.is_empty());
}

#[test]
fn an_app_that_comes_back_is_asked_again() {
    let app = App::new(1);
    let settings = CaptureSettings {
        count: Some(1),
        duration: Some(Duration::from_secs(2)),
        ..CaptureSettings::default()
    };
    let (report, _) = capture(&app, 1, settings, &wanting(16), |_, peer| {
        assert_eq!(peer.receive(), Some(asked(16)));
    });
    assert_eq!(report.ended[0], "model");
}
