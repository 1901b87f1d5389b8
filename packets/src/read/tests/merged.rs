//! Tests of the files of a directory, read as one capture.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Returns a file with packets on its second interface at these times, and with the number of drops at
/// its end.
fn file(names: [&str; 2], times: &[u64], dropped: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    let origin = SectionOrigin { application: "pmdscope".into(), ..SectionOrigin::default() };
    write_section(&mut out, &origin);
    for name in names {
        write_interface(&mut out, &interface(name));
    }
    let data = frame(53);
    for (id, ns) in (0..).zip(times) {
        let packet = Packet {
            interface: 1,
            ns: NS + ns,
            data: &data,
            len: 100,
            dir: DIR_RX,
            queue: None,
            lcore: Some(1),
            weight: 1,
            dropped: 0,
            id,
            comment: "",
            options: &[],
        };
        write_packet(&mut out, &packet);
    }
    let count = times.len() as u64;
    for (interface, delivered) in [(0, 0), (1, count)] {
        let Some(dropped) = dropped else { break };
        let received = Some(delivered + dropped);
        let (start_ns, end_ns) = (NS, NS + 9);
        let (dropped, accepted) = (Some(dropped), None);
        write_statistics(
            &mut out,
            &InterfaceStatistics {
                interface,
                start_ns,
                end_ns,
                received,
                dropped,
                accepted,
                delivered,
            },
        );
    }
    out
}

/// Reads the files as a directory, as `-r DIR` does.
fn merged(
    files: &[(&str, &[u8])],
    settings: ReplaySettings,
) -> Result<(Notes, ReplayReport), ReplayError> {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let replay = FileReplay::open([dir.path().to_owned()], settings, &RunControl::default())?;
    let mut notes = Notes::default();
    let report = replay.run(&mut notes, &mut |_| ());
    Ok((notes, report))
}

#[test]
fn packets_come_in_order_of_time_and_counts_are_added() {
    let first = file(["fwd:0", "fwd:1"], &[1, 2, 7], Some(3));
    let second = file(["fwd:0", "fwd:2"], &[0, 5], Some(4));
    let files = [("fwd-lcore1-1.pcapng", &*first), ("fwd-lcore2-1.pcapng", &second)];
    let (notes, report) = merged(&files, settings()).unwrap();
    assert!(report.failure.is_none() && report.captured == 5, "{report:?}");
    let time = |line: &str| line.split(": 43").next().unwrap().to_owned();
    let expected = [
        "section pmdscope",
        "interface fwd:0 [not arp] 1000 1",
        "interface fwd:1 [not arp] 1000 1",
        "interface fwd:2 [not arp] 1000 1",
        "packet 0 on 2 at 1780000000123456789",
        "packet 1 on 1 at 1780000000123456790",
        "packet 2 on 1 at 1780000000123456791",
        "packet 3 on 2 at 1780000000123456794",
        "packet 4 on 1 at 1780000000123456796",
        "counted 0: Some(7) Some(7) 0",
        "counted 1: Some(6) Some(3) 3",
        "counted 2: Some(6) Some(4) 2",
    ];
    assert_eq!(notes.lines.iter().map(|line| time(line)).collect::<Vec<_>>(), expected);
}

#[test]
fn files_that_are_named_to_be_merged_are_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, app: &str, times: &[u64]| {
        let path = dir.path().join(name);
        std::fs::write(&path, file([app, "common:0"], times, None)).unwrap();
        CaptureFile::from(path)
    };
    // The packets are of the second interface.
    let merged = vec![write("gw", "gw:0", &[2, 4]), write("broken", "x:0", &[])];
    std::fs::write(&merged[1].path, [0; 20]).unwrap();
    let files = [CaptureFile { merged, ..write("fwd", "fwd:0", &[1, 3]) }];
    let replay = FileReplay::open_named(files, settings(), &RunControl::default()).unwrap();
    let mut notes = Notes::default();
    let report = replay.run(&mut notes, &mut |_| ());
    assert_eq!((packets(&notes).join(" "), report.captured), ("0 1 2 3".to_owned(), 4));
    let times = notes.lines.iter().filter_map(|line| line.split_once(" at ")?.1.split_once(": "));
    let times = times.map(|(ns, _)| ns.parse::<u64>().unwrap() - NS).collect::<Vec<_>>();
    assert_eq!(times, [1, 2, 3, 4]);
    let failure = report.failure.unwrap().to_string();
    assert!(failure.contains("broken is not a capture file"), "{failure}");
}

#[test]
fn a_capture_that_was_killed_gives_what_there_is() {
    let whole = file(["fwd:0", "fwd:1"], &[1, 3], Some(3));
    let mut cut = file(["fwd:0", "fwd:1"], &[2, 4], None);
    let files = [("a.pcapng", &*whole), ("b.pcapng.part", &*cut)];
    let (notes, report) = merged(&files, settings()).unwrap();
    assert!(report.failure.is_none() && report.captured == 4, "{report:?}");
    assert_eq!(packets(&notes), ["0", "1", "2", "3"]);
    // The drops of the second file are unknown.
    assert!(notes.lines.contains(&"counted 1: None None 4".to_owned()), "{:?}", notes.lines);

    cut.truncate(cut.len() - 10);
    let files = [("a.pcapng", &*whole), ("b.pcapng.part", &*cut)];
    let (_, report) = merged(&files, settings()).unwrap();
    assert_eq!(report.captured, 3);
    let failure = report.failure.unwrap().to_string();
    assert!(failure.contains("b.pcapng.part is cut off"), "{failure}");

    let files = [("a.pcapng", &*whole), ("b.pcapng.part", &[])];
    let (notes, report) = merged(&files, settings()).unwrap();
    assert_eq!(report.captured, 2);
    assert!(report.failure.unwrap().to_string().contains("b.pcapng.part is empty"));
    // The empty file has no statistics, so the number of drops is unknown.
    assert!(notes.lines.contains(&"counted 1: None None 2".to_owned()), "{:?}", notes.lines);
}

#[test]
fn every_file_that_is_not_read_to_its_end_is_told() {
    let whole = file(["fwd:0", "fwd:1"], &[1, 3], Some(3));
    let cut = &whole[..whole.len() - 10];
    let files = [("a.pcapng.part", cut), ("b.pcapng", &*whole), ("c.pcapng", b""), ("d.pcap", cut)];
    let (_, report) = merged(&files, settings()).unwrap();
    assert_eq!(report.captured, 6);
    let failure = report.failure.unwrap().to_string();
    for told in ["c.pcapng is empty", "a.pcapng.part is cut off", "d.pcap is cut off"] {
        assert!(failure.contains(told), "no '{told}' in {failure}");
    }
    let error = merged(&[("a.pcap", b""), ("b.pcap", b"")], settings()).unwrap_err().to_string();
    assert!(error.contains("a.pcap is empty") && error.contains("b.pcap is empty"), "{error}");
}

#[test]
fn a_directory_may_have_more_files_than_may_be_open_by_default() {
    const TEST: &str =
        "read::tests::merged::a_directory_may_have_more_files_than_may_be_open_by_default";
    const CHILD: &str = "PMDSCOPE_TEST_FEW_FILES";
    // The limit applies to a process, so this test runs in its own.
    if std::env::var_os(CHILD).is_none() {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        let out = test.args(["--exact", TEST]).env(CHILD, "").output().unwrap();
        let printed = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && printed.contains("1 passed"), "{printed}");
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let whole = file(["fwd:0", "fwd:1"], &[1, 3], Some(3));
    let names = (0..100).map(|number| format!("{number}.pcapng")).collect::<Vec<_>>();
    let files = names.iter().map(|name| (&**name, &*whole)).collect::<Vec<_>>();
    let (_, report) = merged(&files, settings()).unwrap();
    assert!(report.failure.is_none() && report.captured == 200, "{report:?}");
    // If there are more files than may be open at all, the merge fails instead of leaving some out.
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let error = merged(&files, settings()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}

#[test]
fn a_filter_and_a_count_hold_for_all_files() {
    let first = file(["fwd:0", "fwd:1"], &[1, 2, 7], Some(3));
    let files = [("a.pcapng", &*first), ("b.pcapng", &*first), ("notes.txt", b"no capture")];
    let (notes, _) = merged(&files, ReplaySettings { count: Some(3), ..settings() }).unwrap();
    assert_eq!(packets(&notes), ["0", "1", "2"]);
    let none = ReplaySettings { filter: "tcp".into(), ..settings() };
    let (notes, report) = merged(&files, none).unwrap();
    assert_eq!((packets(&notes).len(), report.read), (0, 6));
}

#[test]
fn a_directory_without_captures_is_an_error() {
    let error = merged(&[("notes.txt", b"text")], settings()).unwrap_err();
    assert!(error.to_string().contains("without capture files"), "{error}");
}

#[test]
fn captures_are_known_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a.pcapng", "b.pcap.gz", "c.pcapng.zst.part", "d.pcap.part", "e.txt", "f.zst"];
    for name in names {
        fs::write(dir.path().join(name), "").unwrap();
    }
    fs::create_dir(dir.path().join("g.pcapng")).unwrap();
    let found = files_of(dir.path()).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(found.iter().map(|file| name(&file.path)).collect::<Vec<_>>(), names[..4]);
}

proptest! {
    #[test]
    fn nothing_is_lost_and_all_is_in_order(
        mut files in proptest::collection::vec(proptest::collection::vec(0_u64..50, 0..20), 1..6),
    ) {
        for times in &mut files {
            times.sort_unstable();
        }
        let bytes = files.iter().map(|times| file(["a:0", "a:1"], times, Some(0)));
        let readers = bytes.map(|bytes| FileReader::new("test", Cursor::new(bytes)).unwrap());
        let mut merged = super::super::merged::MergedReader::new(readers);
        let mut found = Vec::new();
        while merged.advance().unwrap() {
            if let FileItem::Packet(packet) = merged.item().unwrap() {
                found.push(packet.ns - NS);
            }
        }
        let mut expected = files.concat();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}
