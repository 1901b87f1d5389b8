//! What is asked for: a command to run, or a moment to write.

use std::sync::Arc;

use pmdscope_telemetry::FleetState;

use super::command::{self, CommandLine};
use crate::flows::CapturedTraffic;

/// A request of the display for something outside of it.
#[derive(Clone, Debug)]
pub enum TaskRequest {
    /// Run a command.
    Run(TaskPlan),
    /// Write a moment of all apps.
    Snapshot(Box<Snapshot>),
    /// End the tasks that run.
    Stop,
    /// Give a text to the clipboard of the terminal.
    Copy(String),
    /// The display has ended.
    Over,
}

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPlan {
    /// The command line.
    pub command: CommandLine,
    /// It must not exist yet.
    pub file: Option<OutputFile>,
    /// What to add to its last line.
    pub remark: String,
    /// What it does, where it does not print that itself.
    pub about: String,
    /// A command that shows what is in the file.
    pub show: Option<CommandLine>,
}

/// The file that a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its name, which is one of the arguments.
    pub name: String,
    /// The user has not typed it: another one may be taken.
    pub is_proposed: bool,
}

impl TaskPlan {
    /// Gives a file that the user has not named a number in its name if the name is taken.
    pub fn take_free_name(&mut self, is_taken: impl Fn(&str) -> bool) {
        let Some(file) = self.file.as_mut().filter(|file| file.is_proposed) else { return };
        let free = command::free_name(&file.name, is_taken);
        let args = self.show.iter_mut().flat_map(|show| &mut show.args);
        for arg in self.command.args.iter_mut().chain(args).filter(|arg| **arg == file.name) {
            arg.clone_from(&free);
        }
        file.name = free;
    }
}

/// A moment to write.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Name of the files, without `.json` and `.txt`.
    pub name: String,
    /// The commands that write the same, if there are any.
    pub commands: Vec<CommandLine>,
    /// As text.
    pub text: String,
    /// All apps.
    pub fleet: FleetState,
    /// Conversations.
    pub traffic: Option<Arc<CapturedTraffic>>,
}

impl Snapshot {
    /// Gives the files a number in their names where those are taken.
    pub fn take_free_name(&mut self, is_taken: impl Fn(&str) -> bool) {
        let is_taken = |name: &str| {
            ["json", "txt"].iter().any(|extension| is_taken(&format!("{name}.{extension}")))
        };
        let free = command::free_name(&self.name, is_taken);
        for output in self.commands.iter_mut().filter_map(|command| command.output.as_mut()) {
            if let Some(extension) = output.strip_prefix(&self.name) {
                *output = format!("{free}{extension}");
            }
        }
        self.name = free;
    }
}
