//! Tests of several files: names, sizes, and what happens to complete ones.

use super::*;

/// Returns a file with packets that tcpdump can split: microseconds, some small and some large.
fn input(dir: &Path) -> (PathBuf, Vec<usize>) {
    let path = dir.join("in.pcap");
    let format = FileFormat::Pcap { nanos: false };
    let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
    let sizes: Vec<usize> = (0..5000).map(|id| 60 + id * 7919 % 1450).collect();
    for (id, size) in sizes.iter().enumerate() {
        put(&mut files, id as u64..id as u64 + 1, *size);
    }
    files.finish().unwrap();
    (path, sizes)
}

#[test]
fn names_and_sizes_are_those_of_tcpdump() {
    let (dir, _) = in_dir("");
    let (input, sizes) = input(dir.path());
    for files in [None, Some(1), Some(2), Some(3), Some(12)] {
        let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-C", "1", "-w"]).arg(theirs.path().join("out"));
        if let Some(files) = files {
            tcpdump.args(["-W", &files.to_string()]);
        }
        let Some(out) = output(tcpdump.args(["-Z", "root", "-r"]).arg(&input)) else { return };
        assert!(out.status.success(), "{out:?}");
        let rotation = FileRotation { bytes: Some(1_000_000), files, ..FileRotation::default() };
        let format = FileFormat::Pcap { nanos: false };
        let path = ours.path().join("out");
        let mut target = begun(&FileSettings { format, rotation, ..FileSettings::new(path) });
        for (id, size) in sizes.iter().enumerate() {
            put(&mut target, id as u64..id as u64 + 1, *size);
        }
        target.finish().unwrap();
        assert_eq!(names(ours.path()), names(theirs.path()), "-W {files:?}");
        for name in names(ours.path()) {
            let read = |dir: &tempfile::TempDir| fs::read(dir.path().join(&name)).unwrap();
            assert!(read(&ours) == read(&theirs), "{name} with -W {files:?}");
        }
    }
}

#[test]
fn periods_and_sizes_go_together_as_in_tcpdump() {
    let (dir, path) = in_dir("x-%s-");
    let rotation = FileRotation {
        bytes: Some(1000),
        seconds: Some(10),
        files: Some(2),
        ..FileRotation::default()
    };
    let settings = FileSettings { rotation, begin_ns: Some(BEGIN), ..FileSettings::new(&path) };
    let mut files = begun(&settings);
    for id in 0..40 {
        files.packet(&Packet { ns: BEGIN + id * SECOND, ..packet(id, &[0; 300]) }).unwrap();
    }
    files.finish().unwrap();
    let periods = [0, 10, 20, 30].map(|seconds| 1_780_000_000 + seconds);
    let expected = periods.iter().flat_map(|second| [0, 1].map(|n| format!("x-{second}-{n}")));
    assert_eq!(names(dir.path()), expected.collect::<Vec<_>>());
    assert_eq!((files.progress().written, files.done()), (40, true));
}

#[test]
fn after_the_last_period_the_capture_is_done() {
    let (dir, path) = in_dir("x-%s");
    let rotation = FileRotation { seconds: Some(10), files: Some(2), ..FileRotation::default() };
    let settings = FileSettings { rotation, begin_ns: Some(BEGIN), ..FileSettings::new(&path) };
    let mut files = begun(&settings);
    for id in 0..40 {
        assert_eq!(files.done(), id > 20, "packet {id}");
        files.packet(&Packet { ns: BEGIN + id * SECOND, ..packet(id, &[0; 300]) }).unwrap();
    }
    files.finish().unwrap();
    assert_eq!(names(dir.path()), ["x-1780000000", "x-1780000010"]);
    let progress = files.progress();
    assert_eq!((progress.written, progress.lost, progress.after_end), (20, 0, 20));
}

#[test]
fn aligned_files_need_no_packets() {
    let (dir, path) = in_dir("x-%s");
    let rotation =
        FileRotation { seconds: Some(1), files: Some(2), aligned: true, ..FileRotation::default() };
    let mut files = begun(&FileSettings { rotation, ..FileSettings::new(&path) });
    eventually("the capture does not end", || {
        files.flush().unwrap();
        files.done()
    });
    files.finish().unwrap();
    let second = |name: &String| name.strip_prefix("x-").unwrap().parse::<u64>().unwrap();
    let seconds: Vec<_> = names(dir.path()).iter().map(second).collect();
    assert!(seconds.len() == 2 && seconds[1] > seconds[0], "{seconds:?}");
}

#[test]
fn exact_files_are_not_longer_and_bounded_ones_not_more() {
    let (dir, path) = in_dir("x.pcapng");
    let rotation = FileRotation {
        bytes: Some(5000),
        files: Some(3),
        exact: true,
        bounded: true,
        count_before_extension: true,
        ..FileRotation::default()
    };
    let (events, told) = std::sync::mpsc::channel();
    let settings = FileSettings { rotation, events: Some(events), ..FileSettings::new(&path) };
    let mut files = begun(&settings);
    put(&mut files, 0..100, 300);
    files
        .counters(&[InterfaceStatistics { received: Some(100), ..InterfaceStatistics::default() }]);
    files.finish().unwrap();
    let all = names(dir.path());
    let last = files.progress().files;
    let expected = (last - 2..=last).map(|number| format!("x_{number:05}.pcapng"));
    assert_eq!(all, expected.collect::<Vec<_>>());
    for name in &all {
        let size = fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size <= 5000 && (size > 4500 || name == all.last().unwrap()), "{name}: {size}");
    }
    drop((files, settings));
    let told = told.iter().collect::<Vec<_>>();
    let deleted = told.iter().filter(|event| matches!(event, FileEvent::Deleted(_))).count();
    let closed = told.iter().filter(|event| matches!(event, FileEvent::Closed(_))).count();
    assert_eq!((closed as u64, deleted as u64), (last, last - 3));
}

#[test]
fn a_quota_deletes_the_oldest_files_and_no_foreign_ones() {
    let (dir, path) = in_dir("x");
    fs::write(dir.path().join("x0"), [0; 9000]).unwrap();
    let rotation = FileRotation { bytes: Some(4000), ..FileRotation::default() };
    let mut files =
        begun(&FileSettings { rotation, quota: Some(20_000), ..FileSettings::new(&path) });
    for id in 0..200 {
        put(&mut files, id..id + 1, 300);
        files.flush().unwrap();
    }
    files.finish().unwrap();
    let all = names(dir.path());
    assert_eq!(all[0], "x0");
    let sizes = all[1..].iter().map(|name| fs::metadata(dir.path().join(name)).unwrap().len());
    let sum: u64 = sizes.sum();
    assert!(sum <= 20_000 && sum > 12_000, "{sum}: {all:?}");
    assert!(!all.contains(&"x".to_owned()) && all.len() > 3);
}

#[test]
fn the_command_gets_every_closed_file_and_its_failure_is_told_once() {
    let (dir, path) = in_dir("x.pcapng");
    let rotation = FileRotation { bytes: Some(2000), ..FileRotation::default() };
    let command = Some("gzip".into());
    let settings = FileSettings { rotation, command, ..FileSettings::new(&path) };
    let mut files = begun(&settings);
    put(&mut files, 0..20, 300);
    files.finish().unwrap();
    let count = files.progress().files as usize;
    eventually("gzip does not end", || {
        let names = names(dir.path());
        names.len() == count
            && names
                .iter()
                .all(|name| FileCompression::of(Path::new(name)) == FileCompression::Gzip)
    });

    let (events, told) = std::sync::mpsc::channel();
    let command = Some("/nowhere/at/all".into());
    let mut files = begun(&FileSettings { command, events: Some(events), ..settings });
    put(&mut files, 0..20, 300);
    files.finish().unwrap();
    drop(files);
    let trouble = told.iter().filter(|event| matches!(event, FileEvent::Trouble(_)));
    let trouble = trouble.collect::<Vec<_>>();
    assert!(trouble.len() == 1, "{trouble:?}");
    assert!(format!("{trouble:?}").contains("/nowhere/at/all: "), "{trouble:?}");
}
