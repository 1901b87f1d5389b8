//! Errors of communication between a tool and one app.

use std::any::Any;
use std::io;

use rustix::io::Errno;

/// The reason why a request, a connection or a round failed. None of these harms the app.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// Nothing listens on the socket.
    #[error("nothing listens on the telemetry socket; the app has ended or is starting")]
    Refused,
    /// The kernel denies access to the socket.
    #[error("permission denied; run as root or as the user of the app")]
    Permission,
    /// Another user than the owner of the runtime directory listens on the socket.
    #[error(
        "user {peer} listens there, but the directory belongs to user {owner}: it may pretend to be an app"
    )]
    Untrusted {
        /// User of the process that listens.
        peer: u32,
        /// Owner of the directory.
        owner: u32,
    },
    /// The app did not answer in time.
    #[error("timed out while {0}; the app may be stopped or overloaded, or the deadline too short")]
    Timeout(&'static str),
    /// The app closed the connection before its banner: all of its connections are taken.
    #[error("no free telemetry connection (DPDK has 10); close other telemetry clients")]
    Busy,
    /// Another pmdscope tool does not release the lock of this app.
    #[error(
        "another pmdscope tool holds the lock of this app, and may be stopped: the app was asked without it"
    )]
    Locked,
    /// The app closed the connection, or an earlier error did.
    #[error("the connection is closed; the app has ended or restarts")]
    Closed,
    /// The app answered `null`: it refuses, does not know the command, or the object no longer exists.
    #[error("the app answered null: the object is gone or the request not supported")]
    Null,
    /// The reply does not conform to the protocol.
    #[error("malformed reply: {0}")]
    Malformed(String),
    /// The reply is about something other than the request.
    #[error("the reply is about {got:?}; another telemetry client disturbs this app")]
    Mismatch {
        /// The subject of the reply.
        got: String,
    },
    /// The reply did not fit into the buffer that the banner asks for.
    #[error("the reply of {bytes} bytes is longer than the app announced")]
    Truncated {
        /// Actual size of the reply.
        bytes: usize,
    },
    /// The request is longer than DPDK accepts (1023 bytes).
    #[error("the request is {bytes} bytes long, DPDK accepts 1023")]
    Oversized {
        /// Size of the request.
        bytes: usize,
    },
    /// A table changed each time it was read.
    #[error("the table changed while it was read, {attempts} times")]
    Unstable {
        /// Number of attempts.
        attempts: u32,
    },
    /// The app has a libpmdscope with another schema.
    #[error("libpmdscope speaks schema {0}, this tool knows 1; use tools of the same release")]
    Schema(u64),
    /// A bug of this program ended the round.
    #[error("pmdscope itself failed while it asked: {0}; please report this")]
    Panicked(String),
    /// Another error of the operating system.
    #[error("{action}: {source}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Why an app could not be queried, for programs: few values, which never change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// All of its telemetry connections are taken, or another tool holds its lock.
    Busy,
    /// A reply was about something other than the request.
    IdentityMismatch,
    /// This program failed during the query, which is a bug.
    Internal,
    /// It is expected, and does not run.
    Missing,
    /// The kernel denies access.
    Permission,
    /// The process that listens does not speak the protocol.
    Protocol,
    /// It has ended, or is starting.
    Refused,
    /// It runs without telemetry.
    TelemetryOff,
    /// It did not answer in time.
    Timeout,
    /// A reply was longer than announced.
    Truncated,
    /// Another user than the owner of its directory listens on its socket.
    Untrusted,
}

impl ErrorClass {
    /// All classes, by name.
    pub const ALL: [Self; 11] = [
        Self::Busy,
        Self::IdentityMismatch,
        Self::Internal,
        Self::Missing,
        Self::Permission,
        Self::Protocol,
        Self::Refused,
        Self::TelemetryOff,
        Self::Timeout,
        Self::Truncated,
        Self::Untrusted,
    ];

    /// Returns its stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::IdentityMismatch => "identity_mismatch",
            Self::Internal => "internal",
            Self::Missing => "missing",
            Self::Permission => "permission",
            Self::Protocol => "protocol",
            Self::Refused => "refused",
            Self::TelemetryOff => "telemetry_off",
            Self::Timeout => "timeout",
            Self::Truncated => "truncated",
            Self::Untrusted => "untrusted",
        }
    }
}

impl TelemetryError {
    /// Returns an error with the message of a panic, from [`std::panic::catch_unwind`] or a thread.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked(text.unwrap_or("it panicked").to_owned())
    }

    /// Returns the class of this error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused | Self::Closed => ErrorClass::Refused,
            Self::Permission => ErrorClass::Permission,
            Self::Timeout(_) => ErrorClass::Timeout,
            Self::Busy | Self::Locked => ErrorClass::Busy,
            Self::Mismatch { .. } => ErrorClass::IdentityMismatch,
            Self::Truncated { .. } => ErrorClass::Truncated,
            Self::Untrusted { .. } => ErrorClass::Untrusted,
            Self::Panicked(_) => ErrorClass::Internal,
            _ => ErrorClass::Protocol,
        }
    }

    /// Wraps an error of the operating system; some have a variant of their own.
    pub(crate) fn io(action: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED | Errno::NOENT => Self::Refused,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            other => Self::Io { action, source: other.into() },
        }
    }

    /// Whether the connection cannot be used any more after this error.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Closed | Self::Io { .. } | Self::Mismatch { .. })
    }
}
