//! Finds the frames of a file without decompressing them, if the file has no index because its
//! writer was killed, or is damaged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// First bytes of a frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Largest block that the format allows.
const LARGEST_BLOCK: u64 = 128 << 10;

/// Bytes that are read at once by a search.
const CHUNK: usize = 64 << 10;

/// Limit of magic numbers checked by all searches for frames in garbage.
const TRIES: u32 = 10_000;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePiece {
    /// A frame of data.
    Frame { offset: u64 },
    /// The start of a frame that the end of the file cuts off.
    Cut { offset: u64 },
    /// Data of no frame.
    Garbage { offset: u64, length: u64 },
}

/// What begins at an offset.
enum FrameStart {
    Data { end: u64 },
    Skippable { end: u64 },
    Cut,
    Nothing,
}

/// Returns the pieces of a file of `size` bytes, in order.
pub(super) fn scan_frames(file: &File, size: u64) -> io::Result<Vec<FilePiece>> {
    let mut pieces = Vec::new();
    let (mut offset, mut tries) = (0, TRIES);
    while offset < size {
        offset = match look(file, offset, size)? {
            FrameStart::Data { end } => {
                pieces.push(FilePiece::Frame { offset });
                end
            }
            FrameStart::Skippable { end } => end,
            FrameStart::Cut => {
                // If a length is damaged, a frame may seem to end beyond the file, although others
                // follow.
                let end = search(file, offset + 1, size, &mut tries, true)?;
                pieces.push(if end == size {
                    FilePiece::Cut { offset }
                } else {
                    FilePiece::Garbage { offset, length: end - offset }
                });
                end
            }
            FrameStart::Nothing => {
                let end = search(file, offset + 1, size, &mut tries, false)?;
                pieces.push(FilePiece::Garbage { offset, length: end - offset });
                end
            }
        };
    }
    Ok(pieces)
}

/// Returns the offset of the next frame, which with `whole` must be complete; the end of the file
/// when there is none.
fn search(
    file: &File,
    mut offset: u64,
    size: u64,
    tries: &mut u32,
    whole: bool,
) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    while offset < size {
        let count = read_at(file, &mut chunk, offset, size)?;
        for at in find(&chunk[..count]) {
            let there = offset + at as u64;
            *tries = tries.saturating_sub(1);
            match look(file, there, size)? {
                _ if *tries == 0 => return Ok(size),
                FrameStart::Data { .. } => return Ok(there),
                FrameStart::Cut if !whole => return Ok(there),
                FrameStart::Cut | FrameStart::Nothing | FrameStart::Skippable { .. } => {}
            }
        }
        // A magic number may span two chunks.
        offset += count.saturating_sub(MAGIC.len() - 1).max(1) as u64;
    }
    Ok(size)
}

fn find(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(MAGIC.len()).enumerate().filter(|(_, four)| *four == MAGIC).map(|(at, _)| at)
}

fn look(file: &File, offset: u64, size: u64) -> io::Result<FrameStart> {
    let mut head = [0; 8];
    let count = read_at(file, &mut head, offset, size)?;
    let magic = &head[..count.min(4)];
    if magic.len() < 4 {
        return Ok(if MAGIC.starts_with(magic) { FrameStart::Cut } else { FrameStart::Nothing });
    }
    if magic == MAGIC {
        return if count > 4 { blocks(file, offset, head[4], size) } else { Ok(FrameStart::Cut) };
    }
    let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if number & !0xF != 0x184D_2A50 || count < 8 {
        return Ok(FrameStart::Nothing);
    }
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let end = offset + 8 + u64::from(length);
    Ok(if end <= size { FrameStart::Skippable { end } } else { FrameStart::Cut })
}

/// Follows the blocks to the end of a frame.
fn blocks(file: &File, offset: u64, descriptor: u8, size: u64) -> io::Result<FrameStart> {
    if descriptor & 0x08 != 0 {
        return Ok(FrameStart::Nothing);
    }
    let mut at = offset + header_length(descriptor);
    loop {
        let mut header = [0; 3];
        if read_at(file, &mut header, at, size)? < 3 {
            return Ok(FrameStart::Cut);
        }
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let length = u64::from(header >> 3);
        let stored = match header >> 1 & 3 {
            0 | 2 if length <= LARGEST_BLOCK => length,
            1 => 1,
            _ => return Ok(FrameStart::Nothing),
        };
        at += 3 + stored;
        if header & 1 == 1 {
            break;
        }
    }
    let checksum = if descriptor & 0x04 == 0 { 0 } else { 4 };
    let end = at + checksum;
    Ok(if end <= size { FrameStart::Data { end } } else { FrameStart::Cut })
}

/// Returns the number of bytes before the first block.
fn header_length(descriptor: u8) -> u64 {
    let single = descriptor & 0x20 != 0;
    let window = u64::from(!single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = match descriptor >> 6 {
        0 => u64::from(single),
        power => 1 << power,
    };
    5 + window + dictionary + content
}

/// Fills `buffer` from `offset` on, within the first `size` bytes of the file; returns the number
/// of bytes.
fn read_at(file: &File, buffer: &mut [u8], offset: u64, size: u64) -> io::Result<usize> {
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let wanted = buffer.len().min(left);
    let mut done = 0;
    while done < wanted {
        match file.read_at(&mut buffer[done..wanted], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
