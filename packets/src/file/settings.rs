//! Settings of capture files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use pmdscope_files::FileMode;

/// Format of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileFormat {
    /// pcapng: all data about packets and interfaces.
    #[default]
    Pcapng,
    /// Classic pcap: times, lengths and bytes; one link type.
    Pcap {
        /// Nanoseconds; otherwise microseconds.
        nanos: bool,
    },
}

/// Compression by the writer thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileCompression {
    /// None.
    #[default]
    None,
    /// gzip, in members that can be decompressed separately.
    Gzip,
    /// Zstandard, in one frame that is flushed.
    Zstd,
}

impl FileCompression {
    /// Returns the compression for the extension of a file: `.gz`, `.zst`, or none.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// When to begin another file, and its name. The default is one file. The first three fields are
/// tcpdump's `-C`, `-G` and `-W` with its names; `docs/capture.md` has the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent switches.
pub struct FileRotation {
    /// `-C`: the next file begins with the first packet after this many bytes, before compression.
    pub bytes: Option<u64>,
    /// `-G`: the next file begins with the first packet after this many seconds. The name may have
    /// strftime conversions.
    pub seconds: Option<u64>,
    /// `-W`: with `bytes`, names are reused after this many files; with `seconds`, the capture ends
    /// after this many files; with both, it only sets the width of numbers in names.
    pub files: Option<u32>,
    /// No file is longer than `bytes`, unless a single packet is.
    pub exact: bool,
    /// Files begin at multiples of `seconds` in local time, with or without packets.
    pub aligned: bool,
    /// Names are not reused: of more than `files`, the oldest is deleted.
    pub bounded: bool,
    /// The number in a name is before the extension: `x_00001.pcapng`, `x_00002.pcapng`, ...
    pub count_before_extension: bool,
}

impl FileRotation {
    /// Returns whether there is more than one file.
    pub(super) fn is_on(&self) -> bool {
        self.bytes.is_some() || self.seconds.is_some()
    }

    /// Returns whether names are reused after `files`.
    pub(super) fn reuses_names(&self) -> bool {
        let runs_on = self.count_before_extension && self.seconds.is_some();
        self.files.is_some() && self.bytes.is_some() && !self.bounded && !runs_on
    }

    /// Returns the number of files after which the capture ends, if it does.
    pub(super) fn ends_after(&self) -> Option<u32> {
        self.files.filter(|_| self.bytes.is_none() && !self.bounded)
    }
}

/// Events of files, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// A file is complete and has its name.
    Closed(PathBuf),
    /// The capture has ended, and waits for a slow disk or reader.
    Waiting {
        /// The file or stream that is written.
        name: String,
        /// Packets that are not yet written.
        packets: u64,
    },
    /// A file of this capture was deleted to stay within `quota` or `files`.
    Deleted(PathBuf),
    /// Something other than the capture failed, for example the command for closed files. Each kind is
    /// reported once.
    Trouble(String),
}

/// Where and how to write files.
#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    /// File, pipe or device; `-` is standard output.
    pub path: PathBuf,
    /// File format.
    pub format: FileFormat,
    /// Compression; `None`: by the extension of `path`.
    pub compression: Option<FileCompression>,
    /// Threads that compress with Zstandard; 0: only the thread that writes.
    pub compression_threads: u32,
    /// When to begin another file.
    pub rotation: FileRotation,
    /// `-U`: flush after every packet.
    pub packet_buffered: bool,
    /// Write under the final name from the start. Otherwise a file is called `NAME.part` until it is
    /// complete.
    pub in_place: bool,
    /// Access mode of new files.
    pub mode: FileMode,
    /// Ends the wait for the reader of a named pipe.
    pub stop: Arc<AtomicBool>,
    /// Ends the wait for a slow disk or reader at the end; what it has not taken is lost.
    pub abandon: Arc<AtomicBool>,
    /// Most bytes of all files of this capture; beyond, the oldest are deleted. Requires rotation.
    pub quota: Option<u64>,
    /// `-z`: command to run with the name of every closed file, at the lowest priority.
    pub command: Option<OsString>,
    /// Receives the events of files.
    pub events: Option<Sender<FileEvent>>,
    /// Time in the name of the first file, nanoseconds since 1970; `None` is now. For packets that are
    /// read from a file, it is the time of the first packet.
    pub begin_ns: Option<u64>,
}

impl FileSettings {
    /// Returns settings of one file, with default values.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Returns why the settings contradict each other; `None` if they do not.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let rotation = &self.rotation;
        let quota = self.quota.unwrap_or(u64::MAX);
        let checks = [
            (self.path.as_os_str().is_empty(), "its name is empty"),
            (
                self.is_stdout() && rotation.is_on(),
                "standard output has no further files: give -w FILE",
            ),
            (self.is_stdout() && self.command.is_some(), "-z needs -w FILE"),
            (rotation.bytes == Some(0), "-C needs a size above 0"),
            (rotation.seconds == Some(0), "-G needs a number of seconds above 0"),
            (rotation.files == Some(0), "-W needs a number of files above 0"),
            (rotation.exact && rotation.bytes.is_none(), "an exact size needs -C"),
            (rotation.aligned && rotation.seconds.is_none(), "aligned files need -G"),
            (rotation.bounded && rotation.files.is_none(), "a bound of files needs -W"),
            (
                self.quota.is_some() && !rotation.is_on(),
                "a quota deletes complete files, so it needs -C or -G",
            ),
            (
                rotation.bytes.is_some_and(|bytes| bytes > quota / 2),
                "the size of -C is more than half of the quota: no complete file would remain",
            ),
        ];
        checks.into_iter().find(|(wrong, _)| *wrong).map(|(_, reason)| reason)
    }

    /// Returns whether there may be more than one file.
    pub fn rotates(&self) -> bool {
        self.rotation.is_on()
    }

    /// Returns whether packets go to standard output.
    pub fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_goes_by_the_extension() {
        assert_eq!(FileCompression::of(Path::new("a.gz/x.pcapng")), FileCompression::None);
        assert_eq!(FileCompression::of(Path::new("x.pcapng.gz")), FileCompression::Gzip);
        assert_eq!(FileCompression::of(Path::new("x.zst")), FileCompression::Zstd);
        assert_eq!(FileCompression::of(Path::new("-")), FileCompression::None);
    }

    #[test]
    fn contradicting_options_are_refused_with_a_reason() {
        let rotation = |change: fn(&mut FileRotation)| {
            let mut settings = FileSettings::new("x");
            change(&mut settings.rotation);
            settings
        };
        let sized = rotation(|r| r.bytes = Some(1000));
        let bad = [
            (FileSettings { path: "-".into(), ..sized.clone() }, "standard output"),
            (
                FileSettings {
                    path: "-".into(),
                    command: Some("gzip".into()),
                    ..FileSettings::default()
                },
                "-z",
            ),
            (FileSettings { quota: Some(1999), ..sized.clone() }, "half"),
            (FileSettings { quota: Some(2000), ..FileSettings::new("x") }, "-C or -G"),
            (rotation(|r| r.bytes = Some(0)), "-C"),
            (rotation(|r| r.seconds = Some(0)), "-G"),
            (rotation(|r| r.files = Some(0)), "-W"),
            (rotation(|r| r.exact = true), "-C"),
            (rotation(|r| r.aligned = true), "-G"),
            (rotation(|r| r.bounded = true), "-W"),
            (FileSettings::new(""), "empty"),
        ];
        for (settings, expected) in bad {
            let reason = settings.contradiction().unwrap();
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
        assert_eq!(FileSettings { quota: Some(2000), ..sized }.contradiction(), None);
        assert_eq!(FileSettings::new("-").contradiction(), None);
    }
}
