//! Errors: what failed, on what, and what to do next.

use std::io;
use std::path::PathBuf;

use crate::flow::MAX_FLOWS;

/// Why a bypass cannot be created, read or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BypassError {
    /// The text is not a flow.
    #[error("invalid flow '{0}': expected PROTOCOL:PORT, such as udp:53 (tcp, udp or sctp)")]
    BadFlow(String),
    /// The wrong number of flows.
    #[error("{0} flows given: a bypass has 1 to {max}", max = MAX_FLOWS)]
    BadFlowCount(usize),
    /// The text is not an interface name.
    #[error("'{0}' cannot be an interface: 'ip link' lists them")]
    BadInterfaceName(String),
    /// There is no such interface in this network namespace.
    #[error(
        "no interface {0} in this network namespace: 'ip link' lists them; \
             'nsenter --net=/run/netns/NAME pmdscope ...' enters another one"
    )]
    NoInterface(String),
    /// The interface has fewer queues.
    #[error(
        "{interface} has no RX queue {queue}: it has {queues}, numbered from 0 ('ethtool -l {interface}')"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The requested queue.
        queue: u32,
        /// Number of RX queues.
        queues: u32,
    },
    /// Another program is attached to the interface.
    #[error(
        "{interface} has the XDP program '{program}' (id {id}), and an interface takes one: detach it first ({how})"
    )]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// Name of the program.
        program: String,
        /// Id of the program.
        id: u32,
        /// A command that detaches it.
        how: String,
    },
    /// The queue is in use by an app, so it cannot be changed.
    #[error(
        "{interface} queue {queue} is in use by {app}: stop it before you choose another queue"
    )]
    InUse {
        /// The interface.
        interface: String,
        /// The queue in use.
        queue: u32,
        /// The app that uses it.
        app: String,
    },
    /// The interface has no bypass.
    #[error("{0} has no bypass: 'pmdscope bypass up {0} --queue N --flow udp:53' makes one")]
    NoBypass(String),
    /// The kernel refused a request.
    #[error("cannot {what}: {source}{advice}", advice = advice(source))]
    Kernel {
        /// The operation, with its object.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel refused to load or read a BPF program or map.
    #[error(
        "cannot {what}: {reason}; it needs root, or CAP_BPF and CAP_NET_ADMIN, and a kernel with AF_XDP (CONFIG_XDP_SOCKETS)"
    )]
    Bpf {
        /// The operation.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A file of the bypass cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A state file is not valid.
    #[error("{}: {reason}; remove it after 'ip link show' and 'ethtool -n' look as they should", path.display())]
    BadState {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The kernel gave an unexpected answer.
    #[error("unexpected answer of the kernel about {0}")]
    Unexpected(String),
    /// The bypass was partly removed; its state is kept for a retry.
    #[error(
        "{interface} is not wholly as it was: {reasons}; run 'pmdscope bypass down {interface}' again"
    )]
    Incomplete {
        /// The interface.
        interface: String,
        /// What failed.
        reasons: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; it needs root or CAP_NET_ADMIN",
        _ => "",
    }
}

impl BypassError {
    pub(crate) fn kernel(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel { what: what.into(), source: source.into() }
    }

    /// Returns whether the command line requested something impossible.
    pub fn is_misuse(&self) -> bool {
        matches!(self, Self::BadFlow(_) | Self::BadFlowCount(_) | Self::BadInterfaceName(_))
    }
}
