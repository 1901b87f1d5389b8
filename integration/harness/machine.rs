//! Which CPU does what, and how processes get the CPU time that they need.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::process::run_to_success;

const OWN_SESSION: &str = "/proc/self/autogroup";
/// The highest priority, as a nice value.
const HIGHEST: &str = "-19";

/// The CPUs of this process: one polls, the others do the rest.
#[derive(Debug)]
pub struct Machine {
    cpus: Vec<usize>,
}

impl Machine {
    /// Reads them; `None` with fewer than two CPUs.
    pub fn new() -> Result<Option<Self>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus = parse_list(list.context("no Cpus_allowed_list")?).context("list of CPUs")?;
        Ok((cpus.len() >= 2).then_some(Self { cpus }))
    }

    /// The app's lcores: the first controls, the second polls.
    pub fn lcores(&self) -> String {
        format!("0@{},1@{}", self.cpus[0], self.cpus[self.cpus.len() - 1])
    }

    /// CPUs of two processes that both poll: the first and the last.
    pub fn ends(&self) -> (usize, usize) {
        (self.cpus[0], self.cpus[self.cpus.len() - 1])
    }

    /// CPUs for captures, as taskset takes them: all but the polling one.
    pub fn others(&self) -> String {
        let others = &self.cpus[..self.cpus.len() - 1];
        others.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }

    /// CPU model and count, for people.
    pub fn describe(&self) -> String {
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

/// Gives the highest priority on its CPU to a process that leads its own session by now. Without this
/// the scheduler shares each CPU by session, whatever the nice value.
pub fn own_group(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/autogroup");
    match session_nice(&path) {
        Some(_) => fs::write(&path, HIGHEST).with_context(|| path),
        None => Ok(()),
    }
}

/// Raises the priority of the session of this process, and so of all processes that it starts. Dropping
/// it restores the priority before.
#[derive(Debug)]
pub struct Priority(Option<String>);

impl Priority {
    /// Does nothing where the kernel does not schedule this process by its session.
    pub fn raise() -> Result<Self> {
        let before = session_nice(OWN_SESSION);
        if before.is_some() {
            fs::write(OWN_SESSION, HIGHEST).context(OWN_SESSION)?;
        }
        Ok(Self(before))
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(nice) = &self.0 {
            let _ = fs::write(OWN_SESSION, nice);
        }
    }
}

/// The nice value of a session, `None` without one: the kernel does not schedule by session, or the
/// session is the first of the machine or its container. Its file is empty, and cannot be written.
fn session_nice(path: &str) -> Option<String> {
    let group = fs::read_to_string(path).ok()?;
    group.split_whitespace().last().map(str::to_owned)
}

/// Gives all threads of a process real-time priority (`SCHED_FIFO`), without time slices.
pub fn real_time(pid: u32) -> Result<()> {
    chrt(&["-a", "-f", "-p", "50", &pid.to_string()])
}

/// The same for this process, and not for what it starts.
pub fn real_time_alone() -> Result<()> {
    chrt(&["-R", "-a", "-f", "-p", "50", &std::process::id().to_string()])
}

/// The same for this thread alone.
pub fn real_time_thread() -> Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    chrt(&["-f", "-p", "50", &thread.to_string()])
}

fn chrt(args: &[&str]) -> Result<()> {
    run_to_success(Command::new("chrt").args(args)).map(drop)
}

/// Moves this thread to a CPU.
pub fn run_on(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("stay on CPU {cpu}"))
}

/// CPU time of all threads of a process that run, nanoseconds.
pub fn cpu_ns(pid: u32) -> Result<u64> {
    threads_cpu_ns(pid, |_| true)
}

/// CPU time of the threads of a process that run and have such a name, nanoseconds.
pub fn threads_cpu_ns(pid: u32, named: impl Fn(&str) -> bool) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if !named(fs::read_to_string(task.join("comm")).unwrap_or_default().trim()) {
            continue;
        }
        let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let spent = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
        sum += spent.unwrap_or(0);
    }
    Ok(sum)
}

/// CPU time of a process, nanoseconds, with that of threads that have ended.
pub fn process_cpu_ns(pid: u32) -> Result<u64> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
    let spent = Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?);
    Ok(u64::try_from(spent.as_nanos())?)
}

/// The processes that a process has started.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended.
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        if parent.is_some_and(|parent| parent.trim() == pid.to_string()) {
            children.push(child);
        }
    }
    Ok(children)
}

/// Resident memory of a process that is not shared, bytes.
pub fn private_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let sizes = text.lines().filter_map(|line| {
        let (name, size) = line.split_once(':')?;
        let kib = size.trim().strip_suffix(" kB")?;
        name.starts_with("Private_").then(|| kib.parse::<u64>().ok())?
    });
    Ok(sizes.sum::<u64>() * 1024)
}

/// Resident memory of a process, bytes; not that in hugepages.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS")
}

/// The most that its resident memory has ever been, bytes.
pub fn peak_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM")
}

fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("no {field} of process {pid}"))? * 1024)
}

fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_session_has_no_nice_value() -> Result<()> {
        let group = tempfile::NamedTempFile::new()?;
        let path = group.path().to_str().context("a path of UTF-8")?;
        assert_eq!(session_nice(path), None);
        fs::write(path, "/autogroup-5478 nice -3\n")?;
        assert_eq!(session_nice(path).as_deref(), Some("-3"));
        assert_eq!(session_nice("/proc/none/autogroup"), None);
        Ok(())
    }
}
