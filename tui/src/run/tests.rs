//! Tests of the loop, with a terminal, clocks and input of their own.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;
use crate::task::{Task, TaskState};
use crate::timeline::live::{LiveTimeline, LiveUpdate};

type Message = DisplayMessage<LiveUpdate>;

/// After each frame somebody sends the next messages.
struct FakeTerminal {
    inner: Terminal<TestBackend>,
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

/// What became of the terminal, and whether the loop ended without an error.
fn shown(script: Vec<Vec<Message>>) -> (FakeTerminal, DisplayLoop<LiveTimeline>) {
    let (sends, inbox) = channel();
    let inner = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let log = Vec::new();
    let mut terminal = FakeTerminal { inner, frames: 0, sends, script, log };
    let mut program = DisplayLoop {
        view: fixture::view(),
        timeline: LiveTimeline::default(),
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
    };
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
