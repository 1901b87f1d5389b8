//! Tests of whole captures into files, checked with the tools that users read them with.

mod rotation;
mod shared;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use pmdscope_testing::{current_test, output, skip, spawn};

use super::*;
use crate::packet::{DIR_RX, ETHERNET, MAX_SNAPLEN};
use crate::read::{FileItem, FileReader};

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_780_000_000 * SECOND;

fn interface(name: &str) -> CaptureInterface {
    CaptureInterface {
        name: name.to_owned(),
        description: "net_null0".to_owned(),
        filter: String::new(),
        comment: String::new(),
        options: Vec::new(),
        snaplen: MAX_SNAPLEN,
        linktype: ETHERNET,
    }
}

fn packet(id: u64, data: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        ns: BEGIN + id * 1000 + 7,
        data,
        len: data.len() as u32,
        dir: DIR_RX,
        queue: Some(1),
        lcore: None,
        weight: 1,
        dropped: 0,
        id,
        comment: "",
        options: &[],
    }
}

/// Returns a sink with one interface.
fn begun(settings: &FileSettings) -> CaptureFiles {
    let mut files = CaptureFiles::create(settings).unwrap();
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    files
}

fn put(files: &mut CaptureFiles, ids: std::ops::Range<u64>, size: usize) {
    let mut data = vec![0; size];
    for id in ids {
        data[..8].copy_from_slice(&id.to_be_bytes());
        files.packet(&packet(id, &data)).unwrap();
    }
}

/// Returns the output of a tool; `None`, after a SKIP message, if it is not installed.
fn run(tool: &str, args: &[&str], file: &Path) -> Option<Output> {
    output(Command::new(tool).args(args).arg(file).env("TZ", "UTC"))
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns the values of fields by tshark, one row per packet.
fn fields(file: &Path, names: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut args = vec!["-T", "fields"];
    args.extend(names.iter().flat_map(|name| ["-e", name]));
    args.push("-r");
    let out = run("tshark", &args, file)?;
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text(&out).lines().map(row).collect())
}

/// Returns the first eight bytes of every packet by tshark, as numbered by [`put`].
fn numbers(file: &Path) -> Option<Vec<u64>> {
    let rows = fields(file, &["eth.dst", "eth.src"])?;
    let number = |row: &Vec<String>| {
        let hex = format!("{}{}", row[0], &row[1][..5]).replace(':', "");
        u64::from_str_radix(&hex, 16).unwrap()
    };
    Some(rows.iter().map(number).collect())
}

/// Returns the same by the reader of this crate, up to the end or the first error.
fn numbers_here(file: &Path) -> Vec<u64> {
    let mut reader = FileReader::open(file).unwrap();
    let mut numbers = Vec::new();
    while let Ok(true) = reader.advance() {
        if let FileItem::Packet(packet) = reader.item().unwrap() {
            numbers.push(u64::from_be_bytes(packet.data[..8].try_into().unwrap()));
        }
    }
    numbers
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn in_dir(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

/// Waits for something that a thread or another process does.
fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_format_and_compression_is_read_back_whole() {
    let formats =
        [FileFormat::Pcapng, FileFormat::Pcap { nanos: true }, FileFormat::Pcap { nanos: false }];
    for format in formats {
        for (extension, compression_threads) in [("", 0), (".gz", 0), (".zst", 0), (".zst", 3)] {
            let (_dir, path) = in_dir(&format!("out.pcap{extension}"));
            let settings = FileSettings { format, compression_threads, ..FileSettings::new(&path) };
            let mut files = begun(&settings);
            // More than a piece of the compressed files.
            put(&mut files, 0..30_000, 100);
            files.flush().unwrap();
            put(&mut files, 30_000..50_000, 100);
            files.finish().unwrap();
            let progress = files.progress();
            assert_eq!((progress.written, progress.lost, progress.files), (50_000, 0, 1));
            assert_eq!(progress.bytes, fs::metadata(&path).unwrap().len());
            if let Some(numbers) = numbers(&path) {
                assert!(numbers.into_iter().eq(0..50_000), "{format:?} {extension}");
            }
            if let Some(out) = run("capinfos", &["-M", "-c", "-l"], &path) {
                assert!(out.status.success() && text(&out).contains("50000"), "{}", text(&out));
            }
            if extension.is_empty()
                && let Some(out) = run("tcpdump", &["-tt", "--nano", "-nr"], &path)
            {
                let end = if format == (FileFormat::Pcap { nanos: false }) { "000" } else { "007" };
                let first = format!("1780000000.000000{end} ");
                assert!(text(&out).starts_with(&first), "{}", text(&out));
                assert_eq!(text(&out).matches("1780000000.").count(), 50_000);
            }
        }
    }
}

#[test]
fn gaps_are_told_by_the_next_packet_and_statistics_belong_to_their_file() {
    let (dir, path) = in_dir("out.pcapng");
    let rotation = FileRotation { bytes: Some(1), ..FileRotation::default() };
    let mut files = begun(&FileSettings { rotation, ..FileSettings::new(&path) });
    let counted = |received, end| InterfaceStatistics {
        interface: 0,
        start_ns: BEGIN,
        end_ns: BEGIN + end * SECOND,
        received: Some(received),
        dropped: Some(received / 10),
        accepted: Some(received / 2),
        delivered: 99,
    };
    put(&mut files, 0..1, 60);
    files.counters(&[counted(100, 1)]);
    // The second file: packets between two updates of the counters.
    files.packet(&Packet { dropped: 5, comment: "here", ..packet(1, &[1; 60]) }).unwrap();
    files.counters(&[counted(150, 2)]);
    // The third file: without an update of the counters.
    put(&mut files, 2..3, 60);
    files.finish().unwrap();
    assert_eq!(names(dir.path()), ["out.pcapng", "out.pcapng1", "out.pcapng2"]);
    let second = dir.path().join("out.pcapng1");
    if let Some(rows) = fields(&second, &["frame.drop_count", "frame.comment"]) {
        assert_eq!(rows, [["5", "here"]]);
    }
    let read = |name: &str| statistics(&fs::read(dir.path().join(name)).unwrap());
    let expected = |start, end, counts: [Option<u64>; 3]| InterfaceStatistics {
        interface: 0,
        start_ns: start,
        end_ns: end,
        received: counts[0],
        dropped: counts[1],
        accepted: counts[2],
        delivered: 1,
    };
    let (one, two) = (BEGIN + SECOND, BEGIN + 2 * SECOND);
    let all = [Some(100), Some(10), Some(50)];
    assert_eq!(read("out.pcapng"), [expected(BEGIN, one, all)]);
    assert_eq!(read("out.pcapng1"), [expected(one, two, [Some(50), Some(5), Some(25)])]);
    let alone = packet(2, &[]).ns;
    assert_eq!(read("out.pcapng2"), [expected(alone, alone, [None; 3])]);
}

/// Returns all statistics in a file.
fn statistics(bytes: &[u8]) -> Vec<InterfaceStatistics> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(size) = rest.get(4..8) {
        let (block, after) = rest.split_at(u32::from_ne_bytes(size.try_into().unwrap()) as usize);
        if block[..4] == 5_u32.to_ne_bytes() {
            let (_, block) = pcap_parser::parse_interfacestatisticsblock_le(block).unwrap();
            let option = |code| {
                let option = block.options.iter().find(|option| option.code.0 == code)?;
                Some(u64::from_ne_bytes(option.value[..8].try_into().unwrap()))
            };
            let time = |code| option(code).map(|time| time.rotate_left(32)).unwrap();
            found.push(InterfaceStatistics {
                interface: block.if_id,
                start_ns: time(2),
                end_ns: time(3),
                received: option(4),
                dropped: option(5),
                accepted: option(6),
                delivered: option(8).unwrap(),
            });
        }
        rest = after;
    }
    found
}

#[test]
fn counts_go_on_in_a_new_section_unless_the_app_was_restarted() {
    let (_dir, path) = in_dir("out.pcapng");
    let mut files = begun(&FileSettings::new(&path));
    files.interface(&interface("other:0")).unwrap();
    let counted = |interface, start_ns, received| InterfaceStatistics {
        interface,
        start_ns,
        end_ns: start_ns + received,
        received: Some(received),
        ..InterfaceStatistics::default()
    };
    files.counters(&[counted(0, BEGIN, 10), counted(1, BEGIN, 100)]);
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    files.interface(&interface("other:0")).unwrap();
    files.counters(&[counted(0, BEGIN + SECOND, 3), counted(1, BEGIN, 150)]);
    files.finish().unwrap();
    let counts = statistics(&fs::read(&path).unwrap());
    let received: Vec<_> = counts.iter().map(|one| one.received.unwrap()).collect();
    assert_eq!(received, [10, 100, 3, 50]);
}

#[test]
fn a_section_has_one_link_type_and_one_snap_length() {
    let (_dir, path) = in_dir("out.pcapng");
    let mut files = begun(&FileSettings::new(&path));
    files.interface(&CaptureInterface { snaplen: 96, ..interface("app:1") }).unwrap();
    files.interface(&CaptureInterface { linktype: 101, ..interface("app:2") }).unwrap();
    files.interface(&interface("app:3")).unwrap();
    let ip = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    for (id, number) in [3, 0, 1, 2, 0, 2].into_iter().enumerate() {
        let data = if number == 2 { &ip[..] } else { &[7; 60][..] };
        files.packet(&Packet { interface: number, ..packet(id as u64, data) }).unwrap();
    }
    files.finish().unwrap();
    let mut reader = FileReader::open(&path).unwrap();
    let (mut interfaces, mut names) = (Vec::new(), Vec::new());
    while reader.advance().unwrap() {
        match reader.item().unwrap() {
            FileItem::Section(_) => interfaces.clear(),
            FileItem::Interface(interface) => interfaces.push(interface),
            FileItem::Packet(packet) => {
                names.push(interfaces[packet.interface as usize].name.clone());
            }
            _ => {}
        }
        let kinds = interfaces.iter().map(|one: &CaptureInterface| (one.snaplen, one.linktype));
        assert!(kinds.collect::<std::collections::HashSet<_>>().len() < 2);
    }
    assert_eq!(names, ["app:3", "app:0", "app:1", "app:2", "app:0", "app:2"]);
    if let Some(rows) = fields(&path, &["frame.encap_type"]) {
        assert_eq!(rows, [["1"], ["1"], ["1"], ["7"], ["1"], ["7"]]);
    }
}

#[test]
fn a_pcap_file_leaves_out_what_it_cannot_say() {
    let (_dir, path) = in_dir("out.pcap");
    let format = FileFormat::Pcap { nanos: true };
    let rotation = FileRotation { bytes: Some(100), ..FileRotation::default() };
    let mut files = begun(&FileSettings { format, rotation, ..FileSettings::new(&path) });
    files.interface(&CaptureInterface { linktype: 101, ..interface("app:1") }).unwrap();
    for (id, interface) in [1, 0, 1, 0, 1].into_iter().enumerate() {
        files.packet(&Packet { interface, ..packet(id as u64, &[0x45; 60]) }).unwrap();
    }
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("again:0")).unwrap();
    files.packet(&packet(5, &[0x45; 60])).unwrap();
    let error = files.finish().unwrap_err().to_string();
    assert!(error.contains("without the packets of other link types than 101 (3)"), "{error}");
    assert_eq!((files.progress().written, files.progress().lost), (3, 3));
    for name in ["out.pcap", "out.pcap1"] {
        assert_eq!(fs::read(path.with_file_name(name)).unwrap()[20], 101, "{name}");
    }
}

#[test]
fn a_pcap_file_refuses_packets_beyond_its_snapshot_length() {
    let (_dir, path) = in_dir("out.pcap");
    let format = FileFormat::Pcap { nanos: true };
    let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
    put(&mut files, 0..1, 60);
    let larger = MAX_SNAPLEN + 1;
    files.interface(&CaptureInterface { snaplen: larger, ..interface("app:1") }).unwrap();
    files.packet(&Packet { interface: 1, ..packet(1, &[7; 60]) }).unwrap();
    let data = vec![7; larger as usize];
    let error = files.packet(&Packet { interface: 1, ..packet(2, &data) }).unwrap_err().to_string();
    assert!(error.contains("snapshot length"), "{error}");
}

#[test]
fn a_pcap_file_keeps_the_length_of_what_was_cut() {
    let (_dir, path) = in_dir("out.pcap");
    let format = FileFormat::Pcap { nanos: true };
    let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
    files.packet(&Packet { len: 1500, ..packet(0, &[0; 61]) }).unwrap();
    files.finish().unwrap();
    if let Some(rows) = fields(&path, &["frame.len", "frame.cap_len", "frame.time_epoch"]) {
        assert_eq!(rows, [["1500", "61", "1780000000.000000007"]]);
    }
}

#[test]
fn a_packet_larger_than_a_buffer_is_written() {
    let (_dir, path) = in_dir("out.pcapng");
    let mut files = begun(&FileSettings::new(&path));
    put(&mut files, 0..2, 60);
    put(&mut files, 2..3, 700_000);
    put(&mut files, 3..5, 60);
    files.finish().unwrap();
    assert_eq!(files.progress().written, 5);
    assert_eq!(crate::pcapng::whole(&fs::read(&path).unwrap()).1, 5);
}

#[test]
fn a_pipe_can_be_compressed() {
    for compression in [FileCompression::Gzip, FileCompression::Zstd] {
        let (mut reader, writer) = io::pipe().unwrap();
        let compression = Some(compression);
        let settings = FileSettings { compression, ..FileSettings::default() };
        let file = File::from(OwnedFd::from(writer));
        let mut files = CaptureFiles::onto(file, "pipe", &settings).unwrap();
        files.section(&SectionOrigin::default()).unwrap();
        files.interface(&interface("app:0")).unwrap();
        put(&mut files, 0..100, 60);
        let (_dir, path) = in_dir("out");
        files.finish().unwrap();
        drop(files);
        io::copy(&mut reader, &mut File::create(&path).unwrap()).unwrap();
        assert!(numbers_here(&path).into_iter().eq(0..100), "{compression:?}");
    }
}
