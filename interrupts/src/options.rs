//! Options of tracing, and checks whether this machine permits it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::tracefs;

/// Inode of the first PID namespace (`PROC_PID_INIT_INO` of the kernel).
const HOST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Options of tracing.
#[derive(Clone, Debug)]
pub struct TracerOptions {
    /// Shortest event that is kept with its time; shorter ones are counted.
    pub min_event: Duration,
    /// Whether to trace by BPF; otherwise only counters of `/proc` are read.
    pub bpf: bool,
    /// Whether to trace the system calls of the threads, by default true. Without it, sleep has no
    /// reason, softirqs that a thread causes by its own system call look like others, and signal
    /// handlers are not seen, so that time which the thread takes from itself is attributed to
    /// others. With it, each system call of the machine takes about 0.14 microseconds longer.
    pub system_calls: bool,
    /// The bpftrace program: a path, or a name to look up in `PATH`.
    pub bpftrace: PathBuf,
    /// Mount point of tracefs; `None` for the usual ones, or else a mount that only bpftrace sees.
    pub tracefs: Option<PathBuf>,
}

impl Default for TracerOptions {
    fn default() -> Self {
        Self {
            min_event: Duration::from_micros(10),
            bpf: true,
            system_calls: true,
            bpftrace: "bpftrace".into(),
            tracefs: None,
        }
    }
}

/// Why tracepoints cannot be traced here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TracingUnavailable {
    /// The options ask for counters only.
    #[error("tracing by BPF is switched off")]
    SwitchedOff,
    /// The user is not root, and bpftrace runs for root only.
    #[error(
        "tracing needs root (CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON; bpftrace runs for root only): run it as root"
    )]
    NotRoot,
    /// The program is missing.
    #[error("bpftrace is not installed: apt install bpftrace")]
    NotInstalled,
    /// Tracepoints use other thread ids than this process sees.
    #[error(
        "this PID namespace is not the one of the host, whose ids tracepoints have: run it on the host, or in a container with the host's PID namespace"
    )]
    PidNamespace,
    /// No directory of tracepoints was found; why it cannot be mounted either.
    #[error(
        "tracefs is not mounted, and cannot be ({0}): mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    NoTracefs(String),
    /// bpftrace could not be started; the reason.
    #[error("{0}")]
    Failed(String),
}

impl TracerOptions {
    /// Checks whether tracepoints can be traced here, as far as that is known without trying.
    ///
    /// # Errors
    /// The first missing requirement.
    pub fn check(&self) -> Result<(), TracingUnavailable> {
        if !self.bpf {
            return Err(TracingUnavailable::SwitchedOff);
        }
        if !rustix::process::geteuid().is_root() {
            return Err(TracingUnavailable::NotRoot);
        }
        if find_program(&self.bpftrace).is_none() {
            return Err(TracingUnavailable::NotInstalled);
        }
        if !in_host_pid_namespace() {
            return Err(TracingUnavailable::PidNamespace);
        }
        self.with_tracepoints(|_| ()).map(|_| ())
    }

    /// Calls `read` with the directory of tracepoints; returns also whether it is mounted for that call
    /// only.
    ///
    /// # Errors
    /// [`TracingUnavailable::NoTracefs`].
    pub(crate) fn with_tracepoints<T: Send>(
        &self,
        read: impl FnOnce(&Path) -> T + Send,
    ) -> Result<(T, bool), TracingUnavailable> {
        let tracefs = self.tracefs.as_deref();
        match tracefs::events(tracefs) {
            Some(events) => Ok((read(&events), false)),
            None if tracefs.is_some() => {
                Err(TracingUnavailable::NoTracefs("another path is given".to_owned()))
            }
            None => tracefs::with_private(read)
                .map(|read| (read, true))
                .map_err(|error| TracingUnavailable::NoTracefs(error.to_string())),
        }
    }
}

/// Returns whether this is the PID namespace of the host; true if that is not known.
fn in_host_pid_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").map_or(true, |ns| ns.ino() == HOST_PID_NAMESPACE)
}

/// Finds a program by its path, or in `PATH`.
fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let options = TracerOptions { bpf: false, ..TracerOptions::default() };
        assert_eq!(options.check(), Err(TracingUnavailable::SwitchedOff));
        let missing = ["/nonexistent/bpftrace", "no-such-program-of-pmdscope"];
        for bpftrace in missing.map(PathBuf::from) {
            assert_eq!(find_program(&bpftrace), None);
            let options = TracerOptions { bpftrace, ..TracerOptions::default() };
            let root = rustix::process::geteuid().is_root();
            let expected =
                if root { TracingUnavailable::NotInstalled } else { TracingUnavailable::NotRoot };
            assert_eq!(options.check(), Err(expected));
        }
        assert!(find_program(Path::new("sh")).is_some_and(|path| path.is_absolute()));
    }
}
