//! Which pages of a process are in memory: `/proc/PID/pagemap`.
//!
//! Reading a page that the app never touched would make the kernel allocate it, a huge page for
//! huge memory. So such pages, which are empty, are excluded from reading.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::address::{Address, AddressRange};

/// Entries of one read: 256 MiB of the process with pages of 4 KiB.
const ENTRIES_PER_READ: u64 = 65_536;

const ENTRY_BYTES: u64 = 8;

/// The page is in memory, or was swapped out (bit 62).
const HAS_CONTENT: u64 = 1 << 63 | 1 << 62;

/// The parts of `range` that have pages, ascending; neighbours are joined.
pub(crate) fn present(pid: u32, range: &AddressRange) -> io::Result<Vec<AddressRange>> {
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    // The file has an entry for each page of the kernel's base size, whatever the page size of the
    // mapping.
    let page_bytes = rustix::param::page_size() as u64;
    let first = range.start().checked_div(page_bytes).unwrap_or_default();
    let pages = AddressRange::from(first..range.end().div_ceil(page_bytes));
    let mut present: Vec<AddressRange> = Vec::new();
    let mut entries = Vec::new();
    let mut rest = pages;
    while let Some(chunk) = rest.chunks(ENTRIES_PER_READ).next() {
        let bytes = AddressRange::of_elements(0, chunk.bytes(), ENTRY_BYTES);
        entries.resize(bytes.and_then(|it| usize::try_from(it.bytes()).ok()).unwrap_or(0), 0);
        let Some(place) = Address(0).element(chunk.start(), ENTRY_BYTES) else { break };
        let read = file.read_at(&mut entries, place)?;
        let (read, _) = entries[..read].as_chunks::<8>();
        if read.is_empty() {
            break; // the process has ended, or unmapped it
        }
        for (page, entry) in (chunk.start()..).zip(read) {
            if u64::from_le_bytes(*entry) & HAS_CONTENT != 0 {
                let begin = page.saturating_mul(page_bytes);
                let part = AddressRange::up_to_length(begin, page_bytes).intersection(range);
                if !present.last_mut().is_some_and(|last| last.join(&part)) {
                    present.push(part);
                }
            }
        }
        (_, rest) = rest.split_at(chunk.start().saturating_add(read.len() as u64));
    }
    Ok(present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_are_told_from_those_never_touched() {
        let mut memory = vec![0u8; 64 << 20];
        let begin = (memory.as_ptr() as u64).next_multiple_of(65_536);
        let offset = usize::try_from(begin - memory.as_ptr() as u64).unwrap();
        memory[offset + 4096 * 4000] = 1;
        let range = AddressRange::from(begin..begin + (32 << 20));
        let present = present(std::process::id(), &range).unwrap();
        let touched = begin + 4096 * 4000;
        assert!(present.iter().any(|part| part.contains(touched)), "{present:x?}");
        let bytes: u64 = present.iter().map(AddressRange::bytes).sum();
        assert!(bytes < 16 << 20, "{bytes} of 32 MiB"); // a transparent huge page has 2 MiB
    }
}
