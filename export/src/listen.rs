//! Listening sockets: TCP, unix, and sockets passed by systemd.
#![allow(unsafe_code)] // Descriptors from systemd come as numbers.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcp, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener as StdUnix;
use std::path::{Path, PathBuf};

use pmdscope_files::Place;
use pmdscope_telemetry::host::foreign::is_served;
use rustix::net::{AddressFamily, SocketType, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::address::ListenAddress;
use crate::connections::Client;

/// Length of the accept queue in the kernel.
const BACKLOG: i32 = 256;

/// Mode of a unix socket: its owner and group may connect.
const UNIX_MODE: u32 = 0o660;

/// Why the exporter cannot listen at an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {reason}")]
pub struct ListenError {
    address: ListenAddress,
    reason: String,
}

/// A socket that listens, before the network process takes it over. Its path, if it has one, is removed on
/// drop, unless systemd opened it.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) socket: OwnedFd,
    _file: Option<SocketFile>,
}

impl From<OwnedFd> for BoundSocket {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, _file: None }
    }
}

/// The file of a unix socket.
#[derive(Debug)]
pub(crate) struct SocketFile(pub(crate) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = pmdscope_files::remove(&self.0);
    }
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(crate) enum HttpListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Listens at an address; a name may resolve to several sockets.
///
/// # Errors
/// Fails if the address is in use, does not exist on this machine, or needs more privileges.
pub(crate) fn bind(address: &ListenAddress) -> Result<Vec<BoundSocket>, ListenError> {
    let bound = match address {
        ListenAddress::Tcp { host, port } => tcp(host, *port),
        ListenAddress::Unix(path) => unix(path).map(|listener| vec![listener]),
        ListenAddress::Systemd => from_systemd(),
    };
    bound.map_err(|error| ListenError { address: address.clone(), reason: reason(&error) })
}

fn reason(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use; another exporter may run already: stop it, or choose another \
             address with --listen"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => {
            "permission denied; choose a port from 1024 on, or a directory that is yours"
        }
        _ => return error.to_string(),
    };
    advice.to_owned()
}

fn tcp(host: &str, port: u16) -> io::Result<Vec<BoundSocket>> {
    let addresses: Vec<SocketAddr> = match host {
        // IPv6 sockets also accept IPv4, unless IPv6 is disabled.
        "" => {
            let all = StdTcp::bind(("::", port)).or_else(|error| match error.kind() {
                io::ErrorKind::AddrInUse => Err(error),
                _ => StdTcp::bind(("0.0.0.0", port)),
            })?;
            return Ok(vec![from_tcp(all)?]);
        }
        host => (host, port).to_socket_addrs()?.collect(),
    };
    // "localhost" may resolve to two addresses, of which the machine may have only one.
    let mut bound = Vec::new();
    let mut failed = io::Error::other("the name has no address");
    for address in addresses {
        match StdTcp::bind(address) {
            Ok(listener) => bound.push(from_tcp(listener)?),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => failed = error,
        }
    }
    if bound.is_empty() { Err(failed) } else { Ok(bound) }
}

fn from_tcp(listener: StdTcp) -> io::Result<BoundSocket> {
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(OwnedFd::from(listener).into())
}

fn unix(path: &Path) -> io::Result<BoundSocket> {
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        // A stopped exporter accepts no connections, but still owns the socket.
        if is_served(path, SocketType::STREAM)? {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // The socket was left by a process that was killed.
        pmdscope_files::remove(path)?;
    }
    let listener = StdUnix::bind(path)?;
    Place::itself(path)?.set_mode(UNIX_MODE)?;
    Ok(BoundSocket { socket: listener.into(), _file: Some(SocketFile(path.to_owned())) })
}

/// Returns the sockets of a `.socket` unit.
fn from_systemd() -> io::Result<Vec<BoundSocket>> {
    let sockets = sd_notify::listen_fds()?
        .map(|fd| {
            // SAFETY: systemd opened it for us, and nothing else in this process uses it.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            if sockopt::socket_type(&socket)? != SocketType::STREAM {
                return Err(io::Error::other("a socket from systemd is none of ListenStream="));
            }
            Ok(socket.into())
        })
        .collect::<io::Result<Vec<_>>>()?;
    if sockets.is_empty() {
        return Err(io::Error::other("systemd handed over no socket; start its .socket unit"));
    }
    Ok(sockets)
}

impl HttpListener {
    /// Takes over a socket; needs the runtime.
    ///
    /// # Errors
    /// Fails if it is no socket that listens.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
            let listener = StdUnix::from(socket);
            listener.set_nonblocking(true)?;
            return Ok(Self::Unix(UnixListener::from_std(listener)?));
        }
        let listener = StdTcp::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(TcpListener::from_std(listener)?))
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<(ClientStream, Client)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are written at once, so waiting for more data would only delay them.
                let _ = stream.set_nodelay(true);
                Ok((ClientStream::Tcp(stream), Client::at(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((ClientStream::Unix(stream), Client::User(user)))
            }
        }
    }

    /// Returns whether other machines can connect.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .is_ok_and(|address| !address.ip().to_canonical().is_loopback()),
            Self::Unix(..) => false,
        }
    }

    /// Returns the address in the format of `--listen`, with the port that the system has chosen.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
            }
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(
                    || "a unix socket of systemd".to_owned(),
                    |path| format!("unix:{}", path.display()),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn address(text: &str) -> ListenAddress {
        text.parse().unwrap()
    }

    fn listeners(text: &str) -> Vec<HttpListener> {
        let bound = bind(&address(text)).unwrap().into_iter();
        bound.map(|bound| HttpListener::new(bound.socket).unwrap()).collect()
    }

    #[tokio::test]
    async fn an_address_in_use_is_named_with_advice() {
        let first = listeners("127.0.0.1:0");
        let taken = first[0].address();
        let error = bind(&address(&taken)).unwrap_err().to_string();
        assert!(error.contains(&taken) && error.contains("--listen"), "{error}");
    }

    #[tokio::test]
    async fn only_what_leaves_the_machine_is_open() {
        for (text, open) in [("127.0.0.1:0", false), ("localhost:0", false), (":0", true)] {
            assert!(listeners(text).iter().all(|listener| listener.is_remote() == open), "{text}");
        }
    }

    #[tokio::test]
    async fn a_unix_socket_is_private_replaces_a_dead_one_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(StdUnix::bind(&path).unwrap());
        let socket = ListenAddress::Unix(path.clone());
        let live = bind(&socket).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UNIX_MODE);
        assert!(bind(&socket).unwrap_err().to_string().contains("in use"));
        drop(live);
        assert!(!path.exists());
        fs::write(&path, "a file of somebody").unwrap();
        assert!(bind(&socket).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file of somebody");
    }

    #[tokio::test]
    async fn a_unix_socket_whose_owner_is_stopped_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let stopped = StdUnix::bind(&path).unwrap();
        rustix::net::listen(&stopped, 0).unwrap();
        let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let error = bind(&ListenAddress::Unix(path.clone())).unwrap_err().to_string();
        assert!(error.contains("in use") && path.exists(), "{error}");
    }

    #[tokio::test]
    async fn without_systemd_there_are_no_sockets_of_it() {
        let error = bind(&ListenAddress::Systemd).unwrap_err().to_string();
        assert!(error.contains(".socket"), "{error}");
    }
}
