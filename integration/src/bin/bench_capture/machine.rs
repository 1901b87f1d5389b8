//! Which CPU does what, and how processes get the CPU time that they need.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The CPUs of this process: one polls, the others do the rest.
#[derive(Debug)]
pub(crate) struct Machine {
    cpus: Vec<usize>,
}

impl Machine {
    /// Finds out; `None` when there are not two CPUs.
    pub(crate) fn new() -> Result<Option<Self>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus = parse_list(list.context("no Cpus_allowed_list")?).context("list of CPUs")?;
        Ok((cpus.len() >= 2).then_some(Self { cpus }))
    }

    /// The app's lcores: the first controls, the second polls.
    pub(crate) fn lcores(&self) -> String {
        format!("0@{},1@{}", self.cpus[0], self.cpus[self.cpus.len() - 1])
    }

    /// CPUs for captures, as taskset takes them: all but the polling one.
    pub(crate) fn others(&self) -> String {
        let others = &self.cpus[..self.cpus.len() - 1];
        others.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }

    /// CPU model and count, for people.
    pub(crate) fn describe(&self) -> String {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!(
            "{} CPUs of {}, Linux {}",
            self.cpus.len(),
            model.unwrap_or("an unknown model"),
            kernel.trim()
        )
    }
}

/// Puts a process that leads its own session by now ahead of everything else on its CPU. Without this
/// the scheduler shares each CPU by session, whatever the nice value.
pub(crate) fn own_group(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/autogroup");
    if fs::exists(&path)? {
        fs::write(&path, "-19").with_context(|| path)?;
    }
    Ok(())
}

/// Puts all threads of a process ahead of everything else, without slices.
pub(crate) fn real_time(pid: u32) -> Result<()> {
    let args = ["-a", "-f", "-p", "50", &pid.to_string()];
    let status = Command::new("chrt").args(args).status().context("run chrt")?;
    ensure!(status.success(), "chrt of process {pid} ended with {status}");
    Ok(())
}

/// CPU time of all threads of a process, nanoseconds.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let spent = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
        sum += spent.unwrap_or(0);
    }
    Ok(sum)
}

fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}
