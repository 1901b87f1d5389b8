//! Tests of the options of pcapng blocks that are passed on from file to file.

use pcap_parser::{Block, PcapNGOption, parse_block_be, parse_block_le};

use super::*;
use crate::file::{CaptureFiles, FileSettings};

/// Code and value of each option.
type Options = Vec<(u16, Vec<u8>)>;

fn option(order: ByteOrder, code: u16, value: &[u8]) -> Vec<u8> {
    let mut out =
        [code, value.len() as u16].into_iter().flat_map(|half| order.bytes_of_u16(half)).collect();
    Vec::extend(&mut out, value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn block(order: ByteOrder, kind: u32, fields: &[u8], options: &[(u16, &[u8])]) -> Vec<u8> {
    let options = options.iter().flat_map(|(code, value)| option(order, *code, value));
    let body = [fields, &options.collect::<Vec<_>>(), &[0; 4]].concat();
    let size = order.bytes_of_u32(body.len() as u32 + 12);
    [&order.bytes_of_u32(kind)[..], &size, &body, &size].concat()
}

fn number(order: ByteOrder, number: u64) -> [u8; 8] {
    match order {
        ByteOrder::Little => number.to_le_bytes(),
        ByteOrder::Big => number.to_be_bytes(),
    }
}

/// Returns a file in which every block has all options, some of them several times.
fn rich(order: ByteOrder) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|w| order.bytes_of_u32(*w)).collect::<Vec<_>>();
    let vendor = [&words(&[32_473])[..], b"data"].concat();
    let section =
        [&words(&[0x1a2b_3c4d])[..], &order.bytes_of_u16(1), &order.bytes_of_u16(0), &[0xff; 8]];
    let about: [(u16, &[u8]); 6] = [
        (1, b"section note: ticket 4711"),
        (4, b"Dumpcap"),
        (1, b"second note"),
        (2989, &vendor),
        // Not to be copied.
        (19_373, &vendor),
        (2, b"a CPU"),
    ];
    let interface = [&order.bytes_of_u16(1)[..], &order.bytes_of_u16(0), &words(&[0])].concat();
    let speed = number(order, 25_000_000_000);
    let described: [(u16, &[u8]); 10] = [
        (2, b"eth0"),
        (1, b"if note"),
        (1, b"if note 2"),
        (4, &[10, 0, 0, 1, 255, 0, 0, 0]),
        (6, &[2, 0, 0, 0, 0, 1]),
        (8, &speed),
        // Milliseconds, which become nanoseconds.
        (9, &[3]),
        (11, b"\0udp port 53"),
        (12, b"Linux 6.1"),
        (15, b"a NIC"),
    ];
    let packet = [&words(&[0, 0, 5000, 4, 60])[..], &[1, 2, 3, 4]].concat();
    let id = number(order, 77);
    let told: [(u16, &[u8]); 6] = [
        (1, b"one"),
        (1, b"two"),
        (5, &id),
        (3, &[2, 0xaa, 0xaa, 0xaa, 0xaa]),
        (1, b"three"),
        (2989, &vendor),
    ];
    [
        block(order, 0x0a0d_0d0a, &section.concat(), &about),
        block(order, 1, &interface, &described),
        block(order, 6, &packet, &told),
    ]
    .concat()
}

/// Returns the options of each block, as another parser finds them.
fn found(mut file: &[u8], order: ByteOrder) -> Vec<Options> {
    let known = |options: &[PcapNGOption<'_>]| {
        let value = |o: &PcapNGOption<'_>| (o.code.0, o.value[..o.len.into()].to_vec());
        let mut all = options.iter().map(value).filter(|(code, _)| *code != 0).collect::<Vec<_>>();
        all.sort_by_key(|(code, _)| *code);
        all
    };
    let mut all = Vec::new();
    while !file.is_empty() {
        let parsed = match order {
            ByteOrder::Little => parse_block_le(file),
            ByteOrder::Big => parse_block_be(file),
        };
        let (rest, block) = parsed.unwrap();
        file = rest;
        match block {
            Block::SectionHeader(block) => all.push(known(&block.options)),
            Block::InterfaceDescription(block) => all.push(known(&block.options)),
            Block::EnhancedPacket(block) => all.push(known(&block.options)),
            _ => {}
        }
    }
    all
}

fn rewritten(bytes: Vec<u8>) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pcapng");
    let reader = FileReader::new("test", Cursor::new(bytes)).unwrap();
    let replay = FileReplay::begin(reader, VecDeque::new(), settings(), &RunControl::default());
    let mut files = CaptureFiles::create(&FileSettings::new(&path)).unwrap();
    let report = replay.unwrap().run(&mut files, &mut |_| ());
    assert!(report.failure.is_none(), "{report:?}");
    std::fs::read(path).unwrap()
}

#[test]
fn comments_and_options_of_every_block_are_kept() {
    let text = |code, text: &str| (code, text.as_bytes().to_vec());
    let vendor = (2989, [&32_473_u32.to_ne_bytes()[..], b"data"].concat());
    let section = vec![
        text(1, "section note: ticket 4711"),
        text(1, "second note"),
        text(2, "a CPU"),
        text(4, "Dumpcap"),
        vendor.clone(),
    ];
    let interface = vec![
        text(1, "if note"),
        text(1, "if note 2"),
        text(2, "eth0"),
        (4, vec![10, 0, 0, 1, 255, 0, 0, 0]),
        (6, vec![2, 0, 0, 0, 0, 1]),
        (8, 25_000_000_000_u64.to_ne_bytes().to_vec()),
        (9, vec![9]),
        text(11, "\0udp port 53"),
        text(12, "Linux 6.1"),
        text(15, "a NIC"),
    ];
    let packet = vec![
        text(1, "one"),
        text(1, "two"),
        text(1, "three"),
        (2, vec![0; 4]),
        (3, vec![2, 0xaa, 0xaa, 0xaa, 0xaa]),
        (5, 77_u64.to_ne_bytes().to_vec()),
        vendor,
    ];
    let expected = [section, interface, packet];
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let once = rewritten(rich(order));
        assert_eq!(found(&once, ByteOrder::HOST), expected, "{order:?}");
        // Nothing is lost or added by another time.
        assert_eq!(found(&rewritten(once), ByteOrder::HOST), expected, "{order:?}");
    }
}

proptest! {
    #[test]
    fn broken_options_are_passed_on_as_whole_options_or_not_at_all(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        big: bool,
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut bytes = rich(order);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((notes, _)) = replay(bytes, settings())
            && !notes.blocks.is_empty()
        {
            let (again, report) = replay(notes.blocks.clone(), settings()).unwrap();
            prop_assert!(report.failure.is_none(), "{:?}", report);
            prop_assert_eq!(again.blocks, notes.blocks);
        }
    }
}

#[test]
fn endless_comments_are_passed_on_up_to_a_limit() {
    let comment = vec![b'x'; 60_000];
    let comments = [(1, &comment[..]); 20];
    let mut file = rich(ByteOrder::Little);
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    let packet = [&words(&[0, 0, 6000, 4, 60])[..], &[1, 2, 3, 4]].concat();
    file.extend(block(ByteOrder::Little, 6, &packet, &comments));
    let written = rewritten(file);
    assert!(written.len() > 60_000 && written.len() < 400_000, "{}", written.len());
}

#[test]
fn statistics_of_an_interface_that_is_not_there_end_nothing() {
    let order = ByteOrder::Little;
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    let unknown = block(order, 5, &words(&[9, 0, 5000]), &[(5, &[7; 8])]);
    let file = [sample(), unknown, sample()].concat();
    let (notes, report) = replay(file, settings()).unwrap();
    assert!(report.failure.is_none(), "{report:?}");
    assert_eq!(packets(&notes).len(), 8);
}

#[test]
fn lengths_of_old_versions_of_pcap_are_in_another_order() {
    for (version, lengths, is_read) in [
        ([2, 2], [100, 43], true),
        ([2, 1], [100, 43], true),
        ([2, 3], [100, 43], true),
        ([2, 3], [43, 100], true),
        ([2, 4], [43, 100], true),
        ([2, 4], [100, 43], false),
    ] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let word = |word: u32| order.bytes_of_u32(word);
            let mut file = word(0xa1b2_c3d4).to_vec();
            file.extend(version.into_iter().flat_map(|number| order.bytes_of_u16(number)));
            file.extend([0, 0, 65_535, 1].into_iter().flat_map(word));
            for seconds in [7, 8] {
                file.extend([seconds, 500, lengths[0], lengths[1]].into_iter().flat_map(word));
                file.extend(frame(53));
            }
            let (notes, report) = replay(file, settings()).unwrap();
            assert_eq!(report.failure.is_none(), is_read, "{version:?} {lengths:?} {report:?}");
            if is_read {
                assert_eq!(notes.lines[2], "packet 0 on 0 at 7000500000: 43/100 0 None -0 ");
                assert_eq!(packets(&notes).len(), 2);
            }
        }
    }
}

#[test]
fn several_interfaces_are_known_before_the_first_packet() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, interfaces: &[&str]| {
        let mut bytes = Vec::new();
        for name in interfaces {
            write_section(&mut bytes, &SectionOrigin::default());
            write_interface(&mut bytes, &interface(name));
        }
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        CaptureFile::from(path)
    };
    let several =
        |files: &[CaptureFile]| have_several_interfaces(files, &std::sync::Arc::default());
    let (one, again) = (file("one", &["eth0"]), file("again", &["eth0", "eth0", ""]));
    assert!(!several(std::slice::from_ref(&one)));
    assert!(!several(&[one.clone(), again.clone()]));
    assert!(several(&[file("two", &["eth0", "eth1"])]));
    assert!(several(&[one, file("other", &["eth1"])]));
    // A file that is broken, or missing, is no reason.
    std::fs::write(&again.path, "broken").unwrap();
    assert!(!several(&[again, CaptureFile::from(dir.path().join("missing"))]));
}
