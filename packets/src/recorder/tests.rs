//! Tests of recorders, compared with a plain list of all packets.

mod disk;
mod model;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use proptest::prelude::*;

use super::*;
use crate::file::{CaptureFiles, FileSettings};
use crate::packet::ETHERNET;

/// Far in the future: no incident ends because of the real clock.
const BASE: u64 = 1 << 62;
const SECOND: u64 = 1_000_000_000;

/// A packet that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) ns: u64,
    pub(super) id: u64,
    pub(super) interface: u32,
    pub(super) queue: Option<u16>,
    pub(super) dir: u8,
    pub(super) len: u32,
    pub(super) weight: u32,
    pub(super) dropped: u64,
    pub(super) comment: String,
    pub(super) data: Vec<u8>,
}

impl Owned {
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        Self {
            ns: packet.ns,
            id: packet.id,
            interface: packet.interface,
            queue: packet.queue,
            dir: packet.dir,
            len: packet.len,
            weight: packet.weight,
            dropped: packet.dropped,
            comment: packet.comment.to_owned(),
            data: packet.data.to_vec(),
        }
    }

    pub(super) fn packet(&self) -> Packet<'_> {
        Packet {
            interface: self.interface,
            ns: self.ns,
            data: &self.data,
            len: self.len,
            dir: self.dir,
            queue: self.queue,
            lcore: None,
            weight: self.weight,
            dropped: self.dropped,
            id: self.id,
            comment: &self.comment,
            options: &[],
        }
    }
}

prop_compose! {
    fn any_packet()(
        ns: u64,
        id: u64,
        interface: u32,
        queue: Option<u16>,
        dir in 0..3u8,
        cut in prop_oneof![3 => Just(0), 1 => any::<u32>()],
        weight in prop_oneof![3 => Just(1), 1 => any::<u32>()],
        dropped in prop_oneof![3 => Just(0), 1 => any::<u64>()],
        comment in prop_oneof![3 => Just(String::new()), 1 => ".{0,20}"],
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) -> Owned {
        let len = (data.len() as u32).saturating_add(cut);
        Owned { ns, id, interface, queue, dir, len, weight, dropped, comment, data }
    }
}

/// Returns packets with any content, some of them similar to the previous ones.
pub(super) fn any_packets() -> impl Strategy<Value = Vec<Owned>> {
    let similar = (any_packet(), 1..4usize).prop_map(|(packet, times)| {
        let next = |n| Owned { id: packet.id.wrapping_add(n as u64), ..packet.clone() };
        (0..times).map(next).collect::<Vec<_>>()
    });
    prop::collection::vec(similar, 0..20).prop_map(|groups| groups.concat())
}

/// The calls for one file.
#[derive(Clone, Debug, Default)]
struct Seen {
    path: PathBuf,
    /// Application of each section, and its interfaces.
    sections: Vec<(String, Vec<CaptureInterface>)>,
    /// Packets, with the number of their section in the file.
    packets: Vec<(usize, Owned)>,
    counters: Vec<Vec<InterfaceStatistics>>,
    complete: bool,
}

/// All files of a recorder; while `shut` is set, packets wait.
#[derive(Debug, Default)]
struct Disk {
    files: Mutex<Vec<Seen>>,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Disk {
    fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn opener(self: &Arc<Self>) -> SinkOpener {
        let disk = Arc::clone(self);
        Box::new(move |path: &Path| {
            let seen = Seen { path: path.to_owned(), ..Seen::default() };
            disk.files.lock().unwrap().push(seen);
            Ok(Box::new(IncidentFile(Arc::clone(&disk))))
        })
    }

    fn files(&self) -> Vec<Seen> {
        self.files.lock().unwrap().clone()
    }
}

#[derive(Debug)]
struct IncidentFile(Arc<Disk>);

impl IncidentFile {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(self.0.files.lock().unwrap().last_mut().unwrap());
    }
}

impl PacketSink for IncidentFile {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        self.change(|seen| seen.sections.push((origin.application.clone(), Vec::new())));
        Ok(())
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        self.change(|seen| seen.sections.last_mut().unwrap().1.push(interface.clone()));
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        let shut = self.0.shut.lock().unwrap();
        drop(self.0.opened.wait_while(shut, |shut| *shut).unwrap());
        self.change(|seen| seen.packets.push((seen.sections.len() - 1, Owned::of(packet))));
        Ok(())
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        self.change(|seen| seen.counters.push(statistics.to_vec()));
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> SinkProgress {
        let written = self.0.files.lock().unwrap().last().unwrap().packets.len() as u64;
        SinkProgress { written, ..SinkProgress::default() }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.change(|seen| seen.complete = true);
        Ok(())
    }
}

fn settings(before: u64, after: u64) -> RecorderSettings {
    RecorderSettings {
        path: PathBuf::from("/tmp/incident.pcapng"),
        before: Duration::from_nanos(before),
        after: Duration::from_nanos(after),
        memory: MIN_MEMORY,
        max_incidents: None,
        filters: Vec::new(),
    }
}

fn interface(name: &str) -> CaptureInterface {
    CaptureInterface {
        name: name.to_owned(),
        description: String::new(),
        filter: String::new(),
        comment: "known".to_owned(),
        options: Vec::new(),
        snaplen: 262_144,
        linktype: ETHERNET,
    }
}

/// Returns a recorder with a section of one interface, without packets.
fn recorder(settings: RecorderSettings) -> (FlightRecorder, TriggerSender, Arc<Disk>) {
    let disk = Arc::<Disk>::default();
    let (mut recorder, fire) = FlightRecorder::start(settings, disk.opener()).unwrap();
    section(&mut recorder, "first");
    (recorder, fire, disk)
}

fn section(recorder: &mut FlightRecorder, application: &str) {
    let origin = SectionOrigin { application: application.to_owned(), ..SectionOrigin::default() };
    recorder.section(&origin).unwrap();
    recorder.interface(&interface("rte:0")).unwrap();
}

fn at(ns: u64) -> Owned {
    Owned { ns: BASE + ns, id: ns, len: 8, data: ns.to_ne_bytes().to_vec(), ..Owned::default() }
}

fn send(recorder: &mut FlightRecorder, times: impl IntoIterator<Item = u64>) {
    for ns in times {
        recorder.packet(&at(ns).packet()).unwrap();
    }
}

/// Waits until the writer has processed all messages.
fn settle(recorder: &FlightRecorder) {
    while recorder.writer.backlog() > 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn trigger(name: &str, ns: u64) -> RecorderTrigger {
    RecorderTrigger { moment_ns: BASE + ns, ..RecorderTrigger::now(name, "why") }
}

fn times(seen: &Seen) -> Vec<u64> {
    seen.packets.iter().map(|(_, packet)| packet.ns - BASE).collect()
}

/// Returns the times of the packets with a comment.
fn marked(seen: &Seen) -> Vec<u64> {
    let marked = seen.packets.iter().filter(|(_, packet)| !packet.comment.is_empty());
    marked.map(|(_, packet)| packet.ns - BASE).collect()
}

#[test]
fn before_and_after_are_exact_to_the_nanosecond() {
    let (mut recorder, fire, disk) = recorder(settings(10, 5));
    send(&mut recorder, 80..100);
    assert!(fire.fire(trigger("stall", 100)));
    send(&mut recorder, 100..120);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!(times(&seen), (90..=105).collect::<Vec<_>>());
    assert_eq!(marked(&seen), [100]);
    assert_eq!(
        seen.packets[10].1.comment,
        "trigger stall at 2116-02-20T23:53:38.427388004Z: why; history held: 0.00000001 s"
    );
    assert!(seen.path.to_str().unwrap().ends_with("-1-stall.pcapng"), "{:?}", seen.path);
    assert!(seen.complete);
    assert_eq!(recorder.progress().written, 16);
}

/// Clocks are coarse: packets of a burst have the same time.
#[test]
fn the_packet_that_matches_has_the_comment_and_not_the_first_of_its_burst() {
    let filters = vec![PacketTrigger::new("udp port 53").unwrap()];
    let (mut recorder, _fire, disk) = recorder(RecorderSettings { filters, ..settings(10, 5) });
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[23]) = (0x45, 17);
    for id in 0..8 {
        frame[37] = if id == 5 { 53 } else { 80 };
        let plain = at(0);
        let packet = Packet { data: &frame, len: 60, ns: BASE + 100, id, ..plain.packet() };
        recorder.packet(&packet).unwrap();
    }
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    let marked = seen.packets.iter().filter(|(_, packet)| !packet.comment.is_empty());
    let marked = marked.map(|(_, packet)| (packet.id, packet.comment.clone())).collect::<Vec<_>>();
    let [(5, comment)] = &marked[..] else { panic!("{marked:?}") };
    assert!(comment.contains("packet 5 matches 'udp port 53'"), "{comment}");
}

#[test]
fn a_moment_that_has_passed_is_marked_in_history() {
    let (mut recorder, fire, disk) = recorder(settings(10, 5));
    send(&mut recorder, 80..100);
    fire.fire(trigger("stall", 95));
    send(&mut recorder, 100..110);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!((times(&seen), marked(&seen)), ((85..=100).collect(), vec![95]));
}

#[test]
fn history_is_what_came_before_a_stall_and_not_the_stall() {
    let (mut recorder, fire, disk) = recorder(settings(10, 5));
    send(&mut recorder, (80..100).chain(140..145));
    fire.fire(RecorderTrigger { begin_ns: Some(BASE + 99), ..trigger("stall", 140) });
    send(&mut recorder, 145..160);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!((times(&seen), marked(&seen)), ((89..100).chain(140..=145).collect(), vec![140]));
}

#[test]
fn interfaces_tell_the_reason_where_no_packet_can() {
    let (mut recorder, fire, disk) = recorder(settings(10, 5));
    send(&mut recorder, 80..100);
    fire.fire(trigger("no_polling", 100));
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!((times(&seen), marked(&seen)), ((90..100).collect(), vec![]));
    let comment = &seen.sections[0].1[0].comment;
    assert!(comment.starts_with("known\ntrigger no_polling at 2116-"), "{comment}");
}

#[test]
fn a_trigger_during_an_incident_prolongs_it() {
    let (mut recorder, fire, disk) = recorder(settings(10, 5));
    send(&mut recorder, 0..100);
    fire.fire(trigger("stall", 100));
    send(&mut recorder, 100..104);
    fire.fire(trigger("rx_missed", 104));
    send(&mut recorder, 104..130);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!(times(&seen), (90..=109).collect::<Vec<_>>());
    assert_eq!(marked(&seen), [100, 104]);
    let status = recorder.status();
    assert_eq!((status.triggers(), status.files().len()), (2, 1));
}

#[test]
fn endless_triggers_do_not_make_an_endless_file() {
    let (mut recorder, fire, disk) = recorder(settings(0, 5));
    for ns in 0..1000 {
        fire.fire(trigger("stall", ns));
        send(&mut recorder, [ns]);
        settle(&recorder);
    }
    recorder.finish().unwrap();
    let sizes = disk.files().iter().map(|seen| seen.packets.len()).collect::<Vec<_>>();
    let (last, others) = sizes.split_last().unwrap();
    assert!(others.iter().all(|size| *size == 51), "{sizes:?}");
    assert_eq!(last + others.len() * 51, 1000);
}

#[test]
fn incidents_may_share_packets_and_end_after_the_last_allowed() {
    let (mut recorder, fire, disk) =
        recorder(RecorderSettings { max_incidents: Some(2), ..settings(10, 5) });
    send(&mut recorder, 0..100);
    fire.fire(trigger("stall", 100));
    send(&mut recorder, 100..108);
    assert!(!recorder.done());
    fire.fire(trigger("leak", 108));
    send(&mut recorder, 108..120);
    assert!(recorder.done());
    let (reply, answer) = std::sync::mpsc::sync_channel(1);
    fire.fire(RecorderTrigger { reply: Some(reply), ..trigger("stall", 120) });
    send(&mut recorder, 120..130);
    assert_eq!(answer.recv(), Ok(TriggerAnswer::Done));
    recorder.finish().unwrap();
    let [first, second] = disk.files().try_into().unwrap();
    assert_eq!(times(&first), (90..=105).collect::<Vec<_>>());
    assert_eq!(times(&second), (98..=113).collect::<Vec<_>>());
    assert!(second.path.to_str().unwrap().ends_with("-2-leak.pcapng"), "{:?}", second.path);
}

#[test]
fn history_keeps_the_sections_of_an_app_that_was_restarted() {
    let (mut recorder, fire, disk) = recorder(settings(50, 20));
    send(&mut recorder, 0..10);
    recorder.counters(&[InterfaceStatistics { delivered: 10, ..InterfaceStatistics::default() }]);
    section(&mut recorder, "second");
    recorder.interface(&interface("rte:1")).unwrap();
    send(&mut recorder, 10..20);
    fire.fire(trigger("stall", 20));
    send(&mut recorder, 20..30);
    recorder.counters(&[InterfaceStatistics { delivered: 20, ..InterfaceStatistics::default() }]);
    section(&mut recorder, "third");
    send(&mut recorder, 30..50);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    let names = seen.sections.iter().map(|(name, all)| (name.as_str(), all.len()));
    assert_eq!(names.collect::<Vec<_>>(), [("first", 1), ("second", 2), ("third", 1)]);
    let of = |section| seen.packets.iter().filter(|(number, _)| *number == section).count();
    assert_eq!([of(0), of(1), of(2)], [10, 20, 11]);
    let delivered = seen.counters.iter().map(|all| all.first().map(|one| one.delivered));
    assert_eq!(delivered.collect::<Vec<_>>(), [Some(10), Some(20), None]);
}

#[test]
fn the_oldest_packets_are_evicted_without_a_gap() {
    let (mut recorder, fire, disk) = recorder(settings(SECOND, 0));
    let data = vec![7; 1500];
    let total = 40_000;
    for id in 0..total {
        let packet = Owned { len: 1500, ..at(id) };
        recorder.packet(&Packet { data: &data, ..packet.packet() }).unwrap();
    }
    recorder.flush().unwrap();
    let status = recorder.status();
    assert!(status.held() > 13 << 20 && status.held() <= MIN_MEMORY as u64, "{status:?}");
    fire.fire(trigger("signal", total - 1));
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!(times(&seen), (status.evicted()..total).collect::<Vec<_>>());
    let comment = &seen.packets.last().unwrap().1.comment;
    let short = "; history held: 0.000 s of 1 s, --memory is too small";
    assert!(comment.ends_with(short), "{comment}");
    // The packets are a nanosecond apart.
    let least = status.least_held().unwrap().as_nanos();
    assert!((8000..12_000).contains(&least), "{least}");
    assert!(seen.packets.iter().all(|(_, packet)| packet.dropped == 0));
    assert_eq!(status.lost(), 0);
}

#[test]
fn expired_packets_are_evicted_and_not_counted_as_lost() {
    let (mut recorder, _, _) = recorder(settings(SECOND, 0));
    let data = vec![7; 1500];
    for ms in 0..40_000 {
        let packet = at(ms * 1_000_000);
        recorder.packet(&Packet { data: &data, len: 1500, ..packet.packet() }).unwrap();
    }
    recorder.flush().unwrap();
    let status = recorder.status();
    assert_eq!((status.evicted(), status.least_held()), (0, None));
    assert!(status.held() < 6 << 20, "{status:?}");
    recorder.finish().unwrap();
}

#[test]
fn a_file_says_that_the_capture_was_younger_than_its_history() {
    let (mut recorder, fire, disk) = recorder(settings(3600 * SECOND, SECOND));
    let now_ns = realtime_ns();
    recorder.packet(&Owned { ns: now_ns, ..Owned::default() }.packet()).unwrap();
    fire.fire(RecorderTrigger { moment_ns: now_ns, ..RecorderTrigger::now("signal", "") });
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    let comment = &seen.packets[0].1.comment;
    assert!(comment.contains("; history held: "), "{comment}");
    assert!(comment.ends_with(" s of 3600 s, the capture began later"), "{comment}");
}

#[test]
fn the_rate_that_memory_can_hold_is_known() {
    let (recorder, _, _) = recorder(settings(2 * SECOND, 0));
    assert_eq!(recorder.status().sustained_rate(), Some(MIN_MEMORY as u64 / 16 * 15 / 2));
}
