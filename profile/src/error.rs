//! Why a thread cannot be sampled.

use std::{fs, io};

use rustix::io::Errno;

/// Why nothing could be profiled.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The right to sample is missing.
    #[error(
        "may not sample thread {tid}: that needs CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), and \
         kernel.perf_event_paranoid is {paranoid}. Run it as root, or give it the rights: sudo setcap \
         cap_perfmon,cap_sys_ptrace,cap_ipc_lock=ep $(command -v pmdscope)"
    )]
    NotAllowed {
        /// Thread id.
        tid: u32,
        /// Value of `kernel.perf_event_paranoid`.
        paranoid: String,
    },
    /// The frequency is above the limit of the kernel.
    #[error(
        "cannot sample {hz} times per second: the kernel allows {limit}. Ask for less, or raise it: \
         sudo sysctl kernel.perf_event_max_sample_rate={hz}"
    )]
    TooOften {
        /// Requested frequency.
        hz: u32,
        /// Value of `kernel.perf_event_max_sample_rate`.
        limit: u32,
    },
    /// The thread has ended.
    #[error("thread {tid} has ended")]
    Ended {
        /// Thread id.
        tid: u32,
    },
    /// The kernel was built without perf events, or a seccomp filter forbids them, as in
    /// containers.
    #[error(
        "the kernel does not offer perf_event_open(2) here: it is built without CONFIG_PERF_EVENTS, or \
         a seccomp filter of the container forbids it. Run pmdscope on the host, or the container with \
         a profile that allows it"
    )]
    NotOffered,
    /// The mappings of the process cannot be read.
    #[error("cannot read /proc/{pid}/maps: {source}")]
    Maps {
        /// Process id.
        pid: u32,
        /// Cause.
        source: io::Error,
    },
    /// Any other reason.
    #[error("cannot sample thread {tid}: {source}")]
    Other {
        /// Thread id.
        tid: u32,
        /// Cause.
        source: io::Error,
    },
}

impl ProfileError {
    pub(crate) fn refused(tid: u32, hz: u32, error: io::Error) -> Self {
        let setting = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        let paranoid = setting("perf_event_paranoid");
        let limit = setting("perf_event_max_sample_rate").ok();
        let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
        match (Errno::from_io_error(&error), limit) {
            (Some(Errno::ACCESS | Errno::PERM), _) if paranoid.is_ok() => {
                let paranoid = paranoid.unwrap_or_default().trim().to_owned();
                Self::NotAllowed { tid, paranoid }
            }
            (Some(Errno::ACCESS | Errno::PERM | Errno::NOSYS), _) => Self::NotOffered,
            (Some(Errno::SRCH), _) => Self::Ended { tid },
            (Some(Errno::INVAL), Some(limit)) if limit < hz => Self::TooOften { hz, limit },
            _ => Self::Other { tid, source: error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = |errno: Errno, hz| ProfileError::refused(7, hz, errno.into()).to_string();
        let text = refused(Errno::ACCESS, 99);
        assert!(text.contains("CAP_PERFMON") && text.contains("setcap"), "{text}");
        assert!(refused(Errno::INVAL, u32::MAX).contains("perf_event_max_sample_rate"));
        assert!(refused(Errno::NOSYS, 99).contains("CONFIG_PERF_EVENTS"));
        assert_eq!(refused(Errno::SRCH, 99), "thread 7 has ended");
    }
}
