//! Core files that are generated here; those of the kernel are read in the end-to-end tests.

use std::io::Write;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::memory::read_u64;

/// `struct Elf64_Phdr` of a piece of memory.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    bytes: u64,
    in_file: u64,
    flags: u32,
}

const RW: u32 = PF_R | PF_W;

/// A core file of pieces whose words contain their own addresses, and of these files.
fn core(pieces: &[Piece], files: &[(u64, u64, &str)], kind: u16) -> NamedTempFile {
    let note = file_note(files);
    let headers = 64 + 56 * (pieces.len() as u64 + 1);
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    bytes.resize(16, 0);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(object::elf::EM_X86_64.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0, 64, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
    bytes.extend(0_u32.to_le_bytes());
    let counts = [64, 56, u16::try_from(pieces.len() + 1).unwrap(), 64, 0, 0];
    bytes.extend(counts.iter().flat_map(|half: &u16| half.to_le_bytes()));
    let mut program = |kind: u32, flags: u32, words: [u64; 6]| {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    program(PT_NOTE, 0, [headers, 0, 0, note.len() as u64, 0, 4]);
    let mut offset = headers + note.len() as u64;
    for piece in pieces {
        let Piece { start, bytes, in_file, flags } = *piece;
        program(PT_LOAD, flags, [offset, start, 0, in_file, bytes, 4096]);
        offset += in_file;
    }
    bytes.extend(note);
    for piece in pieces {
        let words = (0..piece.in_file / 8).map(|word| piece.start + word * 8);
        bytes.extend(words.flat_map(u64::to_le_bytes));
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    file
}

fn file_note(files: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut words = vec![files.len() as u64, 4096];
    words.extend(files.iter().flat_map(|(start, end, _)| [*start, *end, 0]));
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.extend(files.iter().flat_map(|(_, _, path)| path.bytes().chain([0])));
    let header = [5, u32::try_from(body.len()).unwrap(), object::elf::NT_FILE];
    let mut note: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    note.extend(b"CORE\0\0\0\0");
    note.extend(body);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

const HUGE: &str = "/dev/hugepages/rtemap_0";

fn pieces() -> Vec<Piece> {
    let piece = |start, bytes, in_file, flags| Piece { start, bytes, in_file, flags };
    vec![
        piece(0x1000, 0x1000, 0x1000, RW),
        piece(0x2000, 0x1000, 0x1000, PF_R),
        piece(0x10_0000, 0x20_0000, 0, RW),
        piece(0x80_0000, 0x20_0000, 0, RW),
        piece(0x100_0000, 0x1000, 0, PF_R | PF_X),
        piece(0x200_0000, 0x1000, 0, RW),
    ]
}

fn files() -> Vec<(u64, u64, &'static str)> {
    vec![
        (0x10_0000, 0x30_0000, HUGE),
        (0x80_0000, 0xa0_0000, "/memfd:nohuge (deleted)"),
        (0x200_0000, 0x200_1000, "/dev/vfio/12"),
    ]
}

#[test]
fn memory_is_read_across_segments_and_what_is_not_there_is_an_error() {
    let file = core(&pieces(), &files(), ET_CORE);
    let memory = CoreMemory::open(file.path()).unwrap();
    let mut buffer = [0; 16];
    memory.read(0x1ff8, &mut buffer).unwrap();
    assert_eq!(buffer, *[0x1ff8_u64.to_le_bytes(), 0x2000_u64.to_le_bytes()].concat());
    assert!(matches!(read_u64(&memory, 0x2ffc), Err(XrayError::NotMapped { address: 0x2ffc, .. })));
    assert!(matches!(read_u64(&memory, 0), Err(XrayError::NotMapped { .. })));
    assert!(matches!(read_u64(&memory, 0x10_0008), Err(XrayError::NotMapped { .. })));
}

#[test]
fn maps_have_their_files_and_missing_ones_their_bits() {
    let file = core(&pieces(), &files(), ET_CORE);
    let memory = CoreMemory::open(file.path()).unwrap();
    let maps = memory.maps().unwrap();
    assert_eq!(maps.len(), 6);
    assert_eq!((maps[2].path.as_str(), maps[2].shared, maps[2].writable), (HUGE, true, true));
    assert!(!maps[1].writable && maps[4].executable && !maps[0].shared);
    // Neither code nor device registers count as missing.
    let missing = |kind, filter_bit| MissingMemory { kind, filter_bit, bytes: 0x20_0000 };
    assert_eq!(memory.missing(), [missing("shared anonymous memory", 1), missing("hugepages", 6)]);
    assert_eq!(memory.truncated_bytes(), 0);
    let presence = memory.present((0x1800..0x30_0000).into()).unwrap();
    let parts = [0x1800..0x2000, 0x2000..0x3000].map(AddressRange::from);
    assert_eq!(presence.parts, parts);
}

#[test]
fn anonymous_memory_is_there_or_missing_as_a_whole() {
    let untouched = Piece { start: 0x9000, bytes: 0x1000, in_file: 0, flags: RW };
    let missing =
        |pieces: &[Piece]| CoreMemory::open(core(pieces, &[], ET_CORE).path()).unwrap().missing();
    assert_eq!(missing(&[pieces()[0], untouched]), []);
    let all = MissingMemory { kind: "anonymous memory", filter_bit: 0, bytes: 0x1000 };
    assert_eq!(missing(&[pieces()[1], untouched]), [all]);
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let why = |path: &Path| CoreMemory::open(path).unwrap_err().to_string();
    let mut text = NamedTempFile::new().unwrap();
    text.write_all(&[0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    assert!(why(text.path()).contains("zstd -d"), "{}", why(text.path()));
    let program = core(&pieces(), &[], object::elf::ET_DYN);
    assert!(why(program.path()).contains("not a core file"));
    assert!(why(core(&[], &[], ET_CORE).path()).contains("no memory"));
    let overlapping = [pieces()[0], pieces()[0]];
    assert!(why(core(&overlapping, &[], ET_CORE).path()).contains("overlap"));
    assert!(why(Path::new("/nonexistent")).starts_with("cannot read /nonexistent"));
}

#[test]
fn a_file_that_was_cut_says_so() {
    let file = core(&pieces()[..2], &[], ET_CORE);
    let length = file.as_file().metadata().unwrap().len();
    file.as_file().set_len(length - 0x800).unwrap();
    let memory = CoreMemory::open(file.path()).unwrap();
    assert_eq!(memory.truncated_bytes(), 0x800);
    assert_eq!(read_u64(&memory, 0x1008).unwrap(), 0x1008);
    assert!(read_u64(&memory, 0x2ff0).unwrap_err().to_string().contains("which was cut"));
}

/// The headers place a piece of memory, or a mapped file, at the end of the number range.
#[test]
fn places_beyond_all_files_are_an_error() {
    let file = core(&pieces()[..1], &[(0, 0x2000, HUGE)], ET_CORE);
    // The number of the page in the file, then the offset of the piece.
    file.as_file().write_all_at(&(u64::MAX / 4096).to_le_bytes(), 64 + 2 * 56 + 20 + 32).unwrap();
    let memory = CoreMemory::open(file.path()).unwrap();
    assert_eq!(memory.maps().unwrap()[0].offset, u64::MAX);
    file.as_file().write_all_at(&(u64::MAX / 2 - 0xfff).to_le_bytes(), 64 + 56 + 8).unwrap();
    let memory = CoreMemory::open(file.path()).unwrap();
    assert!(memory.truncated_bytes() > 0);
    for address in [0x1000, 0x1800, 0x1ff8] {
        assert!(read_u64(&memory, address).unwrap_err().to_string().contains("which was cut"));
    }
}

#[test]
fn what_no_core_file_has_is_refused_with_the_reason() {
    let why = |path: &Path| CoreMemory::open(path).unwrap_err().to_string();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(why(&pipe).contains("not a regular file"));
    // All memory is in the same bytes of the file.
    let twice = core(&pieces()[..2], &[], ET_CORE);
    let first_offset = 64 + 56 + 8;
    let mut offset = [0; 8];
    twice.as_file().read_exact_at(&mut offset, first_offset).unwrap();
    twice.as_file().write_all_at(&offset, first_offset + 56).unwrap();
    assert!(why(twice.path()).contains("share bytes"), "{}", why(twice.path()));
    // A note as long as the rest of the file, which is a hole.
    let long = core(&pieces()[..1], &[], ET_CORE);
    long.as_file().write_all_at(&(1_u64 << 40).to_le_bytes(), 64 + 32).unwrap();
    long.as_file().set_len(1 << 41).unwrap();
    assert!(why(long.path()).contains("of notes"), "{}", why(long.path()));
    // Four billion program headers: the number is in the first section header.
    let many = core(&pieces()[..1], &[], ET_CORE);
    many.as_file().write_all_at(&[0xff, 0xff], 56).unwrap();
    many.as_file().write_all_at(&(1_u64 << 20).to_le_bytes(), 40).unwrap();
    many.as_file().write_all_at(&u32::MAX.to_le_bytes(), (1 << 20) + 44).unwrap();
    many.as_file().set_len(1 << 41).unwrap();
    assert!(why(many.path()).contains("headers"), "{}", why(many.path()));
}

/// Addresses and lengths that meet at both ends of the number range.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..0x4000_u64,
        u64::MAX - 0x10_0000..=u64::MAX,
        (0..16_u64).prop_map(|page| u64::MAX - 0xfff - page * 0x1000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Runs the whole of X-ray over the file, which has no memory worth the name: it ends at once.
    #[test]
    fn hostile_headers_end_in_a_report_or_an_error(
        segments in vec((any_number(), any_number(), any_number(), any_number(), 0..8_u32), 1..6),
        hole in 0..40_u32,
    ) {
        let pieces = vec![Piece { start: 0x1000, bytes: 0x1000, in_file: 0x1000, flags: RW }; segments.len()];
        let file = core(&pieces, &[(0x1000, 0x2000, HUGE), (u64::MAX - 0xfff, u64::MAX, HUGE)], ET_CORE);
        for (place, (offset, start, in_file, bytes, flags)) in (1..).zip(segments) {
            let header = 64 + 56 * place;
            file.as_file().write_all_at(&flags.to_le_bytes(), header + 4).unwrap();
            let words = [(8, offset), (16, start), (32, in_file), (40, bytes)];
            for (at, word) in words {
                file.as_file().write_all_at(&word.to_le_bytes(), header + at).unwrap();
            }
        }
        let length = file.as_file().metadata().unwrap().len();
        file.as_file().set_len(length + (1 << hole)).unwrap();
        let Ok(memory) = CoreMemory::open(file.path()) else { return Ok(()) };
        for mapping in memory.maps().unwrap() {
            let range = AddressRange::from(&mapping);
            for part in memory.present(range).unwrap_or_default().parts {
                prop_assert!(range.contains_all(&part));
            }
            let _ = memory.read(mapping.start, &mut [0; 64]);
            let _ = memory.read(mapping.end - 1, &mut [0; 64]);
        }
        let _ = memory.missing();
        prop_assert!(crate::XrayTarget::open_memory(Arc::new(memory)).is_err());
    }
}
