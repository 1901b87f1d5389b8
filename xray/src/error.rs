//! Why an app cannot be read.

use std::io;

use nix::errno::Errno;

/// Why something of an app could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XrayError {
    /// The right to read its memory is missing.
    #[error(
        "may not read the memory of process {pid}: that needs root, CAP_SYS_PTRACE, or the app's own \
         user where kernel.yama.ptrace_scope is 0"
    )]
    NotAllowed {
        /// Process id.
        pid: u32,
    },
    /// The process has ended, or another one has its id.
    #[error("process {pid} has ended")]
    Ended {
        /// Process id.
        pid: u32,
    },
    /// Nothing is mapped there: the app has freed it, or a pointer was read while it changed.
    #[error("{bytes} bytes at {address:#x} are not mapped in the app")]
    NotMapped {
        /// First address.
        address: u64,
        /// Length.
        bytes: usize,
    },
    /// Values that contradict each other: they changed while they were read, or the app was built from
    /// other sources.
    #[error("{what} is not plausible: {why}")]
    Implausible {
        /// What was read, such as "mempool `mb_pool`".
        what: String,
        /// The contradiction.
        why: String,
    },
    /// The layout of DPDK's structures in this app is not known.
    #[error("the layout of {version} in this app is not known: {why}")]
    UnknownLayout {
        /// As the app states it, such as "DPDK 22.11.11".
        version: String,
        /// Why no known layout is used.
        why: String,
    },
    /// Any other failure of the kernel.
    #[error("cannot read {what}: {source}")]
    Io {
        /// What was read.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl XrayError {
    pub(crate) fn read(pid: u32, address: u64, bytes: usize, errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Self::NotAllowed { pid },
            Errno::ESRCH => Self::Ended { pid },
            Errno::EFAULT | Errno::EIO => Self::NotMapped { address, bytes },
            other => {
                Self::Io { what: format!("{bytes} bytes at {address:#x}"), source: other.into() }
            }
        }
    }

    pub(crate) fn implausible(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Implausible { what: what.into(), why: why.into() }
    }
}
