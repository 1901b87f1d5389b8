//! Reads one file, round by round.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use zstd::stream::read::Decoder;

use super::clock_steps::SteadyClock;
use super::file::RecordingFile;
use super::{RecordEntry, RecordingError, RoundEnd};

/// Longest line, before compression.
const LONGEST_LINE: usize = 16 << 20;

/// Most entries of one round, and their bytes.
const MOST_ENTRIES: usize = 10_000;
const MOST_BYTES: usize = 64 << 20;

/// Longest frame, before compression: more than a recorder writes in the few seconds of one.
const LONGEST_FRAME: u64 = 1 << 30;

/// Largest window of a frame, as a power of two: what a reader must hold of it. Ours are smaller.
const LARGEST_WINDOW: u32 = 23;

/// Something about a recording that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybackNote {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the file before the frame that it is about.
    pub offset: u64,
    /// When, where that is known: wall clock, nanoseconds since the epoch.
    pub realtime_ns: Option<u64>,
    /// What is damaged or missing.
    pub text: String,
}

impl fmt::Display for PlaybackNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, offset {}: {}", self.path.display(), self.offset, self.text)
    }
}

/// All that was learned in one round.
#[derive(Debug)]
pub(super) struct RoundBatch {
    /// Bytes of the file before the frame.
    pub(super) offset: u64,
    pub(super) round: RoundEnd,
    /// With the bytes of their lines.
    pub(super) entries: Vec<(RecordEntry<'static>, usize)>,
}

/// The lines of one frame.
type Lines = BufReader<Decoder<'static, BufReader<io::Take<File>>>>;

/// The rounds of one file, from a frame on.
pub(super) struct RoundReader {
    file: File,
    /// The frame after that of `lines`.
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
    /// From frame number `frame` of `source` on.
    pub(super) fn open(source: &RecordingFile, frame: usize) -> Result<Self, RecordingError> {
        let (file, line, clock) = (source.file()?, Vec::new(), SteadyClock::default());
        Ok(Self { file, next: frame, lines: None, line, clock })
    }

    /// The next round, by a wall clock that never goes back; `None` at the end of the file. Entries at
    /// the end of a file or before damage that no [`RecordEntry::Round`] follows are a round as well.
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
                    Err(error) => Some(format!("a line is no entry of a recording: {error}")),
                },
                Ok(false) => {
                    self.lines = None;
                    // The rounds of a frame are all in it.
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

    /// Goes on to the next frame; false at the end of the file. A damaged one has no lines: what is in it
    /// may be wrong, and its times would put off those of the frames after it.
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

/// Adds a note, once.
pub(super) fn note(
    notes: &mut Vec<PlaybackNote>,
    path: &Path,
    offset: u64,
    realtime_ns: Option<u64>,
    text: String,
) {
    /// More tell no more.
    const MOST: usize = 1000;
    let note = PlaybackNote { path: path.to_owned(), offset, realtime_ns, text };
    if notes.len() < MOST && !notes.contains(&note) {
        notes.push(note);
    }
}

/// The lines of the frame between two offsets.
pub(super) fn lines(file: &File, offset: u64, end: u64) -> io::Result<Lines> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(offset))?;
    let frame = BufReader::new(file.take(end.saturating_sub(offset)));
    let mut decoder = Decoder::with_buffer(frame)?.single_frame();
    decoder.window_log_max(LARGEST_WINDOW)?;
    Ok(BufReader::new(decoder))
}

/// Reads a whole line without its end; false at the end of the frame.
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

/// The end of a recording that is being written, or whose recorder was killed.
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

/// Entries of which the end is missing.
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
