//! Things that the display has done outside of it: captures, snapshots, lost packets, stamps.
//!
//! Each task is a command of this program, so everything that a key does has a command line. The
//! display only asks for tasks; who runs them tells by a [`TaskMailbox`] how they go.

pub mod command;
mod equivalent;
pub(crate) mod form;
pub(crate) mod holders;
mod target;
pub(crate) mod window;
mod write;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmdscope_render::Tone;
use pmdscope_telemetry::FleetState;

use self::command::CommandLine;
pub(crate) use self::equivalent::NO_OFFER;
use self::form::CaptureForm;
use crate::action::{Action, TaskAction};
use crate::clock::{NS_PER_SECOND, time_of_day};
use crate::flows::CapturedTraffic;
use crate::keys::{Hint, KeyContext, KeyMap};
use crate::view::{InputMode, ViewState};

/// How long stamps are armed, seconds.
const ARM_SECONDS: u64 = 60;

/// What tasks need to know of how the display was started.
#[derive(Clone, Debug, Default)]
pub struct TaskContext {
    /// Nothing is to be done.
    pub read_only: bool,
    /// The recording that is played.
    pub recording: Option<String>,
    /// The only app, as it was named.
    pub app: Option<String>,
    /// The configuration file, if one was named.
    pub config: Option<String>,
    /// The memory of apps is not to be read.
    pub no_xray: bool,
}

/// What is to be done outside.
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
    /// It.
    pub command: CommandLine,
    /// It must not exist yet.
    pub file: Option<OutputFile>,
    /// What to add to its last line.
    pub remark: String,
    /// What it does, where it does not say so itself.
    pub about: String,
    /// A command that shows what is in the file.
    pub show: Option<CommandLine>,
}

/// The file that a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its name, which is one of the arguments.
    pub name: String,
    /// Nobody has typed it: another one may be taken.
    pub is_proposed: bool,
}

impl TaskPlan {
    /// Gives a file that nobody has named a number in its name where it is taken.
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

/// How a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It was started.
    Running,
    /// It was told to end.
    Ending,
    /// It has ended as it should.
    Done,
    /// It has not.
    Failed,
}

impl TaskState {
    /// It has not ended.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Ending)
    }
}

/// A task that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The command lines.
    pub commands: Vec<String>,
    /// How it goes.
    pub state: TaskState,
    /// The newest thing that it said, or why it failed.
    pub status: String,
    /// Share of a core that it takes on our side, while that is known.
    pub cpu: Option<f64>,
    /// What it printed, the last lines of it.
    pub lines: VecDeque<String>,
    /// It writes no file: who closes its window ends it.
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
    fn line(&self) -> String {
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

    fn tone(&self) -> Tone {
        match self.state {
            TaskState::Running | TaskState::Ending => Tone::Title,
            TaskState::Done => Tone::Good,
            TaskState::Failed => Tone::Bad,
        }
    }
}

/// Passes requests to who runs tasks, and tasks back.
#[derive(Clone, Debug, Default)]
pub struct TaskMailbox(Arc<MailboxState>);

#[derive(Debug, Default)]
struct MailboxState {
    requests: Mutex<VecDeque<TaskRequest>>,
    asked: Condvar,
    tasks: Mutex<Arc<Vec<Task>>>,
}

impl TaskMailbox {
    /// Asks for something.
    pub fn ask(&self, request: TaskRequest) {
        lock(&self.0.requests).push_back(request);
        self.0.asked.notify_all();
    }

    /// The next request, which is waited for so long, or for ever.
    pub fn next(&self, timeout: Option<Duration>) -> Option<TaskRequest> {
        let none = |requests: &mut VecDeque<TaskRequest>| requests.is_empty();
        let requests = lock(&self.0.requests);
        let mut requests = match timeout {
            None => self.0.asked.wait_while(requests, none).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.0.asked.wait_timeout_while(requests, timeout, none);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        requests.pop_front()
    }

    /// Tells how all tasks go, the oldest first.
    pub fn publish(&self, tasks: Vec<Task>) {
        *lock(&self.0.tasks) = Arc::new(tasks);
    }

    /// What was told last.
    pub fn tasks(&self) -> Arc<Vec<Task>> {
        Arc::clone(&lock(&self.0.tasks))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    /// Takes in how tasks go; one that has ended is told.
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

    fn is_running(&self) -> bool {
        self.tasks.iter().any(|task| task.state.is_running())
    }

    fn tell(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), Tone::Warn));
    }

    /// The line that says what is going on.
    pub(crate) fn status(&self, keys: &KeyMap) -> Option<(String, Tone)> {
        let running = || {
            let task = self.tasks.iter().rev().find(|task| task.state.is_running())?;
            let hints: &[Hint] = &[
                (&[Action::Task(TaskAction::Capture)], "ends it"),
                (&[Action::Task(TaskAction::Show)], "shows it"),
            ];
            let hints = keys.remark(KeyContext::Page, hints);
            Some((format!("{}{hints}", task.line()), task.tone()))
        };
        self.notice.clone().or_else(running)
    }
}

/// Carries out an action of tasks.
pub(crate) fn update(view: &mut ViewState, action: TaskAction, fleet: &FleetState) {
    let outcome = match action {
        TaskAction::Capture => capture(view, fleet),
        TaskAction::Write => write::write(view, fleet),
        TaskAction::Arm => arm(view, fleet),
        TaskAction::Holders => holders::show(view, fleet),
        TaskAction::Copy => {
            copy(view, fleet);
            Ok(())
        }
        TaskAction::Show => {
            show(view);
            Ok(())
        }
        TaskAction::Edit(request) => {
            view.tasks.form.edit(request);
            Ok(())
        }
        TaskAction::Toggle => {
            view.tasks.form.toggle();
            Ok(())
        }
        TaskAction::Start => start(view, fleet),
        TaskAction::Confirm if view.tasks.form.asks => begin(view),
        TaskAction::Confirm => Ok(()),
    };
    if let Err(reason) = outcome {
        view.tasks.tell(reason);
    }
}

/// Why nothing may be done; `None` where it may.
pub(crate) fn forbidden(view: &ViewState) -> Option<&'static str> {
    view.tasks.context.read_only.then_some("read-only: top changes nothing and writes nothing")
}

/// The same for what needs the apps themselves.
fn check_live(view: &ViewState) -> Result<(), String> {
    if let Some(reason) = forbidden(view) {
        return Err(reason.to_owned());
    }
    match &view.tasks.context.recording {
        None => Ok(()),
        Some(_) => Err("this is a recording: its apps cannot be captured from or armed".to_owned()),
    }
}

/// Ends what runs, or prepares a capture.
fn capture(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    if view.tasks.is_running() {
        view.tasks.wanted.push(TaskRequest::Stop);
        return Ok(());
    }
    check_live(view)?;
    let target = target::of(view, fleet)?;
    view.tasks.form = CaptureForm::new(&target, &moment(view, fleet), &view.tasks.context, fleet);
    view.mode = InputMode::CaptureForm;
    view.scroll = 0;
    Ok(())
}

/// Starts a prepared capture; one that may attach to an app is confirmed first.
fn start(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    let form = &mut view.tasks.form;
    if form.may_attach(fleet)? && !form.asks {
        form.asks = true;
        return Ok(());
    }
    // What was asked about is to be confirmed.
    if form.asks { Ok(()) } else { begin(view) }
}

fn begin(view: &mut ViewState) -> Result<(), String> {
    let plan = view.tasks.form.plan()?;
    let on_screen = plan.file.is_none();
    view.tasks.wanted.push(TaskRequest::Run(plan));
    view.mode = if on_screen { InputMode::Tasks } else { InputMode::Browse };
    view.scroll = 0;
    Ok(())
}

/// Arms the stamps of the app that is selected.
fn arm(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    check_live(view)?;
    let app = target::app(view, fleet)?;
    let command = equivalent::arm(&app, &view.tasks.context);
    let until = fleet.realtime_ns + ARM_SECONDS * NS_PER_SECOND;
    let remark = format!(", until {}", time_of_day(until, &view.zone));
    view.tasks.wanted.push(TaskRequest::Run(TaskPlan { command, remark, ..TaskPlan::default() }));
    Ok(())
}

fn copy(view: &mut ViewState, fleet: &FleetState) {
    let command = equivalent::shown(view, fleet);
    view.tasks.wanted.push(TaskRequest::Copy(command.to_string()));
    view.mode = InputMode::Commands;
    view.scroll = 0;
}

fn show(view: &mut ViewState) {
    view.mode = if view.mode == InputMode::Tasks { InputMode::Browse } else { InputMode::Tasks };
    view.scroll = 0;
}

/// `Esc`: in the window of tasks it ends a task that writes no file, and otherwise closes the window; a
/// question about a capture leads back to its command line.
pub(crate) fn leave(view: &mut ViewState) {
    let shown = |task: &Task| task.on_screen && task.state == TaskState::Running;
    match view.mode {
        InputMode::Tasks if view.tasks.tasks.iter().any(shown) => {
            view.tasks.wanted.push(TaskRequest::Stop);
        }
        InputMode::CaptureForm if view.tasks.form.asks => view.tasks.form.asks = false,
        _ => view.mode = InputMode::Browse,
    }
}

/// The shown moment, for names of files.
fn moment(view: &ViewState, fleet: &FleetState) -> String {
    let ns = view.time_bar.as_ref().map_or(fleet.realtime_ns, |bar| bar.realtime_ns);
    command::compact_time(ns, &view.zone)
}

#[cfg(test)]
mod tests;
