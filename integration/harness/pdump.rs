//! The processes of `pmdscope-pdump` that are attached to an app.

use std::fs;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::programs;

/// One of these processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Process id.
    pub pid: u32,
    /// It was started by `pmdscope`.
    pub is_first: bool,
    /// It watches the one that is attached, or another one that does.
    pub watches: bool,
}

/// The program, where it is built.
pub fn built() -> bool {
    programs::pdump().is_ok()
}

/// Those of an app, by its file-prefix.
pub fn helpers(app: &str) -> Result<Vec<Helper>> {
    let mut found: Vec<Found> = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if serves(pid, app)
            && let Some(parent) = parent_of(pid)
        {
            found.push(Found { pid, parent, is_inside: is_inside(pid) });
        }
    }
    let parent = |pid: u32| found.iter().find(|one| one.pid == pid).map(|one| one.parent);
    // The first one of those that enter a PID namespace only waits for the next one, which watches.
    let describe = |one: &Found| {
        let above = std::iter::successors(parent(one.pid), |pid| parent(*pid)).count() - 1;
        let watches = above < if one.is_inside { 2 } else { 1 };
        Helper { pid: one.pid, is_first: above == 0, watches }
    };
    Ok(found.iter().map(describe).collect())
}

/// A process of the program.
struct Found {
    pid: u32,
    parent: u32,
    /// It is in another PID namespace, as that of a container.
    is_inside: bool,
}

/// Kills a process that may have ended already.
pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Whether a process maps the app's list of memzones, and the locks in it, to write to.
pub fn maps_locks(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().any(|line| line.contains(" rw-s ") && line.ends_with("/fbarray_memzone"))
}

/// Whether a process has an id in another PID namespace too.
fn is_inside(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().count() > 1)
}

/// Whether a process is one of an app.
fn serves(pid: u32, app: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).collect();
    let has = |wanted: &str| words.contains(&wanted.as_bytes());
    let is_helper = words.first().is_some_and(|program| program.ends_with(b"pmdscope-pdump"));
    is_helper && has(&format!("--file-prefix={app}"))
}

/// `None` for one that has ended and was not yet waited for.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(())?;
    fields.next()?.parse().ok()
}
