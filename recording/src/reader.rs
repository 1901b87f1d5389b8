//! Reads the rounds of one file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use super::clock_steps::SteadyClock;
use super::file::RecordingFile;
use super::frame_lines::{Lines, lines, read_line};
use super::note::{PlaybackNote, note};
use super::{RecordEntry, RecordingError, RoundEnd};

/// Most entries of one round, and most bytes of them.
const MOST_ENTRIES: usize = 10_000;
const MOST_BYTES: usize = 64 << 20;

/// Longest frame, before compression, bytes: more than a recorder writes in the 5 s of one.
const LONGEST_FRAME: u64 = 1 << 30;

/// All entries of one round.
#[derive(Debug)]
pub(super) struct RoundBatch {
    /// Offset of the frame in the file, bytes.
    pub(super) offset: u64,
    pub(super) round: RoundEnd,
    /// Entries, with the lengths of their lines in bytes.
    pub(super) entries: Vec<(RecordEntry<'static>, usize)>,
}

/// A reader of the rounds of one file, from a frame on.
pub(super) struct RoundReader {
    file: File,
    /// Number of the frame after that of `lines`.
    next: usize,
    lines: Option<Lines>,
    line: Vec<u8>,
    clock: SteadyClock,
}

impl fmt::Debug for RoundReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundReader").field("next", &self.next).finish_non_exhaustive()
    }
}

impl RoundReader {
    /// Opens `source` to read from frame number `frame` on.
    pub(super) fn open(source: &RecordingFile, frame: usize) -> Result<Self, RecordingError> {
        let (file, line, clock) = (source.file()?, Vec::new(), SteadyClock::default());
        Ok(Self { file, next: frame, lines: None, line, clock })
    }

    /// Returns the next round, with a wall clock that never goes back; `None` at the end of the
    /// file. Entries that no [`RecordEntry::Round`] follows, at the end of a file or before damage,
    /// are a round as well.
    pub(super) fn next(
        &mut self,
        source: &RecordingFile,
        notes: &mut Vec<PlaybackNote>,
    ) -> Result<Option<RoundBatch>, RecordingError> {
        let mut next = self.next_as_written(source, notes)?;
        if let Some(batch) = &mut next {
            batch.round.realtime_ns = self.clock.update(batch.round);
        }
        Ok(next)
    }

    fn next_as_written(
        &mut self,
        source: &RecordingFile,
        notes: &mut Vec<PlaybackNote>,
    ) -> Result<Option<RoundBatch>, RecordingError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        loop {
            let Some(lines) = &mut self.lines else {
                if let Some(batch) = unfinished(source.offset_before(self.next), &mut entries) {
                    return Ok(Some(batch));
                }
                if !self.begin_frame(source, notes)? {
                    return Ok(None);
                }
                continue;
            };
            let offset = source.offset_before(self.next);
            let damage = match read_line(lines, &mut self.line) {
                Ok(true) => match RecordEntry::parse(&self.line) {
                    Ok(Some(RecordEntry::Round(round))) => {
                        return Ok(Some(RoundBatch { offset, round, entries }));
                    }
                    Ok(entry) => {
                        entries.extend(entry.map(|entry| (entry, self.line.len())));
                        bytes += self.line.len();
                        None
                    }
                    Err(error) => Some(format!("invalid entry of a recording: {error}")),
                },
                Ok(false) => {
                    self.lines = None;
                    // Rounds do not span frames.
                    None
                }
                Err(error) => {
                    self.lines = None;
                    Some(damage(&error, source.is_last(self.next)))
                }
            };
            if let Some(text) = damage {
                note(notes, source.path(), offset, last_ns(&entries), text);
            }
            if entries.len() >= MOST_ENTRIES || bytes >= MOST_BYTES {
                let text = "a round without an end".to_owned();
                note(notes, source.path(), offset, None, text);
                return Ok(unfinished(offset, &mut entries));
            }
        }
    }

    /// Begins the next frame; returns false at the end of the file. A damaged frame gets no lines:
    /// its content may be wrong, and wrong times would shift those of the frames after it.
    fn begin_frame(
        &mut self,
        source: &RecordingFile,
        notes: &mut Vec<PlaybackNote>,
    ) -> Result<bool, RecordingError> {
        let Some(span) = source.frames().get(self.next) else { return Ok(false) };
        self.clock.begin_frame(source.added_ns(self.next));
        self.next += 1;
        let end = source.frames().get(self.next).map_or(u64::MAX, |next| next.offset);
        let failed = |error| RecordingError::io("read", source.path(), error);
        let last = source.is_last(self.next);
        match check(lines(&self.file, span.offset, end).map_err(failed)?) {
            Err(error) if !is_cut(&error, last) => {
                note(notes, source.path(), span.offset, None, damage(&error, last));
            }
            _ => self.lines = Some(lines(&self.file, span.offset, end).map_err(failed)?),
        }
        Ok(true)
    }
}

/// Reads a frame to its end, where its checksum is.
fn check(lines: Lines) -> io::Result<()> {
    let length = io::copy(&mut lines.take(LONGEST_FRAME + 1), &mut io::sink())?;
    if length > LONGEST_FRAME { Err(io::Error::other("more than 1 GiB")) } else { Ok(()) }
}

/// Returns whether an error is only the end of a recording that is being written, or was not
/// completed because its recorder was killed.
fn is_cut(error: &io::Error, last: bool) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof && last
}

fn damage(error: &io::Error, last: bool) -> String {
    if is_cut(error, last) {
        "the file ends within a frame: it is being written, or its recorder was killed".to_owned()
    } else {
        format!("the frame is damaged: {error}")
    }
}

fn last_ns(entries: &[(RecordEntry, usize)]) -> Option<u64> {
    entries.last().map(|(entry, _)| entry.realtime_ns())
}

/// Makes a round of entries without a [`RecordEntry::Round`].
fn unfinished(offset: u64, entries: &mut Vec<(RecordEntry<'static>, usize)>) -> Option<RoundBatch> {
    let of_apps = entries.iter().map(|(entry, _)| entry).filter(|entry| entry.app().is_some());
    let realtime_ns = of_apps.map(RecordEntry::realtime_ns).max()?;
    let samples = entries.iter().filter_map(|(entry, _)| match entry {
        RecordEntry::Sample(sample) => Some(sample.monotonic_ns),
        _ => None,
    });
    let monotonic_ns = samples.max().unwrap_or(0);
    let round = RoundEnd { realtime_ns, monotonic_ns, missed: 0 };
    Some(RoundBatch { offset, round, entries: std::mem::take(entries) })
}
