//! The socket of a session: connects, waits for an answer, receives messages with descriptors.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmdscope_telemetry::host::foreign::socket_address;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketFlags,
    SocketType,
};

use super::SessionError;
use crate::layout::{AppMessage, MESSAGE_SIZE};

/// Interval of attempts to connect while the backlog is full.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Interval of checks of `stop` while waiting for an answer.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Limits of a wait for an answer: a timeout, and `stop`.
#[derive(Debug)]
pub(super) struct AnswerDeadline<'a> {
    timeout: Duration,
    until: Instant,
    stop: &'a AtomicBool,
}

impl<'a> AnswerDeadline<'a> {
    pub(super) fn new(timeout: Duration, stop: &'a AtomicBool) -> Self {
        Self { timeout, until: Instant::now() + timeout, stop }
    }

    /// Returns the length of the next pause, at most `most`.
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

pub(super) fn connect(path: &Path, deadline: &AnswerDeadline) -> Result<OwnedFd, SessionError> {
    let (address, _dir) = match socket_address(path) {
        Err(Errno::NOENT) => return Err(SessionError::Absent(path.into())),
        other => other?,
    };
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

pub(super) fn wait_readable(
    socket: &OwnedFd,
    deadline: &AnswerDeadline,
) -> Result<(), SessionError> {
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

/// Receives one message with its descriptors; `None` at end of file.
pub(super) fn receive(
    socket: &OwnedFd,
) -> Result<Option<(AppMessage, Vec<OwnedFd>)>, SessionError> {
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
