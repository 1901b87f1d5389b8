//! Tests of retention and navigation.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pmdscope_telemetry::finding::{Lint, Severity};
use pmdscope_telemetry::model::Model;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::history::{FrameHistory, HistoryLimits};
use super::live::{LiveTimeline, LiveUpdate};
use super::replay::{ReplayTimeline, ReplayUpdate};
use super::time_bar::{PlaybackState, TimeBarKind};
use super::*;
use crate::action::{Action, SelectionMotion as Rows};
use crate::clock::NS_PER_SECOND;
use crate::fixture;
use crate::keys::named_actions;
use crate::screen;
use crate::state::ViewState;
use crate::update::perform;

const START: u64 = fixture::MONOTONIC_NS;

/// The state of one app at a time, with or without findings.
fn fleet(at: u64, model: Model, trouble: bool) -> FleetState {
    let findings = if trouble { fixture::leaking_findings() } else { Vec::new() };
    FleetState { now_ns: at, realtime_ns: at, ..fixture::fleet_of(model, findings) }
}

fn calm(at: u64) -> FleetState {
    fleet(at, fixture::stock(), false)
}

fn shown(live: &LiveTimeline) -> Option<u64> {
    live.time_bar().map(|time_bar| (time_bar.at - START) / 1_000_000)
}

/// A state every second, for that many seconds; findings begin in second 4 and in second 8.
fn lived(seconds: u64) -> LiveTimeline {
    let mut live = LiveTimeline::default();
    for second in 0..seconds {
        let at = START + second * NS_PER_SECOND;
        live.take(fleet(at, fixture::leaking(), matches!(second, 4..6 | 8..)).into());
        live.tick(at, at);
    }
    live
}

#[test]
fn history_is_as_long_as_its_limit_and_no_denser_than_its_step() {
    let mut history = FrameHistory::default();
    for tenth in 0..9_000 {
        history.push(&calm(START + tenth * NS_PER_SECOND / 10));
    }
    let span = history.span().unwrap();
    assert_eq!(span.newest, START + 8_999 * NS_PER_SECOND / 10);
    assert!(
        (599 * NS_PER_SECOND..=600 * NS_PER_SECOND).contains(&span.length()),
        "{}",
        span.length()
    );
    let mut moments = vec![history.at(0).unwrap().unwrap().at];
    while let Some(next) = history.after(*moments.last().unwrap()).unwrap() {
        moments.push(next.at);
    }
    let gaps: Vec<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (last, settled) = gaps.split_last().unwrap();
    assert!(settled.iter().all(|&gap| gap == NS_PER_SECOND / 2), "{gaps:?}");
    assert!(*last <= NS_PER_SECOND / 2);
}

#[test]
fn a_moment_in_which_a_finding_began_outlives_those_around_it() {
    let mut history = FrameHistory::default();
    history.push(&calm(START));
    for ms in [100, 200, 300, 400] {
        let model = fixture::stock();
        history.push(&fleet(START + ms * 1_000_000, model, ms == 200));
    }
    let marks = history.marks();
    let began = NewFindings { severity: Severity::Critical, lint: Lint::Leak, others: 2 };
    assert_eq!(marks, [FindingMark { at: START + 200_000_000, began }]);
    let there = history.at(START + 250_000_000).unwrap().unwrap();
    assert_eq!(there.fleet.findings().len(), 3);
}

#[test]
fn findings_that_were_there_from_the_beginning_have_not_begun() {
    let mut history = FrameHistory::default();
    history.push(&fleet(START, fixture::stock(), true));
    history.push(&fleet(START + NS_PER_SECOND, fixture::stock(), true));
    assert!(history.marks().is_empty());
}

#[test]
fn memory_is_bounded_and_old_moments_get_sparse_first() {
    let limits = HistoryLimits { bytes: 2 << 20, ..HistoryLimits::default() };
    let mut history = FrameHistory::new(limits);
    for second in 0..600 {
        let mut model = fixture::leaking();
        model.sample.ports[0].xstats =
            (0..200).map(|n| (format!("rx_priority{n}_xon_packets"), n)).collect();
        history.push(&fleet(START + second * NS_PER_SECOND, model, second == 100));
        assert!(history.bytes() <= limits.bytes);
    }
    let span = history.span().unwrap();
    assert_eq!(span.length(), 599 * NS_PER_SECOND, "sparser, not shorter");
    assert_eq!(history.marks().len(), 1, "the moment of a finding is kept");
    let mut count = |from: u64, to: u64| {
        let (mut at, mut count) = (START + from * NS_PER_SECOND, 0);
        while let Some(next) =
            history.after(at).unwrap().filter(|m| m.at <= START + to * NS_PER_SECOND)
        {
            (at, count) = (next.at, count + 1);
        }
        count
    };
    let (old, new) = (count(0, 300), count(540, 599));
    assert!(old > 5 && new > 5 && new * 5 > old * 2, "{old} in 300 s, {new} in 60 s");
}

#[test]
fn one_state_is_kept_however_large() {
    let mut history = FrameHistory::new(HistoryLimits { bytes: 1, ..HistoryLimits::default() });
    for second in 0..3 {
        history.push(&calm(START + second * NS_PER_SECOND));
    }
    let newest = START + 2 * NS_PER_SECOND;
    assert_eq!(history.span(), Some(TimeSpan { oldest: newest, newest }));
}

#[test]
fn shared_models_are_counted_once() {
    let mut history = FrameHistory::default();
    let mut fleet = fleet(START, fixture::leaking(), false);
    history.push(&fleet);
    let one = history.bytes();
    fleet.now_ns += NS_PER_SECOND;
    history.push(&fleet);
    assert!(history.bytes() < one + one / 4, "{one}, then {}", history.bytes());
}

#[test]
fn steps_lead_back_and_forth_and_to_the_present() {
    let mut live = lived(10);
    assert_eq!(shown(&live), None);
    live.seek(SeekTarget::Step(1));
    assert_eq!(shown(&live), None, "there is nothing after the present");
    live.seek(SeekTarget::Step(-1));
    assert_eq!(shown(&live), Some(8_000));
    live.seek(SeekTarget::Step(-3));
    assert_eq!(shown(&live), Some(5_000));
    live.seek(SeekTarget::Step(-100));
    assert_eq!(shown(&live), Some(0));
    live.seek(SeekTarget::By(2 * 1_000_000_000));
    assert_eq!(shown(&live), Some(2_000));
    live.seek(SeekTarget::Step(7));
    assert_eq!(shown(&live), Some(9_000), "the newest kept moment");
    live.seek(SeekTarget::Step(1));
    assert_eq!(shown(&live), None);
    live.seek(SeekTarget::Oldest);
    live.seek(SeekTarget::Newest);
    assert_eq!(shown(&live), None);
}

#[test]
fn seeking_to_marks_works_in_both_directions() {
    let mut live = lived(10);
    live.seek(SeekTarget::PreviousMark);
    assert_eq!(shown(&live), Some(8_000));
    live.seek(SeekTarget::PreviousMark);
    assert_eq!(shown(&live), Some(4_000));
    live.seek(SeekTarget::PreviousMark);
    assert_eq!(shown(&live), Some(4_000), "there is none before");
    live.seek(SeekTarget::NextMark);
    assert_eq!(shown(&live), Some(8_000));
}

#[test]
fn a_finding_that_began_just_now_is_the_one_before_the_present() {
    let mut live = lived(9);
    live.seek(SeekTarget::PreviousMark);
    assert_eq!(shown(&live), Some(8_000));
}

#[test]
fn the_past_stands_still_while_the_present_goes_on_and_is_kept() {
    let mut live = lived(10);
    live.seek(SeekTarget::At(START + 5 * NS_PER_SECOND));
    let before = live.fleet().clone();
    for second in 10..300 {
        live.take(calm(START + second * NS_PER_SECOND).into());
        live.tick(START + second * NS_PER_SECOND, 0);
    }
    assert_eq!(*live.fleet(), before);
    let time_bar = live.time_bar().unwrap();
    assert_eq!(time_bar.place, TimeBarKind::Past { ago_ns: 294 * NS_PER_SECOND });
    assert_eq!(time_bar.span.newest, START + 299 * NS_PER_SECOND);
    assert_eq!(live.fleet().apps[0].age_s(live.fleet().now_ns).map(f64::round), Some(5.0));
}

#[test]
fn a_moment_that_leaves_the_history_leaves_the_display() {
    let mut live = lived(10);
    live.seek(SeekTarget::Oldest);
    for second in 10..700 {
        live.take(calm(START + second * NS_PER_SECOND).into());
        live.tick(START + second * NS_PER_SECOND, 0);
        let time_bar = live.time_bar().unwrap();
        assert!((time_bar.span.oldest..=time_bar.span.newest).contains(&live.fleet().now_ns));
    }
    assert_eq!(shown(&live), Some(99_000));
}

#[test]
fn holding_shows_the_present_until_released() {
    let mut live = lived(3);
    live.hold();
    assert_eq!(shown(&live), Some(2_000));
    live.hold();
    assert_eq!(shown(&live), None);
    let mut nothing = LiveTimeline::default();
    nothing.hold();
    nothing.seek(SeekTarget::Step(-1));
    assert!(nothing.time_bar().is_none());
}

/// A replay of a history, and the updates of its threads.
fn replayed(seconds: u64) -> (ReplayTimeline, Receiver<ReplayUpdate>) {
    let mut pasts = [FrameHistory::default(), FrameHistory::default()];
    for second in 0..seconds {
        let fleet = fleet(START + second * NS_PER_SECOND, fixture::leaking(), second >= 7);
        for past in &mut pasts {
            past.push(&fleet);
        }
    }
    let [past, again] = pasts;
    let span = past.span().unwrap();
    let (updates, inbox) = channel();
    let replay = ReplayTimeline::start(past, again, span, span.oldest, move |update| {
        updates.send(update).is_ok()
    });
    (replay, inbox)
}

/// Takes updates until the condition holds.
fn until(
    replay: &mut ReplayTimeline,
    inbox: &Receiver<ReplayUpdate>,
    holds: impl Fn(&ReplayTimeline) -> bool,
) {
    while !holds(replay) {
        replay.take(inbox.recv_timeout(Duration::from_secs(20)).unwrap());
    }
}

fn second(replay: &ReplayTimeline) -> u64 {
    (replay.time_bar().unwrap().at - START) / NS_PER_SECOND
}

fn motion(replay: &ReplayTimeline) -> PlaybackState {
    match replay.time_bar().unwrap().place {
        TimeBarKind::Replay { motion, .. } => motion,
        TimeBarKind::Past { .. } => panic!("a replay"),
    }
}

#[test]
fn a_replay_plays_holds_and_ends() {
    let (mut replay, inbox) = replayed(60);
    until(&mut replay, &inbox, |r| r.fleet().now_ns == START);
    assert_eq!(motion(&replay), PlaybackState::Playing);
    for _ in 0..9 {
        assert!(replay.hasten(true));
    }
    until(&mut replay, &inbox, |r| second(r) >= 5);
    replay.hold();
    until(&mut replay, &inbox, |r| motion(r) == PlaybackState::Held);
    replay.seek(SeekTarget::At(START + 50 * NS_PER_SECOND));
    until(&mut replay, &inbox, |r| second(r) == 50);
    assert_eq!(motion(&replay), PlaybackState::Held);
    replay.hold();
    until(&mut replay, &inbox, |r| motion(r) == PlaybackState::Ended);
    assert_eq!(second(&replay), 59);
    replay.seek(SeekTarget::Oldest);
    until(&mut replay, &inbox, |r| second(r) == 0);
}

#[test]
fn a_replay_finds_what_began() {
    let (mut replay, inbox) = replayed(60);
    replay.hold();
    until(&mut replay, &inbox, |r| {
        motion(r) == PlaybackState::Held && !r.time_bar().unwrap().marks.is_empty()
    });
    replay.seek(SeekTarget::NextMark);
    until(&mut replay, &inbox, |r| second(r) == 7);
    replay.seek(SeekTarget::NextMark);
    replay.seek(SeekTarget::Step(2));
    replay.seek(SeekTarget::Step(-1));
    until(&mut replay, &inbox, |r| second(r) == 8);
    assert!(replay.time_bar().unwrap().remark.is_none(), "the search is over");
}

#[test]
fn a_replay_knows_the_time_before_and_since_when() {
    let (mut replay, inbox) = replayed(60);
    replay.hold();
    until(&mut replay, &inbox, |r| {
        motion(r) == PlaybackState::Held && r.time_bar().unwrap().remark.is_none()
    });
    replay.seek(SeekTarget::At(START + 40 * NS_PER_SECOND));
    until(&mut replay, &inbox, |r| second(r) == 40);
    let trends = replay.trends();
    assert_eq!(trends.points.len(), 41, "up to the shown moment");
    let age = trends.age(&fixture::leaking_findings()[0]).unwrap();
    assert!((age.seconds - 33.0).abs() < 0.1 && !age.at_least, "{age:?}");
    replay.seek(SeekTarget::At(START + 3 * NS_PER_SECOND));
    until(&mut replay, &inbox, |r| second(r) == 3);
    assert_eq!(replay.trends().age(&fixture::leaking_findings()[0]), None);
}

#[test]
fn the_threads_of_a_replay_end_with_the_display() {
    let (replay, inbox) = replayed(60);
    drop(inbox);
    drop(replay);
    let (mut replay, inbox) = replayed(60);
    until(&mut replay, &inbox, |r| second(r) == 0);
    replay.hold();
    drop(replay);
    while inbox.recv_timeout(Duration::from_secs(20)).is_ok() {}
}

fn actions() -> impl Strategy<Value = Action> {
    let keys: Vec<Action> = named_actions().map(|(_, named)| named.action.clone()).collect();
    let motions = [Rows::Up, Rows::Down, Rows::PageUp, Rows::PageDown, Rows::Top, Rows::Bottom];
    prop_oneof![
        4 => prop::sample::select(keys),
        2 => any::<i32>().prop_map(|steps| Action::Seek(SeekTarget::Step(steps % 50))),
        2 => any::<i64>().prop_map(|ns| Action::Seek(SeekTarget::By(ns % (100 * 1_000_000_000)))),
        2 => any::<u64>().prop_map(|at| Action::Seek(SeekTarget::At(at))),
        1 => (0..2_000_u64).prop_map(|ds| Action::Seek(SeekTarget::At(START + ds * NS_PER_SECOND / 10))),
        1 => prop::sample::select(motions.to_vec()).prop_map(Action::Move),
        1 => any::<char>().prop_map(Action::Type),
    ]
}

/// What one of two apps does, and how long after the last thing that happened.
fn updates() -> impl Strategy<Value = (u64, u8, bool)> {
    (0..40_000_000_000_u64, 0..4_u8, any::<bool>())
}

fn happen(fleet: &mut FleetState, what: u8, trouble: bool) {
    use pmdscope_telemetry::{ErrorClass, FleetEvent};
    let mut model = if what == 0 { fixture::stock() } else { fixture::leaking() };
    model.sample.monotonic_ns = fleet.now_ns;
    let app = model.sample.app.name.clone();
    let findings = if trouble { fixture::leaking_findings() } else { Vec::new() };
    fleet.apply(match what {
        0 | 1 => fixture::sampled(model, findings),
        2 => FleetEvent::Lost {
            app,
            class: ErrorClass::Timeout,
            reason: "no answer".to_owned(),
            finding: findings.into_iter().next(),
        },
        _ => FleetEvent::Gone { app },
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_shown_moment_is_always_within_the_span(
        steps in prop::collection::vec((updates(), actions()), 1..80),
        width in 1_u16..140,
        height in 1_u16..50,
        ascii in any::<bool>(),
        bytes in 1_usize..200_000,
    ) {
        let mut live = LiveTimeline::new(HistoryLimits { bytes, ..HistoryLimits::default() });
        let theme = pmdscope_render::Theme { ascii, ..pmdscope_render::Theme::default() };
        let mut view = ViewState { theme, width, height, ..fixture::view() };
        let mut present = FleetState { now_ns: START, ..FleetState::default() };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        for ((later_ns, what, trouble), action) in steps {
            present.now_ns += later_ns;
            happen(&mut present, what, trouble);
            live.take(present.clone().into());
            live.tick(present.now_ns, present.now_ns);
            perform(&mut view, action, &mut live);
            live.tick(present.now_ns, present.now_ns);
            view.time_bar = live.time_bar();
            view.trends = Some(live.trends());
            if let Some(time_bar) = &view.time_bar {
                let TimeSpan { oldest, newest } = time_bar.span;
                prop_assert!((oldest..=newest).contains(&live.fleet().now_ns));
                prop_assert_eq!(time_bar.at, live.fleet().now_ns);
                prop_assert!(time_bar.marks.iter().all(|m| time_bar.span.clamp(m.at) == m.at));
            } else {
                prop_assert_eq!(&live.fleet().apps, &present.apps);
                prop_assert_eq!(live.fleet().now_ns, present.now_ns);
            }
            let history = live.history();
            prop_assert!(history.bytes() <= bytes || history.span().unwrap().length() == 0);
            terminal.draw(|frame| screen::render(frame, &view, live.fleet())).unwrap();
        }
    }

    #[test]
    fn a_replay_obeys_any_orders(actions in prop::collection::vec(actions(), 1..30)) {
        let (mut replay, inbox) = replayed(40);
        let mut view = fixture::view();
        for action in actions {
            if perform(&mut view, action, &mut replay) == crate::update::LoopControl::Quit {
                break;
            }
            for update in inbox.try_iter() {
                replay.take(update);
            }
            let time_bar = replay.time_bar().unwrap();
            prop_assert!((time_bar.span.oldest..=time_bar.span.newest).contains(&time_bar.at));
        }
        replay.seek(SeekTarget::At(START + 20 * NS_PER_SECOND));
        until(&mut replay, &inbox, |r| second(r) == 20);
    }

    #[test]
    fn the_bytes_of_a_history_are_those_of_its_moments(
        steps in prop::collection::vec(updates(), 1..60),
        bytes in 1_usize..200_000,
    ) {
        let mut history = FrameHistory::new(HistoryLimits { bytes, ..HistoryLimits::default() });
        let mut fleet = FleetState { now_ns: START, ..FleetState::default() };
        for (later_ns, what, trouble) in steps {
            fleet.now_ns += later_ns % (20 * NS_PER_SECOND);
            happen(&mut fleet, what, trouble);
            history.push(&fleet);
        }
        let mut expected = 0;
        let mut models = BTreeMap::new();
        let mut moment = history.at(0).unwrap();
        while let Some(now) = moment {
            expected += mem_size::members(&now.fleet);
            for (app, bytes) in now.fleet.apps.iter().zip(mem_size::models(&now.fleet)) {
                if let Some(model) = &app.model {
                    models.insert(Arc::as_ptr(model), bytes);
                }
            }
            moment = history.after(now.at).unwrap();
        }
        expected += models.values().sum::<usize>();
        prop_assert_eq!(history.bytes(), expected);
    }
}

#[test]
fn of_several_updates_the_last_is_told_and_only_once_it_is_drawn() {
    let told = Arc::new(AtomicU64::new(0));
    let update = |now_ns| {
        let told = Arc::clone(&told);
        LiveUpdate::new(move || {
            told.fetch_add(now_ns, Ordering::Relaxed);
            calm(now_ns)
        })
    };
    let mut live = LiveTimeline::default();
    live.take(update(1));
    live.take(update(20));
    assert_eq!((told.load(Ordering::Relaxed), live.fleet().apps.len()), (0, 0));
    live.tick(START, START);
    live.tick(START + NS_PER_SECOND, START + NS_PER_SECOND);
    assert_eq!((told.load(Ordering::Relaxed), live.fleet().apps.len()), (20, 1));
}
