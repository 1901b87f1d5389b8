//! Complete files: events about them, the command that is run for each, and deletion of the oldest.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

use super::{FileEvent, FileSettings};

/// The lowest priority.
const NICE: i32 = 19;

/// The complete files of this capture.
#[derive(Debug)]
pub(super) struct ClosedFiles {
    /// Files that may be deleted, with their sizes, the oldest first.
    files: VecDeque<(PathBuf, u64)>,
    /// Sum of their sizes.
    bytes: u64,
    /// Most files, including the one being written.
    most: Option<usize>,
    reuses_names: bool,
    quota: Option<u64>,
    command: Option<OsString>,
    children: Vec<Child>,
    events: Option<Sender<FileEvent>>,
    command_failed: bool,
    deletion_failed: bool,
}

impl ClosedFiles {
    pub(super) fn new(settings: &FileSettings) -> Self {
        let rotation = &settings.rotation;
        Self {
            files: VecDeque::new(),
            bytes: 0,
            most: rotation.files.filter(|_| rotation.bounded).map(|files| files as usize),
            reuses_names: rotation.reuses_names(),
            quota: settings.quota,
            command: settings.command.clone(),
            children: Vec::new(),
            events: settings.events.clone(),
            command_failed: false,
            deletion_failed: false,
        }
    }

    /// Adds a complete file.
    pub(super) fn add(&mut self, path: PathBuf, size: u64) {
        self.forget(&path);
        self.run_command(&path);
        self.tell(FileEvent::Closed(path.clone()));
        // Files that are never deleted are not stored: a capture may run forever.
        if self.quota.is_some() || self.most.is_some() || self.reuses_names {
            self.bytes += size;
            self.files.push_back((path, size));
        }
    }

    /// Deletes files as required before a file is opened.
    pub(super) fn make_way(&mut self, path: &Path) {
        // The name is reused: the old file would be overwritten.
        if self.reuses_names && self.forget(path) {
            self.delete(path);
        }
        while self.most.is_some_and(|most| self.files.len() >= most) && self.delete_oldest() {}
    }

    /// Keeps all files within the quota, when the current file is about to grow to `current` bytes.
    pub(super) fn make_room(&mut self, current: u64) {
        let Some(quota) = self.quota else { return };
        while self.bytes.saturating_add(current) > quota && self.delete_oldest() {}
    }

    /// Reaps commands that have ended; returns true while others run.
    pub(super) fn reap(&mut self) -> bool {
        let mut failed = None;
        self.children.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                failed = Some(status.to_string());
                false
            }
            Err(error) => {
                failed = Some(error.to_string());
                false
            }
        });
        if let Some(reason) = failed {
            self.command_trouble(&reason);
        }
        !self.children.is_empty()
    }

    fn delete_oldest(&mut self) -> bool {
        let Some((path, size)) = self.files.pop_front() else { return false };
        self.bytes -= size;
        self.delete(&path);
        true
    }

    fn delete(&mut self, path: &Path) {
        match pmdscope_files::remove(path) {
            Ok(()) => self.tell(FileEvent::Deleted(path.to_owned())),
            // The command for closed files, or a user, may have moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                if !self.deletion_failed {
                    self.deletion_failed = true;
                    let text = format!("cannot delete {}: {error}", path.display());
                    self.tell(FileEvent::Trouble(text));
                }
            }
        }
    }

    /// Removes a file from the list; returns whether it was there.
    fn forget(&mut self, path: &Path) -> bool {
        let Some(at) = self.files.iter().position(|(known, _)| known == path) else { return false };
        if let Some((_, size)) = self.files.remove(at) {
            self.bytes -= size;
        }
        true
    }

    /// Runs the command in its own process group, so that the end of a capture does not end it.
    fn run_command(&mut self, path: &Path) {
        self.reap();
        let Some(program) = &self.command else { return };
        let mut command = Command::new(program);
        match command.arg(path).stdin(Stdio::null()).process_group(0).spawn() {
            Ok(child) => {
                if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                    // If this fails, the command runs at normal priority.
                    let _ = rustix::process::setpriority_process(Some(pid), NICE);
                }
                self.children.push(child);
            }
            Err(error) => self.command_trouble(&error.to_string()),
        }
    }

    fn command_trouble(&mut self, reason: &str) {
        if !self.command_failed {
            self.command_failed = true;
            let program = self.command.clone().unwrap_or_default();
            self.tell(FileEvent::Trouble(format!("{}: {reason}", program.display())));
        }
    }

    fn tell(&self, event: FileEvent) {
        if let Some(events) = &self.events {
            // The receiver may have been dropped.
            let _ = events.send(event);
        }
    }
}
