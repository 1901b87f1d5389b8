//! The interactive program: news, keys and signals in, frames out. Draws only when something came.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event as Input, MouseButton, MouseEvent, MouseEventKind};
use jiff::tz::TimeZone;
use ratatui::layout::{Position, Rect};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::action::{Action, Flow, Motion, action_of, update};
use crate::pace::Pace;
use crate::screen::{self, Hit};
use crate::terminal::Terminal;
use crate::theme::Theme;
use crate::view::View;
use pmdscope_telemetry::world::{Event, World};

/// Ages of lost apps are redrawn this often.
const AGE_STEP: Duration = Duration::from_secs(1);

/// How to start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Colours and characters.
    pub theme: Theme,
    /// Sampling interval, milliseconds.
    pub interval_ms: u64,
    /// Take the mouse.
    pub mouse: bool,
}

enum Message {
    News(Event),
    Input(Input),
    Stop,
}

/// Where the sampling side puts its news.
#[derive(Clone)]
pub struct Feed {
    messages: Sender<Message>,
    /// How often to sample.
    pub pace: Arc<Pace>,
}

impl Feed {
    /// Hands over news; `false` when the program has ended.
    pub fn send(&self, event: Event) -> bool {
        self.messages.send(Message::News(event)).is_ok()
    }
}

/// Runs until the user leaves or a signal ends it. `start` starts the sampling and must not block.
///
/// # Errors
///
/// When the terminal cannot be taken or drawn on, or signals cannot be caught.
pub fn run(options: Options, start: impl FnOnce(Feed)) -> io::Result<()> {
    let (messages, inbox) = channel();
    stop_on_signals(messages.clone())?;
    let mut terminal = Terminal::take(options.mouse)?;
    read_input(messages.clone());
    let pace = Arc::new(Pace::new(Duration::from_millis(options.interval_ms)));
    start(Feed { messages, pace: Arc::clone(&pace) });
    let view = View::new(options.theme, options.interval_ms, TimeZone::system());
    Program { view, world: World::default(), frozen: None, pace, area: Rect::default() }
        .show(&mut terminal, &inbox)
}

fn stop_on_signals(messages: Sender<Message>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = messages.send(Message::Stop);
        }
    });
    Ok(())
}

fn read_input(messages: Sender<Message>) {
    thread::spawn(move || {
        while let Ok(input) = event::read() {
            if messages.send(Message::Input(input)).is_err() {
                return;
            }
        }
        let _ = messages.send(Message::Stop);
    });
}

struct Program {
    view: View,
    world: World,
    /// What a paused display shows.
    frozen: Option<World>,
    pace: Arc<Pace>,
    area: Rect,
}

impl Program {
    fn show(&mut self, terminal: &mut Terminal, inbox: &Receiver<Message>) -> io::Result<()> {
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
        self.world.now_ns = monotonic_ns();
        let Self { view, world, frozen, area, .. } = self;
        let shown = frozen.as_ref().unwrap_or(world);
        terminal.inner.draw(|frame| {
            *area = frame.area();
            view.height = area.height;
            screen::render(frame, view, shown);
        })?;
        Ok(())
    }

    fn take(&mut self, message: Message) -> Flow {
        match message {
            Message::Stop => Flow::Quit,
            Message::News(event) => {
                self.world.apply(event);
                Flow::Continue
            }
            Message::Input(input) => self.act(&input),
        }
    }

    fn act(&mut self, input: &Input) -> Flow {
        let action = match input {
            Input::Key(key) => action_of(*key, &self.view.mode),
            Input::Mouse(mouse) => self.pointed(*mouse),
            _ => None,
        };
        let Some(action) = action else { return Flow::Continue };
        let flow = update(&mut self.view, action, self.frozen.as_ref().unwrap_or(&self.world));
        match (self.view.paused, &self.frozen) {
            (true, None) => self.frozen = Some(self.world.clone()),
            (false, Some(_)) => self.frozen = None,
            _ => {}
        }
        self.pace.set(Duration::from_millis(self.view.interval_ms));
        flow
    }

    fn pointed(&self, mouse: MouseEvent) -> Option<Action> {
        match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Move(Motion::Up)),
            MouseEventKind::ScrollDown => Some(Action::Move(Motion::Down)),
            MouseEventKind::Down(MouseButton::Left) => self.clicked(mouse),
            _ => None,
        }
    }

    fn clicked(&self, mouse: MouseEvent) -> Option<Action> {
        let position = Position { x: mouse.column, y: mouse.row };
        let shown = self.frozen.as_ref().unwrap_or(&self.world);
        match screen::hit(self.area, position, &self.view, shown)? {
            Hit::Tab(tab) => Some(Action::Go(tab)),
            Hit::Row(subject) if self.view.selected() == Some(&subject) => Some(Action::Open),
            Hit::Row(subject) => Some(Action::Select(subject)),
        }
    }
}

/// Monotonic clock, nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
