//! A capture session with one app: the request, the rings it hands over, and its end.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmdscope_packets::filter::MAX_INSNS;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::layout::{
    AppMessage, CaptureRequest, ChangeMessage, MAX_SELECTS, MESSAGE_SIZE, TEE_ACCEPT, TEE_END,
    TEE_REFUSE, TEE_RING, TEE_SAMPLE,
};
use crate::pdump::PdumpProcess;
use crate::ring::{Ring, RingError};

/// How long to wait before asking again for a place in a full backlog.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// How long to wait for an answer before a look at whether it is still wanted.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// With this an app says that it ends orderly.
const SHUTDOWN: i32 = Errno::SHUTDOWN.raw_os_error();

/// Why there is no session, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing listens.
    #[error(
        "no capture socket at {}: the app has ended, or runs without libpmdscope or with \
         PMDSCOPE_F_NO_TEE", .0.display()
    )]
    Absent(PathBuf),
    /// The socket may not be used.
    #[error("no permission for {}: run as the app's user or as root, or in its capture group", .0.display())]
    Permission(PathBuf),
    /// Too many selections or instructions.
    #[error("a capture has at most {MAX_SELECTS} interfaces and {MAX_INSNS} filter instructions")]
    TooLarge,
    /// The app said no.
    #[error("the app refused the capture: {}", reason(.text, *.code))]
    Refused {
        /// errno.
        code: i32,
        /// Reason for people, may be empty.
        text: String,
    },
    /// The app did not answer in time.
    #[error("the app did not answer within {} s: its control thread is stuck or starved", .0.as_secs())]
    Timeout(Duration),
    /// Nobody wants to know any more.
    #[error("told to stop before the app had answered")]
    Stopped,
    /// The app closed without an answer.
    #[error("the app closed the connection without an answer")]
    Closed,
    /// The app does not keep to the protocol.
    #[error("the app sent something that is no capture message: {0}")]
    Protocol(&'static str),
    /// A ring is unusable.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The system failed.
    #[error("the capture socket failed")]
    Socket(#[from] Errno),
}

pub(crate) fn reason(text: &str, code: i32) -> String {
    if text.is_empty() { Errno::from_raw_os_error(code).to_string() } else { text.to_owned() }
}

/// How long an answer is waited for: for a time, and until told to stop.
#[derive(Debug)]
struct AnswerDeadline<'a> {
    timeout: Duration,
    until: Instant,
    stop: &'a AtomicBool,
}

impl<'a> AnswerDeadline<'a> {
    fn new(timeout: Duration, stop: &'a AtomicBool) -> Self {
        Self { timeout, until: Instant::now() + timeout, stop }
    }

    /// The next pause, no longer than told.
    fn pause(&self, most: Duration) -> Result<Duration, SessionError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if self.stop.load(Ordering::Relaxed) {
            Err(SessionError::Stopped)
        } else if left.is_zero() {
            Err(SessionError::Timeout(self.timeout))
        } else {
            Ok(left.min(most))
        }
    }
}

/// What an app has to say during a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// One more lcore polls; this is its ring.
    Ring(Ring),
    /// The app ended the session because something went wrong; the reason for people.
    Ended(String),
    /// The app has ended, orderly or not.
    Gone,
}

/// An armed capture. Dropping it disarms.
#[derive(Debug)]
pub struct CaptureSession {
    socket: OwnedFd,
    id: u32,
    remark: String,
    resamples: Option<bool>,
    /// The process on the other side, where it is ours: dropped behind the socket, at whose end it
    /// leaves.
    helper: Option<PdumpProcess>,
}

impl CaptureSession {
    /// Connects, asks and waits for the answer.
    ///
    /// # Errors
    /// When nobody listens, may not be asked, refuses, or does not answer within `timeout`.
    pub fn open(
        path: &Path,
        request: &CaptureRequest,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        Self::open_unless(&AtomicBool::new(false), path, request, timeout)
    }

    /// The same, given up as soon as `stop` is true.
    ///
    /// # Errors
    /// As [`CaptureSession::open`]; and [`SessionError::Stopped`].
    pub fn open_unless(
        stop: &AtomicBool,
        path: &Path,
        request: &CaptureRequest,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        let datagram = request.encode().ok_or(SessionError::TooLarge)?;
        let deadline = AnswerDeadline::new(timeout, stop);
        let socket = connect(path, &deadline)?;
        Self::ask(socket, &datagram, &deadline)
    }

    /// Asks over a connected `SOCK_SEQPACKET` socket and waits for the answer.
    ///
    /// # Errors
    /// When the other side refuses, closes, or does not answer within `timeout` or before `stop` is
    /// true.
    pub fn over(
        socket: OwnedFd,
        request: &CaptureRequest,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<Self, SessionError> {
        let datagram = request.encode().ok_or(SessionError::TooLarge)?;
        Self::ask(socket, &datagram, &AnswerDeadline::new(timeout, stop))
    }

    fn ask(
        socket: OwnedFd,
        datagram: &[u8],
        deadline: &AnswerDeadline,
    ) -> Result<Self, SessionError> {
        rustix::net::send(&socket, datagram, SendFlags::NOSIGNAL)?;
        wait_readable(&socket, deadline)?;
        match receive(&socket)? {
            Some((AppMessage { kind: TEE_ACCEPT, value, text }, _)) => {
                Ok(Self { socket, id: value, remark: text, resamples: None, helper: None })
            }
            Some((AppMessage { kind: TEE_REFUSE, value, text }, _)) => {
                Err(SessionError::Refused { code: value.cast_signed(), text })
            }
            Some(_) => Err(SessionError::Protocol("neither ACCEPT nor REFUSE")),
            None => Err(SessionError::Closed),
        }
    }

    /// The same session, the other side of which is a process of ours and not the app.
    pub(crate) fn beside(self, helper: PdumpProcess) -> Self {
        Self { helper: Some(helper), ..self }
    }

    /// The number that the app gave the session.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What people should know of a capture that was accepted, such as a reduced snap length.
    pub fn remark(&self) -> Option<&str> {
        (!self.remark.is_empty()).then_some(&*self.remark)
    }

    /// The sampling can be changed; `None` before the first ring, which tells.
    pub fn resamples(&self) -> Option<bool> {
        self.resamples
    }

    /// Asks the app to keep one packet in so many from now on; 0 and 1 keep all. Rings tell where that
    /// begins. False when it was not asked: [`CaptureSession::resamples`] says no or does not know yet, the
    /// app has no ear for it now, or is gone, as the next event will tell. Never blocks.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn resample(&mut self, sample: u32) -> Result<bool, SessionError> {
        if self.resamples != Some(true) {
            return Ok(false);
        }
        let change = ChangeMessage { kind: TEE_SAMPLE, value: sample }.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.socket, &change, flags) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR | Errno::PIPE | Errno::CONNRESET) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next thing that the app has said; `None` when there is nothing. Never blocks.
    ///
    /// # Errors
    /// When the app breaks the protocol or hands over an unusable ring.
    pub fn next_event(&mut self) -> Result<Option<SessionEvent>, SessionError> {
        let (message, fds) = match receive(&self.socket) {
            Ok(Some(received)) => received,
            Ok(None) | Err(SessionError::Socket(Errno::CONNRESET)) => return Ok(Some(self.lost())),
            Err(SessionError::Socket(Errno::AGAIN | Errno::INTR)) => return Ok(None),
            Err(error) => return Err(error),
        };
        match (message.kind, <[OwnedFd; 2]>::try_from(fds)) {
            (TEE_RING, Ok([data, tail])) => {
                let ring = Ring::map(data, tail)?;
                self.resamples = Some(self.resamples.unwrap_or(true) && ring.resamples());
                Ok(Some(SessionEvent::Ring(ring)))
            }
            (TEE_RING, Err(_)) => Err(SessionError::Protocol("a ring without its two descriptors")),
            (TEE_END, _) if message.value.cast_signed() == SHUTDOWN => Ok(Some(SessionEvent::Gone)),
            (TEE_END, _) if message.value == 0 => Ok(Some(self.lost())),
            (TEE_END, _) => {
                let text = reason(&message.text, message.value.cast_signed());
                Ok(Some(SessionEvent::Ended(text)))
            }
            _ => Err(SessionError::Protocol("neither RING nor END")),
        }
    }

    /// The other side has left without a reason: the app has ended, or only the process beside it.
    fn lost(&mut self) -> SessionEvent {
        match &mut self.helper {
            None => SessionEvent::Gone,
            Some(helper) => SessionEvent::Ended(format!("pmdscope-pdump {}", helper.obituary())),
        }
    }
}

fn connect(path: &Path, deadline: &AnswerDeadline) -> Result<OwnedFd, SessionError> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) => {
                return Err(SessionError::Absent(path.into()));
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(SessionError::Permission(path.into())),
            Err(Errno::AGAIN) => std::thread::sleep(deadline.pause(CONNECT_RETRY_INTERVAL)?),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_readable(socket: &OwnedFd, deadline: &AnswerDeadline) -> Result<(), SessionError> {
    loop {
        let pause = deadline.pause(STOP_POLL_INTERVAL)?;
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// One message with its descriptors; `None` at end of file.
fn receive(socket: &OwnedFd) -> Result<Option<(AppMessage, Vec<OwnedFd>)>, SessionError> {
    let mut bytes = [0; MESSAGE_SIZE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(SessionError::Protocol("too long, or with too many descriptors"));
    }
    let message = AppMessage::parse(&bytes[..received.bytes]);
    let message = message.ok_or(SessionError::Protocol("wrong size, magic or version"))?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{QueueSelect, RING_MIN_SIZE};
    use crate::producer::{Listener, Peer, Producer, message};

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn request() -> CaptureRequest {
        let selects = vec![QueueSelect { port: 0, queue: 0, dirs: 3 }];
        CaptureRequest { selects, ..CaptureRequest::default() }
    }

    /// Opens a session with an app that answers as told.
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

    fn event_after(
        answer: impl FnOnce(&Peer) + Send,
    ) -> Result<Option<SessionEvent>, SessionError> {
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

    /// A session that was handed these rings, and the app's end of it.
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
    fn silence_is_no_event_and_close_is_the_end() {
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
    fn a_refusal_has_the_words_of_the_app() {
        let error = open_with(|peer| peer.send(&message(TEE_REFUSE, 22, "no such port"), &[]));
        let text = error.unwrap_err().to_string();
        assert_eq!(text, "the app refused the capture: no such port");
    }

    #[test]
    fn an_app_that_says_nothing_is_waited_for_no_longer_than_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pmdscope.sock");
        let _listener = Listener::bind(&path);
        let begin = Instant::now();
        let result = CaptureSession::open(&path, &request(), Duration::from_millis(50));
        assert!(matches!(result, Err(SessionError::Timeout(_))));
        assert!(begin.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn an_app_that_says_nothing_is_waited_for_only_until_told_to_stop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pmdscope.sock");
        let _listener = Listener::bind(&path);
        let (begin, stop) = (Instant::now(), AtomicBool::new(false));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                stop.store(true, Ordering::Relaxed);
            });
            CaptureSession::open_unless(&stop, &path, &request(), TIMEOUT)
        });
        assert!(matches!(result, Err(SessionError::Stopped)));
        assert!(begin.elapsed() >= Duration::from_millis(100) && begin.elapsed() < TIMEOUT / 2);
    }

    #[test]
    fn nobody_there_and_no_answer_are_told_apart() {
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
}
