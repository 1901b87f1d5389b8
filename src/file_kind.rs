//! What a file is: a capture, a recording or a bundle. Its content tells, whatever its name.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::Error;
use pmdscope_packets::read::{FileReader, ReadError, is_named_as_capture};
use pmdscope_recording::is_named_as_recording;
use zstd::stream::read::Decoder;

use crate::bundle::open::bundle_of;

/// Start of the first line of a recording.
const HEADER: &[u8] = br#"{"header":"#;
/// Most entries of a directory that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// What can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Packets: pcap or pcapng, compressed or not, a directory of such files, or one inside a bundle.
    Capture,
    /// A file of `pmdscope record`, or a directory of such files.
    Recording,
    /// A file of `pmdscope bundle`.
    Bundle,
}

impl FileKind {
    /// The kind of a file; `None` for anything else, and for what is not on a disk, such as a pipe: what is
    /// read of it to find out would be missing later.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match bundle_of(path) {
            Some((_, inside)) if inside.as_os_str().is_empty() => return Some(Self::Bundle),
            Some(_) => return Some(Self::Capture),
            None => {}
        }
        let metadata = path.metadata().ok()?;
        match (metadata.is_dir(), metadata.is_file()) {
            (true, _) => of_directory(path),
            (_, true) => of_file(path),
            _ => None,
        }
    }
}

/// Adds to the error of a command that reads another kind of files which command reads this one.
pub(crate) fn explain(error: Error, path: &Path, read_as: FileKind) -> Error {
    let name = path.display();
    match FileKind::of(path).filter(|kind| *kind != read_as) {
        Some(FileKind::Capture) => {
            error.context(format!("{name} is a capture: pmdscope capture -r {name} reads it"))
        }
        Some(FileKind::Recording) => {
            error.context(format!("{name} is a recording: pmdscope top -r {name} plays it"))
        }
        Some(FileKind::Bundle) | None => error,
    }
}

fn of_directory(directory: &Path) -> Option<FileKind> {
    let entries = fs::read_dir(directory).ok()?.take(MOST_ENTRIES).flatten();
    let kind = |path: &Path| match (is_named_as_recording(path), is_named_as_capture(path)) {
        (true, _) => Some(FileKind::Recording),
        (_, true) => Some(FileKind::Capture),
        _ => None,
    };
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).find_map(|path| kind(&path))
}

fn of_file(path: &Path) -> Option<FileKind> {
    let file = || File::open(path).ok();
    match FileReader::new("", file()?) {
        Ok(_) => return Some(FileKind::Capture),
        // Whoever reads it says what is wrong with it.
        Err(ReadError::Truncated { .. } | ReadError::Broken { .. }) => {
            return Some(FileKind::Capture);
        }
        Err(_) => {}
    }
    let mut begin = [0; HEADER.len()];
    let is_recording =
        Decoder::new(file()?).ok()?.read_exact(&mut begin).is_ok_and(|()| begin == HEADER);
    // One that is damaged at its begin, or that is still being written.
    (is_recording || is_named_as_recording(path)).then_some(FileKind::Recording)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty file of microseconds, of Ethernet.
    const PCAP: [u8; 24] =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    #[test]
    fn content_tells_what_a_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let kind = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            FileKind::of(&path)
        };
        assert_eq!(kind(&PCAP), Some(FileKind::Capture));
        assert_eq!(kind(&zstd(&PCAP)), Some(FileKind::Capture));
        assert_eq!(kind(&PCAP[..10]), Some(FileKind::Capture));
        assert_eq!(kind(&zstd(br#"{"header":{"schema":1}}"#)), Some(FileKind::Recording));
        for other in [&b""[..], b"x", b"\x28\xb5\x2f\xfd", &zstd(b"{\"x\":1}"), &zstd(&[0; 600])] {
            assert_eq!(kind(other), None, "{other:?}");
        }
        assert_eq!(FileKind::of(&dir.path().join("absent")), None);
        assert_eq!(FileKind::of(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_directory_is_what_its_files_are() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FileKind::of(dir.path()), None);
        for (file, kind) in [
            ("a.txt", None),
            ("b.pcapng.zst.part", Some(FileKind::Capture)),
            ("pmdscope-1.jsonl.zst.part", Some(FileKind::Recording)),
        ] {
            let inner = dir.path().join(file.len().to_string());
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join(file), "").unwrap();
            assert_eq!(FileKind::of(&inner), kind, "{file}");
        }
    }

    #[test]
    fn an_error_names_the_command_that_reads_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let explained = |bytes: &[u8], read_as| {
            fs::write(&path, bytes).unwrap();
            explain(anyhow::anyhow!("wrong"), &path, read_as).to_string()
        };
        assert!(explained(&PCAP, FileKind::Recording).contains("pmdscope capture -r "));
        assert!(explained(&zstd(HEADER), FileKind::Capture).contains("pmdscope top -r "));
        assert_eq!(explained(&PCAP[..10], FileKind::Capture), "wrong");
        assert_eq!(explained(b"x", FileKind::Capture), "wrong");
    }
}
