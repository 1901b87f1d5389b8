//! States of the requested tasks.

use std::collections::VecDeque;

use pmdscope_render::Tone;

use super::command::CommandLine;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It was started.
    Running,
    /// It was asked to end.
    Ending,
    /// It has ended as it should.
    Done,
    /// It has failed.
    Failed,
}

impl TaskState {
    /// It has not ended.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Ending)
    }
}

/// A requested task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The command lines.
    pub commands: Vec<String>,
    /// Its state.
    pub state: TaskState,
    /// Its newest message, or why it failed.
    pub status: String,
    /// Share of a core that it takes on our side, while that is known.
    pub cpu: Option<f64>,
    /// What it printed, the last lines of it.
    pub lines: VecDeque<String>,
    /// It writes no file: closing its window ends it.
    pub on_screen: bool,
}

impl Task {
    /// One that begins.
    pub fn new(commands: &[CommandLine], on_screen: bool) -> Self {
        let commands = commands.iter().map(ToString::to_string).collect();
        let (status, lines) = ("starting".to_owned(), VecDeque::new());
        Self { commands, state: TaskState::Running, status, cpu: None, lines, on_screen }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let (state, mut cost) = match self.state {
            TaskState::Running => ("", String::new()),
            TaskState::Ending => ("ending: ", String::new()),
            TaskState::Done => ("done: ", String::new()),
            TaskState::Failed => ("failed: ", String::new()),
        };
        if let Some(cpu) = self.cpu.filter(|_| self.state.is_running()) {
            cost = format!(", {:.0} % of a core", cpu * 100.0);
        }
        format!("{state}{}{cost}", self.status)
    }

    /// The tone of its state.
    pub(crate) fn tone(&self) -> Tone {
        match self.state {
            TaskState::Running | TaskState::Ending => Tone::Title,
            TaskState::Done => Tone::Good,
            TaskState::Failed => Tone::Bad,
        }
    }
}
