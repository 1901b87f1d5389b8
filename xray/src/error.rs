//! Why an app cannot be read.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use pmdscope_telemetry::TelemetryError;

use crate::access::AccessDenial;

/// Why a part of an app could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XrayError {
    /// The right to read its memory is missing.
    #[error("may not read the memory of process {pid}: {denial}")]
    NotAllowed {
        /// Process id.
        pid: u32,
        /// Why, and the cure.
        denial: AccessDenial,
    },
    /// The process has ended, another one has its id, or it runs another program.
    #[error("process {pid} has ended, or runs another program now")]
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
    /// The app is not on this host, or its process id is not known.
    #[error(
        "the process of {app} is not known here: it runs in another PID namespace, or has ended; run \
         pmdscope on the host, or in the PID namespace of the app"
    )]
    UnknownProcess {
        /// Name of the app.
        app: String,
    },
    /// The configuration of the EAL is not in the memory of the app.
    #[error("cannot find the memory configuration of DPDK in the app: {why}")]
    NoMemoryConfig {
        /// Why.
        why: String,
    },
    /// The memzones are neither found in the memory of the app nor reported by it.
    #[error("cannot find the memzones of the app: {found}; nor does it report them: {told}")]
    Memzones {
        /// Why they are not found.
        found: Box<XrayError>,
        /// Why the app does not report them.
        told: TelemetryError,
    },
    /// The structure of a mempool handler's free objects is not known.
    #[error(
        "free objects of mempool {pool} are not counted: its handler keeps them neither in a ring nor in a \
         stack"
    )]
    UnknownHandler {
        /// Name of the pool.
        pool: String,
    },
    /// Not a core file, or a broken one.
    #[error("cannot use {} as a core file: {why}", .path.display())]
    NotACore {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Any other failure of the kernel.
    #[error("cannot read {what}: {source}")]
    Io {
        /// What was read.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl XrayError {
    pub(crate) fn read(pid: u32, address: u64, bytes: usize, errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Self::NotAllowed { pid, denial: AccessDenial::of(pid) },
            Errno::ESRCH => Self::Ended { pid },
            Errno::EFAULT | Errno::EIO => Self::NotMapped { address, bytes },
            other => {
                Self::Io { what: format!("{bytes} bytes at {address:#x}"), source: other.into() }
            }
        }
    }

    /// An error with a file of a process in `/proc`.
    pub(crate) fn process(pid: u32, path: String, source: io::Error) -> Self {
        match Errno::from_raw(source.raw_os_error().unwrap_or_default()) {
            Errno::ENOENT | Errno::ESRCH => Self::Ended { pid },
            errno @ (Errno::EACCES | Errno::EPERM) => Self::read(pid, 0, 0, errno),
            _ => Self::Io { what: path, source },
        }
    }

    pub(crate) fn implausible(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Implausible { what: what.into(), why: why.into() }
    }
}
