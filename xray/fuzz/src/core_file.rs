//! A core file with arbitrary content.

use std::sync::Arc;

use pmdscope_xray::{AddressRange, CoreMemory, Memory};

use crate::input_file::InputFile;
use crate::made_up_app::{self, Handler, Region};
use crate::memory::{Found, read_all};
use crate::patches::Patch;

/// Types of program headers and of notes.
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_FILE: u32 = 0x4649_4c45;

const HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
/// `ET_CORE`, and `EM_X86_64`.
const CORE: u16 = 4;
const X86_64: u16 = 62;

/// The first byte selects the rest: 0 for all bytes of the file, otherwise changes of the core file
/// of a made-up app, limited to its headers and notes if the byte is odd.
pub fn core(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let bytes = match kind {
        0 => rest.to_vec(),
        kind => patched(kind % 2 != 0, rest),
    };
    read(&bytes);
}

fn patched(only_headers: bool, input: &[u8]) -> Vec<u8> {
    let (mut bytes, headers) = made_up_core();
    let words = if only_headers { headers } else { bytes.len() } / 4;
    for patch in Patch::all(input) {
        let begin = patch.place % words * 4;
        let address = |place: usize| made_up_app::HUGE + place as u64 * 4;
        for (byte, value) in bytes[begin..].iter_mut().zip(patch.bytes(address)) {
            *byte = value;
        }
    }
    bytes
}

/// Result of reading a core file, if it is one.
fn read(bytes: &[u8]) -> Option<Found> {
    let file = InputFile::new(bytes).ok()?;
    let core = CoreMemory::open(file.path()).ok()?;
    check(&core);
    Some(read_all(Arc::new(core)))
}

/// Mappings do not overlap, and memory that the headers list can be read, unless the file was cut.
fn check(core: &CoreMemory) {
    let maps = core.maps().unwrap_or_default();
    assert!(maps.is_sorted_by(|one, next| one.end <= next.start), "{maps:?}");
    for mapping in &maps {
        assert!(mapping.start < mapping.end, "{mapping:?}");
        let range = AddressRange::from(mapping);
        let pieces = core.present(range).unwrap_or_default().parts;
        assert!(pieces.is_sorted_by(|one, next| one.end() <= next.start()), "{pieces:?}");
        for piece in pieces {
            let is_inside = range.contains_all(&piece) && !piece.is_empty();
            assert!(is_inside, "{piece:?} of {mapping:?}");
            let read = core.read(piece.end() - 1, &mut [0]);
            assert!(read.is_ok() || core.truncated_bytes() > 0, "{piece:?}: {read:?}");
        }
    }
    let _ = (core.pid(), core.command(), core.missing());
    assert_eq!(Memory::threads(core).len(), core.threads().len());
}

/// The core file of the made-up app, and the end of its headers and notes.
fn made_up_core() -> (Vec<u8>, usize) {
    core_of(&made_up_app::regions(Handler::Ring))
}

fn core_of(regions: &[Region]) -> (Vec<u8>, usize) {
    let notes = notes(regions);
    let headers = HEADER_BYTES + PROGRAM_HEADER_BYTES * (regions.len() as u64 + 1);
    let mut bytes = elf_header(regions.len() + 1);
    let mut offset = headers + notes.len() as u64;
    program_header(&mut bytes, [PT_NOTE, 0], [headers, 0, notes.len() as u64]);
    for region in regions {
        let flags = 4 + 2 * u32::from(region.mapping.writable);
        let length = region.bytes.len() as u64;
        program_header(&mut bytes, [PT_LOAD, flags], [offset, region.mapping.start, length]);
        offset += length;
    }
    bytes.extend(notes);
    let end = bytes.len();
    bytes.extend(regions.iter().flat_map(|region| &region.bytes));
    (bytes, end)
}

fn elf_header(program_headers: usize) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    bytes.resize(16, 0);
    bytes.extend([CORE, X86_64].iter().flat_map(|half| half.to_le_bytes()));
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0, HEADER_BYTES, 0].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend([0; 4]);
    let count = u16::try_from(program_headers).unwrap_or(u16::MAX);
    let lengths = [64, 56, count, 64, 0, 0];
    bytes.extend(lengths.iter().flat_map(|half| half.to_le_bytes()));
    bytes
}

fn program_header(to: &mut Vec<u8>, kind: [u32; 2], [offset, address, length]: [u64; 3]) {
    to.extend(kind.iter().flat_map(|half| half.to_le_bytes()));
    let words = [offset, address, 0, length, length, 4];
    to.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Notes on one thread and on the mapped files.
fn notes(regions: &[Region]) -> Vec<u8> {
    let mut status = vec![0; 336];
    status[32] = 42;
    let mut process = vec![0; 136];
    process[24] = 42;
    process[40..44].copy_from_slice(b"made");
    let files: Vec<_> =
        regions.iter().map(|r| &r.mapping).filter(|mapping| !mapping.path.is_empty()).collect();
    let mut words = vec![files.len() as u64, 4096];
    words.extend(files.iter().flat_map(|mapping| [mapping.start, mapping.end, 0]));
    let mut paths: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    paths.extend(files.iter().flat_map(|mapping| mapping.path.bytes().chain([0])));
    let notes = [
        (NT_PRSTATUS, status),
        (NT_PRPSINFO, process),
        (NT_FPREGSET, vec![0; 64]),
        (NT_FILE, paths),
    ];
    notes.into_iter().flat_map(|(kind, bytes)| note(kind, bytes)).collect()
}

fn note(kind: u32, mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut note: Vec<u8> = [5, length, kind].iter().flat_map(|word| word.to_le_bytes()).collect();
    note.extend(b"CORE\0\0\0\0");
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    note.extend(bytes);
    note
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::memory::tests::whole;

    #[test]
    fn an_unchanged_core_file_is_read_as_a_whole() {
        let (bytes, headers) = made_up_core();
        whole(&read(&bytes).unwrap());
        assert!(headers < bytes.len());
        assert!(read(&bytes[..headers / 2]).is_none());
        core(&[&[0], &bytes[..bytes.len() / 2]].concat());
    }

    /// Sums of its addresses wrap; loops over them must not begin anew.
    #[test]
    fn memory_at_the_end_of_the_addresses_is_read_like_any_other() {
        for (start, bytes) in [(u64::MAX - 0x4fff, 0x4000), (u64::MAX - 0x2fff, 0x2fff)] {
            let mut regions = made_up_app::regions(Handler::Ring);
            let mut mapping = regions[0].mapping.clone();
            (mapping.start, mapping.end) = (start, start + bytes as u64);
            (mapping.writable, mapping.path) = (true, String::new());
            regions.push(Region { mapping, bytes: vec![0; bytes] });
            let (core, _) = core_of(&regions);
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                let _ = sender.send(read(&core));
            });
            whole(&receiver.recv_timeout(Duration::from_secs(60)).unwrap().unwrap());
        }
    }

    #[test]
    fn broken_headers_end_in_a_report_or_an_error() {
        let (_, headers) = made_up_core();
        for place in (0..u16::try_from(headers / 4).unwrap()).step_by(3) {
            core(&[&[1, 3][..], &place.to_le_bytes(), &[0xff; 8]].concat());
        }
    }
}
