//! What files to write, and how.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

/// Layout of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// pcapng: everything that is known of packets and interfaces.
    #[default]
    Pcapng,
    /// Classic pcap: times, lengths and bytes; one link type.
    Pcap {
        /// Nanoseconds; otherwise microseconds.
        nanos: bool,
    },
}

/// What the writer thread does to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// gzip, in members that can be read alone.
    Gzip,
    /// Zstandard, in frames that can be read alone.
    Zstd,
}

impl Compression {
    /// By the extension of a file: `.gz`, `.zst`, or none.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// When to begin another file, and under which name. The default is one file, and the first four
/// are tcpdump's `-C`, `-G` and `-W` with its names; `docs/capture.md` has the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent switches.
pub struct Rotation {
    /// `-C`: the next file begins with the first packet after so many bytes, before compression.
    pub bytes: Option<u64>,
    /// `-G`: the next file begins with the first packet after so many seconds. The name may have
    /// conversions of strftime.
    pub seconds: Option<u64>,
    /// `-W`: with `bytes`, names are used again after so many files; with `seconds`, the capture
    /// ends after so many files; with both, it only pads the names.
    pub files: Option<u32>,
    /// No file is longer than `bytes`, unless one packet is.
    pub exact: bool,
    /// Files begin at whole multiples of `seconds` of local time, with or without packets.
    pub aligned: bool,
    /// Names are not used again: of more than `files`, the oldest is deleted.
    pub bounded: bool,
    /// Names are counted before the extension: `x_00001.pcapng`, `x_00002.pcapng`, ...
    pub count_before_extension: bool,
}

/// What happened to files, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// A file is complete and has its name.
    Closed(PathBuf),
    /// A file of this capture was deleted to stay within `quota` or `files`.
    Deleted(PathBuf),
    /// Something other than the capture failed, for instance the command for closed files. Each
    /// kind is told once.
    Trouble(String),
}

/// Where and how to write.
#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    /// File, pipe or device; `-` is standard output.
    pub path: PathBuf,
    /// Layout.
    pub format: Format,
    /// `None` goes by the extension of `path`.
    pub compression: Option<Compression>,
    /// Further files.
    pub rotation: Rotation,
    /// `-U`: write every packet at once.
    pub packet_buffered: bool,
    /// Write under the final name from the start; otherwise a file is `NAME.part` until it is
    /// complete.
    pub in_place: bool,
    /// Most bytes of all files of this capture together; the oldest are deleted. Needs a rotation.
    pub quota: Option<u64>,
    /// `-z`: run with the name of every closed file, at the lowest priority.
    pub command: Option<OsString>,
    /// Where to tell what happens to files.
    pub events: Option<Sender<FileEvent>>,
    /// Time of the first file's name, nanoseconds since 1970; `None` is now. A capture that is read
    /// from a file begins at its first packet.
    pub begin_ns: Option<u64>,
}

impl FileSettings {
    /// One file with everything else as usual.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Packets go to standard output.
    pub fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}
