use std::collections::VecDeque;
use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;
use pmdscope_testing::output;
use proptest::prelude::*;

use super::*;
use crate::control::RunControl;
use crate::packet::{
    CaptureInterface, DIR_RX, DIR_TX, ETHERNET, InterfaceStatistics, MAX_SNAPLEN, Packet,
    SectionOrigin,
};
use crate::pcapng::{write_interface, write_packet, write_section, write_statistics};
use crate::sink::{NullSink, PacketSink, SinkError, SinkProgress};

mod filters;
mod merged;
mod options;

const NS: u64 = 1_780_000_000_123_456_789;

fn settings() -> ReplaySettings {
    ReplaySettings {
        filter: String::new(),
        optimize: true,
        dirs: DIR_RX | DIR_TX,
        snaplen: MAX_SNAPLEN,
        skip: 0,
        count: None,
    }
}

fn interface(name: &str) -> CaptureInterface {
    CaptureInterface {
        name: name.into(),
        description: "net_null0".into(),
        filter: "not arp".into(),
        comment: "of a test".into(),
        options: Vec::new(),
        snaplen: 1000,
        linktype: ETHERNET,
    }
}

fn frame(port: u8) -> Vec<u8> {
    let mut frame = vec![0; 43];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[23], frame[37]) = (0x45, 17, port);
    frame
}

/// Returns two sections: the first has two interfaces and three packets, the second one of each.
fn sample() -> Vec<u8> {
    let mut out = Vec::new();
    let origin = |application: &str| SectionOrigin {
        hardware: "a CPU".into(),
        os: "Linux".into(),
        application: application.into(),
        options: Vec::new(),
    };
    write_section(&mut out, &origin("first"));
    write_interface(&mut out, &interface("rte:0"));
    write_interface(&mut out, &interface("rte:1"));
    let data = frame(53);
    let first = Packet {
        interface: 1,
        ns: NS,
        data: &data,
        len: 1500,
        dir: DIR_TX,
        queue: Some(3),
        lcore: None,
        weight: 1,
        dropped: 7,
        id: 41,
        comment: "look here",
        options: &[],
    };
    write_packet(&mut out, &first);
    let data = frame(80);
    let rest = Packet { data: &data, comment: "", dropped: 0, queue: None, dir: DIR_RX, ..first };
    write_packet(&mut out, &Packet { interface: 0, ns: NS + 1, id: 42, ..rest });
    write_packet(&mut out, &Packet { ns: NS + 2, id: 43, dir: 0, ..rest });
    let counted = InterfaceStatistics {
        interface: 1,
        start_ns: NS - 5,
        end_ns: NS + 5,
        received: Some(100),
        dropped: Some(7),
        accepted: None,
        delivered: 2,
    };
    write_statistics(&mut out, &counted);
    write_section(&mut out, &origin("second"));
    write_interface(&mut out, &interface("rte:0"));
    write_packet(&mut out, &Packet { interface: 0, ns: NS + 3, id: 44, ..rest });
    out
}

/// A sink that records its calls.
#[derive(Debug, Default)]
struct Notes {
    blocks: Vec<u8>,
    lines: Vec<String>,
}

impl PacketSink for Notes {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        write_section(&mut self.blocks, origin);
        self.lines.push(format!("section {}", origin.application));
        Ok(())
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        write_interface(&mut self.blocks, interface);
        let CaptureInterface { name, filter, snaplen, linktype, .. } = interface;
        self.lines.push(format!("interface {name} [{filter}] {snaplen} {linktype}"));
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        write_packet(&mut self.blocks, packet);
        let Packet { interface, ns, data, len, dir, queue, dropped, id, comment, .. } = packet;
        self.lines.push(format!(
            "packet {id} on {interface} at {ns}: {}/{len} {dir} {queue:?} -{dropped} {comment}",
            data.len()
        ));
        Ok(())
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        for counted in statistics {
            write_statistics(&mut self.blocks, counted);
            let InterfaceStatistics { interface, received, dropped, delivered, .. } = counted;
            self.lines.push(format!("counted {interface}: {received:?} {dropped:?} {delivered}"));
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> SinkProgress {
        SinkProgress::default()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn replay(bytes: Vec<u8>, settings: ReplaySettings) -> Result<(Notes, ReplayReport), ReplayError> {
    let reader = FileReader::new("test", Cursor::new(bytes))?;
    let replay = FileReplay::begin(reader, VecDeque::new(), settings, &RunControl::default())?;
    let mut notes = Notes::default();
    let report = replay.run(&mut notes, &mut |_| ());
    Ok((notes, report))
}

fn packets(notes: &Notes) -> Vec<&str> {
    let packets = notes.lines.iter().filter_map(|line| line.strip_prefix("packet "));
    packets.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn every_known_field_is_preserved() {
    let (notes, report) = replay(sample(), settings()).unwrap();
    assert!(report.failure.is_none() && report.read == 4 && report.captured == 4);
    let expected = [
        "section first",
        "interface rte:0 [not arp] 1000 1",
        "interface rte:1 [not arp] 1000 1",
        "packet 41 on 1 at 1780000000123456789: 43/1500 2 Some(3) -7 look here",
        "packet 42 on 0 at 1780000000123456790: 43/1500 1 None -0 ",
        "packet 43 on 1 at 1780000000123456791: 43/1500 0 None -0 ",
        "counted 0: None None 1",
        "counted 1: Some(100) Some(7) 2",
        "section second",
        "interface rte:0 [not arp] 1000 1",
        "packet 44 on 0 at 1780000000123456792: 43/1500 1 None -0 ",
        "counted 0: None None 1",
    ];
    assert_eq!(notes.lines, expected);
    let (again, _) = replay(notes.blocks, settings()).unwrap();
    assert_eq!(again.lines, expected);
}

#[test]
fn packets_are_chosen_by_filter_direction_and_number() {
    let chosen = |change: &dyn Fn(&mut ReplaySettings)| {
        let mut settings = settings();
        change(&mut settings);
        let (notes, report) = replay(sample(), settings).unwrap();
        assert!(report.failure.is_none());
        packets(&notes).join(" ")
    };
    assert_eq!(chosen(&|s| s.filter = "udp port 53".into()), "41");
    assert_eq!(chosen(&|s| s.filter = "greater 1500".into()), "41 42 43 44");
    assert_eq!(chosen(&|s| s.dirs = DIR_RX), "42 44");
    assert_eq!(chosen(&|s| s.dirs = DIR_TX), "41");
    assert_eq!(chosen(&|s| s.count = Some(2)), "41 42");
    assert_eq!(chosen(&|s| (s.skip, s.count) = (1, Some(2))), "42 43");
    assert_eq!(chosen(&|s| s.filter = "tcp".into()), "");
}

#[test]
fn a_filter_and_a_snap_length_are_noted_on_the_interface() {
    let settings = ReplaySettings { filter: "udp".into(), snaplen: 20, ..settings() };
    let (notes, _) = replay(sample(), settings).unwrap();
    assert_eq!(notes.lines[1], "interface rte:0 [(not arp) and (udp)] 20 1");
    assert!(notes.lines[3].contains(": 20/1500 "), "{}", notes.lines[3]);
}

#[test]
fn a_wrong_filter_is_an_error_before_anything_is_written() {
    let settings = ReplaySettings { filter: "udp prot".into(), ..settings() };
    assert!(matches!(replay(sample(), settings), Err(ReplayError::Filter(_))));
}

/// Returns a pcap file of any byte order and resolution, with two packets.
fn pcap(big: bool, nanos: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut word = |value: u32| {
        out.extend_from_slice(&if big { value.to_be_bytes() } else { value.to_le_bytes() });
    };
    word(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
    word(if big { 0x0002_0004 } else { 0x0004_0002 });
    for value in [0, 0, 65535, 1] {
        word(value);
    }
    let data = frame(53);
    for second in [7, 8] {
        for value in [second, 500, data.len() as u32, 100] {
            out.extend_from_slice(&if big { value.to_be_bytes() } else { value.to_le_bytes() });
        }
        out.extend_from_slice(&data);
    }
    out
}

#[test]
fn pcap_is_read_in_every_variant() {
    for (big, nanos) in [(false, false), (false, true), (true, false), (true, true)] {
        let (notes, report) = replay(pcap(big, nanos), settings()).unwrap();
        assert!(report.failure.is_none(), "{report:?}");
        let fraction = if nanos { "000000500" } else { "000500000" };
        assert_eq!(notes.lines[..2], ["section ", "interface  [] 65535 1"]);
        assert_eq!(notes.lines[2], format!("packet 0 on 0 at 7{fraction}: 43/100 0 None -0 "));
        assert_eq!(notes.lines[3], format!("packet 1 on 0 at 8{fraction}: 43/100 0 None -0 "));
    }
}

#[test]
fn the_variant_of_pcap_with_longer_records_is_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let word = |word: u32| order.bytes_of_u32(word);
        let mut file = word(0xa1b2_cd34).to_vec();
        file.extend([2, 4].into_iter().flat_map(|number| order.bytes_of_u16(number)));
        file.extend([0, 0, 65_535, 1].into_iter().flat_map(word));
        for seconds in [7, 8] {
            // Interface 3, IPv4, sent.
            file.extend([seconds, 500, 43, 100, 3].into_iter().flat_map(word));
            file.extend(order.bytes_of_u16(0x0800));
            file.extend([4, 0]);
            file.extend(frame(53));
        }
        let filter = "udp port 53".to_owned();
        let (notes, report) =
            replay(file.clone(), ReplaySettings { filter, ..settings() }).unwrap();
        assert!(report.failure.is_none(), "{report:?}");
        assert_eq!(notes.lines[2], "packet 0 on 0 at 7000500000: 43/100 0 None -0 ");
        assert_eq!(notes.lines[3], "packet 1 on 0 at 8000500000: 43/100 0 None -0 ");
        file.truncate(file.len() - 1);
        let (notes, report) = replay(file.clone(), settings()).unwrap();
        assert_eq!((packets(&notes).len(), report.failure.is_some()), (1, true));

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.pcap");
        std::fs::write(&path, &file).unwrap();
        let mut tcpdump = Command::new("tcpdump");
        let Some(out) = output(tcpdump.args(["-tt", "-r"]).arg(&path)) else { return };
        assert!(String::from_utf8_lossy(&out.stdout).starts_with("7.000500 "), "{out:?}");
    }
}

fn big_endian_block(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u32 + 12).to_be_bytes();
    [&kind.to_be_bytes()[..], &size, body, &size].concat()
}

#[test]
fn big_endian_pcapng_with_coarse_times_and_old_blocks_is_read() {
    let section = [&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat();
    // Units of 2^-10 seconds, and an offset of 100 seconds.
    let options = [&[0, 9, 0, 1, 0x8a, 0, 0, 0, 0, 14, 0, 8][..], &100u64.to_be_bytes(), &[0; 4]];
    let interface = [&[0, 1, 0, 0, 0, 0, 0, 64][..], &options.concat()].concat();
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
    let queue = [0, 6, 0, 4, 0, 0, 0, 9, 0, 0, 0, 0];
    let packet = [&words(&[0, 0, 1024 + 512, 3, 60])[..], &[1, 2, 3, 0], &queue].concat();
    let old = [&[0, 0, 0, 5][..], &words(&[0, 2048, 2, 2]), &[1, 2, 0, 0]].concat();
    let simple = [&words(&[5])[..], &[1, 2, 3, 4, 5, 0, 0, 0]].concat();
    let file = [(0x0a0d_0d0a, section), (1, interface), (99, vec![7; 400]), (6, packet), (2, old)];
    let mut bytes = file.map(|(kind, body)| big_endian_block(kind, &body)).concat();
    bytes.extend(big_endian_block(3, &simple));
    let (notes, report) = replay(bytes, settings()).unwrap();
    assert!(report.failure.is_none(), "{report:?}");
    assert_eq!(notes.lines[2], "packet 0 on 0 at 101500000000: 3/60 0 Some(9) -0 ");
    assert_eq!(notes.lines[3], "packet 1 on 0 at 102000000000: 2/2 0 None -5 ");
    assert_eq!(notes.lines[4], "packet 2 on 0 at 0: 5/5 0 None -0 ");
}

#[test]
fn compressed_files_are_read_whole_and_up_to_where_they_are_cut() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&sample()).unwrap();
    let zstandard = zstd::encode_all(&sample()[..], 3).unwrap();
    let mut lz4 = FrameEncoder::new(Vec::new());
    lz4.write_all(&sample()).unwrap();
    for file in [gzip.finish().unwrap(), zstandard, lz4.finish().unwrap()] {
        let (notes, report) = replay(file.clone(), settings()).unwrap();
        assert!(report.failure.is_none() && packets(&notes).len() == 4, "{report:?}");
        let twice = [file.clone(), file.clone()].concat();
        assert_eq!(packets(&replay(twice, settings()).unwrap().0).len(), 8);
        let cut = file[..file.len() - 12].to_vec();
        if let Ok((_, report)) = replay(cut, settings()) {
            assert!(matches!(report.failure, Some(ReplayError::Read(_))), "{report:?}");
        }
    }
}

#[test]
fn a_file_of_another_format_is_an_error_that_says_so() {
    let error = |bytes: &[u8]| replay(bytes.to_vec(), settings()).unwrap_err().to_string();
    assert_eq!(error(b""), "test is empty: not even the header of a capture file is there");
    assert!(error(b"hello, world").starts_with("test is not a capture file"));
    let missing = FileReplay::open(["/nowhere/in.pcap".into()], settings(), &RunControl::default())
        .unwrap_err();
    assert_eq!(missing.to_string(), "cannot read /nowhere/in.pcap");
    let mut sections = [0x0a, 0x0d, 0x0d, 0x0a, 0xfc, 0xff, 0xff, 0xff].to_vec();
    sections.extend([0x4d, 0x3c, 0x2b, 0x1a]);
    let (_, report) = replay(sections, settings()).unwrap();
    let broken = report.failure.unwrap().to_string();
    assert_eq!(
        broken,
        "test is broken: a block claims to have 4294967292 bytes; packets before that: 0"
    );
}

#[test]
fn tcpdump_reads_the_same_packets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.pcapng");
    std::fs::write(&path, sample()).unwrap();
    // One section only: tcpdump stops at the second.
    for filter in ["", "udp port 53", "udp port 80", "len < 100"] {
        let mut tcpdump = Command::new("tcpdump");
        let Some(out) = output(tcpdump.args(["--count", "-r"]).arg(&path).arg(filter)) else {
            return;
        };
        let count = String::from_utf8(out.stdout).unwrap();
        let chosen = ReplaySettings { filter: filter.into(), ..settings() };
        let replay = FileReplay::open([path.clone()], chosen, &RunControl::default()).unwrap();
        let report = replay.run(&mut NullSink::default(), &mut |_| ());
        let noun = if report.captured == 1 { "packet" } else { "packets" };
        assert_eq!(count.trim(), format!("{} {noun}", report.captured), "{filter}");
    }
}

#[test]
fn the_bytes_that_were_read_are_those_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let compressed = zstd::encode_all(&sample()[..], 1).unwrap();
    std::fs::write(dir.path().join("a.pcapng"), sample()).unwrap();
    std::fs::write(dir.path().join("b.pcapng.zst"), &compressed).unwrap();
    let sizes = [compressed.len() as u64, (sample().len() + compressed.len()) as u64];
    for (path, size) in [dir.path().join("b.pcapng.zst"), dir.path().to_owned()].iter().zip(sizes) {
        let control = RunControl::default();
        let replay = FileReplay::open([path.clone()], settings(), &control).unwrap();
        replay.run(&mut NullSink::default(), &mut |_| ());
        let file = CaptureFile::from(path.clone());
        let read = control.bytes_read.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((file.disk_bytes(), read), (Some(size), size), "{}", path.display());
    }
    assert_eq!(CaptureFile::from(PathBuf::from("-")).disk_bytes(), None);
    assert_eq!(CaptureFile::from(PathBuf::from("/dev/null")).disk_bytes(), None);
}

proptest! {
    #[test]
    fn a_cut_file_gives_its_whole_packets(cut in 0..sample().len()) {
        let whole = replay(sample(), settings()).unwrap().0;
        if let Ok((notes, report)) = replay(sample()[..cut].to_vec(), settings()) {
            let (found, all) = (packets(&notes), packets(&whole));
            prop_assert_eq!(&found[..], &all[..found.len()]);
            prop_assert_eq!(report.read, found.len() as u64);
        } else {
            prop_assert!(cut < 4);
        }
    }

    #[test]
    fn broken_files_are_errors(
        changes in proptest::collection::vec((0..sample().len(), any::<u8>()), 1..20),
    ) {
        let mut bytes = sample();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = replay(bytes, settings());
    }

    #[test]
    fn broken_pcap_is_an_error(
        changes in proptest::collection::vec((0..100_usize, any::<u8>()), 1..10),
        big in any::<bool>(),
    ) {
        let mut bytes = pcap(big, true);
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = replay(bytes, settings());
    }

    #[test]
    fn any_bytes_behind_a_section_are_blocks_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0..7_u32,
        size in 0..40_u32,
    ) {
        let mut file = Vec::new();
        write_section(&mut file, &SectionOrigin::default());
        write_interface(&mut file, &interface("rte:0"));
        let block = [&kind.to_ne_bytes()[..], &(size * 4).to_ne_bytes(), &bytes].concat();
        file.extend(block);
        let _ = replay(file, settings());
    }
}
