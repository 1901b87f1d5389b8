//! Runs commands of this program as child processes, each within its own time, and files what they give.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use pmdscope_files::{Directory, FileMode};
use pmdscope_render::number;
use rustix::process::Signal;

use super::archive::files_below;
use super::index::{FileEntry, PartEntry, PartStatus, rounded_seconds, time_text};
use super::progress::Progress;
use super::signals::StopRequests;
use crate::{child, exit};

/// Pause between two checks of the children.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a child may take to end after it was asked to.
const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Most lines of standard error that the index has of a part, and characters of one.
const MOST_MESSAGES: usize = 20;
const LONGEST_MESSAGE: usize = 500;

/// One command to run.
#[derive(Clone, Debug)]
pub(super) struct PartCommand {
    pub(super) part: &'static str,
    pub(super) app: Option<String>,
    /// Of this program.
    pub(super) args: Vec<OsString>,
    /// File for standard output, below the staging directory.
    pub(super) stdout: Option<PathBuf>,
    /// Files and directories that it writes, below the staging directory.
    pub(super) outputs: Vec<PathBuf>,
    /// Longest time that it may take.
    pub(super) limit: Duration,
}

/// Collects parts into a directory.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    pub(super) staging: &'a Path,
    pub(super) stop: &'a StopRequests,
    pub(super) progress: &'a Progress,
    /// When all parts must have ended.
    pub(super) deadline: Instant,
    /// Most bytes that all parts may take.
    pub(super) most_bytes: u64,
    pub(super) parts: Vec<PartEntry>,
}

/// A command that runs.
struct RunningPart {
    command: PartCommand,
    child: Child,
    /// Its standard error.
    messages: File,
    begun: Instant,
    started: Timestamp,
    deadline: Instant,
    /// Why it was asked to end, and when it is killed.
    ended: Option<(String, Instant)>,
}

impl Collector<'_> {
    /// Runs commands at the same time, and waits for all.
    pub(super) fn run(&mut self, commands: Vec<PartCommand>) {
        let mut running = Vec::new();
        for command in commands {
            match self.start(&command) {
                Ok(part) => running.push(part),
                Err(skipped) => self.add(*skipped),
            }
        }
        while !running.is_empty() {
            let mut left = Vec::new();
            for mut part in running {
                match part.child.try_wait() {
                    Ok(Some(status)) => self.add(self.finished(&part, status)),
                    Ok(None) => {
                        self.limit(&mut part);
                        left.push(part);
                    }
                    Err(error) => {
                        let reason = format!("cannot wait for it: {error}");
                        self.add(part.entry(PartStatus::Failed, Some(reason), self.staging));
                    }
                }
            }
            running = left;
            if !running.is_empty() {
                sleep(POLL_INTERVAL);
            }
        }
    }

    /// Adds a part, and reports if it failed.
    pub(super) fn add(&mut self, part: PartEntry) {
        self.progress.part(&part);
        self.parts.push(part);
    }

    /// Why no further part is collected.
    pub(super) fn end_reason(&self) -> Option<&'static str> {
        if self.stop.count() > 0 {
            return Some("interrupted");
        }
        (Instant::now() >= self.deadline).then_some("the time for all parts was over")
    }

    fn start(&self, command: &PartCommand) -> Result<RunningPart, Box<PartEntry>> {
        let skipped =
            |reason: &str| Box::new(PartEntry::skipped(command.part, command.app.clone(), reason));
        if let Some(reason) = self.end_reason() {
            return Err(skipped(reason));
        }
        let (begun, started) = (Instant::now(), Timestamp::now());
        let spawned = self.spawn(command).map_err(|error| {
            let mut entry = skipped(&format!("{error:#}"));
            entry.status = PartStatus::Failed;
            entry
        });
        let (child, messages) = spawned?;
        let deadline = self.deadline.min(begun + command.limit);
        let command = command.clone();
        Ok(RunningPart { command, child, messages, begun, started, deadline, ended: None })
    }

    /// Starts a child; its standard error goes to the file.
    fn spawn(&self, command: &PartCommand) -> Result<(Child, File)> {
        let mut child = child::command(&command.args).context("cannot find this program")?;
        let files = command.outputs.iter().chain(&command.stdout);
        for dir in files.filter_map(|path| path.parent()) {
            Directory::create(&self.staging.join(dir)).context("cannot create a directory")?;
        }
        let stdout = match &command.stdout {
            Some(path) => {
                let file = pmdscope_files::create(&self.staging.join(path), FileMode::default());
                file.with_context(|| format!("cannot write {}", path.display()))?.into()
            }
            None => Stdio::null(),
        };
        let messages = tempfile::tempfile().context("cannot create a temporary file")?;
        let stderr = messages.try_clone().context("cannot create a temporary file")?;
        let child = child.stdout(stdout).stderr(stderr).spawn().context("cannot start it")?;
        Ok((child, messages))
    }

    /// Ends a child that takes too long or too much, or that is not wanted any more.
    fn limit(&self, part: &mut RunningPart) {
        let now = Instant::now();
        if let Some((_, kill_at)) = &part.ended {
            if now >= *kill_at || self.stop.count() > 1 {
                part.kill();
            }
            return;
        }
        let reason = if self.stop.count() > 0 {
            "interrupted".to_owned()
        } else if now >= part.deadline {
            let limit = part.deadline.saturating_duration_since(part.begun);
            format!("did not end within {}", number::seconds(limit.as_secs_f64()))
        } else if self.bytes_of(&part.command) > self.most_bytes {
            format!("larger than {}", number::bytes(self.most_bytes))
        } else {
            return;
        };
        part.interrupt();
        part.ended = Some((reason, now + CHILD_EXIT_TIMEOUT));
    }

    fn bytes_of(&self, command: &PartCommand) -> u64 {
        self.files_of(command).iter().map(|file| file.bytes).sum()
    }

    /// The files of a command that are there and not empty.
    fn files_of(&self, command: &PartCommand) -> Vec<FileEntry> {
        let paths = command.stdout.iter().chain(&command.outputs);
        paths.filter_map(|path| file_entry(self.staging, path)).collect()
    }

    /// Removes output files that are empty.
    fn remove_empty(&self, command: &PartCommand) {
        let paths = command.stdout.iter().chain(&command.outputs);
        for path in paths.filter(|path| file_entry(self.staging, path).is_none()) {
            let _ = pmdscope_files::remove(&self.staging.join(path));
        }
    }

    fn finished(&self, part: &RunningPart, status: ExitStatus) -> PartEntry {
        let messages = messages(&part.messages);
        let files = self.files_of(&part.command);
        self.remove_empty(&part.command);
        let failure = match &part.ended {
            Some((reason, _)) => Some(reason.clone()),
            None => failure(status, &messages, !files.is_empty()),
        };
        let state = match (&failure, files.is_empty()) {
            (None, _) => PartStatus::Complete,
            (Some(_), false) => PartStatus::Incomplete,
            (Some(_), true) => PartStatus::Failed,
        };
        PartEntry { files, messages, ..part.entry(state, failure, self.staging) }
    }
}

impl RunningPart {
    fn entry(&self, status: PartStatus, reason: Option<String>, staging: &Path) -> PartEntry {
        let args = self.command.args.iter().map(|arg| {
            let path = Path::new(arg);
            path.strip_prefix(staging).unwrap_or(path).to_string_lossy().into_owned()
        });
        let command = ["pmdscope".to_owned()].into_iter().chain(args).collect::<Vec<_>>();
        PartEntry {
            part: self.command.part,
            app: self.command.app.clone(),
            status,
            reason,
            command: Some(command.join(" ")),
            started: Some(time_text(self.started)),
            seconds: rounded_seconds(self.begun.elapsed()),
            files: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Asks it to end, as ^C does.
    fn interrupt(&self) {
        child::signal(&self.child, Signal::INT);
    }

    /// Kills it, and those that it has started.
    fn kill(&self) {
        child::kill(&self.child);
    }
}

/// A file or directory below the staging directory; `None` when there is nothing in it.
pub(super) fn file_entry(staging: &Path, path: &Path) -> Option<FileEntry> {
    let metadata = fs::symlink_metadata(staging.join(path)).ok()?;
    let bytes = if metadata.is_dir() {
        let files = files_below(&staging.join(path)).ok()?;
        files.iter().filter_map(|file| Some(fs::symlink_metadata(file).ok()?.len())).sum()
    } else {
        metadata.len()
    };
    (bytes > 0).then(|| FileEntry { path: path.to_string_lossy().into_owned(), bytes })
}

/// Why a command failed. Exit status 1 is also that of commands that found something.
fn failure(status: ExitStatus, messages: &[String], has_files: bool) -> Option<String> {
    let is_error = |line: &&String| line.contains("error: ");
    let error = messages.iter().find(is_error).map(|line| {
        line.split_once("error: ").map_or(line.as_str(), |(_, reason)| reason).to_owned()
    });
    match status.code() {
        Some(0) => None,
        Some(code) if code == i32::from(exit::FAILED) && has_files && error.is_none() => None,
        Some(code) => Some(
            error
                .or_else(|| messages.last().cloned())
                .unwrap_or_else(|| format!("exit status {code}")),
        ),
        None => Some(format!("killed by signal {}", status.signal().unwrap_or(0))),
    }
}

/// The lines that a child has printed on standard error.
fn messages(file: &File) -> Vec<String> {
    let mut text = Vec::new();
    let mut file = file;
    let most = u64::try_from(MOST_MESSAGES * LONGEST_MESSAGE).unwrap_or(u64::MAX);
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(most).read_to_end(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let cut = |line: &str| line.chars().take(LONGEST_MESSAGE).collect();
    lines.take(MOST_MESSAGES).map(cut).collect()
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
