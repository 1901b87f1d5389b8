//! Copies the last minutes of a recording.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use pmdscope_recording::{EXTENSION, FileMode, PART};
use serde::Deserialize;
use serde::de::IgnoredAny;
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

use super::redact::Redactor;

/// Longest line, before compression, as in the reader of recordings.
const LONGEST_LINE: u64 = 16 << 20;
/// Most bytes of the lines of one frame.
const MOST_OF_A_FRAME: usize = 512 << 20;
/// Largest window of a frame, as a power of two, as in the reader of recordings.
const LARGEST_WINDOW: u32 = 23;
/// Skippable frames, whose content is no line: the low four bits do not matter.
const SKIPPABLE: u32 = 0x184d_2a50;
/// As in recordings.
const LEVEL: i32 = 3;

/// What to copy of recordings.
#[derive(Debug)]
pub(super) struct CopyOptions<'a> {
    /// Rounds before are left out: wall clock.
    pub(super) since: SystemTime,
    /// Other apps are left out; `None`: none is.
    pub(super) app: Option<&'a str>,
    /// Most bytes to write.
    pub(super) most_bytes: u64,
}

/// What was copied.
#[derive(Debug, Default)]
pub(super) struct CopiedRecordings {
    /// Apps with samples.
    pub(super) apps: BTreeSet<String>,
    pub(super) files: Vec<PathBuf>,
    /// What is missing, and why.
    pub(super) notes: Vec<String>,
}

/// The recordings that running recorders of this machine write, as far as we may see them: the files
/// that are open, and earlier ones of the same directory.
pub(super) fn running_recordings() -> Vec<PathBuf> {
    let mut files = BTreeSet::new();
    for process in entries(Path::new("/proc")) {
        let is_process = process
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process {
            continue;
        }
        for descriptor in entries(&process.join("fd")) {
            let Ok(file) = fs::read_link(&descriptor) else { continue };
            if is_named(&file, &format!("{EXTENSION}{PART}")) && file.is_file() {
                files.extend(siblings(&file));
                files.insert(file);
            }
        }
    }
    files.into_iter().collect()
}

/// Files of a recording that was named: a file, or all of a directory.
pub(super) fn given_recordings(path: &Path) -> Result<Vec<PathBuf>> {
    let is_dir = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
    if !is_dir.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = entries(path);
    files.retain(|file| is_recording(file));
    if files.is_empty() {
        bail!("{} has no recording (*{EXTENSION})", path.display());
    }
    Ok(files)
}

/// Files that a recorder has written before the one that it writes, where it names them by time.
fn siblings(open: &Path) -> Vec<PathBuf> {
    const PREFIX: &str = "pmdscope-";
    let is_of_series = |file: &Path| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    };
    let Some(dir) = open.parent().filter(|_| is_of_series(open)) else { return Vec::new() };
    entries(dir).into_iter().filter(|file| is_of_series(file) && is_recording(file)).collect()
}

fn is_recording(file: &Path) -> bool {
    (is_named(file, EXTENSION) || is_named(file, &format!("{EXTENSION}{PART}"))) && file.is_file()
}

fn is_named(file: &Path, ending: &str) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending))
}

/// What a directory contains, sorted; nothing when it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<_> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Copies what is recent enough into a directory, the newest files first.
///
/// # Errors
///
/// When nothing could be copied.
pub(super) fn copy(
    sources: &[PathBuf],
    into: &Path,
    options: &CopyOptions<'_>,
) -> Result<CopiedRecordings> {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let mut recent: Vec<_> = sources.iter().map(|path| (changed(path).ok(), path)).collect();
    recent.retain(|(changed, _)| changed.is_none_or(|changed| changed >= options.since));
    recent.sort();
    let mut copied = CopiedRecordings::default();
    let mut bytes = 0;
    for (_, source) in recent.into_iter().rev() {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.strip_suffix(PART).unwrap_or(&name);
        let target = into.join(name);
        let done = copy_file(source, &target, options, None, &mut copied.apps);
        let size = fs::metadata(&target).map_or(0, |file| file.len());
        match done {
            Err(error) => copied.notes.push(format!("{error:#}")),
            Ok(Some(note)) => copied.notes.push(format!("{}: {note}", source.display())),
            Ok(None) => {}
        }
        if size == 0 || bytes + size > options.most_bytes {
            let _ = pmdscope_files::remove(&target);
            if size > 0 {
                copied.notes.push(format!("{} does not fit", source.display()));
                break;
            }
            continue;
        }
        bytes += size;
        copied.files.push(target);
    }
    if copied.files.is_empty() {
        let notes = copied.notes.join("; ");
        let why = if notes.is_empty() { "there is nothing recent in it" } else { &notes };
        bail!("cannot copy a recording: {why}");
    }
    Ok(copied)
}

/// Replaces a recording by its redacted form.
pub(super) fn redact(path: &Path, redactor: &mut Redactor) -> Result<()> {
    let mut target = path.as_os_str().to_owned();
    target.push(".redacted");
    let target = PathBuf::from(target);
    let copied = copy_redacted(path, &target, redactor);
    let done = copied.and_then(|_| Ok(pmdscope_files::rename(&target, path)?));
    if done.is_err() {
        let _ = pmdscope_files::remove(&target);
    }
    done.with_context(|| format!("cannot redact {}", path.display()))
}

/// Notes the addresses of a recording.
pub(super) fn learn(path: &Path, redactor: &mut Redactor) {
    // What cannot be read is reported when it is replaced.
    let _ = copy_redacted(path, Path::new("/dev/null"), redactor);
}

fn copy_redacted(path: &Path, target: &Path, redactor: &mut Redactor) -> Result<Option<String>> {
    let options = CopyOptions { since: UNIX_EPOCH, app: None, most_bytes: u64::MAX };
    copy_file(path, target, &options, Some(redactor), &mut BTreeSet::new())
}

/// Copies one file, frame by frame; returns what is damaged. A target without content has no lines.
fn copy_file(
    source: &Path,
    target: &Path,
    options: &CopyOptions<'_>,
    redactor: Option<&mut Redactor>,
    apps: &mut BTreeSet<String>,
) -> Result<Option<String>> {
    let cannot = |what| move || format!("cannot {what} {}", source.display());
    let opened = File::open(source).or_else(|error| {
        // It may have been completed, and have its final name by now.
        let complete = source.to_str().and_then(|path| path.strip_suffix(PART));
        complete.and_then(|path| File::open(path).ok()).ok_or(error)
    });
    let mut input = BufReader::new(opened.with_context(cannot("read"))?);
    let mut out = pmdscope_files::create(target, FileMode::default())
        .with_context(|| format!("cannot write {}", target.display()))?;
    let since_ns = options.since.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos();
    let mut filter = LineFilter {
        since_ns,
        app: options.app,
        header: None,
        round: Vec::new(),
        kept: Vec::new(),
        apps,
        redactor,
    };
    loop {
        match begin_frame(&mut input).with_context(cannot("read"))? {
            FrameBegin::End => return Ok(None),
            FrameBegin::Skipped => continue,
            FrameBegin::Lines => {}
        }
        let mut decoder = Decoder::with_buffer(&mut input)?.single_frame();
        decoder.window_log_max(LARGEST_WINDOW)?;
        let damage = filter.read_frame(&mut BufReader::new(decoder));
        let lines = filter.end_frame();
        if !lines.is_empty() {
            let mut encoder = Encoder::new(&mut out, LEVEL)?;
            encoder.include_checksum(true)?;
            let written = encoder.write_all(&lines).and_then(|()| encoder.finish());
            written.with_context(|| format!("cannot write {}", target.display()))?;
        }
        if let Err(error) = damage {
            let is_cut = error.kind() == ErrorKind::UnexpectedEof;
            // It is being written, or its recorder was killed: what was flushed was copied.
            return Ok((!is_cut).then(|| format!("the rest is damaged: {error}")));
        }
    }
}

enum FrameBegin {
    Lines,
    Skipped,
    End,
}

/// Reads the header of the next frame, and skips one without lines.
fn begin_frame(input: &mut BufReader<File>) -> std::io::Result<FrameBegin> {
    let ahead = input.fill_buf()?;
    if ahead.is_empty() {
        return Ok(FrameBegin::End);
    }
    let magic = ahead.first_chunk().map_or(0, |magic| u32::from_le_bytes(*magic));
    if magic & !0xf != SKIPPABLE {
        return Ok(FrameBegin::Lines);
    }
    let mut head = [0; 8];
    input.read_exact(&mut head)?;
    let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    std::io::copy(&mut input.by_ref().take(size.into()), &mut std::io::sink())?;
    Ok(FrameBegin::Skipped)
}

/// Of a line, what decides whether to keep it.
#[derive(Deserialize)]
struct Line<'a> {
    header: Option<IgnoredAny>,
    #[serde(borrow)]
    sample: Option<SampleHead<'a>>,
    #[serde(borrow)]
    lost: Option<AppHead<'a>>,
    #[serde(borrow)]
    gone: Option<AppHead<'a>>,
    round: Option<RoundHead>,
}

#[derive(Deserialize)]
struct SampleHead<'a> {
    #[serde(borrow)]
    app: NameHead<'a>,
}

#[derive(Deserialize)]
struct NameHead<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct AppHead<'a> {
    #[serde(borrow)]
    app: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct RoundHead {
    realtime_ns: u128,
}

/// Keeps the lines of rounds that are recent enough.
struct LineFilter<'a> {
    since_ns: u128,
    app: Option<&'a str>,
    /// Of the file, until it was copied.
    header: Option<Vec<u8>>,
    /// Lines since the last end of a round, and apps that they are samples of.
    round: Vec<(Vec<u8>, Option<String>)>,
    /// Lines to write.
    kept: Vec<u8>,
    apps: &'a mut BTreeSet<String>,
    redactor: Option<&'a mut Redactor>,
}

impl LineFilter<'_> {
    fn read_frame(&mut self, lines: &mut impl BufRead) -> std::io::Result<()> {
        loop {
            let mut line = Vec::new();
            let size = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if size == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.take(line);
            if self.kept.len() > MOST_OF_A_FRAME {
                return Err(std::io::Error::other("a frame is too large"));
            }
        }
    }

    fn take(&mut self, line: Vec<u8>) {
        let Ok(head) = serde_json::from_slice::<Line<'_>>(&line) else { return };
        if head.header.is_some() {
            self.header = Some(line);
            return;
        }
        let sampled = head.sample.map(|sample| sample.app.name);
        let other = head.lost.or(head.gone).map(|lost| lost.app);
        let about = sampled.as_ref().or(other.as_ref());
        if about.is_some_and(|about| self.app.is_some_and(|app| app != about)) {
            return;
        }
        let end = head.round.map(|round| round.realtime_ns);
        let sampled = sampled.map(std::borrow::Cow::into_owned);
        self.round.push((line, sampled));
        if let Some(realtime_ns) = end {
            if realtime_ns >= self.since_ns {
                self.keep_round();
            }
            self.round.clear();
        }
    }

    fn keep_round(&mut self) {
        if let Some(header) = self.header.take() {
            self.keep(&header);
        }
        for (line, sampled) in std::mem::take(&mut self.round) {
            self.keep(&line);
            self.apps.extend(sampled);
        }
    }

    fn keep(&mut self, line: &[u8]) {
        match (&mut self.redactor, str::from_utf8(line)) {
            (None, _) => self.kept.extend_from_slice(line),
            (Some(redactor), Ok(text)) => {
                self.kept.extend_from_slice(redactor.text(text).as_bytes());
            }
            // No line of a recording.
            (Some(_), Err(_)) => {}
        }
    }

    /// The lines to write of this frame.
    fn end_frame(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
