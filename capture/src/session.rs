//! A capture session with one app: the request, the rings it hands over, and its end.

mod socket;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pmdscope_packets::filter::MAX_INSNS;
use rustix::io::Errno;
use rustix::net::SendFlags;

use self::socket::{AnswerDeadline, connect, receive, wait_readable};
use crate::layout::{
    AppMessage, CaptureRequest, ChangeMessage, MAX_SELECTS, TEE_ACCEPT, TEE_END, TEE_REFUSE,
    TEE_RING, TEE_SAMPLE,
};
use crate::pdump::PdumpProcess;
use crate::ring::{Ring, RingError};

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
    #[error("stopped before the app answered")]
    Stopped,
    /// The app closed without an answer.
    #[error("the app closed the connection without an answer")]
    Closed,
    /// The app does not keep to the protocol.
    #[error("the app sent an invalid capture message: {0}")]
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
            Some(helper) => SessionEvent::Ended(format!("pmdscope-pdump {}", helper.exit_reason())),
        }
    }
}

#[cfg(test)]
mod tests;
