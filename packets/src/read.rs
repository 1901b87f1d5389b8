//! Reads capture files: pcap and pcapng of any byte order, uncompressed or compressed with gzip,
//! Zstandard or LZ4.
//!
//! A [`FileReader`] parses one file, a [`FileReplay`] passes the packets of several files to a sink;
//! those of a directory are merged by time. The readable part of a broken file is delivered before its
//! error.

mod input;
mod item;
mod merged;
mod pcap;
mod pcapng;
mod reader;
mod replay;
mod several;
#[cfg(test)]
mod tests;

pub use self::item::FileItem;
pub use self::merged::{files_of, is_named_as_capture};
pub use self::reader::{CaptureFile, FileReader, ReadError};
pub use self::replay::{FileReplay, ReplayError, ReplayReport, ReplaySettings};
pub use self::several::have_several_interfaces;
pub use crate::byte_order::ByteOrder;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
