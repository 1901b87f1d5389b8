//! Reads capture files: pcap and pcapng of any byte order, as they are or in gzip,
//! Zstandard or LZ4.
//!
//! A [`FileReader`] parses one file, a [`FileReplay`] passes the packets of several files to a sink, those
//! of a directory merged by time. The readable part of a broken file is delivered before its error.

mod input;
mod item;
mod merged;
mod pcap;
mod pcapng;
mod reader;
mod replay;
#[cfg(test)]
mod tests;

pub use self::item::FileItem;
pub use self::merged::files_of;
pub use self::reader::{CaptureFile, FileReader, ReadError};
pub use self::replay::{FileReplay, ReplayError, ReplayReport, ReplaySettings};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// How a file orders the bytes of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The number of at most 8 bytes.
    fn number(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, add),
            Self::Big => bytes.iter().fold(0, add),
        }
    }

    /// The bytes of a 16-bit number.
    pub(crate) fn bytes_of_u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    /// The bytes of a 32-bit number.
    pub(crate) fn bytes_of_u32(self, number: u32) -> [u8; 4] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    /// The 32-bit number at an offset; 0 beyond the end.
    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let number = self.number(bytes.get(at..at + 4).unwrap_or_default());
        u32::try_from(number).unwrap_or_default()
    }
}
