//! Complete captures of a model app, checked with tshark.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_packets::read::{FileItem, FileReader};
use pmdscope_packets::{DIR_RX, DIR_TX, MAX_SNAPLEN};
use pmdscope_testing::output;

use super::*;
use crate::layout::{
    CaptureRequest, ClockAnchor, HEAD, IN_BURST, QueueSelect, RING_MIN_SIZE, TEE_ACCEPT, TEE_END,
};
use crate::producer::{Listener, Peer, Producer, message};
use crate::session::CaptureSession;
use crate::source::{CapturePort, ReopenApp};

const HZ: u64 = 2_500_000_000;
const RAW_BASE: u64 = 1_000_000_000;
const WALL_BASE: u64 = 1_780_000_000_000_000_000;

/// A model app with its own clock: TSC 0 is at one second of raw time.
pub(super) struct App {
    pub(super) dir: tempfile::TempDir,
    pub(super) rings: Vec<Producer>,
}

/// The TSC `ms` milliseconds after the app's start.
fn tsc(ms: u64) -> u64 {
    ms * HZ / 1000
}

pub(super) fn start() -> ClockAnchor {
    ClockAnchor { tsc: 0, realtime_ns: WALL_BASE, raw_ns: RAW_BASE }
}

pub(super) fn second() -> ClockAnchor {
    ClockAnchor { tsc: HZ, realtime_ns: WALL_BASE + 1_000_000_000, raw_ns: 2 * RAW_BASE }
}

impl App {
    pub(super) fn new(lcores: u16) -> Self {
        let first = start();
        let rings =
            (0..lcores).map(|lcore| Producer::new(RING_MIN_SIZE, lcore)).collect::<Vec<_>>();
        for ring in &rings {
            ring.anchor(first, second());
        }
        Self { dir: tempfile::tempdir().unwrap(), rings }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("out.pcapng")
    }

    /// Runs a capture; `after` gets the app's end of the session once the rings are handed over.
    fn capture(
        &self,
        settings: CaptureSettings,
        control: &RunControl,
        after: impl FnOnce(Peer) + Send,
    ) -> CaptureReport {
        let files = CaptureFiles::create(&FileSettings::new(self.file())).unwrap();
        self.capture_into(files, settings, control, after)
    }

    /// Like `capture`, into other files.
    fn capture_into(
        &self,
        files: CaptureFiles,
        settings: CaptureSettings,
        control: &RunControl,
        after: impl FnOnce(Peer) + Send,
    ) -> CaptureReport {
        let path = self.dir.path().join("pmdscope.sock");
        let listener = Listener::bind(&path);
        let rings = &self.rings;
        // Mapped memory is not Sync in the model, but descriptors are: only these are moved to the
        // thread.
        let fds = rings.iter().map(|ring| (&ring.data, &ring.tail)).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            scope.spawn(move || after(serve(&listener, &fds)));
            let (ports, session) = open(&path).unwrap();
            let session = Some(session);
            let app = "model".into();
            let source = CaptureSource { app, via: None, ports, session, sample: 1, reopen: None };
            CaptureLoop::new(vec![source], settings, Box::new(files)).run(control, &mut ())
        })
    }
}

/// Accepts one consumer and hands it these rings.
pub(super) fn serve(listener: &Listener, rings: &[(&File, &File)]) -> Peer {
    let (peer, _) = listener.accept();
    peer.send(&message(TEE_ACCEPT, 1, ""), &[]);
    for (data, tail) in rings {
        peer.send(&message(crate::layout::TEE_RING, 0, ""), &[data, tail]);
    }
    peer
}

pub(super) fn open(path: &Path) -> Option<(Vec<CapturePort>, CaptureSession)> {
    let selects = vec![QueueSelect { port: 0, queue: 0, dirs: 3 }];
    let request = CaptureRequest { selects, ..CaptureRequest::default() };
    let session = CaptureSession::open(path, &request, Duration::from_secs(5)).ok()?;
    Some((vec![CapturePort { id: 0, device: "net_model0".into(), selected: true }], session))
}

pub(super) fn record(port: u16, dir: u8, ms: u64) -> RingRecord {
    RingRecord { port, dir, queue: 2, tsc: tsc(ms), ..RingRecord::default() }
}

/// The fields of each packet as tshark reads them; `None`, with a report, if it is not installed.
fn tshark(file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
    let out = output(command.arg("-r").arg(file))?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn never() -> RunControl {
    RunControl::default()
}

/// Large and small packets in a ring that wraps around.
#[test]
fn large_packets_come_whole_out_of_a_ring_into_every_file() {
    let start = u64::from(RING_MIN_SIZE) * 9 / 16;
    for dir in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        let mut app = App::new(1);
        let ring = &mut app.rings[0];
        ring.tail.write_all_at(&start.to_ne_bytes(), 0).unwrap();
        ring.set_head(start);
        let data = |id: u64| vec![id as u8 ^ 0x5a; [60, 1514, 1500, 999, 512][id as usize % 5]];
        for id in 0..50 {
            assert!(ring.push(record(0, DIR_RX, 10 + id), &data(id)));
        }
        ring.publish();
        let dir = tempfile::tempdir_in(dir).unwrap();
        let path = dir.path().join("out.pcapng");
        let files = CaptureFiles::create(&FileSettings::new(&path)).unwrap();
        let control = never();
        let report = app.capture_into(files, CaptureSettings::default(), &control, |peer| {
            std::thread::sleep(Duration::from_millis(200));
            drop(peer);
        });
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!((report.captured, report.unwritten), (50, 0));
        assert_eq!(app.rings[0].tail(), app.rings[0].head(), "all room is given back");
        let mut reader = FileReader::open(&path).unwrap();
        let mut ids = 0..;
        while reader.advance().unwrap() {
            if let FileItem::Packet(packet) = reader.item().unwrap() {
                assert_eq!(packet.data, data(ids.next().unwrap()));
            }
        }
        assert_eq!(ids.start, 50);
    }
}

#[test]
fn packets_published_before_an_app_died_are_written_in_order() {
    let mut app = App::new(2);
    app.rings[0].push(record(0, DIR_RX, 10), &[1; 60]);
    app.rings[0].push(record(0, DIR_TX, 30), &[3; 64]);
    app.rings[1].push(record(7, DIR_RX, 20), &[2; 62]);
    app.rings.iter().for_each(Producer::publish);
    let report = app.capture(CaptureSettings::default(), &never(), drop);
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.captured, report.rings.records, report.late), (3, 3, 0));
    assert_eq!(report.ended, ["model"]);
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.interface_description",
        "frame.packet_flags_direction",
        "frame.interface_queue",
        "frame.len",
    ];
    if let Some(rows) = tshark(&app.file(), &fields) {
        let expected = [
            ["1780000000.010000000", "model:0", "net_model0", "0x00000001", "2", "60"],
            ["1780000000.020000000", "model:7", "", "0x00000001", "2", "62"],
            ["1780000000.030000000", "model:0", "net_model0", "0x00000002", "2", "64"],
        ];
        assert_eq!(rows, expected);
    }
}

/// Returns the number of packets out of order if the earlier one of two, from different rings, is
/// published 5 ms after the later one.
fn late_after_a_long_burst() -> u64 {
    let mut app = App::new(2);
    let raw_ns = raw_clock_ns() + 20_000_000;
    let soon = u64::try_from(u128::from(raw_ns - RAW_BASE) * u128::from(HZ) / 1_000_000_000);
    let tsc = soon.unwrap();
    app.rings[0].push(RingRecord { tsc: tsc + HZ / 1000, ..record(0, DIR_RX, 0) }, &[1; 60]);
    app.rings[0].publish();
    app.rings[1].push(RingRecord { tsc, ..record(0, DIR_RX, 0) }, &[2; 60]);
    app.rings[1].set_in_burst(true);
    let data = app.rings[1].data.try_clone().unwrap();
    let head = app.rings[1].head();
    let report = app.capture(CaptureSettings::default(), &never(), |peer| {
        let due = Duration::from_nanos(raw_ns + 6_000_000);
        std::thread::sleep(due.saturating_sub(Duration::from_nanos(raw_clock_ns())));
        data.write_all_at(&head.to_ne_bytes(), HEAD as u64).unwrap();
        data.write_all_at(&0u32.to_ne_bytes(), IN_BURST as u64).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(peer);
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.captured, 2);
    report.late
}

/// Several times: one of the threads may be without a CPU for longer than the reorder window.
#[test]
fn packets_of_a_burst_that_is_not_published_are_waited_for() {
    assert!((0..10).any(|_| late_after_a_long_burst() == 0));
}

#[derive(Default)]
struct EventLog(Vec<String>);

impl CaptureObserver for EventLog {
    fn ended(&mut self, app: &str, awaited: bool) {
        self.0.push(format!("{app} ended, awaited: {awaited}"));
    }

    fn returned(&mut self, app: &str) {
        self.0.push(format!("{app} returned"));
    }
}

#[test]
fn an_app_that_comes_back_is_captured_on_in_a_new_section() {
    let mut app = App::new(2);
    app.rings[0].push(record(0, DIR_RX, 10), &[1; 60]);
    app.rings[1].push(record(0, DIR_RX, 20), &[2; 61]);
    app.rings.iter().for_each(Producer::publish);
    let path = app.dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    let fds = app.rings.iter().map(|ring| (&ring.data, &ring.tail)).collect::<Vec<_>>();
    let mut log = EventLog::default();
    let report = std::thread::scope(|scope| {
        scope.spawn(move || {
            drop(serve(&listener, &fds[..1]));
            std::mem::forget(serve(&listener, &fds[1..]));
        });
        let (ports, session) = open(&path).unwrap();
        let session = Some(session);
        let again = path.clone();
        let reopen: ReopenApp = Box::new(move || open(&again));
        let reopen = Some(reopen);
        let source =
            CaptureSource { app: "model".into(), via: None, ports, session, sample: 1, reopen };
        let files = CaptureFiles::create(&FileSettings::new(app.file())).unwrap();
        let settings = CaptureSettings { count: Some(2), ..CaptureSettings::default() };
        let control = RunControl::default();
        CaptureLoop::new(vec![source], settings, Box::new(files)).run(&control, &mut log)
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!((report.captured, report.rings.records, report.nb_rings), (2, 2, 2));
    assert_eq!(log.0, ["model ended, awaited: true", "model returned"]);
    let fields = ["frame.section_number", "frame.interface_name", "frame.len"];
    if let Some(rows) = tshark(&app.file(), &fields) {
        assert_eq!(rows, [["1", "model:0", "60"], ["2", "model:0", "61"]]);
    }
}

#[test]
fn exactly_the_requested_number_of_packets_is_written() {
    let mut app = App::new(1);
    for ms in 0..100 {
        app.rings[0].push(record(0, DIR_RX, ms), &[0; 60]);
    }
    app.rings[0].publish();
    let settings = CaptureSettings { skip: 10, count: Some(17), ..CaptureSettings::default() };
    let report = app.capture(settings, &never(), std::mem::forget);
    assert_eq!((report.captured, report.rings.records), (17, 100));
    assert_eq!((report.skipped, report.surplus, report.unwritten), (10, 73, 0));
    if let Some(rows) = tshark(&app.file(), &["frame.number"]) {
        assert_eq!(rows.len(), 17);
    }
}

#[test]
fn packets_that_are_still_in_the_rings_when_the_reader_closes_are_lost() {
    let mut app = App::new(1);
    for ms in 0..50 {
        app.rings[0].push(record(0, DIR_RX, ms), &[0; 60]);
    }
    app.rings[0].publish();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let files = CaptureFiles::onto(file, "pipe", &FileSettings::default()).unwrap();
    let report = app.capture_into(files, CaptureSettings::default(), &never(), std::mem::forget);
    assert!(report.reader_gone, "{report:?}");
    // The ring may not even have been seen.
    assert_eq!((report.captured, report.unwritten), (0, report.rings.records));
}

#[test]
fn what_a_reader_did_not_take_before_it_closed_is_lost() {
    let mut app = App::new(1);
    for ms in 0..40 {
        app.rings[0].push(record(0, DIR_RX, ms), &[0; 1000]);
    }
    app.rings[0].publish();
    let (reader, writer) = std::io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let files = CaptureFiles::onto(file, "pipe", &FileSettings::default()).unwrap();
    let report = app.capture_into(files, CaptureSettings::default(), &never(), move |peer| {
        // Waits until all packets are in the pipe.
        while rustix::io::ioctl_fionread(&reader).unwrap() < 40_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(reader);
        std::mem::forget(peer);
    });
    assert!(report.failure.is_none() && report.reader_gone, "{report:?}");
    assert_eq!((report.captured, report.unwritten, report.rings.records), (0, 40, 40));
}

#[test]
fn drops_are_in_the_packet_after_the_gap_and_in_the_report() {
    let mut app = App::new(1);
    while app.rings[0].push(record(0, DIR_RX, 1), &[0; 1000]) {}
    app.rings[0].push(record(0, DIR_RX, 1), &[0; 1000]);
    app.rings[0].publish();
    let mut producer = app.rings.pop().unwrap();
    let (data, tail) = producer.fds();
    let mut ring = Ring::map(data, tail).unwrap();
    let mut records = RecordStream::new(0, ring.data_size(), MAX_SNAPLEN);
    ring.read(usize::MAX, &mut records).unwrap();
    producer.push(record(0, DIR_RX, 2), &[0; 60]);
    producer.publish();
    app.rings.push(producer);
    let report = app.capture(CaptureSettings::default(), &never(), drop);
    assert_eq!(report.rings.dropped, 2);
    assert_eq!(report.dropped, [("model:0".to_owned(), 2)]);
    if let Some(rows) = tshark(&app.file(), &["frame.drop_count"]) {
        assert_eq!(rows, [["2"]]);
    }
}

#[test]
fn a_broken_record_ends_the_capture_and_leaves_what_came_before() {
    let mut app = App::new(1);
    app.rings[0].push(record(0, DIR_RX, 1), &[0; 60]);
    app.rings[0].poke(crate::layout::RING_HEADER_SIZE + 96, &[9; 64]);
    app.rings[0].set_head(160);
    let report = app.capture(CaptureSettings::default(), &never(), std::mem::forget);
    assert!(matches!(report.failure, Some(CaptureError::Record(_))), "{:?}", report.failure);
    assert_eq!(report.captured, 1);
    if let Some(rows) = tshark(&app.file(), &["frame.number"]) {
        assert_eq!(rows, [["1"]]);
    }
}

#[test]
fn an_end_with_an_error_is_a_failure_after_everything_was_written() {
    let mut app = App::new(1);
    app.rings[0].push(record(0, DIR_RX, 1), &[0; 60]);
    app.rings[0].publish();
    let report = app.capture(CaptureSettings::default(), &never(), |peer| {
        peer.send(&message(TEE_END, 110, "the ring was not read for 5 s"), &[]);
    });
    let failure = report.failure.unwrap().to_string();
    assert_eq!(failure, "the capture from model has ended: the ring was not read for 5 s");
    assert_eq!(report.captured, 1);
}

#[test]
fn stop_and_duration_end_an_idle_capture() {
    let app = App::new(1);
    let stopped = RunControl { stop: Arc::new(AtomicBool::new(true)), ..RunControl::default() };
    let report = app.capture(CaptureSettings::default(), &stopped, std::mem::forget);
    assert!(report.failure.is_none() && report.captured == 0);
    let app = App::new(1);
    let settings =
        CaptureSettings { duration: Some(Duration::from_millis(50)), ..CaptureSettings::default() };
    let begin = Instant::now();
    let report = app.capture(settings, &never(), std::mem::forget);
    assert!(report.failure.is_none() && begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(report.nb_rings, 1);
    if let Some(rows) = tshark(&app.file(), &["frame.number"]) {
        assert!(rows.is_empty());
    }
}

#[test]
fn a_clock_that_comes_late_is_waited_for() {
    let mut app = App::new(1);
    app.rings[0].anchor(ClockAnchor::default(), ClockAnchor::default());
    app.rings[0].push(record(0, DIR_RX, 1), &[0; 60]);
    app.rings[0].publish();
    let data = app.rings[0].data.try_clone().unwrap();
    let settings =
        CaptureSettings { duration: Some(Duration::from_millis(20)), ..CaptureSettings::default() };
    let report = app.capture(settings, &never(), move |peer| {
        std::thread::sleep(Duration::from_millis(300));
        Producer::write_anchors(
            &data,
            ClockAnchor { raw_ns: RAW_BASE, ..ClockAnchor::default() },
            second(),
        );
        std::mem::forget(peer);
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.captured, 1);
}
