//! Plays recordings back as fleet states.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock_steps;
use super::file::{RecordingFile, files};
use super::index::FrameSpan;
use super::note::{PlaybackNote, note, time};
use super::reader::{RoundBatch, RoundReader};
use super::{LostApp, RecordEntry, RecordingError};
use pmdscope_telemetry::finding::LintRules;
use pmdscope_telemetry::fleet::{Evaluator, FleetSettings};
use pmdscope_telemetry::{FleetEvent, FleetState, InterfaceEvaluator};

/// Time that is read before a requested time, so that trends are those of a live view.
const WARM_UP_NS: u64 = 60_000_000_000;

/// Most files that are read at the same time, which is needed only if recordings overlap.
const MOST_OPEN: usize = 64;

/// Most apps of a recording.
const MOST_APPS: usize = 4096;

/// Longest name of an app, bytes.
const LONGEST_NAME: usize = 4096;

/// Most bytes of the last lines of all apps together.
const MOST_HELD: usize = 256 << 20;

/// A recording that is being read.
#[derive(Debug)]
pub struct RecordingPlayer {
    rules: LintRules,
    /// Files by their start times.
    sources: Vec<RecordingFile>,
    /// Sources that were not reached yet, each with its first frame to read.
    upcoming: VecDeque<(usize, usize)>,
    open: Vec<Cursor>,
    /// Apps that are being played.
    apps: BTreeMap<String, Playing>,
    /// All apps found so far.
    met: BTreeSet<String>,
    /// Runs of recorders with entries in the state.
    runs: BTreeSet<u64>,
    only: Option<String>,
    interfaces: InterfaceEvaluator,
    /// Run of the recorder of the interfaces in the state.
    interfaces_run: Option<u64>,
    fleet: FleetState,
    notes: Vec<PlaybackNote>,
    /// Limit of bytes, [`MOST_HELD`] except in tests.
    most_held: usize,
}

/// The read position in one source.
#[derive(Debug)]
struct Cursor {
    source: usize,
    rounds: RoundReader,
    /// The next round.
    head: RoundBatch,
}

#[derive(Debug)]
struct Playing {
    /// Run of its recorder.
    run: u64,
    evaluator: Evaluator,
    /// Bytes of the line with its last sample, and of the line that says why it does not answer.
    sample: usize,
    lost: usize,
}

impl RecordingPlayer {
    /// Opens a file, or all recordings in a directory. The rules of the settings apply. Apps have
    /// the names in the recording, and expected apps that are not in it are not reported as
    /// missing.
    ///
    /// # Errors
    /// When nothing in it can be read, or a later version of this tool wrote it.
    pub fn open(path: &Path, settings: &FleetSettings) -> Result<Self, RecordingError> {
        Self::open_files(&files(path)?, settings)
    }

    /// Like [`Self::open`] for these files, at least one, which must not be moved.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_files(paths: &[PathBuf], settings: &FleetSettings) -> Result<Self, RecordingError> {
        let mut notes = Vec::new();
        let mut sources = Vec::new();
        let mut failed = None;
        for path in paths {
            match RecordingFile::open(path, &mut notes) {
                Ok(source) => sources.push(source),
                Err(error @ RecordingError::Newer { .. }) => return Err(error),
                Err(error) => {
                    note(&mut notes, path, 0, None, error.to_string());
                    failed.get_or_insert(error);
                }
            }
        }
        if let (true, Some(error)) = (sources.is_empty(), failed) {
            return Err(error);
        }
        clock_steps::correct(&mut sources, &mut notes)?;
        sources.sort_by_key(RecordingFile::first_ns);
        note_restarts(&sources, &mut notes);
        let mut player = Self {
            rules: settings.rules.clone(),
            sources,
            upcoming: VecDeque::new(),
            open: Vec::new(),
            apps: BTreeMap::new(),
            met: BTreeSet::new(),
            runs: BTreeSet::new(),
            only: None,
            interfaces: InterfaceEvaluator::new(settings.rules.thresholds),
            interfaces_run: None,
            fleet: FleetState::default(),
            notes,
            most_held: MOST_HELD,
        };
        player.rewind(0);
        Ok(player)
    }

    /// Plays only this app, from the start.
    pub fn only(&mut self, app: &str) {
        self.only = Some(app.to_owned());
        self.rewind(0);
    }

    /// Returns the wall clock of the first and the last entry, nanoseconds since the epoch. If it
    /// was set back, later times are derived from the monotonic clock, here and in
    /// [`FleetState::realtime_ns`].
    pub fn span(&self) -> (u64, u64) {
        let first = self.sources.iter().map(RecordingFile::first_ns).min();
        let last = self.sources.iter().map(RecordingFile::last_ns).max();
        (first.unwrap_or(0), last.unwrap_or(0))
    }

    /// Returns the UTC offset of the local time of the recorder, seconds east of UTC.
    pub fn utc_offset_s(&self) -> i32 {
        self.sources.last().map_or(0, |source| source.header().utc_offset_s)
    }

    /// Returns the name of the recorded machine; empty if the recording does not have it.
    pub fn host(&self) -> &str {
        self.sources.last().map_or("", |source| source.header().host.as_str())
    }

    /// Returns the apps of the recording, as far as they are known: those of a file without an
    /// index are known only after they were read.
    pub fn apps(&self) -> BTreeSet<&str> {
        let listed = self.sources.iter().flat_map(RecordingFile::apps);
        listed.chain(&self.met).map(String::as_str).collect()
    }

    /// Returns what is damaged or missing in the parts read so far.
    pub fn notes(&self) -> &[PlaybackNote] {
        &self.notes
    }

    /// Returns the state at the current position.
    pub fn fleet(&self) -> &FleetState {
        &self.fleet
    }

    /// Seeks to a time: the state is that of the last round up to it, or of the first round if
    /// there is none before. Trends are as if the preceding 60 s had been watched.
    ///
    /// # Errors
    /// When a file can no longer be read.
    pub fn seek(&mut self, realtime_ns: u64) -> Result<&FleetState, RecordingError> {
        let at = self.fleet.realtime_ns;
        let near = at > 0 && at <= realtime_ns && realtime_ns - at <= WARM_UP_NS;
        if !near {
            self.rewind(self.warm_up_for(realtime_ns));
            self.step()?;
        }
        while self.next_ns()?.is_some_and(|next| next <= realtime_ns) && self.step()? {}
        Ok(&self.fleet)
    }

    /// Plays the next round and returns the state after it; `None` at the end.
    ///
    /// # Errors
    /// When a file can no longer be read.
    #[allow(clippy::should_implement_trait)] // it returns a reference, and can fail
    pub fn next(&mut self) -> Result<Option<&FleetState>, RecordingError> {
        Ok(if self.step()? { Some(&self.fleet) } else { None })
    }

    /// Returns the time from which to read for a time: [`WARM_UP_NS`] before the start of its
    /// frame.
    fn warm_up_for(&self, realtime_ns: u64) -> u64 {
        let frames =
            self.sources.iter().flat_map(RecordingFile::frames).map(|frame| frame.first_ns);
        let begin = frames.filter(|first| *first <= realtime_ns).max().unwrap_or(0);
        begin.saturating_sub(WARM_UP_NS)
    }

    /// Clears the state, to continue from a time.
    fn rewind(&mut self, realtime_ns: u64) {
        self.open.clear();
        self.apps.clear();
        self.runs.clear();
        self.fleet = FleetState::default();
        self.forget_interfaces();
        let later = |(number, source): (usize, &RecordingFile)| {
            let frame = frame_for(source.frames(), realtime_ns);
            (source.last_ns() >= realtime_ns).then_some((number, frame))
        };
        let mut upcoming: Vec<_> = self.sources.iter().enumerate().filter_map(later).collect();
        upcoming.sort_by_key(|(source, frame)| self.sources[*source].frames()[*frame].first_ns);
        self.upcoming = upcoming.into();
    }

    /// Returns the wall clock of the next round.
    fn next_ns(&mut self) -> Result<Option<u64>, RecordingError> {
        Ok(self.next_cursor()?.map(|cursor| self.open[cursor].head.round.realtime_ns))
    }

    /// Returns the open file that has the next round.
    fn next_cursor(&mut self) -> Result<Option<usize>, RecordingError> {
        loop {
            let heads = self.open.iter().enumerate();
            let next = heads.min_by_key(|(_, cursor)| cursor.head.round.realtime_ns);
            let next = next.map(|(at, cursor)| (at, cursor.head.round.realtime_ns));
            let due = self.upcoming.front().is_some_and(|(source, frame)| {
                let begin = self.sources[*source].frames()[*frame].first_ns;
                next.is_none_or(|(_, earliest)| begin <= earliest)
            });
            if !due {
                return Ok(next.map(|(cursor, _)| cursor));
            }
            if let Some((source, frame)) = self.upcoming.pop_front() {
                self.reach(source, frame)?;
            }
        }
    }

    fn reach(&mut self, number: usize, frame: usize) -> Result<(), RecordingError> {
        let source = &self.sources[number];
        if self.open.len() >= MOST_OPEN {
            let text = format!("is left out: {MOST_OPEN} others were recorded at the same time");
            note(&mut self.notes, source.path(), 0, Some(source.first_ns()), text);
            return Ok(());
        }
        let mut rounds = RoundReader::open(source, frame)?;
        if let Some(head) = rounds.next(source, &mut self.notes)? {
            self.open.push(Cursor { source: number, rounds, head });
        }
        Ok(())
    }

    /// Applies the next round; returns false at the end.
    fn step(&mut self) -> Result<bool, RecordingError> {
        let Some(at) = self.next_cursor()? else { return Ok(false) };
        let cursor = &mut self.open[at];
        let number = cursor.source;
        let batch = match cursor.rounds.next(&self.sources[number], &mut self.notes)? {
            Some(next) => std::mem::replace(&mut cursor.head, next),
            None => self.open.swap_remove(at).head,
        };
        let run = self.sources[number].header().run;
        if !self.runs.contains(&run) {
            self.begin_run(run);
        }
        self.note_missed(number, &batch);
        for (entry, bytes) in batch.entries {
            self.apply(number, batch.offset, entry, bytes);
        }
        self.fleet.now_ns = batch.round.monotonic_ns;
        self.fleet.realtime_ns = batch.round.realtime_ns;
        Ok(true)
    }

    /// Begins to play another run of a recorder, and removes apps and interfaces that only ended
    /// runs have recorded.
    fn begin_run(&mut self, run: u64) {
        let open = self.open.iter().map(|cursor| self.sources[cursor.source].header().run);
        self.runs = open.chain([run]).collect();
        let ended = |playing: &Playing| !self.runs.contains(&playing.run);
        let gone: Vec<String> =
            self.apps.iter().filter(|(_, p)| ended(p)).map(|(app, _)| app.clone()).collect();
        for app in gone {
            self.remove(app);
        }
        if self.interfaces_run.is_some_and(|run| !self.runs.contains(&run)) {
            self.forget_interfaces();
        }
    }

    fn forget_interfaces(&mut self) {
        self.interfaces = InterfaceEvaluator::new(self.rules.thresholds);
        if let Some(app) = &self.only {
            self.interfaces.only(&[app]);
        }
        self.interfaces_run = None;
        self.fleet.apply(FleetEvent::Interfaces(Arc::default()));
    }

    fn remove(&mut self, app: String) {
        self.apps.remove(&app);
        self.fleet.apply(FleetEvent::Gone { app });
    }

    fn apply(&mut self, source: usize, offset: u64, entry: RecordEntry<'static>, bytes: usize) {
        if let Some(app) = entry.app()
            && !(self.meet(source, offset, app) && self.hold(source, offset, &entry, app, bytes))
        {
            return;
        }
        match entry {
            RecordEntry::Sample(sample) => {
                if let Some(playing) = self.apps.get_mut(&sample.app.name) {
                    self.fleet.apply(playing.evaluator.sampled(sample.into_owned()));
                }
            }
            RecordEntry::Lost(lost) => self.lose(lost),
            RecordEntry::Gone(gone) => self.remove(gone.app),
            RecordEntry::Interfaces(of) => {
                self.interfaces_run = Some(self.sources[source].header().run);
                let read = of.error.map_or(Ok(of.interfaces), Err);
                self.fleet.apply(self.interfaces.event(read, of.monotonic_ns));
            }
            RecordEntry::Gap(gap) => {
                let text = format!(
                    "{} rounds from {} to {} could not be written: {}",
                    gap.rounds,
                    time(gap.from_realtime_ns),
                    time(gap.realtime_ns),
                    gap.reason
                );
                let from = Some(gap.from_realtime_ns);
                note(&mut self.notes, self.sources[source].path(), offset, from, text);
            }
            RecordEntry::Header(_) | RecordEntry::Round(_) => {}
        }
    }

    /// Begins to play an app, unless it is known already; returns false if it is not played.
    fn meet(&mut self, source: usize, offset: u64, app: &str) -> bool {
        let run = self.sources[source].header().run;
        if let Some(playing) = self.apps.get(app) {
            let plays = |cursor: &Cursor| self.sources[cursor.source].header().run == playing.run;
            if playing.run == run {
                return true;
            }
            if self.open.iter().any(plays) {
                let text =
                    format!("another recorder asked {app} at that time; this one is left out");
                note(&mut self.notes, self.sources[source].path(), 0, None, text);
                return false;
            }
        }
        let unmet = !self.met.contains(app);
        let wrong = if app.len() > LONGEST_NAME {
            Some(format!(
                "has an app with a name of more than {LONGEST_NAME} bytes; it is left out"
            ))
        } else if unmet && self.met.len() >= MOST_APPS {
            Some(format!("has more than {MOST_APPS} apps; the others are left out"))
        } else {
            None
        };
        if let Some(text) = wrong {
            note(&mut self.notes, self.sources[source].path(), offset, None, text);
            return false;
        }
        self.met.insert(app.to_owned());
        if self.only.as_deref().is_some_and(|only| only != app) {
            return false;
        }
        let evaluator = Evaluator::new(self.rules.clone());
        self.apps.insert(app.to_owned(), Playing { run, evaluator, sample: 0, lost: 0 });
        true
    }

    /// Counts the bytes of an app that is played; returns false, and removes it, when there are too
    /// many.
    fn hold(
        &mut self,
        source: usize,
        offset: u64,
        entry: &RecordEntry,
        app: &str,
        bytes: usize,
    ) -> bool {
        let Some(playing) = self.apps.get_mut(app) else { return false };
        match entry {
            RecordEntry::Sample(_) => (playing.sample, playing.lost) = (bytes, 0),
            RecordEntry::Lost(_) => playing.lost = bytes,
            _ => return true,
        }
        let held: usize = self.apps.values().map(|playing| playing.sample + playing.lost).sum();
        if held <= self.most_held {
            return true;
        }
        self.remove(app.to_owned());
        let mib = self.most_held >> 20;
        let text = format!("has more than {mib} MiB of apps at once; {app} is left out");
        note(&mut self.notes, self.sources[source].path(), offset, None, text);
        false
    }

    fn lose(&mut self, lost: LostApp) {
        let LostApp { app, class, reason, silent_ns, errors, findings, .. } = lost;
        self.fleet.apply(FleetEvent::Lost { app: app.clone(), class, reason, finding: None });
        if let Some(member) = self.fleet.apps.iter_mut().find(|member| member.name == app) {
            (member.silent_ns, member.errors) = (silent_ns, errors);
            member.findings = findings.into_iter().filter_map(|f| f.finding(&app)).collect();
        }
    }

    /// Notes rounds that a recorder was too slow for, from a second on.
    fn note_missed(&mut self, source: usize, batch: &RoundBatch) {
        let source = &self.sources[source];
        let missed = batch.round.missed;
        if missed.saturating_mul(source.header().interval_ms) >= 1000 {
            let until = batch.round.realtime_ns;
            let text = format!("{missed} rounds before {} were missed", time(until));
            note(&mut self.notes, source.path(), batch.offset, Some(until), text);
        }
    }
}

/// Notes the times between runs that were not recorded.
fn note_restarts(sources: &[RecordingFile], notes: &mut Vec<PlaybackNote>) {
    let mut latest: Option<(u64, u64)> = None;
    for source in sources {
        let (run, first, last) = (source.header().run, source.first_ns(), source.last_ns());
        if let Some((before, until)) = latest
            && before != run
            && until < first
        {
            let text = format!("nothing is recorded from {} to {}", time(until), time(first));
            note(notes, source.path(), 0, Some(until), text);
        }
        if latest.is_none_or(|(_, until)| until <= last) {
            latest = Some((run, last));
        }
    }
}

/// Returns the number of the frame to read first for a time.
fn frame_for(frames: &[FrameSpan], realtime_ns: u64) -> usize {
    let begun = |frame: &FrameSpan| frame.first_ns <= realtime_ns;
    let holds = |frame: &FrameSpan| begun(frame) && realtime_ns <= frame.last_ns;
    let frame = frames.iter().rposition(holds).or_else(|| frames.iter().rposition(begun));
    frame.unwrap_or(0)
}

#[cfg(test)]
#[path = "player_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "player_file_tests.rs"]
mod file_tests;
