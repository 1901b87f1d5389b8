//! Commands of this program as child processes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

use crate::exit;

/// Set for children: the process whose death ends them.
const PARENT_VARIABLE: &str = "PMDSCOPE_PARENT_PID";

/// Ends this process with the one of this program that has started it, if one has.
pub(crate) fn die_with_parent() {
    let parent = std::env::var(PARENT_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    let Some(parent) = parent else { return };
    let is_child = || getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    if is_child() {
        // Where the system refuses, this process ends at its time limit.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        if !is_child() {
            std::process::exit(exit::FAILED.into());
        }
    }
}

/// A second signal of this number is not a request to end immediately. When the process that has started this one
/// is killed, the kernel sends SIGTERM again for each of its threads that ends.
pub(crate) fn may_repeat(signal: i32) -> bool {
    signal == Signal::TERM.as_raw() && std::env::var_os(PARENT_VARIABLE).is_some()
}

/// A command of this program, without input. It ends with the thread that starts it. `^C` reaches this process
/// alone, which ends the others in order.
///
/// # Errors
///
/// When this program cannot be found.
pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).stdin(Stdio::null());
    command.env(PARENT_VARIABLE, std::process::id().to_string()).process_group(0);
    Ok(command)
}

/// Sends a signal to a child. One that has ended needs none.
pub(crate) fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = pid(child) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills a child, and those that it has started.
pub(crate) fn kill(child: &Child) {
    if let Some(pid) = pid(child) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
