//! Errors of filters.

use std::io;

use crate::prefix::Prefix;

/// Why a filter cannot be attached, read, changed or detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The process lacks the privileges to load and read BPF programs.
    #[error("{0}: the kernel does not permit it; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotPermitted(String),
    /// There is no such interface in this network namespace.
    #[error("no interface {0} in this network namespace; see 'ip link'")]
    NoInterface(String),
    /// The interface carries only the host's own traffic.
    #[error("{0} is the loopback interface: its packets are this host's own; not filtered")]
    Loopback(String),
    /// A program of others is attached.
    #[error(
        "{interface} has an XDP program that is not pmdscope's: id {id}, name '{name}', {mode}; it is left \
         as it is. An interface has one: end the app that it belongs to, or see 'ip link show {interface}'"
    )]
    Foreign {
        /// Interface.
        interface: String,
        /// Id of the program.
        id: u32,
        /// Name of the program; empty if it has none.
        name: String,
        /// Mode in which it is attached.
        mode: &'static str,
    },
    /// A filter is already attached.
    #[error(
        "{interface} has a filter already: program {id}, {mode}. Use --replace for a new one, or \
         'pmdscope xdp set', 'deny' or 'allow' to change it"
    )]
    AlreadyAttached {
        /// Interface.
        interface: String,
        /// Id of the program.
        id: u32,
        /// Mode in which it is attached.
        mode: &'static str,
    },
    /// A filter can only be replaced in the same mode.
    #[error(
        "{interface} has a {mode} filter, which is replaced in the same mode only; detach it first"
    )]
    OtherMode {
        /// Interface.
        interface: String,
        /// Mode in which it is attached.
        mode: &'static str,
    },
    /// No filter is attached.
    #[error("{0} has no filter; see 'pmdscope xdp status'")]
    NotAttached(String),
    /// The filter was attached by another version of pmdscope.
    #[error(
        "the filter on {0} is of another version of pmdscope; use that one, or detach and attach it"
    )]
    OtherVersion(String),
    /// The program cannot be loaded.
    #[error("cannot load the BPF program: {0}")]
    Load(String),
    /// The program cannot be attached.
    #[error("cannot attach the filter to {interface} in {mode} mode: {reason}")]
    Attach {
        /// Interface.
        interface: String,
        /// The mode that was tried.
        mode: &'static str,
        /// The error of the kernel.
        reason: String,
    },
    /// The program cannot be removed.
    #[error("cannot detach the filter from {interface}: {error}")]
    Detach {
        /// Interface.
        interface: String,
        /// The error of the kernel.
        error: io::Error,
    },
    /// A prefix cannot be listed.
    #[error("cannot list {prefix}: {reason}")]
    List {
        /// The prefix.
        prefix: Prefix,
        /// The error of the kernel.
        reason: String,
    },
    /// Interfaces cannot be listed.
    #[error("cannot list interfaces by netlink: {0}")]
    Netlink(#[source] io::Error),
    /// A BPF map or program cannot be read or changed.
    #[error("cannot {what}: {reason}")]
    Bpf {
        /// The operation.
        what: &'static str,
        /// The error of the kernel.
        reason: String,
    },
}

impl XdpError {
    /// Returns the error of the operation `what`.
    #[allow(clippy::needless_pass_by_value)] // as `map_err` wants it
    pub(crate) fn bpf(what: &'static str, error: libbpf_rs::Error) -> Self {
        if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
            return Self::NotPermitted(what.to_owned());
        }
        Self::Bpf { what, reason: error.to_string() }
    }
}
