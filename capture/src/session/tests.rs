//! Tests of sessions.

use std::sync::atomic::Ordering;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::layout::{FEATURE_GAPS, FEATURE_MAPPED, MESSAGE_SIZE, QueueSelect};
use crate::producer::{Listener, Peer, Producer, message};

const TIMEOUT: Duration = Duration::from_secs(5);

fn request() -> CaptureRequest {
    let selects = vec![QueueSelect { port: 0, queue: 0, dirs: 3 }];
    CaptureRequest { selects, ..CaptureRequest::default() }
}

/// Opens a session with an app that replies with `answer`.
fn open_with(answer: impl FnOnce(Peer) + Send) -> Result<CaptureSession, SessionError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (peer, bytes) = listener.accept();
            assert_eq!(Some(bytes), request().encode());
            answer(peer);
        });
        CaptureSession::open(&path, &request(), TIMEOUT)
    })
}

fn event_after(answer: impl FnOnce(&Peer) + Send) -> Result<Option<SessionEvent>, SessionError> {
    let mut kept = None;
    let mut session = open_with(|peer| {
        peer.send(&message(TEE_ACCEPT, 9, ""), &[]);
        answer(&peer);
        kept = Some(peer);
    })?;
    assert_eq!(session.id(), 9);
    session.next_event()
}

#[test]
fn a_remark_of_the_app_is_kept() {
    let remark = |text: &'static str| {
        let session = open_with(|peer| peer.send(&message(TEE_ACCEPT, 1, text), &[])).unwrap();
        session.remark().map(str::to_owned)
    };
    assert_eq!(remark("snaplen reduced to 96").as_deref(), Some("snaplen reduced to 96"));
    assert_eq!(remark(""), None);
}

#[test]
fn a_ring_comes_with_its_two_descriptors() {
    let ring = Producer::new(RING_MIN_SIZE, 3);
    let event = event_after(|peer| peer.send_ring(&ring)).unwrap();
    assert!(matches!(event, Some(SessionEvent::Ring(ring)) if ring.lcore() == 3));
    let event = event_after(|peer| peer.send(&message(TEE_RING, 3, ""), &[&ring.data]));
    assert!(matches!(event, Err(SessionError::Protocol(_))));
    let fds = [&ring.data, &ring.tail, &ring.data];
    let event = event_after(|peer| peer.send(&message(TEE_RING, 3, ""), &fds));
    assert!(matches!(event, Err(SessionError::Protocol(_))));
}

/// Opens a session that gets these rings; returns also the app's end of it.
fn handed(rings: &[Producer]) -> (CaptureSession, Peer) {
    let mut kept = None;
    let mut session = open_with(|peer| {
        peer.send(&message(TEE_ACCEPT, 1, ""), &[]);
        kept = Some(peer);
    })
    .unwrap();
    let peer = kept.unwrap();
    for ring in rings {
        peer.send_ring(ring);
        assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Ring(_)))));
    }
    (session, peer)
}

#[test]
fn a_change_of_the_sampling_is_one_datagram() {
    let rings = [Producer::new(RING_MIN_SIZE, 0), Producer::new(RING_MIN_SIZE, 1)];
    let (mut session, peer) = handed(&rings);
    assert_eq!(session.resamples(), Some(true));
    assert!(session.resample(4096).unwrap());
    let change = ChangeMessage { kind: TEE_SAMPLE, value: 4096 };
    assert_eq!(peer.receive(), Some(change.encode().to_vec()));
}

#[test]
fn a_ring_that_is_mapped_is_confirmed_once_if_its_producer_waits_for_that() {
    let rings = [4, 5, 6].map(|lcore| Producer::new(RING_MIN_SIZE, lcore));
    for ring in &rings[1..] {
        ring.poke(16, &(FEATURE_GAPS | FEATURE_MAPPED).to_ne_bytes());
    }
    let (mut session, peer) = handed(&rings);
    assert!(matches!(session.next_event(), Ok(None)));
    for lcore in [5, 6] {
        let mapped = ChangeMessage { kind: TEE_MAPPED, value: lcore };
        assert_eq!(peer.receive(), Some(mapped.encode().to_vec()));
    }
    drop(session);
    assert_eq!(peer.receive(), None);
}

/// Opens a session with an app that has memory for rings of these sizes, one after the other, and
/// returns the sizes that were requested.
fn open_with_memory(request: &CaptureRequest, fits: &[u32]) -> (Result<String, i32>, Vec<u32>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    let mut asked = Vec::new();
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            for ring_size in fits {
                let (peer, bytes) = listener.accept();
                let size = u32::from_ne_bytes(bytes[16..20].try_into().unwrap());
                asked.push(size);
                let (kind, value) =
                    if size == *ring_size { (TEE_ACCEPT, 1) } else { (TEE_REFUSE, 12) };
                let text = "no memory".to_owned();
                peer.send(&AppMessage { kind, value, ring_size: *ring_size, text }.encode(), &[]);
            }
        });
        CaptureSession::open(&path, request, TIMEOUT)
    });
    let opened = opened.map(|session| session.remark().unwrap_or_default().to_owned());
    let code = |error| match error {
        SessionError::Refused { code, .. } => code,
        other => panic!("{other}"),
    };
    (opened.map_err(code), asked)
}

#[test]
fn smaller_rings_are_requested_if_the_app_has_no_memory_and_the_user_named_no_size() {
    let request = CaptureRequest { ring_size: 16 << 20, shrinks: true, ..request() };
    let (opened, asked) = open_with_memory(&request, &[1 << 20, 1 << 18, 1 << 18]);
    assert_eq!(asked, [16 << 20, 1 << 20, 1 << 18]);
    assert_eq!(opened, Ok("rings of 256 KiB: no memory".to_owned()));
    // Sizes that are no answer.
    for odd in [0, 1 << 15, 3 << 18, 1 << 25, 1 << 30] {
        assert_eq!(open_with_memory(&request, &[odd]), (Err(12), vec![16 << 20]), "{odd}");
    }
    let fixed = CaptureRequest { shrinks: false, ..request };
    assert_eq!(open_with_memory(&fixed, &[1 << 18]), (Err(12), vec![16 << 20]));
    let default = CaptureRequest { ring_size: 0, shrinks: true, ..fixed };
    assert_eq!(open_with_memory(&default, &[1 << 16, 1 << 16]).1, [0, 1 << 16]);
}

#[test]
fn an_app_that_does_not_choose_lengths_is_asked_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let listener = Listener::bind(&path);
    let asked = CaptureRequest { flags: TEE_HEADERS, snaplen: 512, ..request() };
    let plain = CaptureRequest { flags: 0, snaplen: HEADERS_SNAPLEN, ..request() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (peer, bytes) = listener.accept();
            assert_eq!(Some(bytes), asked.encode());
            let errno = Errno::INVAL.raw_os_error().cast_unsigned();
            peer.send(&message(TEE_REFUSE, errno, "flags: 0x4, not known"), &[]);
            let (peer, bytes) = listener.accept();
            assert_eq!(Some(bytes), plain.encode());
            peer.send(&message(TEE_ACCEPT, 1, ""), &[]);
        });
        CaptureSession::open(&path, &asked, TIMEOUT).unwrap();
    });
}

#[test]
fn only_rings_tell_whether_the_sampling_can_change() {
    let rings = [Producer::new(RING_MIN_SIZE, 0), Producer::old(RING_MIN_SIZE, 1)];
    for (rings, resamples) in [(&rings[..], Some(false)), (&rings[..0], None)] {
        let (mut session, peer) = handed(rings);
        assert_eq!(session.resamples(), resamples);
        assert!(!session.resample(2).unwrap());
        drop(session);
        assert_eq!(peer.receive(), None);
    }
}

#[test]
fn an_app_that_does_not_listen_is_not_waited_for() {
    let (mut session, peer) = handed(&[Producer::new(RING_MIN_SIZE, 0)]);
    let sent = (0..100_000).take_while(|_| session.resample(2).unwrap()).count();
    assert!(sent > 0 && sent < 100_000, "{sent}");
    for _ in 0..sent {
        assert!(peer.receive().is_some());
    }
    assert!(session.resample(3).unwrap());
    drop(peer);
    assert!(!session.resample(4).unwrap());
    assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Gone))));
}

#[test]
fn no_message_is_no_event_and_close_is_the_end() {
    assert!(matches!(event_after(|_| ()), Ok(None)));
    let mut session = open_with(|peer| peer.send(&message(TEE_ACCEPT, 1, ""), &[])).unwrap();
    assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Gone))));
}

#[test]
fn an_end_has_a_reason_even_without_text() {
    let event = event_after(|peer| peer.send(&message(TEE_END, 110, ""), &[])).unwrap();
    let Some(SessionEvent::Ended(text)) = event else { panic!("{event:?}") };
    assert!(text.contains("timed out"), "{text}");
    for orderly in [0, SHUTDOWN.cast_unsigned()] {
        let event = event_after(|peer| peer.send(&message(TEE_END, orderly, "bye"), &[]));
        assert!(matches!(event, Ok(Some(SessionEvent::Gone))));
    }
}

#[test]
fn a_refusal_has_the_reason_of_the_app() {
    let error = open_with(|peer| peer.send(&message(TEE_REFUSE, 22, "no such port"), &[]));
    let text = error.unwrap_err().to_string();
    assert_eq!(text, "the app refused the capture: no such port");
}

#[test]
fn waiting_for_an_answer_ends_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let _listener = Listener::bind(&path);
    let begin = Instant::now();
    let result = CaptureSession::open(&path, &request(), Duration::from_millis(50));
    assert!(matches!(result, Err(SessionError::Timeout(_))));
    assert!(begin.elapsed() >= Duration::from_millis(50));
}

#[test]
fn waiting_for_an_answer_ends_on_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let _listener = Listener::bind(&path);
    let stop = AtomicBool::new(false);
    // Nothing else ends the wait.
    let timeout = Duration::from_secs(3600);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        });
        CaptureSession::open_unless(&stop, &path, &request(), timeout)
    });
    assert!(matches!(result, Err(SessionError::Stopped)) && stop.into_inner());
}

#[test]
fn no_socket_and_no_answer_are_different_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope.sock");
    let result = CaptureSession::open(&path, &request(), TIMEOUT);
    assert!(matches!(result, Err(SessionError::Absent(_))));
    drop(Listener::bind(&path));
    let result = CaptureSession::open(&path, &request(), TIMEOUT);
    assert!(matches!(result, Err(SessionError::Absent(_))));
    assert!(matches!(open_with(drop), Err(SessionError::Closed)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_answer_is_a_session_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 1..300),
        head in any::<bool>(),
    ) {
        let mut answer = message(TEE_ACCEPT, 1, "");
        answer.splice(if head { 0..bytes.len().min(8) } else { 8..MESSAGE_SIZE }, bytes);
        let _ = open_with(|peer| peer.send(&answer, &[]));
    }
}
