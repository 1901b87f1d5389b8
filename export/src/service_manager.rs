//! Notifications to the service manager.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// The service manager; none if the process is no service.
#[derive(Debug)]
pub(crate) struct ServiceManager(Option<UnixDatagram>);

impl ServiceManager {
    /// Connects to its socket, before this process gives up the right to do so.
    pub(crate) fn connect() -> Self {
        let connected = env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let address = match path.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            Some(socket)
        });
        Self(connected)
    }

    /// Tells it the state. Errors are ignored: it may restart.
    pub(crate) fn notify(&self, state: &[NotifyState<'_>]) {
        if let Some(socket) = &self.0 {
            let lines: Vec<String> = state.iter().map(|line| format!("{line}\n")).collect();
            let _ = socket.send(lines.concat().as_bytes());
        }
    }
}
