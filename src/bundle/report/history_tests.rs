//! Tests of what a recording shows over time.

use std::time::Duration;

use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
use pmdscope_telemetry::fixture::pool;
use pmdscope_telemetry::sample::Sample;

use super::super::fixture::{self, BEGIN_NS, ROUND_NS, states, without_answer};
use super::*;

fn lines(history: &RecordedHistory, quantity: Quantity) -> &[HistoryLine] {
    &history.apps["fwd"].graphs[&quantity]
}

fn known(line: &HistoryLine) -> usize {
    line.steps.iter().flatten().count()
}

#[test]
fn each_round_has_its_step_as_long_as_there_are_enough() {
    let history = fixture::history(&states("fwd", 51, |_, _| {}));
    assert_eq!((history.rounds, history.apps.len()), (51, 1));
    let [first, second] = lines(&history, Quantity::Received) else { panic!("{history:?}") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("0 net_null0", "1 net_null1"));
    // The first sample has no rate.
    assert_eq!((known(first), known(second)), (50, 50));
    assert_eq!(second.range(), Some((1000.0, 1000.0, 1000.0)));
    assert_eq!((first.most(), first.last), (49_500.0, 49_500.0));
    let [pool, _] = lines(&history, Quantity::PoolUse) else { panic!("{history:?}") };
    assert_eq!((known(pool), pool.steps[0].unwrap().most), (51, 0.0));
    assert!(pool.steps[STEPS - 1].is_some());
}

#[test]
fn a_step_of_many_rounds_keeps_the_least_and_the_greatest_value() {
    let rounds = 10 * STEPS as u64;
    let burst = |round, sample: &mut Sample| {
        let in_use = if round == 777 { 16_384 } else { 1024 };
        sample.pools = vec![pool("mbufs", 16_384, in_use)];
    };
    let history = fixture::history(&states("fwd", rounds, burst));
    let [line] = lines(&history, Quantity::PoolUse) else { panic!("{history:?}") };
    assert_eq!(known(line), STEPS);
    let step = line.steps[77].unwrap();
    assert_eq!((step.least, step.most), (0.0625, 1.0));
    assert!((step.mean() - (0.0625 + 0.9375 / 10.0)).abs() < 1e-9, "{step:?}");
    let (least, mean, most) = line.range().unwrap();
    assert!(least < mean && mean < 0.07 && most > 0.99);
}

#[test]
fn an_app_that_does_not_answer_has_no_values() {
    let mut all = states("fwd", 20, |_, _| {});
    all.push(without_answer(&all[19], "fwd"));
    // The same sample again, as in a round that another recorder wrote.
    let again = FleetState { realtime_ns: BEGIN_NS + 21 * ROUND_NS, ..all[19].clone() };
    all.push(again);
    let history = fixture::history(&all);
    assert_eq!((history.rounds, known(&lines(&history, Quantity::PoolUse)[0])), (22, 20));
}

#[test]
fn what_has_no_room_is_counted() {
    let many = |_, sample: &mut Sample| {
        sample.pools = (0..100).map(|number| pool(&format!("p{number}"), 8, 1)).collect();
    };
    let all = states("fwd", 3, many);
    let history = fixture::history(&all);
    assert_eq!(lines(&history, Quantity::PoolUse).len(), MOST_OF_GRAPH);
    assert_eq!(history.apps["fwd"].left_out[&Quantity::PoolUse], 100 - MOST_OF_GRAPH);
    let mut crowd = RecordedHistory::new((0, u64::MAX), TimeZone::UTC);
    for number in 0..MOST_APPS + 3 {
        crowd.note(&states(&format!("app{number}"), 1, many)[0]);
    }
    assert_eq!((crowd.apps.len(), crowd.left_out.len(), crowd.room), (MOST_APPS, 3, 0));
}

/// A directory with a recording of these states.
fn recorded(states: &[FleetState]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let options = RecordingOptions {
        path: dir.path().join("bundle.jsonl.zst"),
        interval: Duration::from_nanos(ROUND_NS),
        ..RecordingOptions::default()
    };
    let mut recorder = TelemetryRecorder::create(options, states[0].realtime_ns).unwrap();
    for state in states {
        recorder.record(state, 0).unwrap();
    }
    recorder.finish().unwrap();
    dir
}

#[test]
fn a_recording_shows_what_was_seen_live() {
    let states = states("fwd", 30, |_, _| {});
    let (dir, live) = (recorded(&states), fixture::history(&states));
    let later = Instant::now() + Duration::from_secs(60);
    let limit = PlayLimit { deadline: later, is_unwanted: &|| false };
    let played = RecordedHistory::play(dir.path(), &FleetSettings::default(), &limit).unwrap();
    assert_eq!((played.rounds, played.span_ns), (live.rounds, live.span_ns));
    assert!(played.notes.is_empty() && played.last.find("fwd").is_some(), "{:?}", played.notes);
    for quantity in [Quantity::Received, Quantity::Missed, Quantity::PoolUse] {
        let steps = |history: &RecordedHistory| -> Vec<_> {
            lines(history, quantity).iter().map(|line| line.steps.clone()).collect()
        };
        assert_eq!(steps(&played), steps(&live), "{quantity:?}");
    }
}

#[test]
fn reading_ends_when_it_takes_too_long_or_nobody_wants_it() {
    let dir = recorded(&states("fwd", 30, |_, _| {}));
    let play = |deadline, is_unwanted: &dyn Fn() -> bool| {
        let limit = PlayLimit { deadline, is_unwanted };
        RecordedHistory::play(dir.path(), &FleetSettings::default(), &limit).unwrap()
    };
    let now = Instant::now();
    for history in [play(now, &|| false), play(now + Duration::from_secs(60), &|| true)] {
        assert_eq!(history.rounds, 1);
        let [note] = &history.notes[..] else { panic!("{:?}", history.notes) };
        assert!(note.starts_with("the last 5.8s of the recording are not shown"), "{note}");
    }
    let empty = tempfile::tempdir().unwrap();
    let limit = PlayLimit { deadline: now, is_unwanted: &|| false };
    assert!(RecordedHistory::play(empty.path(), &FleetSettings::default(), &limit).is_err());
}
