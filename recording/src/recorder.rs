//! Writes fleet states into files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_files::{Directory, FileMode};

use super::frame::FrameEncoder;
use super::index::FrameIndex;
use super::retention::Retention;
use super::storage::{RecordingDestination, RecordingFileWriter, is_full};
use super::{
    AbsenceFinding, GoneApp, LostApp, RECORD_SCHEMA, RecordEntry, RecordedInterfaces,
    RecordingError, RecordingGap, RecordingHeader, RoundEnd,
};
use pmdscope_telemetry::sample::SAMPLE_SCHEMA;
use pmdscope_telemetry::{AppState, AppStatus, ErrorClass, FleetState};

/// Time that a frame covers: a shorter one compresses worse, a longer one makes seeking slower.
const FRAME_NS: u64 = 5_000_000_000;

/// A frame with this many lines ends before its time.
const FRAME_ENTRIES: u64 = 1000;

/// Time between two flushes, somewhat less than a second because rounds do not come at exact times.
const FLUSH_NS: u64 = 900_000_000;

/// Where and how to record.
#[derive(Clone, Debug, Default)]
pub struct RecordingOptions {
    /// A file, or a directory in which files are named by their start times. The name of a
    /// directory that does not exist must end with a slash.
    pub path: PathBuf,
    /// Time between two rounds, as information for readers.
    pub interval: Duration,
    /// Access mode of files.
    pub mode: FileMode,
    /// Bytes on disk after which the next file begins. Like all options below, it needs a
    /// directory.
    pub rotate_size: Option<u64>,
    /// Time after which the next file begins.
    pub rotate_age: Option<Duration>,
    /// Complete files that ended longer ago are deleted.
    pub keep: Option<Duration>,
    /// Most bytes of all files; beyond that, the oldest are deleted.
    pub max_size: Option<u64>,
}

/// Counters of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingTotals {
    /// Rounds that were written.
    pub rounds: u64,
    /// Rounds that were due, but not sampled.
    pub missed: u64,
    /// Rounds that were sampled, but could not be written because the disk was full.
    pub dropped: u64,
    /// Samples written.
    pub samples: u64,
    /// How often apps did not answer.
    pub lost: u64,
    /// Apps in the last round.
    pub apps: usize,
    /// Bytes written, also to files that were deleted since.
    pub bytes: u64,
    /// Files begun.
    pub files: u64,
    /// The file that is being written, or was written last.
    pub file: PathBuf,
    /// Reason why nothing can be written now.
    pub waiting: Option<String>,
}

/// Writes the states of one fleet.
#[derive(Debug)]
pub struct TelemetryRecorder {
    recording: RecordingOptions,
    place: RecordingDestination,
    kept: Retention,
    header: RecordingHeader,
    storage: Option<RecordingFileWriter>,
    frame: Option<FrameEncoder>,
    index: FrameIndex,
    /// Wall clock at the start of the file, and when it was flushed last.
    file_ns: u64,
    flushed_ns: u64,
    /// The last entry written of each app.
    known: BTreeMap<String, Known>,
    /// Monotonic clock of the interfaces that were written last; `None` if there were none.
    interfaces: Option<u64>,
    gap: Option<RecordingGap>,
    totals: RecordingTotals,
    /// Bytes of complete files.
    complete_bytes: u64,
}

/// The last entry written of one app.
#[derive(Debug, Default)]
struct Known {
    monotonic_ns: u64,
    errors: BTreeMap<ErrorClass, u64>,
}

impl TelemetryRecorder {
    /// Begins the first file.
    ///
    /// # Errors
    /// When the file cannot be created, or the options contradict each other.
    pub fn create(recording: RecordingOptions, realtime_ns: u64) -> Result<Self, RecordingError> {
        let place = RecordingDestination::of(&recording.path);
        if let Some(wrong) = contradiction(&recording, &place) {
            return Err(RecordingError::Options(wrong));
        }
        if let RecordingDestination::Directory(dir) = &place {
            Directory::create(dir).map_err(|error| RecordingError::io("create", dir, error))?;
        }
        let storage = place.create(realtime_ns, recording.mode)?;
        let kept = Retention::new(place.dir(), recording.keep, recording.max_size);
        let mut recorder = Self {
            header: header(recording.interval, realtime_ns),
            recording,
            place,
            kept,
            storage: None,
            frame: None,
            index: FrameIndex::new(),
            file_ns: 0,
            flushed_ns: 0,
            known: BTreeMap::new(),
            interfaces: None,
            gap: None,
            totals: RecordingTotals::default(),
            complete_bytes: 0,
        };
        recorder.begin_file(storage, realtime_ns);
        Ok(recorder)
    }

    /// Returns the counters so far.
    pub fn totals(&self) -> &RecordingTotals {
        &self.totals
    }

    /// Writes the changes in the state of a round; `missed` rounds before it were due, but not
    /// sampled. While the disk is full, rounds are only counted.
    ///
    /// # Errors
    /// When the file cannot be written for another reason than a full disk.
    pub fn record(&mut self, fleet: &FleetState, missed: u64) -> Result<(), RecordingError> {
        self.totals.missed += missed;
        self.totals.apps = fleet.apps.len();
        if !self.ready(fleet.realtime_ns)? {
            self.skip(fleet.realtime_ns);
            return Ok(());
        }
        let written = self
            .write(fleet, missed)
            .map_err(|error| RecordingError::io("compress", &self.totals.file, error));
        written?;
        self.totals.rounds += 1;
        if fleet.realtime_ns.abs_diff(self.flushed_ns) >= FLUSH_NS {
            self.flush(fleet.realtime_ns)?;
        }
        Ok(())
    }

    /// Completes the file, and returns the counters.
    ///
    /// # Errors
    /// When its end cannot be written: the file keeps the name with `.part`, and can be read.
    pub fn finish(mut self) -> Result<RecordingTotals, RecordingError> {
        self.end_frame()?;
        self.complete()?;
        Ok(self.totals)
    }

    /// Returns whether a round can be written now; begins the next file if it is due.
    fn ready(&mut self, now_ns: u64) -> Result<bool, RecordingError> {
        if !self.drain()? {
            return Ok(false);
        }
        if self.is_due(now_ns) {
            self.end_frame()?;
            if !self.drain()? {
                return Ok(false);
            }
            self.complete()?;
        }
        if self.storage.is_none() {
            self.kept.trim(0, SystemTime::now());
            match self.place.create(now_ns, self.recording.mode) {
                Ok(storage) => self.begin_file(storage, now_ns),
                Err(RecordingError::Io { source, .. }) if is_full(&source) => {
                    self.wait_for(&source);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns whether the next file is due.
    fn is_due(&self, now_ns: u64) -> bool {
        let Some(storage) = &self.storage else { return false };
        let age = Duration::from_nanos(now_ns.abs_diff(self.file_ns));
        self.recording.rotate_size.is_some_and(|size| storage.size() >= size)
            || self.recording.rotate_age.is_some_and(|limit| age >= limit)
    }

    fn begin_file(&mut self, storage: RecordingFileWriter, now_ns: u64) {
        self.totals.files += 1;
        storage.path().clone_into(&mut self.totals.file);
        self.storage = Some(storage);
        (self.file_ns, self.flushed_ns) = (now_ns, now_ns);
        self.index = FrameIndex::new();
    }

    fn write(&mut self, fleet: &FleetState, missed: u64) -> std::io::Result<()> {
        let now_ns = fleet.realtime_ns;
        let whole = |frame: &FrameEncoder| {
            now_ns.abs_diff(frame.first_ns()) >= FRAME_NS || frame.entries() >= FRAME_ENTRIES
        };
        if self.frame.as_ref().is_some_and(whole) {
            self.compress_frame()?;
        }
        let offset = self.storage.as_ref().map_or(0, RecordingFileWriter::size);
        let begins = self.frame.is_none();
        let frame = match &mut self.frame {
            Some(frame) => frame,
            none => none.insert(FrameEncoder::begin(offset)?),
        };
        if offset == 0 && begins {
            frame.push(&RecordEntry::Header(RecordingHeader {
                realtime_ns: now_ns,
                ..self.header.clone()
            }))?;
        }
        if let Some(gap) = self.gap.take() {
            frame.push(&RecordEntry::Gap(RecordingGap { realtime_ns: now_ns, ..gap }))?;
        }
        let gone = self.known.keys().filter(|app| fleet.find(app).is_none());
        let gone: Vec<String> = gone.cloned().collect();
        for app in gone {
            self.known.remove(&app);
            frame.push(&RecordEntry::Gone(GoneApp { realtime_ns: now_ns, app }))?;
        }
        for member in &fleet.apps {
            let known = match self.known.get_mut(&member.name) {
                Some(known) => known,
                None => self.known.entry(member.name.clone()).or_default(),
            };
            let Some(entry) = changed_entry(member, known, now_ns, begins) else { continue };
            frame.push(&entry)?;
            self.index.note(&member.name);
            match entry {
                RecordEntry::Sample(_) => self.totals.samples += 1,
                _ => self.totals.lost += known.learn(&member.errors),
            }
        }
        let interfaces = &fleet.interfaces;
        let read_ns = (!interfaces.is_empty()).then_some(interfaces.monotonic_ns);
        if read_ns != self.interfaces {
            self.interfaces = read_ns;
            frame.push(&RecordEntry::Interfaces(RecordedInterfaces::of(interfaces, now_ns)))?;
        }
        let round = RoundEnd { realtime_ns: now_ns, monotonic_ns: fleet.now_ns, missed };
        frame.push(&RecordEntry::Round(round))
    }

    /// Writes the compressed data, and deletes files beyond the limits.
    fn flush(&mut self, now_ns: u64) -> Result<(), RecordingError> {
        self.flushed_ns = now_ns;
        if let (Some(frame), Some(storage)) = (&mut self.frame, &mut self.storage) {
            let flushed = frame.flush(storage.pending());
            flushed.map_err(|error| RecordingError::io("compress", storage.path(), error))?;
        }
        self.drain()?;
        let size = self.storage.as_ref().map_or(0, RecordingFileWriter::size);
        self.totals.bytes = self.complete_bytes + size;
        self.kept.trim(size, SystemTime::now());
        Ok(())
    }

    fn compress_frame(&mut self) -> std::io::Result<()> {
        if let (Some(frame), Some(storage)) = (self.frame.take(), &mut self.storage) {
            self.index.frames.push(frame.end(storage.pending())?);
        }
        Ok(())
    }

    fn end_frame(&mut self) -> Result<(), RecordingError> {
        self.compress_frame().map_err(|e| RecordingError::io("compress", &self.totals.file, e))
    }

    /// Completes the file and gives it its final name; deletes a file without entries.
    fn complete(&mut self) -> Result<(), RecordingError> {
        let Some(storage) = self.storage.take() else { return Ok(()) };
        if self.index.frames.is_empty() {
            return storage.discard();
        }
        let index = self.index.frame(storage.size());
        let index =
            index.map_err(|error| RecordingError::io("write", storage.path(), error.into()))?;
        let (path, size) = storage.close(&index)?;
        self.complete_bytes += size;
        self.totals.bytes = self.complete_bytes;
        self.kept.add(path);
        Ok(())
    }

    /// Writes pending data; returns false while the disk is full. The oldest files are deleted to
    /// make room.
    fn drain(&mut self) -> Result<bool, RecordingError> {
        let Some(storage) = &mut self.storage else { return Ok(true) };
        loop {
            match storage.drain() {
                Ok(()) => break,
                Err(error) if is_full(&error) => {
                    if !self.kept.delete_oldest() {
                        self.wait_for(&error);
                        return Ok(false);
                    }
                }
                Err(error) => return Err(RecordingError::io("write", storage.path(), error)),
            }
        }
        self.totals.waiting = None;
        Ok(true)
    }

    fn wait_for(&mut self, error: &std::io::Error) {
        self.totals.waiting = Some(error.to_string());
    }

    /// Counts a round that cannot be written.
    fn skip(&mut self, realtime_ns: u64) {
        self.totals.dropped += 1;
        let reason = self.totals.waiting.clone().unwrap_or_default();
        let from_realtime_ns = realtime_ns;
        let gap = RecordingGap { from_realtime_ns, realtime_ns, rounds: 0, reason };
        self.gap.get_or_insert(gap).rounds += 1;
    }
}

impl Known {
    /// Stores counts of errors, and returns how many are new.
    fn learn(&mut self, errors: &BTreeMap<ErrorClass, u64>) -> u64 {
        let before: u64 = self.errors.values().sum();
        self.errors.clone_from(errors);
        errors.values().sum::<u64>().saturating_sub(before)
    }
}

/// Returns the entry to write for an app, if any: its sample, or that it did not answer. `always`
/// repeats the latter.
fn changed_entry<'a>(
    member: &'a AppState,
    known: &mut Known,
    now_ns: u64,
    always: bool,
) -> Option<RecordEntry<'a>> {
    match &member.status {
        AppStatus::Waiting => None,
        AppStatus::Live => {
            let sample = &member.model.as_ref()?.sample;
            let new = sample.monotonic_ns != known.monotonic_ns;
            known.monotonic_ns = sample.monotonic_ns;
            new.then_some(RecordEntry::Sample(Cow::Borrowed(sample)))
        }
        AppStatus::Lost { reason } => {
            let grown = |(class, count): &(&ErrorClass, &u64)| {
                known.errors.get(class).is_none_or(|before| before < *count)
            };
            let grown = member.errors.iter().find(grown);
            if grown.is_none() && !always {
                return None;
            }
            let class = grown.or_else(|| member.errors.iter().next_back()).map(|(class, _)| *class);
            Some(RecordEntry::Lost(LostApp {
                realtime_ns: now_ns,
                app: member.name.clone(),
                class: class.unwrap_or(ErrorClass::Refused),
                reason: reason.clone(),
                silent_ns: member.silent_ns,
                errors: member.errors.clone(),
                findings: member.findings.iter().map(AbsenceFinding::from).collect(),
            }))
        }
    }
}

fn header(interval: Duration, run: u64) -> RecordingHeader {
    let kernel = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let now = Timestamp::from_nanosecond(run.into()).unwrap_or(Timestamp::MAX);
    RecordingHeader {
        schema: RECORD_SCHEMA,
        sample_schema: SAMPLE_SCHEMA,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        host: kernel("hostname"),
        boot_id: kernel("random/boot_id"),
        run,
        realtime_ns: run,
        interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        utc_offset_s: TimeZone::system().to_offset(now).seconds(),
    }
}

fn contradiction(
    recording: &RecordingOptions,
    place: &RecordingDestination,
) -> Option<&'static str> {
    let max_size = recording.max_size.unwrap_or(u64::MAX);
    let rotates = recording.rotate_size.is_some() || recording.rotate_age.is_some();
    let bounded = recording.keep.is_some() || recording.max_size.is_some();
    let checks = [
        (
            (rotates || bounded) && matches!(place, RecordingDestination::File(_)),
            "several files need a directory: -w DIR/",
        ),
        (
            bounded && !rotates,
            "only complete files are deleted: give --rotate-age or --rotate-size",
        ),
        (
            recording.rotate_size.is_some_and(|size| size > max_size / 2),
            "--rotate-size is more than half of --max-size: no complete file would remain",
        ),
        (
            recording.max_size.is_some() && recording.rotate_size.is_none(),
            "--max-size deletes complete files: give --rotate-size",
        ),
    ];
    checks.into_iter().find(|(wrong, _)| *wrong).map(|(_, reason)| reason)
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
