//! A command of this program that runs, and its output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pmdscope_telemetry::host::cpu_time;
use pmdscope_tui::task::command::CommandLine;
use pmdscope_tui::task::{Task, TaskPlan, TaskState};
use rustix::process::Signal;

use crate::child;
use crate::output::one_line;

/// Most lines that are kept of what a command prints, and characters of one.
const MOST_LINES: usize = 500;
const LONGEST_LINE: usize = 500;
/// Most lines of statistics.
const MOST_STATISTICS: usize = 5;

/// The text that a capture prints once it handles signals.
const LISTENING: &str = "listening on ";

/// How often a capture is asked for its counters.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// A command that runs. It is asked to end when this is dropped.
pub(super) struct RunningTask {
    child: Child,
    file: Option<String>,
    said: Arc<Mutex<TaskOutput>>,
    readers: Vec<JoinHandle<()>>,
    remark: String,
    /// Shows what is in the file.
    show: Option<CommandLine>,
    /// The last output of the command that wrote the file which this one shows.
    written: Option<String>,
    asked: Instant,
    usage: CpuUsage,
}

/// The output of a command since it was last checked.
#[derive(Default)]
struct TaskOutput {
    lines: VecDeque<String>,
    /// The newest line of standard error.
    status: Option<String>,
    /// The first error on standard error.
    error: Option<String>,
    /// The statistics that a capture prints at its end.
    statistics: Vec<String>,
    listens: bool,
}

impl RunningTask {
    pub(super) fn start(plan: &TaskPlan) -> Result<Self> {
        let file = plan.file.as_ref().map(|file| file.name.clone()).filter(|file| file != "-");
        if let Some(file) = &file {
            ensure!(!Path::new(file).exists(), "{file} exists: choose another name");
        }
        let mut command = child::command(&plan.command.args).context("cannot find this program")?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start it")?;
        let said = Arc::<Mutex<TaskOutput>>::default();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(read_lines(stdout, Arc::clone(&said), TaskOutput::printed));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(read_lines(stderr, Arc::clone(&said), TaskOutput::told));
        }
        let (remark, show, written) = (plan.remark.clone(), plan.show.clone(), None);
        let (asked, usage) = (Instant::now(), CpuUsage::default());
        Ok(Self { child, file, said, readers, remark, show, written, asked, usage })
    }

    /// Begins to show the file that was written, if it is to be shown and there is one.
    pub(super) fn show(&mut self, task: &mut Task) -> Option<Self> {
        let is_written = |file: &String| Path::new(file).exists();
        self.file.as_ref().filter(|file| task.state == TaskState::Done && is_written(file))?;
        let command = self.show.take()?;
        task.commands.push(command.to_string());
        let plan = TaskPlan { command, ..TaskPlan::default() };
        match Self::start(&plan) {
            Ok(mut next) => {
                task.state = TaskState::Running;
                next.written = Some(task.status.clone());
                Some(next)
            }
            Err(error) => {
                task.lines.push_back(format!("{error:#}"));
                None
            }
        }
    }

    /// It writes that file, which may not be there yet.
    pub(super) fn writes(&self, file: &str) -> bool {
        self.file.as_deref() == Some(file)
    }

    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, as `^C` does.
    pub(super) fn interrupt(&self) {
        child::signal(&self.child, Signal::INT);
    }

    /// Reads its output; `true` when it has ended.
    pub(super) fn update(&mut self, task: &mut Task) -> bool {
        let ended = match self.child.try_wait() {
            Ok(status) => status,
            Err(error) => {
                self.take_said(task);
                task.cpu = None;
                task.state = TaskState::Failed;
                task.status = format!("exit status unknown: {error}");
                return true;
            }
        };
        if ended.is_some() {
            // All its output is in the pipes.
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
        }
        self.take_said(task);
        if let Some(status) = ended {
            task.cpu = None;
            self.conclude(task, status);
        } else {
            task.cpu = self.usage.share(self.child.id());
            self.ask();
        }
        ended.is_some()
    }

    fn take_said(&self, task: &mut Task) {
        let mut said = lock(&self.said);
        task.lines.extend(said.lines.drain(..));
        let excess = task.lines.len().saturating_sub(MOST_LINES);
        task.lines.drain(..excess);
        if let Some(status) = said.status.take() {
            task.status = status;
        }
    }

    /// Exit status 1 without an error is that of a command which has found something.
    fn conclude(&self, task: &mut Task, status: ExitStatus) {
        let said = lock(&self.said);
        let good = status.success() || (status.code() == Some(1) && said.error.is_none());
        if let Some(written) = &self.written {
            task.lines.extend(said.error.clone().filter(|_| !good));
            (task.state, task.status) = (TaskState::Done, written.clone());
            return;
        }
        task.state = if good { TaskState::Done } else { TaskState::Failed };
        task.status = match (&said.error, good) {
            (Some(error), false) => error.clone(),
            (None, false) => status.to_string(),
            _ if !said.statistics.is_empty() => said.statistics.join(", "),
            _ if self.remark.is_empty() => std::mem::take(&mut task.status),
            _ => task.lines.back().cloned().unwrap_or_default(),
        };
        if good {
            task.status += &self.remark;
        }
    }

    /// Asks a capture for its counters; it does not handle the signal before it listens.
    fn ask(&mut self) {
        if lock(&self.said).listens && self.asked.elapsed() >= ASK_INTERVAL {
            self.asked = Instant::now();
            child::signal(&self.child, Signal::USR1);
        }
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        // The process id of one that cannot be waited for may be that of another process.
        if matches!(self.child.try_wait(), Ok(None)) {
            child::signal(&self.child, Signal::TERM);
        }
    }
}

impl TaskOutput {
    fn printed(&mut self, line: String) {
        self.lines.push_back(line);
        if self.lines.len() > MOST_LINES {
            self.lines.pop_front();
        }
    }

    fn told(&mut self, line: String) {
        let Some(text) = line.strip_prefix("pmdscope: ") else {
            self.statistics.push(line);
            self.statistics.truncate(MOST_STATISTICS);
            return;
        };
        self.listens |= text.starts_with(LISTENING);
        if let Some(error) = text.strip_prefix("error: ") {
            self.error.get_or_insert_with(|| error.to_owned());
        }
        self.status = Some(text.to_owned());
    }
}

fn read_lines(
    from: impl Read + Send + 'static,
    said: Arc<Mutex<TaskOutput>>,
    take: fn(&mut TaskOutput, String),
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = one_line(&String::from_utf8_lossy(&line).replace('\t', "    "));
            take(&mut lock(&said), line.chars().take(LONGEST_LINE).collect());
        }
    })
}

fn lock(said: &Mutex<TaskOutput>) -> MutexGuard<'_, TaskOutput> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The share of a core that a process takes.
#[derive(Default)]
struct CpuUsage {
    last: Option<(Instant, Duration)>,
    share: Option<f64>,
}

impl CpuUsage {
    /// Over the last second; `None` before that.
    fn share(&mut self, pid: u32) -> Option<f64> {
        let used = cpu_time(pid)?;
        match self.last {
            Some((since, before)) if since.elapsed() >= Duration::from_secs(1) => {
                let share = used.saturating_sub(before).div_duration_f64(since.elapsed());
                (self.share, self.last) = (Some(share), Some((Instant::now(), used)));
            }
            Some(_) => {}
            None => self.last = Some((Instant::now(), used)),
        }
        self.share
    }
}
