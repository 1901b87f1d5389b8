//! Whole captures into files, judged by the tools that people read them with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use super::*;
use crate::layout::{DIR_RX, MAX_SNAPLEN};
use crate::packet::ETHERNET;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_780_000_000 * SECOND;

fn interface(name: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        description: "net_null0".to_owned(),
        filter: String::new(),
        comment: String::new(),
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
        dropped: 0,
        id,
        comment: "",
    }
}

/// A target with one interface.
fn begun(settings: &FileSettings) -> Files {
    let mut files = Files::create(settings).unwrap();
    files.section(&Origin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    files
}

fn put(files: &mut Files, ids: std::ops::Range<u64>, size: usize) {
    let mut data = vec![0; size];
    for id in ids {
        data[..8].copy_from_slice(&id.to_be_bytes());
        files.packet(&packet(id, &data)).unwrap();
    }
}

/// What a tool says, or nothing (said aloud) when it is not installed.
fn run(tool: &str, args: &[&str], file: &Path) -> Option<Output> {
    match Command::new(tool).args(args).arg(file).env("TZ", "UTC").output() {
        Ok(out) => Some(out),
        Err(error) => {
            eprintln!("SKIP: {tool}: {error}");
            None
        }
    }
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Values of fields as tshark reads them, one row per packet.
fn fields(file: &Path, names: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut args = vec!["-T", "fields"];
    args.extend(names.iter().flat_map(|name| ["-e", name]));
    args.push("-r");
    let out = run("tshark", &args, file)?;
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text(&out).lines().map(row).collect())
}

/// The first eight bytes of every packet, as [`put`] numbers them.
fn numbers(file: &Path) -> Option<Vec<u64>> {
    let rows = fields(file, &["eth.dst", "eth.src"])?;
    let number = |row: &Vec<String>| {
        let hex = format!("{}{}", row[0], &row[1][..5]).replace(':', "");
        u64::from_str_radix(&hex, 16).unwrap()
    };
    Some(rows.iter().map(number).collect())
}

#[allow(dead_code)]
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

/// Waits for something that a thread or another process is about to do.
#[allow(dead_code)]
fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_format_and_compression_is_read_back_whole() {
    let formats = [Format::Pcapng, Format::Pcap { nanos: true }, Format::Pcap { nanos: false }];
    for format in formats {
        for extension in ["", ".gz", ".zst"] {
            let (_dir, path) = in_dir(&format!("out.pcap{extension}"));
            let settings = FileSettings { format, ..FileSettings::new(&path) };
            let mut files = begun(&settings);
            put(&mut files, 0..3000, 100);
            files.flush().unwrap();
            put(&mut files, 3000..5000, 100);
            files.finish().unwrap();
            let progress = files.progress();
            assert_eq!((progress.written, progress.lost, progress.files), (5000, 0, 1));
            assert_eq!(progress.bytes, fs::metadata(&path).unwrap().len());
            if let Some(numbers) = numbers(&path) {
                assert!(numbers.into_iter().eq(0..5000), "{format:?} {extension}");
            }
            if let Some(out) = run("capinfos", &["-M", "-c", "-l"], &path) {
                assert!(out.status.success() && text(&out).contains("5000"), "{}", text(&out));
            }
            if extension.is_empty()
                && let Some(out) = run("tcpdump", &["-tt", "--nano", "-nr"], &path)
            {
                let end = if format == (Format::Pcap { nanos: false }) { "000" } else { "007" };
                let first = format!("1780000000.000000{end} ");
                assert!(text(&out).starts_with(&first), "{}", text(&out));
                assert_eq!(text(&out).matches("1780000000.").count(), 5000);
            }
        }
    }
}
