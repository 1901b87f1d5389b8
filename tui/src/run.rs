//! The event loop: events, keys and signals in, frames out. Draws only after an event.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event as Input, MouseButton, MouseEvent, MouseEventKind};
use jiff::tz::TimeZone;
use pmdscope_render::Theme;
use pmdscope_telemetry::Thresholds;
use ratatui::layout::{Position, Rect};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::action::{Action, Flow, Motion, action_of, perform};
use crate::flows::{Desk, Traffic, Wish};
use crate::pace::Pace;
use crate::screen::{self, Hit};
use crate::terminal::Terminal;
use crate::timeline::{Seek, Timeline};
use crate::view::View;

/// Ages of lost apps are redrawn this often.
const AGE_STEP: Duration = Duration::from_secs(1);

/// How to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Colours and characters.
    pub theme: Theme,
    /// Sampling interval, milliseconds.
    pub interval_ms: u64,
    /// Take the mouse.
    pub mouse: bool,
    /// For times of day.
    pub zone: TimeZone,
    /// From when on a queue is hot.
    pub thresholds: Thresholds,
}

enum Message<N> {
    News(N),
    /// Something was left at the desk.
    Told,
    Input(Input),
    Stop,
}

/// Where other threads put what a timeline of news `N` shows.
pub struct Feed<N> {
    messages: Sender<Message<N>>,
    /// How often to sample.
    pub pace: Arc<Pace>,
    /// What to capture, and where to tell of it.
    pub desk: Desk,
}

impl<N> Clone for Feed<N> {
    fn clone(&self) -> Self {
        let (pace, desk) = (Arc::clone(&self.pace), self.desk.clone());
        Self { messages: self.messages.clone(), pace, desk }
    }
}

impl<N> Feed<N> {
    /// Hands over news; `false` when the program has ended.
    pub fn send(&self, news: N) -> bool {
        self.messages.send(Message::News(news)).is_ok()
    }

    /// Hands over conversations; `false` when the program has ended.
    pub fn tell(&self, traffic: Traffic) -> bool {
        self.desk.tell(traffic);
        self.messages.send(Message::Told).is_ok()
    }
}

/// Runs until the user leaves or a signal ends it. `start` gives the timeline to show, starts what
/// feeds it, and must not block.
///
/// # Errors
///
/// When the terminal cannot be taken or drawn on, or signals cannot be caught.
pub fn run<T: Timeline>(
    options: Options,
    start: impl FnOnce(Feed<T::News>) -> T,
) -> io::Result<()> {
    let (messages, inbox) = channel();
    stop_on_signals(messages.clone())?;
    let mut terminal = Terminal::take(options.mouse)?;
    read_input(messages.clone());
    let pace = Arc::new(Pace::new(Duration::from_millis(options.interval_ms)));
    let desk = Desk::default();
    let timeline = start(Feed { messages, pace: Arc::clone(&pace), desk: desk.clone() });
    let view = View::new(options.theme, options.interval_ms, options.zone);
    let view = View { thresholds: options.thresholds, ..view };
    let (area, wish) = (Rect::default(), Wish::default());
    let mut program = Program { view, timeline, pace, desk, wish, area };
    let result = program.show(&mut terminal, &inbox);
    program.desk.want(Wish { over: true, ..Wish::default() });
    result
}

fn stop_on_signals<N: Send + 'static>(messages: Sender<Message<N>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = messages.send(Message::Stop);
        }
    });
    Ok(())
}

fn read_input<N: Send + 'static>(messages: Sender<Message<N>>) {
    thread::spawn(move || {
        while let Ok(input) = event::read() {
            if messages.send(Message::Input(input)).is_err() {
                return;
            }
        }
        let _ = messages.send(Message::Stop);
    });
}

struct Program<T> {
    view: View,
    timeline: T,
    pace: Arc<Pace>,
    desk: Desk,
    wish: Wish,
    area: Rect,
}

impl<T: Timeline> Program<T> {
    fn show(
        &mut self,
        terminal: &mut Terminal,
        inbox: &Receiver<Message<T::News>>,
    ) -> io::Result<()> {
        loop {
            self.draw(terminal)?;
            let mut next = match inbox.recv_timeout(AGE_STEP) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // All that has come by now goes into one frame.
            while let Some(message) = next {
                if self.take(message) == Flow::Quit {
                    return Ok(());
                }
                next = inbox.try_recv().ok();
            }
        }
    }

    fn draw(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        self.timeline.tick(clock_ns(ClockId::Monotonic), clock_ns(ClockId::Realtime));
        self.view.strip = self.timeline.strip();
        self.view.follow(self.desk.traffic());
        self.wish = self.view.wish(self.timeline.world(), &self.wish);
        self.desk.want(self.wish.clone());
        let Self { view, timeline, area, .. } = self;
        terminal.inner.draw(|frame| {
            *area = frame.area();
            view.height = area.height;
            screen::render(frame, view, timeline.world());
        })?;
        Ok(())
    }

    fn take(&mut self, message: Message<T::News>) -> Flow {
        match message {
            Message::Stop => return Flow::Quit,
            Message::News(news) => self.timeline.take(news),
            Message::Told => {}
            Message::Input(input) => return self.act(&input),
        }
        Flow::Continue
    }

    fn act(&mut self, input: &Input) -> Flow {
        let action = match input {
            Input::Key(key) => action_of(*key, &self.view.mode),
            Input::Mouse(mouse) => self.pointed(*mouse),
            _ => None,
        };
        let Some(action) = action else { return Flow::Continue };
        let flow = perform(&mut self.view, action, &mut self.timeline);
        self.pace.set(Duration::from_millis(self.view.interval_ms));
        flow
    }

    fn pointed(&self, mouse: MouseEvent) -> Option<Action> {
        match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Move(Motion::Up)),
            MouseEventKind::ScrollDown => Some(Action::Move(Motion::Down)),
            MouseEventKind::Down(MouseButton::Left) => match self.hit(mouse)? {
                Hit::Tab(tab) => Some(Action::Go(tab)),
                Hit::Row(subject) if self.view.selected() == Some(&subject) => Some(Action::Open),
                Hit::Row(subject) => Some(Action::Select(subject)),
                Hit::Moment(at) => Some(Action::Seek(Seek::At(at))),
            },
            MouseEventKind::Drag(MouseButton::Left) => match self.hit(mouse)? {
                Hit::Moment(at) => Some(Action::Seek(Seek::At(at))),
                Hit::Tab(_) | Hit::Row(_) => None,
            },
            _ => None,
        }
    }

    fn hit(&self, mouse: MouseEvent) -> Option<Hit> {
        let position = Position { x: mouse.column, y: mouse.row };
        screen::hit(self.area, position, &self.view, self.timeline.world())
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
