//! Searches the writable memory of an app for a word.

use pmdscope_telemetry::host::maps::Mapping;

use crate::address::AddressRange;
use crate::error::XrayError;
use crate::memory::Memory;

/// Bytes per read.
const CHUNK: u64 = 1 << 20;

/// Smallest piece that is tried if a part is not mapped.
const PAGE: u64 = 4096;

/// Larger mappings contain packets, not structures of the EAL.
const MOST_BYTES: u64 = 256 << 20;

/// Memory that may contain structures of the EAL: the file that it shares with secondaries;
/// otherwise variables of the program and its libraries; otherwise other memory without a file,
/// small mappings first.
pub(crate) fn ranges(maps: &[Mapping]) -> [Vec<AddressRange>; 3] {
    let mut ranges = [Vec::new(), Vec::new(), Vec::new()];
    let mut variables_end = None;
    for mapping in maps.iter().filter(|mapping| mapping.readable && mapping.writable) {
        let is_file = mapping.inode != 0;
        let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
        let is_config = mapping.shared && path.rsplit('/').next() == Some("config");
        // The zero-initialised part of the variables has no file.
        let is_rest = !is_file && variables_end == Some(mapping.start);
        let is_variables = is_file && !mapping.shared || is_rest;
        variables_end = is_variables.then_some(mapping.end);
        let range = AddressRange::from(mapping);
        if range.bytes() > MOST_BYTES {
            continue;
        }
        let rank = match (is_config, is_variables, is_file) {
            (true, ..) => 0,
            (_, true, _) => 1,
            (.., false) => 2,
            // Hugepages, and memory of other processes.
            _ => continue,
        };
        ranges[rank].push(range);
    }
    ranges[2].sort_by_key(AddressRange::bytes);
    ranges
}

/// Addresses of all occurrences of a word, which is aligned; memory that is not mapped has none.
pub(crate) fn find_word(
    memory: &dyn Memory,
    range: &AddressRange,
    word: [u8; 8],
) -> Result<Vec<u64>, XrayError> {
    let mut found = Vec::new();
    let mut pending: Vec<AddressRange> = range.chunks(CHUNK).collect();
    pending.reverse();
    while let Some(range) = pending.pop() {
        let bytes = range.bytes();
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or_default()];
        match memory.read(range.start(), &mut buffer) {
            Ok(()) => {
                let words = (range.start()..).step_by(8).zip(buffer.chunks_exact(8));
                found.extend(words.filter(|(_, bytes)| **bytes == word).map(|(at, _)| at));
            }
            Err(XrayError::NotMapped { .. }) if bytes > PAGE => {
                let (first, second) = range.halves(PAGE);
                pending.extend([second, first]);
            }
            Err(XrayError::NotMapped { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
