//! The processes of `pmdscope-pdump` that are attached to an app.

use std::fs;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::programs;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Process id.
    pub pid: u32,
    /// It watches the one that is attached.
    pub watches: bool,
}

/// The program, where it is built.
pub fn built() -> bool {
    programs::pdump().is_ok()
}

/// Those of an app, by its file-prefix.
pub fn helpers(app: &str) -> Result<Vec<Helper>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if serves(pid, app)
            && let Some(parent) = parent_of(pid)
        {
            found.push((pid, parent));
        }
    }
    let is_ours = |pid: u32| found.iter().any(|(ours, _)| *ours == pid);
    Ok(found.iter().map(|&(pid, parent)| Helper { pid, watches: !is_ours(parent) }).collect())
}

/// Kills one that may be gone already.
pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn serves(pid: u32, app: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    let is_helper = words.next().is_some_and(|program| program.ends_with(b"pmdscope-pdump"));
    let serves = format!("--file-prefix={app}");
    is_helper && words.any(|word| word == serves.as_bytes())
}

/// `None` for one that has ended and was not yet waited for.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(())?;
    fields.next()?.parse().ok()
}
