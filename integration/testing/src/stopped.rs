//! Whether a process has stopped.

use std::{fs, io};

/// Whether SIGSTOP has stopped all threads of a process: each stops only when it next runs.
///
/// # Errors
/// When there is no such process.
pub fn all_stopped(pid: u32) -> io::Result<bool> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    // A thread may end meanwhile.
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    Ok(stats.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))))
}
