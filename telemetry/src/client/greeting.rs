//! The begin of a connection: who listens on a socket, and the banner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use super::{BANNER_BYTES, SocketPeer};
use crate::error::TelemetryError;
use crate::host::foreign::{open_file, socket_in};
use crate::host::process::start_ticks;
use crate::reply::{self, SocketBanner};

/// A connection that has no banner yet. No call waits.
#[derive(Debug)]
pub(crate) struct Greeting {
    socket: OwnedFd,
    address: SocketAddrUnix,
    /// The directory, which the address leads through.
    dir: OwnedFd,
    /// The process that listens; `None` before the connection.
    pub(crate) peer: Option<SocketPeer>,
}

impl Greeting {
    /// Prepares a connection.
    ///
    /// # Errors
    /// [`TelemetryError::Refused`] or [`TelemetryError::Permission`] if the directory of the socket
    /// cannot be opened.
    pub(crate) fn new(path: &Path) -> Result<Self, TelemetryError> {
        let (dir, name) = path
            .parent()
            .zip(path.file_name())
            .ok_or_else(|| TelemetryError::io("bad socket path", Errno::NOENT))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = open_file(dir, flags, Mode::empty())
            .map_err(|errno| TelemetryError::io("cannot open the runtime directory", errno))?;
        let address =
            socket_in(&dir, name).map_err(|errno| TelemetryError::io("bad socket path", errno))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| TelemetryError::io("cannot create a socket", errno))?;
        Ok(Self { socket, address, dir, peer: None })
    }

    /// Connects; `None` while the backlog of the app is full, as of one that is stopped.
    ///
    /// # Errors
    /// [`TelemetryError::Refused`], [`TelemetryError::Permission`], or [`TelemetryError::Untrusted`]
    /// if another user than the owner of the directory listens.
    pub(crate) fn connect(&mut self) -> Result<Option<()>, TelemetryError> {
        if self.peer.is_some() {
            return Ok(Some(()));
        }
        match connect(&self.socket, &self.address) {
            Ok(()) => {}
            // DPDK's backlog of one is full, or the app is stopped.
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(TelemetryError::io("cannot connect", errno)),
        }
        let unknown = |errno| TelemetryError::io("cannot learn who listens", errno);
        // rustix knows no process 0, which is one of another PID namespace.
        let peer = getsockopt(&self.socket, PeerCredentials)
            .map_err(|errno| unknown(Errno::from_raw_os_error(errno as i32)))?;
        let pid = u32::try_from(peer.pid()).unwrap_or(0);
        self.peer = Some(SocketPeer { pid, start_ticks: start_ticks(pid).unwrap_or(0) });
        let owner = fstat(&self.dir).map_err(unknown)?.st_uid;
        if peer.uid() != owner {
            return Err(TelemetryError::Untrusted { peer: peer.uid(), owner });
        }
        Ok(Some(()))
    }

    /// Returns the banner; `None` before it has arrived.
    ///
    /// # Errors
    /// [`TelemetryError::Busy`] if all connections of the app are taken, [`TelemetryError::Malformed`]
    /// if it is none.
    pub(crate) fn banner(
        &self,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<SocketBanner>, TelemetryError> {
        buffer.resize(BANNER_BYTES, 0);
        let bytes = match recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC) {
            // DPDK accepts one connection too many and closes it immediately.
            Ok((_, 0)) => return Err(TelemetryError::Busy),
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => {
                return Err(match TelemetryError::io("cannot receive", errno) {
                    TelemetryError::Closed => TelemetryError::Busy,
                    error => error,
                });
            }
        };
        let banner = buffer.get(..bytes).ok_or(TelemetryError::Truncated { bytes })?;
        reply::banner(banner).map(Some)
    }

    /// Returns the connection.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
