//! Which pages of a process are in memory: `/proc/PID/pagemap`.
//!
//! Reading a page that the app never touched would make the kernel allocate it, a huge page for
//! huge memory. So such pages, which are empty, are excluded from reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Entries of one read: 256 MiB of the process with pages of 4 KiB.
const ENTRIES_PER_READ: u64 = 65_536;

/// The page is in memory, or was swapped out (bit 62).
const HAS_CONTENT: u64 = 1 << 63 | 1 << 62;

/// The parts of `range` that have pages, ascending; neighbours are joined.
pub(crate) fn present(pid: u32, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    // The file has an entry for each page of the kernel's base size, whatever the page size of the
    // mapping.
    let page_bytes = rustix::param::page_size() as u64;
    let (first, behind) = (range.start / page_bytes, range.end.div_ceil(page_bytes));
    let mut present: Vec<Range<u64>> = Vec::new();
    let mut page = first;
    let mut entries =
        vec![0; usize::try_from(ENTRIES_PER_READ.min(behind - first) * 8).unwrap_or(8)];
    while page < behind {
        let wanted = usize::try_from((behind - page) * 8).unwrap_or(usize::MAX);
        let wanted = wanted.min(entries.len());
        let read = file.read_at(&mut entries[..wanted], page * 8)?;
        if read < 8 {
            break; // the process has ended, or unmapped it
        }
        for entry in entries[..read].as_chunks::<8>().0 {
            if u64::from_le_bytes(*entry) & HAS_CONTENT != 0 {
                let begin = (page * page_bytes).max(range.start);
                let end = ((page + 1) * page_bytes).min(range.end);
                match present.last_mut() {
                    Some(last) if last.end == begin => last.end = end,
                    _ => present.push(begin..end),
                }
            }
            page += 1;
        }
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
        let range = begin..begin + (32 << 20);
        let present = present(std::process::id(), &range).unwrap();
        let touched = begin + 4096 * 4000;
        assert!(present.iter().any(|part| part.contains(&touched)), "{present:x?}");
        let bytes: u64 = present.iter().map(|part| part.end - part.start).sum();
        assert!(bytes < 16 << 20, "{bytes} of 32 MiB"); // a transparent huge page has 2 MiB
    }
}
