//! A capture session with one app: the request, the rings it hands over, and its end.

mod socket;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pmdscope_packets::filter::MAX_INSNS;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use self::socket::{AnswerDeadline, connect, receive, wait_readable};
use crate::layout::{
    AppMessage, CaptureRequest, ChangeMessage, HEADERS_SNAPLEN, MAX_SELECTS, RING_MAX_SIZE,
    RING_MIN_SIZE, TEE_ACCEPT, TEE_END, TEE_HEADERS, TEE_MAPPED, TEE_REFUSE, TEE_RING, TEE_SAMPLE,
};
use crate::pdump::PdumpProcess;
use crate::ring::{Ring, RingError};

/// Value of an END message of an app that exits normally.
const SHUTDOWN: i32 = Errno::SHUTDOWN.raw_os_error();

/// Why a session cannot be opened, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing listens on the socket.
    #[error(
        "no capture socket at {}: the app has ended, or runs without libpmdscope or with \
         PMDSCOPE_F_NO_TEE", .0.display()
    )]
    Absent(PathBuf),
    /// No permission to use the socket.
    #[error("no permission for {}: run as the app's user or as root, or in its capture group", .0.display())]
    Permission(PathBuf),
    /// Too many selections or instructions.
    #[error("a capture has at most {MAX_SELECTS} interfaces and {MAX_INSNS} filter instructions")]
    TooLarge,
    /// The app refused the request.
    #[error("the app refused the capture: {}", reason(.text, *.code))]
    Refused {
        /// errno.
        code: i32,
        /// Reason as text for the user; may be empty.
        text: String,
        /// Largest ring size for which the app has memory, bytes, if that is the reason; otherwise 0.
        ring_size: u32,
    },
    /// The app did not answer in time.
    #[error("the app did not answer within {} s: its control thread is stuck or starved", .0.as_secs())]
    Timeout(Duration),
    /// The caller stopped waiting.
    #[error("stopped before the app answered")]
    Stopped,
    /// The app closed the connection without an answer.
    #[error("the app closed the connection without an answer")]
    Closed,
    /// The app violated the protocol.
    #[error("the app sent an invalid capture message: {0}")]
    Protocol(&'static str),
    /// A ring is unusable.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A system call failed.
    #[error("the capture socket failed")]
    Socket(#[from] Errno),
}

/// Whether it is worth asking for rings of this size in place of those that were refused.
fn fits(ring_size: u32, refused: u32) -> bool {
    (RING_MIN_SIZE..=RING_MAX_SIZE).contains(&ring_size)
        && ring_size.is_power_of_two()
        && (refused == 0 || ring_size < refused)
}

pub(crate) fn reason(text: &str, code: i32) -> String {
    if text.is_empty() { Errno::from_raw_os_error(code).to_string() } else { text.to_owned() }
}

/// An event of a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// Another lcore polls; its ring.
    Ring(Ring),
    /// Something that the user should know of a session that goes on: a port was removed, or is back.
    Note(String),
    /// The app ended the session because of an error; the reason for the user.
    Ended(String),
    /// The app has exited, normally or not.
    Gone,
}

/// An armed capture. Dropping it disarms.
#[derive(Debug)]
pub struct CaptureSession {
    socket: OwnedFd,
    id: u32,
    remark: String,
    resamples: Option<bool>,
    /// Lcores whose rings are mapped, which the producer has not been told yet.
    unconfirmed: Vec<u16>,
    /// The helper process on the other side, if there is one. It is dropped after the socket, since
    /// it exits when that is closed.
    helper: Option<PdumpProcess>,
}

impl CaptureSession {
    /// Connects, sends the request and waits for the answer. If the app has no memory for the rings,
    /// and [`CaptureRequest::shrinks`] permits it, asks for smaller ones.
    ///
    /// # Errors
    /// When nothing listens, permission is missing, the app refuses, or does not answer within
    /// `timeout`.
    pub fn open(
        path: &Path,
        request: &CaptureRequest,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        Self::open_unless(&AtomicBool::new(false), path, request, timeout)
    }

    /// Like [`CaptureSession::open`], but returns as soon as `stop` is true.
    ///
    /// # Errors
    /// As [`CaptureSession::open`]; and [`SessionError::Stopped`].
    pub fn open_unless(
        stop: &AtomicBool,
        path: &Path,
        request: &CaptureRequest,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        let deadline = AnswerDeadline::new(timeout, stop);
        let mut request = request.clone();
        let mut smaller = None;
        loop {
            let datagram = request.encode().ok_or(SessionError::TooLarge)?;
            match Self::ask(connect(path, &deadline)?, &datagram, &deadline) {
                Ok(session) => {
                    let remark = smaller.unwrap_or(session.remark);
                    return Ok(Self { remark, ..session });
                }
                Err(SessionError::Refused { text, ring_size, .. })
                    if request.shrinks && fits(ring_size, request.ring_size) =>
                {
                    smaller = Some(format!("rings of {} KiB: {text}", ring_size >> 10));
                    request.ring_size = ring_size;
                }
                // An app of an older release does not choose the length of each packet.
                Err(SessionError::Refused { text, .. })
                    if request.flags == TEE_HEADERS && text.starts_with("flags:") =>
                {
                    request.flags = 0;
                    request.snaplen = request.snaplen.min(HEADERS_SNAPLEN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the request over a connected `SOCK_SEQPACKET` socket and waits for the answer.
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
            Some((AppMessage { kind: TEE_ACCEPT, value, text, .. }, _)) => Ok(Self {
                socket,
                id: value,
                remark: text,
                resamples: None,
                unconfirmed: Vec::new(),
                helper: None,
            }),
            Some((AppMessage { kind: TEE_REFUSE, value, text, ring_size }, _)) => {
                Err(SessionError::Refused { code: value.cast_signed(), text, ring_size })
            }
            Some(_) => Err(SessionError::Protocol("neither ACCEPT nor REFUSE")),
            None => Err(SessionError::Closed),
        }
    }

    /// Returns the session with the helper process that is its other side instead of the app.
    pub(crate) fn beside(self, helper: PdumpProcess) -> Self {
        Self { helper: Some(helper), ..self }
    }

    /// Ends the capture in the app; the rings stay readable. What was asked of the session remains known.
    pub(crate) fn disarm(&self) {
        // Fails only if the app has closed the connection.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns the session number, which the app assigned.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the remark about an accepted capture: why rings or snap length are smaller than
    /// requested.
    pub fn remark(&self) -> Option<&str> {
        (!self.remark.is_empty()).then_some(&*self.remark)
    }

    /// Returns whether the sampling can be changed; `None` before the first ring, which says so.
    pub fn resamples(&self) -> Option<bool> {
        self.resamples
    }

    /// Asks the app to keep one packet in `sample` from now on; 0 and 1 keep all. Rings contain a
    /// record where that begins. Returns false when the request was not sent:
    /// [`CaptureSession::resamples`] is false or not known yet, the socket is full, or the app is
    /// gone, as the next event will report. Never blocks.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn resample(&mut self, sample: u32) -> Result<bool, SessionError> {
        if self.resamples != Some(true) {
            return Ok(false);
        }
        self.send(ChangeMessage { kind: TEE_SAMPLE, value: sample })
    }

    fn send(&self, change: ChangeMessage) -> Result<bool, SessionError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.socket, &change.encode(), flags) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR | Errno::PIPE | Errno::CONNRESET) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the producer which rings are mapped, as far as the socket has room.
    fn confirm(&mut self) -> Result<(), SessionError> {
        while let Some(&lcore) = self.unconfirmed.last() {
            if !self.send(ChangeMessage { kind: TEE_MAPPED, value: lcore.into() })? {
                break;
            }
            self.unconfirmed.pop();
        }
        Ok(())
    }

    /// Returns the next event of the session; `None` when there is none. Never blocks.
    ///
    /// # Errors
    /// When the app violates the protocol or hands over an unusable ring.
    pub fn next_event(&mut self) -> Result<Option<SessionEvent>, SessionError> {
        self.confirm()?;
        let (message, fds) = match receive(&self.socket) {
            Ok(Some(received)) => received,
            Ok(None) | Err(SessionError::Socket(Errno::CONNRESET)) => return Ok(Some(self.lost())),
            Err(SessionError::Socket(Errno::AGAIN | Errno::INTR)) => return Ok(self.note()),
            Err(error) => return Err(error),
        };
        match (message.kind, <[OwnedFd; 2]>::try_from(fds)) {
            (TEE_RING, Ok([data, tail])) => {
                let ring = Ring::map(data, tail)?;
                self.resamples = Some(self.resamples.unwrap_or(true) && ring.resamples());
                if ring.wants_confirmation() {
                    self.unconfirmed.push(ring.lcore());
                    self.confirm()?;
                }
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

    fn note(&self) -> Option<SessionEvent> {
        self.helper.as_ref().and_then(PdumpProcess::take_note).map(SessionEvent::Note)
    }

    /// Returns the event of a connection that was closed without a reason: the app has exited, or
    /// only the helper.
    fn lost(&mut self) -> SessionEvent {
        match &mut self.helper {
            None => SessionEvent::Gone,
            Some(helper) => SessionEvent::Ended(format!("pmdscope-pdump {}", helper.exit_reason())),
        }
    }
}

#[cfg(test)]
mod tests;
