use std::fs::{self, File};
use std::time::Duration;

use super::super::RoundEnd;
use super::super::clock_steps::SteadyClock;
use super::super::fixture::{
    AppAct, BEGIN, EACH_SECOND, LiveFleet, SECOND, files, into, only_file, play, player, record,
    steady,
};
use super::super::{RecordingOptions, RecordingPlayer, TelemetryRecorder};
use super::*;
use pmdscope_telemetry::InterfaceEvaluator;
use pmdscope_telemetry::fixture::{filtered_interface, split_interface};

/// States of two apps that answer, time out, restart and leave.
fn eventful() -> Vec<FleetState> {
    let mut live = LiveFleet::new(Duration::from_millis(500));
    let mut states = Vec::new();
    for round in 0..200 {
        let fwd = match round {
            40..50 => AppAct::TimeOut,
            90 => AppAct::Restart,
            _ => AppAct::Answer,
        };
        let lb = match round {
            0..20 => AppAct::TimeOut,
            100.. => AppAct::Leave,
            _ => AppAct::Answer,
        };
        states.push(live.round(&[("fwd", fwd), ("lb", lb)]).clone());
    }
    states
}

/// Whether states are equal except for the counts of errors, which count from the place where
/// reading began.
fn same(one: &FleetState, other: &FleetState) -> bool {
    let mut one = one.clone();
    for (member, theirs) in one.apps.iter_mut().zip(&other.apps) {
        member.errors = theirs.errors.clone();
    }
    one == *other
}

#[test]
fn replayed_states_equal_the_live_ones() {
    let states = eventful();
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path().join("x.jsonl.zst")), &states);
    let mut player = player(&only_file(dir.path()));
    assert_eq!(play(&mut player), states);
    assert_eq!(player.apps(), ["fwd", "lb"].into());
    assert_eq!(player.notes(), []);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(player.host(), host.trim());
    assert!(states.iter().any(|fleet| !fleet.findings().is_empty()));
    assert!(states[150].models().any(|(_, model)| model.ports[0].rx_pps == Some(500_000.0)));
}

#[test]
fn rotated_files_are_one_recording() {
    let states = eventful();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/");
    record(RecordingOptions { rotate_age: Some(Duration::from_secs(7)), ..into(&path) }, &states);
    assert!(files(&path).len() > 10);
    assert_eq!(play(&mut player(&path)), states);
}

#[test]
fn a_moment_has_the_trends_of_a_live_view() {
    let states = eventful();
    let dir = tempfile::tempdir().unwrap();
    record(
        RecordingOptions { rotate_age: Some(Duration::from_secs(9)), ..into(dir.path()) },
        &states,
    );
    let mut player = player(dir.path());
    let span = player.span();
    assert!(span.0 < states[0].realtime_ns && span.1 == states[199].realtime_ns);
    for at in [199, 0, 130, 131, 180, 61, 45, 190] {
        let found = player.seek(states[at].realtime_ns + 1).unwrap();
        assert!(same(found, &states[at]), "{at}");
        let next = player.next().unwrap();
        assert!(next.is_none_or(|next| same(next, &states[at + 1])), "after {at}");
    }
    assert_eq!(player.seek(0).unwrap().realtime_ns, states[0].realtime_ns);
    assert_eq!(player.seek(u64::MAX).unwrap().realtime_ns, states[199].realtime_ns);
}

#[test]
fn another_recorder_begins_anew_and_the_time_between_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = LiveFleet::new(EACH_SECOND);
    let both = [("fwd", AppAct::Answer), ("lb", AppAct::Answer)];
    let first: Vec<_> = (0..10).map(|_| live.round(&both).clone()).collect();
    record(into(dir.path()), &first);
    live.skip(600);
    let mut anew = LiveFleet::new(EACH_SECOND);
    anew.skip(610);
    let second: Vec<_> = (0..10).map(|_| anew.round(&[("fwd", AppAct::Answer)]).clone()).collect();
    record(into(dir.path()), &second);

    let mut player = player(dir.path());
    let [note] = player.notes() else { panic!("{:?}", player.notes()) };
    let text = "nothing is recorded from 2026-11-21T08:56:10Z to 2026-11-21T09:06:10Z";
    assert_eq!((note.text.as_str(), note.realtime_ns), (text, Some(first[9].realtime_ns)));
    let states = play(&mut player);
    assert_eq!(states[..10], first);
    // The app that only the first recorder has seen is gone.
    assert_eq!(states[10..], second);
    let between = player.seek(first[9].realtime_ns + 100 * SECOND).unwrap();
    assert_eq!(*between, first[9]);
}

#[test]
fn recordings_of_the_same_time_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorders = ["fwd", "lb"].map(|app| {
        let recording = into(dir.path().join(format!("{app}.jsonl.zst")));
        let run = BEGIN + app.len() as u64;
        (app, LiveFleet::new(EACH_SECOND), TelemetryRecorder::create(recording, run).unwrap())
    });
    for _ in 0..20 {
        for (app, live, recorder) in &mut recorders {
            recorder.record(live.round(&[(app, AppAct::Answer)]), 0).unwrap();
        }
    }
    let [one, other] = recorders.map(|(_, live, recorder)| {
        recorder.finish().unwrap();
        live.fleet
    });
    let mut player = player(dir.path());
    let states = play(&mut player);
    assert_eq!(states.len(), 40);
    assert!(states.windows(2).all(|pair| pair[0].realtime_ns <= pair[1].realtime_ns));
    assert_eq!(states[39].apps, [one.apps, other.apps].concat());
    player.only("lb");
    assert!(play(&mut player).iter().all(|fleet| fleet.find("fwd").is_none()));
}

#[test]
fn of_two_recorders_of_one_app_one_is_played_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = LiveFleet::new(EACH_SECOND);
    let states: Vec<_> = (0..40).map(|_| live.round(&[("fwd", AppAct::Answer)]).clone()).collect();
    let create = |run| {
        let recording = into(dir.path().join(format!("{run}.jsonl.zst")));
        TelemetryRecorder::create(recording, BEGIN + run).unwrap()
    };
    let (mut one, mut other) = (create(1), create(2));
    for pair in states[..20].chunks(2) {
        one.record(&pair[0], 0).unwrap();
        other.record(&pair[1], 0).unwrap();
    }
    one.finish().unwrap();
    for fleet in &states[20..] {
        other.record(fleet, 0).unwrap();
    }
    other.finish().unwrap();
    let mut player = player(dir.path());
    let rate = |fleet: &FleetState| fleet.apps[0].model.as_ref().unwrap().ports[0].rx_pps;
    let rates: Vec<_> = play(&mut player).iter().map(rate).collect();
    let without: Vec<_> = (0..rates.len()).filter(|at| rates[*at].is_none()).collect();
    // The rate is unknown at the start of each recorder.
    assert_eq!((rates.len(), without), (40, vec![0, 1, 19]), "{rates:?}");
    let notes: Vec<_> = player.notes().iter().map(|note| note.text.as_str()).collect();
    assert_eq!(notes, ["another recorder asked fwd at that time; this one is left out"]);
}

/// States of 20 minutes; after ten minutes the wall clock is set back by `seconds`.
fn set_back(seconds: u64) -> Vec<FleetState> {
    let mut states = steady(EACH_SECOND, 1200);
    for fleet in &mut states[600..] {
        fleet.realtime_ns -= seconds * SECOND;
        let model = std::sync::Arc::make_mut(fleet.apps[0].model.as_mut().unwrap());
        model.sample.realtime_ns -= seconds * SECOND;
    }
    states
}

/// Checks that each state is played once, in order, at times that increase, and with the rates of a
/// live view.
fn assert_plays_on(player: &mut RecordingPlayer, seconds: u64) {
    player.rewind(0);
    let states = play(player);
    let at: Vec<_> = states.iter().map(|fleet| (fleet.realtime_ns - BEGIN) / SECOND).collect();
    assert_eq!(at, (1..=1200).collect::<Vec<_>>(), "set back by {seconds} s");
    let rate = |fleet: &FleetState| fleet.apps[0].model.as_ref().unwrap().ports[0].rx_pps;
    assert_eq!(rate(&states[0]), None);
    let rates: Vec<_> = states[1..].iter().filter_map(rate).collect();
    let same = |rate: &f64| (rate - rates[0]).abs() < 1.0;
    assert!(rates.len() == 1199 && rates.iter().all(same), "set back by {seconds} s");
    for at in [300, 900, 100, 1100, 605, 500] {
        let found = player.seek(BEGIN + at * SECOND).unwrap();
        assert_eq!((found.realtime_ns, found.now_ns), (BEGIN + at * SECOND, (77 + at) * SECOND));
    }
}

#[test]
fn a_wall_clock_that_was_set_back_goes_on_by_the_monotonic_one() {
    for seconds in [30, 300, 3600] {
        let dir = tempfile::tempdir().unwrap();
        record(into(dir.path().join("x.jsonl.zst")), &set_back(seconds));
        let mut player = player(&only_file(dir.path()));
        let [note] = player.notes() else { panic!("{:?}", player.notes()) };
        let text = "the wall clock was set back from 2026-11-21T09:06:00Z to 2026-11-21T0";
        assert!(note.text.starts_with(text), "{note}");
        assert_plays_on(&mut player, seconds);
    }
}

#[test]
fn files_that_were_begun_after_the_clock_was_set_back_come_later() {
    for seconds in [30, 300, 3600] {
        let dir = tempfile::tempdir().unwrap();
        let each_minute = Some(Duration::from_secs(60));
        let recording = RecordingOptions { rotate_age: each_minute, ..into(dir.path()) };
        record(recording, &set_back(seconds));
        assert!(files(dir.path()).len() > 15);
        assert_plays_on(&mut player(dir.path()), seconds);
    }
}

#[test]
fn a_clock_that_was_corrected_is_followed_again() {
    let mut clock = SteadyClock::default();
    let mut at =
        |realtime_ns, monotonic_ns| clock.update(RoundEnd { realtime_ns, monotonic_ns, missed: 0 });
    assert_eq!([at(1000, 1), at(1010, 11), at(1010, 21)], [1000, 1010, 1010]);
    assert_eq!([at(800, 31), at(810, 41), at(820, 40)], [1020, 1030, 1040]);
    assert_eq!([at(1050, 61), at(1030, 71)], [1050, 1060], "set forward, and back by 30");
    assert_eq!(at(0, 0), 1060);
}

#[test]
fn missed_and_unwritten_rounds_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let states = steady(EACH_SECOND, 3);
    let path = dir.path().join("x.jsonl.zst");
    let mut recorder = TelemetryRecorder::create(into(&path), BEGIN).unwrap();
    recorder.record(&states[0], 0).unwrap();
    recorder.record(&states[1], 4).unwrap();
    assert_eq!(recorder.finish().unwrap().missed, 4);
    let mut player = player(&path);
    play(&mut player);
    let texts: Vec<_> = player.notes().iter().map(|note| note.text.as_str()).collect();
    assert_eq!(texts, ["4 rounds before 2026-11-21T08:56:02Z were missed"]);
}

#[test]
fn apps_with_too_large_samples_are_left_out() {
    let mut live = LiveFleet::new(EACH_SECOND);
    let all = [("fwd", AppAct::Answer), ("lb", AppAct::Answer)];
    let states: Vec<_> = (0..10).map(|_| live.round(&all).clone()).collect();
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path()), &states);
    let mut player = player(dir.path());
    let sample = serde_json::to_string(&states[9].apps[0].model.as_ref().unwrap().sample).unwrap();
    player.most_held = sample.len() * 3 / 2;
    for (played, fleet) in play(&mut player).iter().zip(&states) {
        assert_eq!(played.apps, fleet.apps[..1]);
    }
    let notes: Vec<_> = player.notes().iter().map(|note| note.text.as_str()).collect();
    assert!(notes.iter().all(|note| note.ends_with("; lb is left out")), "{notes:?}");
    assert!((1..=3).contains(&notes.len()), "{notes:?}");
    player.most_held = sample.len() * 3;
    player.rewind(0);
    assert_eq!(play(&mut player), states);
}

#[test]
fn a_directory_without_recordings_says_what_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("notes.txt")).unwrap();
    let open = |path: &Path| {
        RecordingPlayer::open(path, &FleetSettings::default()).unwrap_err().to_string()
    };
    assert!(open(dir.path()).contains("*.jsonl.zst"), "{}", open(dir.path()));
    assert!(open(&dir.path().join("nothing")).starts_with("cannot open "));
}

#[test]
fn a_bad_file_among_others_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let states = steady(EACH_SECOND, 5);
    record(into(dir.path()), &states);
    fs::write(dir.path().join("a.jsonl.zst"), "bad").unwrap();
    let mut player = player(dir.path());
    assert_eq!(play(&mut player), states);
    assert!(player.notes()[0].to_string().contains("a.jsonl.zst, offset 0"));
}

/// States of one app, and of an interface that is flooded in the rounds 10 to 20, and cannot be
/// read in round 30; it has no filter before round 5 and from round 40 on.
fn flooded() -> Vec<FleetState> {
    let mut live = LiveFleet::new(EACH_SECOND);
    let mut evaluator = InterfaceEvaluator::new(LintRules::default().thresholds);
    let mut times = 0;
    let states = (0..50_u64).map(|round| {
        times += if (10..20).contains(&round) { 10 } else { 0 };
        let read = match round {
            5..30 | 31..40 => Ok(vec![filtered_interface(times), split_interface(round)]),
            30 => Err("cannot read the filter of eth0".to_owned()),
            _ => Ok(Vec::new()),
        };
        live.fleet.apply(evaluator.event(read, (round + 78) * SECOND));
        live.round(&[("dns", AppAct::Answer)]).clone()
    });
    states.collect()
}

#[test]
fn interfaces_are_replayed_with_their_rates_and_findings() {
    let states = flooded();
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path().join("x.jsonl.zst")), &states);
    let mut player = player(&only_file(dir.path()));
    let rounds = play(&mut player);
    for (round, (again, live)) in rounds.iter().zip(&states).enumerate() {
        assert_eq!(again.interfaces.interfaces, live.interfaces.interfaces, "{round}");
        assert_eq!(again.interfaces.error, live.interfaces.error, "{round}");
        let floods = again.interfaces.findings().count();
        assert_eq!(floods, usize::from((10..20).contains(&round)), "{round}");
    }
    assert!(rounds[30].interfaces.error.is_some());
    let found = player.seek(states[15].realtime_ns).unwrap();
    assert_eq!(found.interfaces.interfaces, states[15].interfaces.interfaces);
    assert!(player.seek(states[45].realtime_ns).unwrap().interfaces.is_empty());
}

#[test]
fn of_one_app_only_its_interfaces_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path().join("x.jsonl.zst")), &flooded());
    let mut player = player(&only_file(dir.path()));
    player.only("dns");
    for fleet in play(&mut player) {
        let interfaces = fleet.interfaces.interfaces.iter();
        assert!(interfaces.map(|of| of.sample.name.as_str()).all(|name| name == "eth1"));
    }
}

#[test]
fn rounds_without_interfaces_write_nothing_of_them() {
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path().join("x.jsonl.zst")), &flooded());
    let text = zstd::decode_all(File::open(only_file(dir.path())).unwrap());
    let text = String::from_utf8(text.unwrap()).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("{\"interfaces\"")).collect();
    assert_eq!(lines.len(), 36, "those of the rounds 5 to 39, and that there is none any more");
    assert!(lines[35].contains("\"interfaces\":[]"), "{}", lines[35]);
}
