use std::fs;
use std::time::Duration;

use super::super::fixture::{
    AppAct, BEGIN, LiveFleet, SECOND, files, into, only_file, play, player, record, steady,
};
use super::super::{EXTENSION, PART};
use super::*;

const EACH_SECOND: Duration = Duration::from_secs(1);
const TEN_A_SECOND: Duration = Duration::from_millis(100);

fn names(dir: &std::path::Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(dir).iter().map(name).collect()
}

#[test]
fn a_file_is_named_by_its_begin_and_a_part_until_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let states = steady(EACH_SECOND, 3);
    let create = || TelemetryRecorder::create(into(dir.path()), BEGIN).unwrap();
    let (mut one, mut two) = (create(), create());
    let stem = "pmdscope-20261121T085600Z";
    assert_eq!(
        names(dir.path()),
        [format!("{stem}-2{EXTENSION}{PART}"), format!("{stem}{EXTENSION}{PART}")]
    );
    one.record(&states[0], 0).unwrap();
    two.record(&states[0], 0).unwrap();
    one.finish().unwrap();
    two.finish().unwrap();
    let complete = [format!("{stem}-2{EXTENSION}"), format!("{stem}{EXTENSION}")];
    assert_eq!(names(dir.path()), complete);
    // A third recorder overwrites neither, and leaves no file because it records nothing.
    create().finish().unwrap();
    assert_eq!(names(dir.path()), complete);
}

#[test]
fn a_recorder_that_is_killed_loses_a_second() {
    let dir = tempfile::tempdir().unwrap();
    for interval in [TEN_A_SECOND, EACH_SECOND] {
        let states = steady(interval, 200);
        let path = dir.path().join(format!("{}{EXTENSION}", interval.as_millis()));
        let mut recorder = TelemetryRecorder::create(into(&path), BEGIN).unwrap();
        let part = path.with_added_extension("part");
        for (count, fleet) in (1..).zip(&states) {
            recorder.record(fleet, 0).unwrap();
            if count % 23 == 0 {
                let read = play(&mut player(&part));
                assert_eq!(read, states[..read.len()]);
                let lost = fleet.realtime_ns - read.last().unwrap().realtime_ns;
                assert!(lost < SECOND, "{lost} ns of {count} rounds");
            }
        }
    }
}

#[test]
fn two_recorders_do_not_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    let first = TelemetryRecorder::create(into(&path), BEGIN).unwrap();
    let second = TelemetryRecorder::create(into(&path), BEGIN).unwrap_err().to_string();
    assert!(second.contains("another process is writing it"), "{second}");
    drop(first);
    let slash = dir.path().join("x.jsonl.zst.part/");
    let error = TelemetryRecorder::create(into(slash), BEGIN).unwrap_err().to_string();
    assert!(error.starts_with("cannot create "), "{error}");
}

#[test]
fn files_of_a_killed_recorder_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    let part = dir.path().join("x.jsonl.zst.part");
    fs::write(&part, "precious").unwrap();
    let error = TelemetryRecorder::create(into(&path), BEGIN).unwrap_err().to_string();
    assert!(error.contains("x.jsonl.zst.part") && error.contains("move it away"), "{error}");
    assert_eq!(fs::read(&part).unwrap(), b"precious");
    // An empty file of a killed recorder is used again.
    fs::write(&part, "").unwrap();
    TelemetryRecorder::create(into(&path), BEGIN).unwrap().finish().unwrap();
}

#[test]
fn options_that_contradict_each_other_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let whole = into(dir.path());
    let sized = RecordingOptions { rotate_size: Some(1000), ..whole.clone() };
    for (wrong, expected) in [
        (RecordingOptions { path: "x".into(), ..sized.clone() }, "-w DIR/"),
        (RecordingOptions { keep: Some(EACH_SECOND), ..whole.clone() }, "--rotate-age"),
        (RecordingOptions { max_size: Some(1999), ..sized.clone() }, "half"),
        (
            RecordingOptions { max_size: Some(2000), rotate_age: Some(EACH_SECOND), ..whole },
            "--rotate-size",
        ),
    ] {
        let error = TelemetryRecorder::create(wrong, BEGIN).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(
        TelemetryRecorder::create(RecordingOptions { max_size: Some(2000), ..sized }, BEGIN)
            .is_ok()
    );
}

#[test]
fn files_are_rotated_by_size_and_age() {
    let states = steady(TEN_A_SECOND, 600);
    let dir = tempfile::tempdir().unwrap();
    let (by_size, by_age) = (dir.path().join("size/"), dir.path().join("age/"));
    record(RecordingOptions { rotate_size: Some(8192), ..into(&by_size) }, &states);
    let sizes: Vec<_> = files(&by_size).iter().map(|f| f.metadata().unwrap().len()).collect();
    let (last, whole) = sizes.split_last().unwrap();
    assert!(whole.len() > 2 && whole.iter().all(|size| (8192..16384).contains(size)), "{sizes:?}");
    assert!(*last < 16384);

    let totals =
        record(RecordingOptions { rotate_age: Some(20 * EACH_SECOND), ..into(&by_age) }, &states);
    assert_eq!((totals.files, files(&by_age).len()), (3, 3));
    let bytes: u64 = files(&by_age).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!((totals.bytes, totals.rounds, totals.samples), (bytes, 600, 600));
    let begin = player(&files(&by_age)[1]).span().0;
    assert!(begin.abs_diff(states[200].realtime_ns) < 1_000_000);
}

#[test]
fn the_oldest_files_are_deleted_above_the_limit() {
    let states = steady(TEN_A_SECOND, 1200);
    let dir = tempfile::tempdir().unwrap();
    let (other, part) =
        ("pmdscope-20260101T000000Z.txt", "pmdscope-20260101T000000Z.jsonl.zst.part");
    fs::write(dir.path().join(other), vec![0; 50_000]).unwrap();
    fs::write(dir.path().join(part), vec![0; 50_000]).unwrap();
    let recording =
        RecordingOptions { rotate_size: Some(8192), max_size: Some(40_000), ..into(dir.path()) };
    record(recording, &states);
    let ours = names(dir.path());
    assert!(ours.contains(&other.to_owned()) && !ours.contains(&part.to_owned()), "{ours:?}");
    fs::remove_file(dir.path().join(other)).unwrap();
    let bytes: u64 = files(dir.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!((20_000..=40_000 + 8192).contains(&bytes), "{bytes}");
    let read = play(&mut player(dir.path()));
    let last = |states: &[FleetState]| states.last().map(|fleet| fleet.realtime_ns);
    assert_eq!(last(&read), last(&states));
    assert!(read.len() < states.len());
}

#[test]
fn files_beyond_the_maximum_age_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path()), &steady(EACH_SECOND, 3));
    let old = only_file(dir.path());
    let set_age = |minutes: u64| {
        let ended = SystemTime::now() - Duration::from_secs(60 * minutes);
        fs::File::options().write(true).open(&old).unwrap().set_modified(ended).unwrap();
    };
    let mut live = LiveFleet::new(EACH_SECOND);
    live.skip(100);
    let states: Vec<_> = (0..3).map(|_| live.round(&[("fwd", AppAct::Answer)]).clone()).collect();
    let recording = RecordingOptions {
        keep: Some(Duration::from_secs(1800)),
        rotate_age: Some(Duration::from_secs(60)),
        ..into(dir.path())
    };
    set_age(29);
    record(recording.clone(), &states);
    assert_eq!(files(dir.path()).len(), 2);
    set_age(31);
    record(recording, &states);
    assert_eq!(files(dir.path()).len(), 2);
    assert!(!old.exists());
}

#[test]
fn a_file_of_the_future_does_not_keep_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["20260102", "20260103"]
        .map(|day| dir.path().join(format!("pmdscope-{day}T000000Z{EXTENSION}")));
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    for (path, ended) in paths.iter().zip([now + hour, now - hour]) {
        fs::File::create(path).unwrap().set_modified(ended).unwrap();
    }
    Retention::new(dir.path(), Some(hour / 2), None).trim(0, now);
    assert_eq!(files(dir.path()), paths[..1]);
}

#[test]
fn an_app_that_stays_silent_is_in_every_frame() {
    let mut live = LiveFleet::new(EACH_SECOND);
    live.round(&[("lb", AppAct::TimeOut)]);
    let states: Vec<_> = (0..60).map(|_| live.round(&[("fwd", AppAct::Answer)]).clone()).collect();
    let dir = tempfile::tempdir().unwrap();
    let totals = record(into(dir.path()), &states);
    assert_eq!((totals.lost, totals.apps), (1, 2));
    let mut player = player(dir.path());
    assert_eq!(*player.seek(states[59].realtime_ns).unwrap(), states[59]);
}
