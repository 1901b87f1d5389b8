//! Any keys, clicks, sizes and moments, with any page or window shown: nothing panics.

use std::ops::Range;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pmdscope_render::{Palette, Theme};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::sample::{CountSource, ScanSample, XraySample};
use proptest::prelude::*;

use super::tests::{FakeTerminal, program};
use super::*;
use crate::clock::NS_PER_SECOND;
use crate::fixture;
use crate::layout::ScreenLayout;
use crate::screen::any_tests::{keys, mutate};
use crate::task::{Task, TaskState};
use crate::timeline::live::{LiveTimeline, LiveUpdate};

/// Keys that lead to a page or a window, from which others go on.
const BEGINS: [&str; 18] = [
    "",
    "2G",
    "3gm",
    "3gmj",
    "4Gi",
    "5gi",
    "8ji",
    "9gi",
    "0Gi",
    "t",
    "1gc",
    "2o",
    "y",
    "/rx",
    ":",
    ":sort ",
    ":filter m",
    "?",
];

/// What happens to the display.
#[derive(Clone, Copy, Debug)]
enum Step {
    Key(KeyEvent),
    /// A mouse at a column, in a line counted from the top of a part of the screen.
    Mouse(MouseEventKind, Part, u16, u16),
    Resize(u16, u16),
    /// Another sample, of which something is missing or extreme.
    Sample(u8, u64),
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Screen,
    TimeBar,
    Body,
}

fn step() -> impl Strategy<Value = Step> {
    let mouse = prop::sample::select(vec![
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::Drag(MouseButton::Left),
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
    ]);
    let part = prop::sample::select(vec![Part::Screen, Part::TimeBar, Part::Body]);
    let time = prop::sample::select(vec![KeyCode::Char(','), KeyCode::Home, KeyCode::Char('N')]);
    prop_oneof![
        4 => keys().prop_map(Step::Key),
        2 => time.prop_map(|code| Step::Key(KeyEvent::new(code, KeyModifiers::NONE))),
        4 => (mouse, part, 0..210_u16, 0..12_u16).prop_map(|(kind, part, column, line)| {
            Step::Mouse(kind, part, column, line)
        }),
        1 => (0..=200_u16, 0..=60_u16).prop_map(|(width, height)| Step::Resize(width, height)),
        1 => (any::<u8>(), any::<u64>()).prop_map(|(what, number)| Step::Sample(what, number)),
    ]
}

/// All there is to show at that second: findings, interfaces, an app that was scanned.
fn fleet(second: u64, mutation: Option<(u8, u64)>) -> FleetState {
    let mut fleet = fixture::fleet_with_interfaces();
    let mut model = fixture::stolen();
    if let Some((what, number)) = mutation {
        mutate(&mut model, what, number);
    }
    let findings = if second >= 20 { fixture::leaking_findings() } else { Vec::new() };
    fleet.apply(fixture::sampled(model, findings));
    let mut scanned = fixture::stock();
    scanned.sample.pools[0].source = Some(CountSource::Xray);
    scanned.sample.xray = Some(XraySample::default());
    scanned.sample.scan = Some(ScanSample::default());
    fleet.apply(fixture::sampled(scanned, Vec::new()));
    fleet
}

/// The last seconds before the fixtures.
fn past(seconds: Range<u64>) -> LiveTimeline {
    let mut live = LiveTimeline::default();
    for second in seconds.clone() {
        let ago_ns = (seconds.end - second) * NS_PER_SECOND;
        live.take(LiveUpdate::from(fleet(second, None)));
        live.tick(fixture::MONOTONIC_NS - ago_ns, 1_767_323_045 * NS_PER_SECOND - ago_ns);
    }
    live
}

/// What `m` shows: the command runs, or has printed all.
fn holders(state: TaskState) -> Task {
    let lines = (0..30).map(|line| format!("{line} mbufs in a queue")).collect();
    Task { state, lines, ..Task::new(&[], true) }
}

fn position(part: Part, column: u16, line: u16, display: &DisplayLoop<LiveTimeline>) -> Position {
    let layout = ScreenLayout::of(display.area, &display.view);
    let top = match part {
        Part::Screen => 0,
        Part::TimeBar => layout.time_bar.map_or(0, |area| area.y),
        Part::Body => layout.body.y,
    };
    let line = if matches!(part, Part::TimeBar) { 0 } else { line };
    Position { x: column % display.area.width.saturating_add(2), y: top + line }
}

fn carry_out(step: Step, display: &mut DisplayLoop<LiveTimeline>, terminal: &mut FakeTerminal) {
    match step {
        Step::Key(key) => {
            display.act(&Input::Key(key));
        }
        Step::Mouse(kind, part, column, line) => {
            let Position { x: column, y: row } = position(part, column, line, display);
            let modifiers = KeyModifiers::NONE;
            display.act(&Input::Mouse(MouseEvent { kind, column, row, modifiers }));
        }
        Step::Resize(width, height) => terminal.inner.backend_mut().resize(width, height),
        Step::Sample(what, number) => {
            let update = LiveUpdate::from(fleet(40, Some((what, number))));
            display.take(DisplayMessage::Update(update));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_key_click_size_or_moment_panics(
        (width, height) in (0..=200_u16, 0..=60_u16),
        palette in prop::sample::select(&Palette::ALL[..]),
        ascii in any::<bool>(),
        begin in prop::sample::select(&BEGINS[..]),
        state in prop::sample::select(&[TaskState::Running, TaskState::Done, TaskState::Failed][..]),
        steps in prop::collection::vec(step(), 0..16),
    ) {
        let mut display = program(past(0..40));
        display.view.theme = Theme { palette, ascii };
        display.tasks.publish(vec![holders(state)]);
        let (sends, _inbox) = channel();
        let mut terminal = FakeTerminal::new(width, height, sends);
        display.draw(&mut terminal).unwrap();
        let begin = begin.chars().map(|key| {
            Step::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
        });
        for step in begin.chain(steps) {
            carry_out(step, &mut display, &mut terminal);
            display.pass_on_requests(&mut terminal).unwrap();
            display.draw(&mut terminal).unwrap();
        }
    }
}
