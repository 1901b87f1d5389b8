//! Tasks that run outside of the display: captures, snapshots, lost packets, stamps.
//!
//! Each task is a command of this program, so everything that a key does has a command line. The
//! display only requests tasks; the thread that runs them publishes their states in a
//! [`TaskMailbox`].

pub mod command;
mod context;
pub(crate) mod form;
mod mailbox;
mod progress;
mod request;

use std::sync::Arc;

use pmdscope_render::{Theme, Tone, cut};

pub use self::context::TaskContext;
use self::form::CaptureForm;
pub use self::mailbox::TaskMailbox;
pub use self::progress::{Task, TaskState};
pub use self::request::{OutputFile, Snapshot, TaskPlan, TaskRequest};
use crate::action::{Action, TaskAction};
use crate::keys::{Hint, KeyContext, KeyMap};

/// What the display knows of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskView {
    /// How the display was started.
    pub context: TaskContext,
    /// All tasks, the oldest first.
    pub tasks: Arc<Vec<Task>>,
    /// What the last key led to; another key takes it away.
    pub notice: Option<(String, Tone)>,
    /// What is asked for since it was last taken from here.
    pub wanted: Vec<TaskRequest>,
    /// The capture that is prepared.
    pub(crate) form: CaptureForm,
}

impl TaskView {
    /// Takes in the states of tasks; reports one that has ended.
    pub fn follow(&mut self, tasks: Arc<Vec<Task>>) {
        let was_running = |place: usize| {
            self.tasks.get(place).is_none_or(|before: &Task| before.state.is_running())
        };
        let ended = tasks.iter().enumerate().rev();
        let mut ended =
            ended.filter(|(place, task)| !task.state.is_running() && was_running(*place));
        if let Some((_, task)) = ended.next() {
            self.notice = Some((task.line(), task.tone()));
        }
        self.tasks = tasks;
    }

    /// Any of them runs.
    pub(crate) fn is_running(&self) -> bool {
        self.tasks.iter().any(|task| task.state.is_running())
    }

    /// Warns of something in the last line.
    pub(crate) fn tell(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), Tone::Warn));
    }

    /// The line about tasks that run; of one that is longer than `width` columns, the end before the keys is left out.
    pub(crate) fn status(
        &self,
        keys: &KeyMap,
        width: usize,
        theme: Theme,
    ) -> Option<(String, Tone)> {
        let running = || {
            let task = self.tasks.iter().rev().find(|task| task.state.is_running())?;
            let hints: &[Hint] = &[
                (&[Action::Task(TaskAction::Capture)], "ends it"),
                (&[Action::Task(TaskAction::Show)], "shows it"),
            ];
            let hints = keys.remark(KeyContext::Page, hints);
            let room = width.saturating_sub(hints.chars().count());
            Some((format!("{}{hints}", cut(&task.line(), room, theme)), task.tone()))
        };
        self.notice.clone().or_else(running)
    }
}
