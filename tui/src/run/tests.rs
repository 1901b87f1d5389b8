//! Tests of the loop, with a terminal, clocks and input of their own.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;
use crate::task::{Task, TaskState};
use crate::timeline::live::{LiveTimeline, LiveUpdate};

pub(super) type Message = DisplayMessage<LiveUpdate>;

/// The next messages arrive after each frame.
pub(super) struct FakeTerminal {
    pub(super) inner: Terminal<TestBackend>,
    frames: usize,
    sends: Sender<Message>,
    script: Vec<Vec<Message>>,
    log: Vec<String>,
}

impl DisplayTerminal for FakeTerminal {
    fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.frames += 1;
        let Ok(_) = self.inner.draw(render);
        if !self.script.is_empty() {
            for message in self.script.remove(0) {
                let _ = self.sends.send(message);
            }
        }
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.log.push("suspend".to_owned());
        Ok(())
    }

    fn take_again(&mut self) -> io::Result<()> {
        self.log.push("take again".to_owned());
        Ok(())
    }

    fn keep(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        let Ok(_) = self.inner.draw(render);
        self.log.push("keep".to_owned());
        Ok(())
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        self.log.push(format!("copy {text}"));
        Ok(())
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Message {
    DisplayMessage::Input(Input::Key(KeyEvent::new(code, modifiers)))
}

fn char(character: char) -> Message {
    key(KeyCode::Char(character), KeyModifiers::NONE)
}

impl FakeTerminal {
    pub(super) fn new(width: u16, height: u16, sends: Sender<Message>) -> Self {
        let inner = Terminal::new(TestBackend::new(width, height)).unwrap();
        Self { inner, frames: 0, sends, script: Vec::new(), log: Vec::new() }
    }
}

/// The loop over a timeline, as it is when it begins.
pub(super) fn program(timeline: LiveTimeline) -> DisplayLoop<LiveTimeline> {
    DisplayLoop {
        view: fixture::view(),
        timeline,
        pace: Arc::new(SamplingInterval::new(Duration::from_secs(1))),
        mailbox: FlowMailbox::default(),
        tasks: TaskMailbox::default(),
        replies: None,
        histograms: Arc::default(),
        request: FlowRequest::default(),
        area: Rect::default(),
        clocks: Clocks {
            monotonic: || fixture::MONOTONIC_NS,
            realtime: || 1_767_323_045_000_000_000,
        },
    }
}

/// What became of the terminal, and whether the loop ended without an error.
fn shown(script: Vec<Vec<Message>>) -> (FakeTerminal, DisplayLoop<LiveTimeline>) {
    let (sends, inbox) = channel();
    let mut terminal = FakeTerminal { script, ..FakeTerminal::new(80, 24, sends) };
    let mut program = program(LiveTimeline::default());
    program.show(&mut terminal, &inbox).unwrap();
    (terminal, program)
}

#[test]
fn what_comes_at_once_is_one_frame_and_nothing_else_is() {
    let update = || DisplayMessage::Update(fixture::fleet().into());
    let many = (0..50).map(|_| update()).collect();
    let (terminal, _) = shown(vec![many, vec![DisplayMessage::Told], vec![char('q')]]);
    assert_eq!(terminal.frames, 3);
    assert!(terminal.log.is_empty());
    let (terminal, _) = shown(vec![vec![DisplayMessage::Stop, update()]]);
    assert_eq!(terminal.frames, 1);
}

#[test]
fn without_data_and_keys_only_the_ages_are_drawn_again() {
    let begin = Instant::now();
    let (terminal, _) = shown(vec![Vec::new(), Vec::new(), vec![char('q')]]);
    assert_eq!(terminal.frames, 3);
    assert!(begin.elapsed() >= 2 * AGE_STEP, "{:?}", begin.elapsed());
}

#[test]
fn only_keys_clicks_and_new_sizes_reach_the_loop() {
    let mouse =
        |kind| Input::Mouse(MouseEvent { kind, column: 3, row: 3, modifiers: KeyModifiers::NONE });
    let mut released = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::NONE);
    let pressed = Input::Key(released);
    released.kind = KeyEventKind::Release;
    let left = MouseButton::Left;
    for input in [
        mouse(MouseEventKind::Moved),
        mouse(MouseEventKind::Up(left)),
        mouse(MouseEventKind::Drag(MouseButton::Right)),
        Input::Key(released),
        Input::FocusLost,
    ] {
        assert!(!may_do_something(&input), "{input:?}");
    }
    for input in [
        mouse(MouseEventKind::Down(left)),
        mouse(MouseEventKind::Drag(left)),
        mouse(MouseEventKind::ScrollUp),
        pressed,
        Input::Resize(80, 24),
    ] {
        assert!(may_do_something(&input), "{input:?}");
    }
}

#[test]
fn the_last_screen_stays_on_the_terminal_if_that_is_wanted() {
    let (terminal, _) = shown(vec![vec![char('2'), char('Q')]]);
    assert_eq!(terminal.log, ["keep"]);
    assert_eq!(terminal.frames, 1, "nothing is drawn afterwards");
    assert!(terminal.inner.backend().to_string().contains("[2Ports]"));
}

#[test]
fn the_terminal_is_given_back_while_the_process_is_stopped() {
    let stop = key(KeyCode::Char('z'), KeyModifiers::CONTROL);
    let (terminal, _) = shown(vec![
        vec![stop],
        vec![DisplayMessage::Continued],
        vec![key(KeyCode::Char('c'), KeyModifiers::CONTROL)],
    ]);
    assert_eq!(terminal.log, ["suspend", "take again"]);
    assert_eq!(terminal.frames, 3, "all is drawn anew");
}

#[test]
fn requests_of_keys_are_passed_on_and_the_next_key_takes_their_notice_away() {
    let (terminal, program) = shown(vec![
        vec![DisplayMessage::Update(fixture::fleet().into())],
        vec![char('2'), char('y'), key(KeyCode::Esc, KeyModifiers::NONE), char('w')],
        vec![char('a')],
        vec![char('1'), char('q')],
    ]);
    assert_eq!(terminal.log, ["copy pmdscope netstat -i"]);
    let asked = program.tasks.next(Some(Duration::ZERO));
    assert!(matches!(asked, Some(TaskRequest::Snapshot(_))));
    assert!(program.tasks.next(Some(Duration::ZERO)).is_none(), "no app is selected to be armed");
    assert!(program.view.tasks.wanted.is_empty() && program.view.tasks.notice.is_none());
}

#[test]
fn tasks_that_are_told_of_are_shown() {
    let (sends, inbox) = channel();
    let mut done = Task::new(&[], false);
    (done.state, done.status) = (TaskState::Done, "10 packets captured".to_owned());
    let (mut terminal, mut program) = shown(vec![vec![DisplayMessage::Stop]]);
    program.tasks.publish(vec![done]);
    terminal.sends = sends;
    terminal.script = vec![vec![DisplayMessage::Told], vec![char('q')]];
    program.show(&mut terminal, &inbox).unwrap();
    let screen = terminal.inner.backend().to_string();
    assert!(screen.contains("done: 10 packets captured"), "{screen}");
}
