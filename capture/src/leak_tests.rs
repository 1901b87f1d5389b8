//! Tests of leaked packets, from a model app to a file.

use std::process::Command;

use pmdscope_packets::DIR_RX;
use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_testing::output;
use proptest::prelude::*;

use super::*;
use crate::layout::{
    CaptureRequest, ClockAnchor, RECORD_LEAK, RECORD_SIZE, RING_ALIGN, RING_MIN_SIZE, TEE_ACCEPT,
    TEE_END, TEE_LEAKED,
};
use crate::producer::{Listener, Peer, Producer, message};

/// Longer than a reply takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(2);

fn leak(site: u32, pool: &str) -> LeakInfo {
    LeakInfo { mbuf: 0x1_4000_0880, age_ms: 1500, site, kind: 1, pool: pool.into() }
}

/// The bytes between header and packet, as the app writes them.
fn encode(leak: &LeakInfo) -> Vec<u8> {
    let mut out = leak.mbuf.to_ne_bytes().to_vec();
    out.extend(leak.age_ms.to_ne_bytes());
    out.extend(leak.site.to_ne_bytes());
    out.push(leak.kind);
    out.extend([0; 11]);
    out.extend(leak.pool.as_bytes());
    out.resize(LEAK_SIZE, 0);
    out
}

fn push(ring: &mut Producer, leak: &LeakInfo, tsc: u64, data: &[u8]) -> bool {
    let caplen = data.len() as u32;
    let size = (RECORD_SIZE as u32 + LEAK_SIZE as u32 + caplen).next_multiple_of(RING_ALIGN);
    let record = RingRecord {
        size,
        kind: RECORD_LEAK,
        dir: DIR_RX,
        caplen,
        len: caplen,
        port: 0,
        queue: 1,
        tsc,
        ..RingRecord::default()
    };
    ring.push_raw(record, &[&encode(leak)[..], data].concat())
}

fn request() -> CaptureRequest {
    CaptureRequest { flags: TEE_LEAKED, sample: 4, ..CaptureRequest::default() }
}

/// Receives leaked packets from an app that replies with `answer`.
fn receive_from(answer: impl FnOnce(&Peer) + Send) -> Result<LeakDump, LeakError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    std::thread::scope(|scope| {
        let app = scope.spawn(|| {
            let (peer, bytes) = listener.accept();
            assert_eq!(Some(bytes), request().encode());
            peer.send(&message(TEE_ACCEPT, 9, ""), &[]);
            answer(&peer);
            peer
        });
        let session = CaptureSession::open(&path, &request(), TIMEOUT)?;
        let received = receive(session, TIMEOUT);
        drop(app.join());
        received
    })
}

#[test]
fn lost_mbufs_come_in_the_order_of_their_time() {
    let mut ring = Producer::new(RING_MIN_SIZE, ANY);
    let second = 1_000_000_000;
    let first = ClockAnchor { tsc: 1_000, realtime_ns: second, raw_ns: second };
    let last = ClockAnchor { tsc: second + 1_000, realtime_ns: 2 * second, raw_ns: 2 * second };
    ring.anchor(first, last);
    assert!(push(&mut ring, &leak(7, "mb"), 5_000, &[1; 60]));
    assert!(push(&mut ring, &leak(8, "clones"), 2_000, &[]));
    ring.publish();
    let dump = receive_from(|peer| {
        peer.send_ring(&ring);
        peer.send(&message(TEE_END, 0, ""), &[]);
    })
    .unwrap();
    let [early, late] = &dump.mbufs[..] else { panic!("{dump:?}") };
    assert_eq!((&early.leak, &late.leak), (&leak(8, "clones"), &leak(7, "mb")));
    assert_eq!((early.ns, late.ns), (second + 1_000, second + 4_000));
    assert_eq!((late.port, late.queue, late.dir), (Some(0), Some(1), DIR_RX));
    assert_eq!((late.data.as_slice(), early.data.len()), (&[1; 60][..], 0));
    assert_eq!(dump.dropped, 0);
}

#[test]
fn without_a_clock_the_age_tells_the_time() {
    let mut ring = Producer::new(RING_MIN_SIZE, ANY);
    push(&mut ring, &leak(7, "mb"), 5_000, &[1; 60]);
    ring.publish();
    let dump = receive_from(|peer| {
        peer.send_ring(&ring);
        peer.send(&message(TEE_END, 0, ""), &[]);
    })
    .unwrap();
    let age = realtime_ns() - dump.mbufs[0].ns;
    assert!((1_500_000_000..30_000_000_000).contains(&age), "{age}");
}

#[test]
fn packets_of_a_capture_are_no_leaks() {
    let mut ring = Producer::new(RING_MIN_SIZE, 1);
    ring.push(RingRecord { dir: DIR_RX, ..RingRecord::default() }, &[5; 60]);
    ring.publish();
    let dump = receive_from(|peer| {
        peer.send_ring(&ring);
        peer.send(&message(TEE_END, 0, ""), &[]);
    });
    assert!(dump.unwrap().mbufs.is_empty());
}

#[test]
fn an_app_that_aborts_or_never_ends_is_an_error() {
    let ended = receive_from(|peer| peer.send(&message(TEE_END, 12, "no memory"), &[]));
    assert!(matches!(ended, Err(LeakError::Ended(reason)) if reason == "no memory"));
    let endless = receive_from(|_| std::thread::sleep(TIMEOUT * 2));
    assert!(matches!(endless, Err(LeakError::Timeout(_))), "{endless:?}");
}

fn sample() -> Vec<DumpedMbuf> {
    let mbuf = |site, pool: &str, ns| DumpedMbuf {
        leak: leak(site, pool),
        port: Some(0),
        queue: Some(1),
        dir: DIR_RX,
        ns,
        len: 60,
        data: vec![0xaa; 60],
    };
    vec![
        mbuf(7, "mb", 1_780_000_000_000_000_000),
        DumpedMbuf {
            queue: None,
            dir: 0,
            data: vec![],
            ..mbuf(8, "clones", 1_780_000_000_100_000_000)
        },
    ]
}

#[test]
fn tshark_shows_a_comment_on_every_packet() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("leaked.pcapng");
    let mut target = CaptureFiles::create(&FileSettings::new(&file)).unwrap();
    write(&mut target, "app", &sample(), "lost", |mbuf| format!("lost at site {}", mbuf.leak.site))
        .unwrap();
    let fields = ["frame.comment", "frame.interface_name", "frame.interface_queue", "frame.len"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
    let Some(out) = output(tshark.arg("-r").arg(&file)) else { return };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        ["lost at site 7\tapp:mb\t1\t60", "lost at site 8\tapp:clones\t\t60"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_record_is_a_leak_or_an_error(
        head in proptest::collection::vec(any::<u8>(), RECORD_SIZE..200),
        size in 0_u32..256,
        kind in prop_oneof![Just(RECORD_LEAK), any::<u8>()],
    ) {
        let mut bytes = head;
        bytes[..4].copy_from_slice(&size.to_ne_bytes());
        bytes[4] = kind;
        let total = bytes.len();
        let mut records = RecordStream::of_leaks(0, RING_MIN_SIZE, MAX_SNAPLEN);
        records.input().extend(bytes);
        while let Ok(Some(record)) = records.peek() {
            prop_assert!(records.leak().is_some());
            prop_assert_eq!(records.payload(&record).len(), record.caplen as usize);
            prop_assert!(record.size as usize <= total);
            records.skip(record.size);
        }
    }

    #[test]
    fn what_is_written_is_what_is_read(
        mbuf: u64, age_ms: u64, site: u32, kind: u8, pool in "[a-zA-Z0-9_-]{0,31}",
        data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let leak = LeakInfo { mbuf, age_ms, site, kind, pool };
        let mut ring = Producer::new(RING_MIN_SIZE, ANY);
        prop_assert!(push(&mut ring, &leak, 1, &data));
        ring.publish();
        let (fd, tail) = ring.fds();
        let mut one = LeakRing::new(Ring::map(fd, tail).unwrap());
        one.read().unwrap();
        let mut mbufs = Vec::new();
        one.parse(&mut mbufs).unwrap();
        prop_assert_eq!((&mbufs[0].leak, &mbufs[0].data), (&leak, &data));
    }
}
