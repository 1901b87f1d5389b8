//! Does what the display of `top` asks for: runs commands of this program, and writes snapshots.
//!
//! One thread starts all children, which end with it. Nothing is done until it is asked for.

mod running;

use std::io::Write;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pmdscope_packets::file::{FileMode, PART};
use pmdscope_tui::report::TopDocument;
use pmdscope_tui::run::DisplayFeed;
use pmdscope_tui::task::{Snapshot, Task, TaskMailbox, TaskPlan, TaskRequest, TaskState};

use self::running::RunningTask;
use crate::output;

/// How often to check commands that run.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long commands may take to end when the display has ended.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Tasks that are remembered.
const REMEMBERED: usize = 8;

/// The thread that runs tasks for the display.
pub(crate) struct TaskRunner(JoinHandle<()>);

impl TaskRunner {
    /// Waits until no command runs any more, once the display has ended; not for ever.
    pub(crate) fn end(self) {
        let end = Instant::now() + 2 * END_TIMEOUT;
        while !self.0.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Does what the display wants, until it ends.
pub(crate) fn start<N: Send + 'static>(feed: DisplayFeed<N>) -> TaskRunner {
    TaskRunner(thread::spawn(move || serve(&feed.tasks.clone(), || feed.redraw())))
}

/// All tasks, the oldest first.
#[derive(Default)]
struct TaskList(Vec<(Task, Option<RunningTask>)>);

fn serve(mailbox: &TaskMailbox, redraw: impl Fn() -> bool) {
    let mut tasks = TaskList::default();
    loop {
        let request = mailbox.next(tasks.is_running().then_some(POLL_INTERVAL));
        if matches!(request, Some(TaskRequest::Over)) {
            break;
        }
        let changed = request.is_some_and(|request| tasks.take(request));
        if tasks.update() || changed {
            mailbox.publish(tasks.tasks());
            if !redraw() {
                break;
            }
        }
    }
    tasks.end();
}

impl TaskList {
    fn is_running(&self) -> bool {
        self.0.iter().any(|(_, running)| running.is_some())
    }

    fn tasks(&self) -> Vec<Task> {
        self.0.iter().map(|(task, _)| task.clone()).collect()
    }

    /// Carries out a request; `false` when it changes nothing.
    fn take(&mut self, request: TaskRequest) -> bool {
        match request {
            TaskRequest::Run(mut plan) => {
                plan.take_free_name(|file| self.is_taken(file));
                self.add(begin(&plan));
            }
            TaskRequest::Snapshot(mut snapshot) => {
                snapshot.take_free_name(|file| self.is_taken(file));
                self.add((written(&snapshot), None));
            }
            TaskRequest::Stop => self.stop(),
            TaskRequest::Copy(_) | TaskRequest::Over => return false,
        }
        true
    }

    /// The file is there, or is being written.
    fn is_taken(&self, file: &str) -> bool {
        let mut running = self.0.iter().filter_map(|(_, running)| running.as_ref());
        let unfinished = format!("{file}{PART}");
        running.any(|task| task.writes(file))
            || [file, &unfinished].iter().any(|file| Path::new(file).exists())
    }

    fn add(&mut self, task: (Task, Option<RunningTask>)) {
        self.0.push(task);
        let ended = self.0.iter().position(|(_, running)| running.is_none());
        if let Some(ended) = ended.filter(|_| self.0.len() > REMEMBERED) {
            self.0.remove(ended);
        }
    }

    /// Asks all commands to end, as `^C` does.
    fn stop(&mut self) {
        for (task, running) in &mut self.0 {
            if let Some(running) = running {
                running.interrupt();
                task.state = TaskState::Ending;
            }
        }
    }

    /// Takes in the output of commands, and which have ended; `true` when something changed.
    fn update(&mut self) -> bool {
        let mut changed = false;
        for (task, running) in &mut self.0 {
            if let Some(command) = running {
                let before = task.clone();
                if command.update(task) {
                    *running = command.show(task);
                }
                changed |= *task != before;
            }
        }
        changed
    }

    /// Ends all commands. Those that take longer end later on their own.
    fn end(&mut self) {
        self.stop();
        let end = Instant::now() + END_TIMEOUT;
        while self.is_running() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
            self.update();
        }
    }
}

fn begin(plan: &TaskPlan) -> (Task, Option<RunningTask>) {
    let mut task = Task::new(std::slice::from_ref(&plan.command), plan.file.is_none());
    match RunningTask::start(plan) {
        Ok(running) => {
            if !plan.about.is_empty() {
                task.status.clone_from(&plan.about);
            }
            (task, Some(running))
        }
        Err(error) => {
            (task.state, task.status) = (TaskState::Failed, format!("{error:#}"));
            (task, None)
        }
    }
}

fn written(snapshot: &Snapshot) -> Task {
    let mut task = Task::new(&snapshot.commands, false);
    (task.state, task.status) = match write(snapshot) {
        Ok(()) => (TaskState::Done, format!("wrote {0}.json and {0}.txt", snapshot.name)),
        Err(error) => (TaskState::Failed, format!("{error:#}")),
    };
    task
}

fn write(snapshot: &Snapshot) -> Result<()> {
    let document = TopDocument::of(&snapshot.fleet, snapshot.traffic.as_deref());
    write_new(&format!("{}.json", snapshot.name), &output::json_line(&document)?)?;
    write_new(&format!("{}.txt", snapshot.name), &output::plain(&snapshot.text))
}

/// Writes a file that does not exist yet.
fn write_new(path: &str, text: &str) -> Result<()> {
    let file = pmdscope_files::create_new(Path::new(path), FileMode::default());
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {path}"))
}

#[cfg(test)]
mod tests;
