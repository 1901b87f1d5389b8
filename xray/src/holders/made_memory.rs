//! Memory that a test makes.

use std::collections::BTreeMap;

use crate::{Mapping, Memory, XrayError};

/// Pieces of memory by their first addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct MadeMemory {
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl MadeMemory {
    pub(super) fn map(&mut self, address: u64, bytes: u64) {
        self.pieces.insert(address, vec![0; usize::try_from(bytes).unwrap()]);
    }

    /// A word; what is not mapped takes none.
    pub(super) fn write(&mut self, address: u64, value: u64) {
        self.write_bytes(address, &value.to_le_bytes());
    }

    pub(super) fn write_half(&mut self, address: u64, value: u32) {
        self.write_bytes(address, &value.to_le_bytes());
    }

    pub(super) fn write_bytes(&mut self, address: u64, bytes: &[u8]) {
        if let Some((start, piece)) = self.pieces.range_mut(..=address).next_back() {
            let begin = usize::try_from(address - start).unwrap();
            if let Some(place) = piece.get_mut(begin..begin + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

impl Memory for MadeMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let piece = self.pieces.range(..=address).next_back();
        let bytes = piece.and_then(|(start, piece)| {
            let begin = usize::try_from(address - start).ok()?;
            piece.get(begin..begin.checked_add(buffer.len())?)
        });
        let not_mapped = || XrayError::NotMapped { address, bytes: buffer.len() };
        buffer.copy_from_slice(bytes.ok_or_else(not_mapped)?);
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        let mapping = |(start, piece): (&u64, &Vec<u8>)| Mapping {
            start: *start,
            end: start + piece.len() as u64,
            readable: true,
            writable: true,
            ..Mapping::default()
        };
        Ok(self.pieces.iter().map(mapping).collect())
    }
}
