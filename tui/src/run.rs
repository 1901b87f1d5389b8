//! The event loop: events, keys and signals in, frames out. Draws only after an event.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{
    self, Event as Input, KeyEventKind, MouseButton, MouseEvent, MouseEventKind,
};
use jiff::tz::TimeZone;
use pmdscope_render::{Theme, Tone};
use pmdscope_telemetry::{QueueHistograms, RawReplies, Thresholds, monotonic_ns, realtime_ns};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::action::{Action, SelectionMotion};
use crate::flows::{CapturedTraffic, EndpointNames, FlowMailbox, FlowRequest};
use crate::input::action_of;
use crate::keys::KeyMap;
use crate::sampling_interval::SamplingInterval;
use crate::screen::{self, ClickTarget};
use crate::state::{ColumnChoices, PageTab, ViewFilter, ViewState};
use crate::task::{TaskContext, TaskMailbox, TaskRequest};
use crate::terminal::{DisplayTerminal, TerminalGuard};
use crate::timeline::{SeekTarget, Timeline};
use crate::update::{LoopControl, perform};

/// Ages of lost apps are redrawn this often.
const AGE_STEP: Duration = Duration::from_secs(1);

/// How long data may wait for that of other apps, to be drawn along with it. Keys do not wait.
const GATHER: Duration = Duration::from_millis(100);

/// How to start.
#[derive(Clone, Debug)]
pub struct DisplayOptions {
    /// Name of the machine whose apps are shown; empty if it is not known.
    pub host: String,
    /// Colours and characters.
    pub theme: Theme,
    /// Shown until a key is pressed.
    pub notice: Option<String>,
    /// Sampling interval, milliseconds.
    pub interval_ms: u64,
    /// Take the mouse.
    pub mouse: bool,
    /// For times of day.
    pub zone: TimeZone,
    /// From when on a queue is hot.
    pub thresholds: Thresholds,
    /// The page that is shown first.
    pub page: PageTab,
    /// The filter at first, and after a reset.
    pub filter: String,
    /// Which keys do what.
    pub keys: KeyMap,
    /// Which columns tables show.
    pub columns: ColumnChoices,
    /// Names of hosts and services; `None` for numbers.
    pub names: Option<Arc<dyn EndpointNames>>,
    /// Keeps the replies of apps; `None` in a replay.
    pub replies: Option<Arc<RawReplies>>,
    /// Requests histograms of queues while they are shown; without effect in a replay.
    pub histograms: Arc<QueueHistograms>,
    /// For tasks.
    pub tasks: TaskContext,
}

/// The clocks, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    monotonic: fn() -> u64,
    realtime: fn() -> u64,
}

enum DisplayMessage<N> {
    Update(N),
    /// Conversations or tasks were published.
    Told,
    Input(Input),
    /// The process was stopped, and goes on.
    Continued,
    Stop,
}

impl<N> DisplayMessage<N> {
    /// It need not be shown at once.
    fn is_data(&self) -> bool {
        matches!(self, Self::Update(_) | Self::Told)
    }
}

/// Where other threads put what a timeline with updates `N` shows.
pub struct DisplayFeed<N> {
    messages: Sender<DisplayMessage<N>>,
    /// How often to sample.
    pub pace: Arc<SamplingInterval>,
    /// Requests for captures, and their results.
    pub mailbox: FlowMailbox,
    /// Requests for tasks, and their states.
    pub tasks: TaskMailbox,
}

impl<N> Clone for DisplayFeed<N> {
    fn clone(&self) -> Self {
        let (pace, mailbox) = (Arc::clone(&self.pace), self.mailbox.clone());
        Self { messages: self.messages.clone(), pace, mailbox, tasks: self.tasks.clone() }
    }
}

impl<N> DisplayFeed<N> {
    /// Hands over an update; `false` when the program has ended.
    pub fn send(&self, update: N) -> bool {
        self.messages.send(DisplayMessage::Update(update)).is_ok()
    }

    /// Hands over conversations; `false` when the program has ended.
    pub fn tell(&self, traffic: CapturedTraffic) -> bool {
        self.mailbox.publish(traffic);
        self.redraw()
    }

    /// Has what was published shown; `false` when the program has ended.
    pub fn redraw(&self) -> bool {
        self.messages.send(DisplayMessage::Told).is_ok()
    }
}

/// Runs until the user leaves or a signal ends it. `start` gives the timeline to show, starts what
/// feeds it, and must not block.
///
/// # Errors
///
/// When the terminal cannot be taken or drawn on, or signals cannot be caught.
pub fn run<T: Timeline>(
    options: DisplayOptions,
    start: impl FnOnce(DisplayFeed<T::Update>) -> T,
) -> io::Result<()> {
    let (messages, inbox) = channel();
    stop_on_signals(messages.clone())?;
    let mut terminal = TerminalGuard::take(options.mouse)?;
    read_input(messages.clone())?;
    let clocks = Clocks { monotonic: monotonic_ns, realtime: realtime_ns };
    let pace = Arc::new(SamplingInterval::new(Duration::from_millis(options.interval_ms)));
    let mailbox = FlowMailbox::default();
    let tasks = TaskMailbox::default();
    let timeline = start(DisplayFeed {
        messages,
        pace: Arc::clone(&pace),
        mailbox: mailbox.clone(),
        tasks: tasks.clone(),
    });
    let view = ViewState::new(options.theme, options.interval_ms, options.zone);
    let mut view = ViewState {
        host: options.host,
        tab: options.page,
        filter: ViewFilter::of(options.filter.as_str()),
        default_filter: options.filter,
        thresholds: options.thresholds,
        keys: Arc::new(options.keys),
        columns: options.columns,
        names: options.names,
        ..view
    };
    view.tasks.context = options.tasks;
    view.tasks.notice = options.notice.map(|notice| (notice, Tone::Warn));
    let (area, request) = (Rect::default(), FlowRequest::default());
    let (replies, histograms) = (options.replies, options.histograms);
    let mut program = DisplayLoop {
        view,
        timeline,
        pace,
        mailbox,
        tasks,
        request,
        replies,
        histograms,
        area,
        clocks,
    };
    let result = program.show(&mut terminal, &inbox);
    program.mailbox.request(FlowRequest { over: true, ..FlowRequest::default() });
    program.tasks.ask(TaskRequest::Over);
    result
}

fn stop_on_signals<N: Send + 'static>(messages: Sender<DisplayMessage<N>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let goes_on = signal == SIGCONT;
            let message = if goes_on { DisplayMessage::Continued } else { DisplayMessage::Stop };
            if messages.send(message).is_err() || !goes_on {
                return;
            }
        }
    })?;
    pmdscope_signals::take_over()
}

fn read_input<N: Send + 'static>(messages: Sender<DisplayMessage<N>>) -> io::Result<()> {
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        while let Ok(input) = event::read() {
            if may_do_something(&input) && messages.send(DisplayMessage::Input(input)).is_err() {
                return;
            }
        }
        let _ = messages.send(DisplayMessage::Stop);
    })?;
    Ok(())
}

/// Terminals report each cell that the mouse goes over: that is no reason to draw.
fn may_do_something(input: &Input) -> bool {
    match input {
        Input::Key(key) => key.kind != KeyEventKind::Release,
        Input::Mouse(mouse) => matches!(
            mouse.kind,
            MouseEventKind::ScrollUp
                | MouseEventKind::ScrollDown
                | MouseEventKind::Down(MouseButton::Left)
                | MouseEventKind::Drag(MouseButton::Left)
        ),
        Input::Resize(..) => true,
        Input::FocusGained | Input::FocusLost | Input::Paste(_) => false,
    }
}

struct DisplayLoop<T> {
    view: ViewState,
    timeline: T,
    pace: Arc<SamplingInterval>,
    mailbox: FlowMailbox,
    tasks: TaskMailbox,
    request: FlowRequest,
    replies: Option<Arc<RawReplies>>,
    histograms: Arc<QueueHistograms>,
    area: Rect,
    clocks: Clocks,
}

impl<T: Timeline> DisplayLoop<T> {
    fn show(
        &mut self,
        terminal: &mut impl DisplayTerminal,
        inbox: &Receiver<DisplayMessage<T::Update>>,
    ) -> io::Result<()> {
        loop {
            self.draw(terminal)?;
            let mut next = match inbox.recv_timeout(AGE_STEP) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let end = Instant::now() + GATHER;
            let mut wait = true;
            // All that has come by then goes into one frame.
            while let Some(message) = next {
                wait &= message.is_data();
                match self.take(message) {
                    LoopControl::Continue => {}
                    LoopControl::Suspend => terminal.suspend()?,
                    LoopControl::Resume => terminal.take_again()?,
                    LoopControl::Quit => return Ok(()),
                    LoopControl::QuitKeepingScreen => {
                        let Self { view, timeline, .. } = self;
                        return terminal
                            .keep(|frame| screen::render(frame, view, timeline.fleet()));
                    }
                }
                self.pass_on_requests(terminal)?;
                let left = if wait {
                    end.saturating_duration_since(Instant::now())
                } else {
                    Duration::ZERO
                };
                next = inbox.recv_timeout(left).ok();
            }
        }
    }

    /// Passes on the requests of the last key.
    fn pass_on_requests(&mut self, terminal: &mut impl DisplayTerminal) -> io::Result<()> {
        for request in self.view.tasks.wanted.drain(..) {
            match request {
                TaskRequest::Copy(text) => terminal.copy(&text)?,
                other => self.tasks.ask(other),
            }
        }
        Ok(())
    }

    fn draw(&mut self, terminal: &mut impl DisplayTerminal) -> io::Result<()> {
        self.timeline.tick((self.clocks.monotonic)(), (self.clocks.realtime)());
        self.view.time_bar = self.timeline.time_bar();
        self.view.trends = Some(self.timeline.trends());
        self.view.follow(self.mailbox.traffic());
        self.view.replies = self.replies.as_ref().map(|replies| {
            replies.want(self.view.tab == PageTab::Raw);
            replies.all()
        });
        self.histograms.want(self.view.shows_queue());
        self.view.tasks.follow(self.tasks.tasks());
        self.request = self.view.request(self.timeline.fleet(), &self.request);
        self.mailbox.request(self.request.clone());
        let Self { view, timeline, area, .. } = self;
        terminal.draw(|frame: &mut Frame| {
            *area = frame.area();
            (view.width, view.height) = (area.width, area.height);
            screen::render(frame, view, timeline.fleet());
        })
    }

    fn take(&mut self, message: DisplayMessage<T::Update>) -> LoopControl {
        match message {
            DisplayMessage::Stop => return LoopControl::Quit,
            DisplayMessage::Continued => return LoopControl::Resume,
            DisplayMessage::Update(update) => self.timeline.take(update),
            DisplayMessage::Told => {}
            DisplayMessage::Input(input) => return self.act(&input),
        }
        LoopControl::Continue
    }

    fn act(&mut self, input: &Input) -> LoopControl {
        let action = match input {
            Input::Key(key) => action_of(*key, &self.view),
            Input::Mouse(mouse) => self.pointed(*mouse),
            _ => None,
        };
        let Some(action) = action else { return LoopControl::Continue };
        self.view.tasks.notice = None;
        let flow = perform(&mut self.view, action, &mut self.timeline);
        self.pace.set(Duration::from_millis(self.view.interval_ms));
        flow
    }

    fn pointed(&self, mouse: MouseEvent) -> Option<Action> {
        match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Move(SelectionMotion::Up)),
            MouseEventKind::ScrollDown => Some(Action::Move(SelectionMotion::Down)),
            MouseEventKind::Down(MouseButton::Left) => match self.hit(mouse)? {
                ClickTarget::Tab(tab) => Some(Action::Go(tab)),
                ClickTarget::Title { table, column } => Some(Action::SortBy { table, column }),
                ClickTarget::Row(subject) if self.view.selected() == Some(&subject) => {
                    Some(Action::Open)
                }
                ClickTarget::Row(subject) => Some(Action::Select(subject)),
                ClickTarget::Moment(at) => Some(Action::Seek(SeekTarget::At(at))),
            },
            MouseEventKind::Drag(MouseButton::Left) => match self.hit(mouse)? {
                ClickTarget::Moment(at) => Some(Action::Seek(SeekTarget::At(at))),
                ClickTarget::Tab(_) | ClickTarget::Row(_) | ClickTarget::Title { .. } => None,
            },
            _ => None,
        }
    }

    fn hit(&self, mouse: MouseEvent) -> Option<ClickTarget> {
        let position = Position { x: mouse.column, y: mouse.row };
        screen::hit(self.area, position, &self.view, self.timeline.fleet())
    }
}

#[cfg(test)]
mod any_tests;
#[cfg(test)]
mod tests;
