//! One file of a recording: its header, and the positions of its frames.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::frame_lines::{lines, read_line};
use super::frame_scan::{FilePiece, scan_frames};
use super::index::{FrameIndex, FrameSpan};
use super::note::{PlaybackNote, note};
use super::{PART, RecordEntry, RecordingError, RecordingHeader};

/// A file with at least one frame.
#[derive(Debug)]
pub(super) struct RecordingFile {
    path: PathBuf,
    header: RecordingHeader,
    index: FrameIndex,
    /// Correction that is added to the wall clock in each frame, nanoseconds; nothing is added if
    /// it is empty.
    added_ns: Vec<u64>,
}

impl RecordingFile {
    /// Opens a file, and reads or builds its index.
    pub(super) fn open(path: &Path, notes: &mut Vec<PlaybackNote>) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::io("read", path, error);
        let file = open(path)?;
        let size = file.metadata().map_err(failed)?.len();
        if size == 0 {
            return Err(RecordingError::Empty { path: path.to_owned(), what: "the file is empty" });
        }
        let believed = FrameIndex::read(&file, size).filter(|index| is_of(&file, index));
        let index = match believed {
            Some(index) => index,
            None => scan(path, &file, size, notes)?,
        };
        let header = header_in(&file, &index).unwrap_or_else(|| {
            note(notes, path, 0, None, "the header of the file is missing".to_owned());
            RecordingHeader::default()
        });
        if let Some((schema, known)) = header.unknown_schema() {
            let (path, tool) = (path.to_owned(), header.tool);
            return Err(RecordingError::Newer { path, tool, schema, known });
        }
        Ok(Self { path: path.to_owned(), header, index, added_ns: Vec::new() })
    }

    /// Opens the file for reading. A file that was being written may have its final name by now.
    pub(super) fn file(&self) -> Result<File, RecordingError> {
        open(&self.path).or_else(|error| {
            let complete = self.path.to_str().and_then(|path| path.strip_suffix(PART));
            complete.and_then(|path| File::open(path).ok()).ok_or(error)
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> &RecordingHeader {
        &self.header
    }

    pub(super) fn frames(&self) -> &[FrameSpan] {
        &self.index.frames
    }

    pub(super) fn apps(&self) -> &BTreeSet<String> {
        &self.index.apps
    }

    /// Adds these nanoseconds to the times in each frame.
    pub(super) fn add_to_times(&mut self, added_ns: Vec<u64>) {
        for (frame, added_ns) in self.index.frames.iter_mut().zip(&added_ns) {
            frame.first_ns = frame.first_ns.saturating_add(*added_ns);
            frame.last_ns = frame.last_ns.saturating_add(*added_ns);
        }
        self.added_ns = added_ns;
    }

    /// Returns the correction of the wall clock in a frame, nanoseconds.
    pub(super) fn added_ns(&self, frame: usize) -> u64 {
        self.added_ns.get(frame).copied().unwrap_or(0)
    }

    pub(super) fn first_ns(&self) -> u64 {
        self.frames().iter().map(|frame| frame.first_ns).min().unwrap_or(0)
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.frames().iter().map(|frame| frame.last_ns).max().unwrap_or(0)
    }

    /// Returns the offset of the frame before number `next`.
    pub(super) fn offset_before(&self, next: usize) -> u64 {
        self.frames().get(next.saturating_sub(1)).map_or(0, |frame| frame.offset)
    }

    /// Returns whether there is no frame number `next`.
    pub(super) fn is_last(&self, next: usize) -> bool {
        next >= self.frames().len()
    }
}

fn open(path: &Path) -> Result<File, RecordingError> {
    File::open(path).map_err(|error| RecordingError::io("open", path, error))
}

/// Returns the header, which is the first line.
fn header_in(file: &File, index: &FrameIndex) -> Option<RecordingHeader> {
    match first_entry(file, index.frames.first()?.offset) {
        Ok(Some(RecordEntry::Header(header))) => Some(header),
        _ => None,
    }
}

/// Returns whether an index belongs to this file. Some frames may be damaged.
fn is_of(file: &File, index: &FrameIndex) -> bool {
    const TRIES: usize = 100;
    let mut frames = index.frames.iter().take(TRIES);
    frames.any(|frame| matches!(first_entry(file, frame.offset), Ok(Some(_))))
}

/// Returns the first line of the frame at `offset`; if there is something else, the error describes
/// it.
fn first_entry(file: &File, offset: u64) -> Result<Option<RecordEntry<'static>>, String> {
    let mut line = Vec::new();
    let mut lines = lines(file, offset, u64::MAX).map_err(|error| error.to_string())?;
    match read_line(&mut lines, &mut line) {
        Ok(true) => {
            RecordEntry::parse(&line).map_err(|error| format!("no line of a recording: {error}"))
        }
        Ok(false) => Ok(None),
        Err(error) => Err(format!("no whole line of a recording: {error}")),
    }
}

/// Builds the index of a file that has none.
fn scan(
    path: &Path,
    file: &File,
    size: u64,
    notes: &mut Vec<PlaybackNote>,
) -> Result<FrameIndex, RecordingError> {
    let pieces =
        scan_frames(file, size).map_err(|error| RecordingError::io("read", path, error))?;
    let mut index = FrameIndex::new();
    let mut first_damage = None;
    for piece in pieces {
        let damage = match piece {
            FilePiece::Frame { offset } | FilePiece::Cut { offset } => {
                match first_entry(file, offset) {
                    Ok(first) => {
                        let first_ns = first.map_or(0, |entry| entry.realtime_ns());
                        index.frames.push(FrameSpan {
                            offset,
                            first_ns,
                            last_ns: first_ns,
                            entries: 0,
                        });
                        continue;
                    }
                    Err(what) => (offset, what),
                }
            }
            FilePiece::Garbage { offset, length } => {
                (offset, format!("{length} bytes are no Zstandard frame"))
            }
        };
        note(notes, path, damage.0, None, damage.1.clone());
        first_damage.get_or_insert(damage);
    }
    if index.frames.is_empty() {
        let (offset, what) = first_damage.unwrap_or((0, "there is no frame".to_owned()));
        return Err(RecordingError::Garbage { path: path.to_owned(), offset, what });
    }
    times(file, &mut index);
    Ok(index)
}

/// Fills in the end times of frames: the start of the next one, or for the last frame what its
/// lines say.
fn times(file: &File, index: &mut FrameIndex) {
    for at in 1..index.frames.len() {
        index.frames[at - 1].last_ns = index.frames[at].first_ns.max(index.frames[at - 1].first_ns);
    }
    let Some(last) = index.frames.last_mut() else { return };
    let Ok(mut lines) = lines(file, last.offset, u64::MAX) else { return };
    let mut line = Vec::new();
    while read_line(&mut lines, &mut line).is_ok_and(|whole| whole) {
        if let Ok(Some(entry)) = RecordEntry::parse(&line) {
            last.last_ns = last.last_ns.max(entry.realtime_ns());
            index.apps.extend(entry.app().map(str::to_owned));
        }
    }
}

/// Returns the files of a recording: one file, or those of a directory.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    let failed = |error| RecordingError::io("read", path, error);
    if !std::fs::metadata(path).map_err(|error| RecordingError::io("open", path, error))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let entries = entries.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut files: Vec<_> = entries.iter().map(std::fs::DirEntry::path).filter(is_file).collect();
    files.sort();
    if files.is_empty() {
        let what = "the directory has no file named *.jsonl.zst or *.jsonl.zst.part";
        return Err(RecordingError::Empty { path: path.to_owned(), what });
    }
    Ok(files)
}

#[allow(clippy::ptr_arg)] // the signature that an iterator needs
fn is_file(path: &PathBuf) -> bool {
    is_named_as_recording(path) && path.is_file()
}

/// Returns whether a path is named like `x.jsonl.zst` or, as long as it is being written,
/// `x.jsonl.zst.part`.
pub fn is_named_as_recording(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(PART).unwrap_or(name).ends_with(super::EXTENSION)
}
