//! Complete files: who is told of them, the command that gets them, and which ones have to go.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

use super::{FileEvent, FileSettings};

/// The lowest priority.
const NICE: i32 = 19;

/// The files of this capture that are complete.
#[derive(Debug)]
pub(super) struct ClosedFiles {
    /// Those that may have to go, with their sizes, the oldest first.
    files: VecDeque<(PathBuf, u64)>,
    /// Bytes of them.
    bytes: u64,
    /// Most files, with the one being written.
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

    /// A file is complete.
    pub(super) fn add(&mut self, path: PathBuf, size: u64) {
        self.forget(&path);
        self.run_command(&path);
        self.tell(FileEvent::Closed(path.clone()));
        // An endless capture does not remember what it will never delete.
        if self.quota.is_some() || self.most.is_some() || self.reuses_names {
            self.bytes += size;
            self.files.push_back((path, size));
        }
    }

    /// A file is about to be opened: makes way for it.
    pub(super) fn make_way(&mut self, path: &Path) {
        // The name of an old file that is about to come again: it would be overwritten.
        if self.reuses_names && self.forget(path) {
            self.delete(path);
        }
        while self.most.is_some_and(|most| self.files.len() >= most) && self.delete_oldest() {}
    }

    /// The current file is about to have so many bytes: keeps all files within the quota.
    pub(super) fn make_room(&mut self, current: u64) {
        let Some(quota) = self.quota else { return };
        while self.bytes.saturating_add(current) > quota && self.delete_oldest() {}
    }

    /// Looks for commands that have ended; true while there are others.
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
        match fs::remove_file(path) {
            Ok(()) => self.tell(FileEvent::Deleted(path.to_owned())),
            // The command for closed files, or somebody else, may have moved it.
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

    /// Takes a file off the list, where it is on it.
    fn forget(&mut self, path: &Path) -> bool {
        let Some(at) = self.files.iter().position(|(known, _)| known == path) else { return false };
        if let Some((_, size)) = self.files.remove(at) {
            self.bytes -= size;
        }
        true
    }

    /// In a process group of its own, so that the end of a capture does not end the command.
    fn run_command(&mut self, path: &Path) {
        self.reap();
        let Some(program) = &self.command else { return };
        let mut command = Command::new(program);
        match command.arg(path).stdin(Stdio::null()).process_group(0).spawn() {
            Ok(child) => {
                if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                    // At its usual priority it does the same work.
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
            // Whoever wanted to know may have gone.
            let _ = events.send(event);
        }
    }
}
