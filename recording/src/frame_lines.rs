//! The lines of one frame.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use zstd::stream::read::Decoder;

/// Longest line, before compression.
const LONGEST_LINE: usize = 16 << 20;

/// Largest window of a frame that is accepted, as a power of two: the memory that a reader needs.
/// Our frames have smaller ones.
const LARGEST_WINDOW: u32 = 23;

/// A reader of the lines of one frame.
pub(super) type Lines = BufReader<Decoder<'static, BufReader<io::Take<File>>>>;

/// Returns a reader of the lines of the frame between two offsets.
pub(super) fn lines(file: &File, offset: u64, end: u64) -> io::Result<Lines> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(offset))?;
    let frame = BufReader::new(file.take(end.saturating_sub(offset)));
    let mut decoder = Decoder::with_buffer(frame)?.single_frame();
    decoder.window_log_max(LARGEST_WINDOW)?;
    Ok(BufReader::new(decoder))
}

/// Reads a complete line without its line break; returns false at the end of the frame.
pub(super) fn read_line(lines: &mut Lines, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let count = lines.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', line)?;
    match line.pop() {
        Some(b'\n') => Ok(true),
        None => Ok(false),
        Some(_) if count > LONGEST_LINE => Err(io::Error::other("a line of more than 16 MiB")),
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
