//! A handle of a process, which need not be a child of this one, and its wait status after it has
//! ended, by the ioctl `PIDFD_GET_INFO` of Linux 6.15 and later.

#![allow(unsafe_code)] // rustix does not have this ioctl.

use std::os::fd::OwnedFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::process::start_ticks;
use crate::client::SocketPeer;

/// Requests the wait status; set in the reply if it is available.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

const PIDFD_GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

/// `struct pidfd_info` in its first version, which later kernels accept.
#[derive(Default)]
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// A handle of a process, which never refers to a later one with the same id.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    process: SocketPeer,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    /// Opens a process; `None` if it has ended, or is in a PID namespace that is not visible from here.
    pub(crate) fn open(process: SocketPeer) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Its id may have been reused before the handle was opened.
        let same = start_ticks(process.pid) == Some(process.start_ticks);
        same.then_some(Self { process, pidfd })
    }

    /// Returns the process, as it was opened.
    pub(crate) fn process(&self) -> SocketPeer {
        self.process
    }

    /// Returns its wait status, as in `wait(2)`; `None` until its parent has waited for it, and on
    /// older kernels.
    pub(crate) fn wait_status(&self) -> Option<i32> {
        let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
        // SAFETY: the opcode tells the kernel the size of the structure, and any bits are valid in it.
        unsafe { ioctl(&self.pidfd, Updater::<PIDFD_GET_INFO, _>::new(&mut info)) }.ok()?;
        (info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Whether this is Linux 6.15 or later.
    fn kernel_tells() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(15))
    }

    #[test]
    fn the_wait_status_is_known_after_the_end() {
        for (script, status) in [("read line; exit 3", 0x300), ("read line; kill -KILL $$", 9)] {
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
            let pid = child.id();
            let start_ticks = start_ticks(pid).unwrap();
            let handle = ProcessHandle::open(SocketPeer { pid, start_ticks }).unwrap();
            assert_eq!(handle.wait_status(), None);
            assert!(ProcessHandle::open(SocketPeer { pid, start_ticks: 1 }).is_none());
            child.wait().unwrap();
            assert_eq!(handle.wait_status(), kernel_tells().then_some(status));
            assert!(ProcessHandle::open(handle.process()).is_none());
        }
        assert!(ProcessHandle::open(SocketPeer { pid: 0, start_ticks: 0 }).is_none());
    }
}
