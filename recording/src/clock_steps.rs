//! Recordings in which the wall clock was set back: later times are derived from the monotonic
//! clock, so that time never goes back during playback.

use std::collections::BTreeMap;

use super::file::RecordingFile;
use super::note::{PlaybackNote, note, time};
use super::reader::RoundReader;
use super::{RecordingError, RoundEnd};

/// Longest time between two rounds of one recording; limits the effect of damaged files.
const LONGEST_PAUSE_NS: u64 = 24 * 3600 * 1_000_000_000;

/// A clock that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SteadyClock {
    /// Correction that is added to the wall clock, nanoseconds.
    added_ns: u64,
    /// The last corrected time, and the monotonic clock at that time.
    last: Option<RoundEnd>,
}

impl SteadyClock {
    /// Sets the correction of the wall clock, nanoseconds.
    pub(super) fn begin_frame(&mut self, added_ns: u64) {
        self.added_ns = added_ns;
    }

    /// Returns a round for which only the wall clock is known.
    fn at_wall(&self, realtime_ns: u64) -> RoundEnd {
        let monotonic_ns = self.last.map_or(0, |last| last.monotonic_ns);
        RoundEnd { realtime_ns, monotonic_ns, missed: 0 }
    }

    /// Returns the corrected time of a round, given the rounds before it.
    pub(super) fn update(&mut self, round: RoundEnd) -> u64 {
        let wall_ns = round.realtime_ns;
        let Some(last) = self.last else {
            let realtime_ns = wall_ns.saturating_add(self.added_ns);
            self.last = Some(RoundEnd { realtime_ns, ..round });
            return realtime_ns;
        };
        if wall_ns >= last.realtime_ns {
            self.added_ns = 0;
        } else if wall_ns.saturating_add(self.added_ns) < last.realtime_ns {
            let passed_ns = round.monotonic_ns.saturating_sub(last.monotonic_ns);
            let now_ns = last.realtime_ns.saturating_add(passed_ns.min(LONGEST_PAUSE_NS));
            self.added_ns = now_ns.saturating_sub(wall_ns);
        }
        let realtime_ns = wall_ns.saturating_add(self.added_ns);
        self.last = Some(RoundEnd { realtime_ns, ..round });
        realtime_ns
    }
}

/// Corrects the times of all recordings of each boot of the machine, by any recorder, and notes
/// each step back.
///
/// # Errors
/// When a file can no longer be read.
pub(super) fn correct(
    sources: &mut [RecordingFile],
    notes: &mut Vec<PlaybackNote>,
) -> Result<(), RecordingError> {
    let mut boots: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, source) in sources.iter().enumerate() {
        let boot = match source.header().boot_id.as_str() {
            "" => source.path().display().to_string(),
            boot => boot.to_owned(),
        };
        boots.entry(boot).or_default().push(number);
    }
    for numbers in boots.into_values() {
        let begins = begins(sources, &numbers)?;
        if goes_back(sources, &begins) {
            correct_boot(sources, begins, notes)?;
        }
    }
    Ok(())
}

/// Returns the first rounds of these files, in the order of the monotonic clock. A single file need
/// not be read.
fn begins(
    sources: &[RecordingFile],
    numbers: &[usize],
) -> Result<Vec<(RoundEnd, usize)>, RecordingError> {
    if let [number] = numbers {
        return Ok(vec![(RoundEnd::default(), *number)]);
    }
    let mut begins = Vec::new();
    for number in numbers {
        let source = &sources[*number];
        let first = RoundReader::open(source, 0)?.next(source, &mut Vec::new())?;
        begins.push((first.map(|batch| batch.round).unwrap_or_default(), *number));
    }
    begins.sort_by_key(|(first, number)| (first.monotonic_ns, *number));
    Ok(begins)
}

/// Returns whether the wall clock of these files, in this order, is ever before that of earlier
/// rounds. In most cases it is not, and nothing else needs to be read.
fn goes_back(sources: &[RecordingFile], begins: &[(RoundEnd, usize)]) -> bool {
    let within = |source: &RecordingFile| {
        source.frames().windows(2).any(|pair| pair[1].first_ns < pair[0].last_ns)
    };
    let files = || begins.iter().map(|(_, number)| &sources[*number]);
    files().any(within)
        || files().zip(files().skip(1)).any(|(one, next)| next.first_ns() < one.last_ns())
}

/// Corrects the files of one boot of the machine, in this order.
fn correct_boot(
    sources: &mut [RecordingFile],
    begins: Vec<(RoundEnd, usize)>,
    notes: &mut Vec<PlaybackNote>,
) -> Result<(), RecordingError> {
    // The end of the file that ended latest so far.
    let mut before: Option<FileEnd> = None;
    for (first, number) in begins {
        let begin = before.as_ref().map_or_else(FileEnd::default, |end| end.go_on(first));
        let end = correct_file(&mut sources[number], begin, notes)?;
        if before.as_ref().is_none_or(|before| before.monotonic_ns() <= end.monotonic_ns()) {
            before = Some(end);
        }
    }
    Ok(())
}

/// The state at the end of a file.
#[derive(Debug, Default)]
struct FileEnd {
    clock: SteadyClock,
    /// Its uncorrected wall clock; `None` before the first file.
    wall_ns: Option<u64>,
}

impl FileEnd {
    fn monotonic_ns(&self) -> u64 {
        self.clock.last.map_or(0, |last| last.monotonic_ns)
    }

    /// Returns the state from which a file with this first round is corrected.
    fn go_on(&self, first: RoundEnd) -> Self {
        if self.monotonic_ns() <= first.monotonic_ns {
            return Self { clock: self.clock, wall_ns: self.wall_ns };
        }
        // Two recorders that run at the same time have the same clock.
        let after_step = self.wall_ns.is_some_and(|wall_ns| first.realtime_ns < wall_ns);
        let added_ns = if after_step { self.clock.added_ns } else { 0 };
        Self { clock: SteadyClock { added_ns, last: None }, wall_ns: None }
    }
}

/// Corrects the frames of one file, given the end of the files before it; returns its end.
fn correct_file(
    source: &mut RecordingFile,
    FileEnd { mut clock, mut wall_ns }: FileEnd,
    notes: &mut Vec<PlaybackNote>,
) -> Result<FileEnd, RecordingError> {
    let mut added = Vec::new();
    for frame in 0..source.frames().len() {
        let span = source.frames()[frame];
        let set_back_from = wall_ns.filter(|wall_ns| span.first_ns < *wall_ns);
        if let Some(from) = set_back_from {
            let (from, to) = (time(from), time(span.first_ns));
            let text = format!(
                "the wall clock was set back from {from} to {to}; later times go on by the monotonic \
                 clock"
            );
            note(notes, source.path(), span.offset, Some(span.first_ns), text);
        }
        let next = source.frames().get(frame + 1);
        // The times of other frames are correct, and these frames need not be read.
        let is_doubtful = set_back_from.is_some() || next.is_none_or(|n| n.first_ns < span.last_ns);
        let rounds = if is_doubtful { rounds_of_frame(source, frame)? } else { Vec::new() };
        let begin = rounds.first().copied().unwrap_or_else(|| clock.at_wall(span.first_ns));
        let begin_ns = clock.update(begin);
        added.push(begin_ns.saturating_sub(begin.realtime_ns));
        for round in rounds.iter().skip(1) {
            clock.update(*round);
        }
        if rounds.is_empty() {
            let end = clock.at_wall(span.last_ns);
            clock.update(end);
        }
        wall_ns = Some(span.last_ns);
    }
    source.add_to_times(added);
    Ok(FileEnd { clock, wall_ns })
}

/// Returns the ends of the rounds of one frame, as its recorder wrote them.
fn rounds_of_frame(source: &RecordingFile, frame: usize) -> Result<Vec<RoundEnd>, RecordingError> {
    // Damage is noted when the frame is played.
    let mut unheard = Vec::new();
    let mut reader = RoundReader::open(source, frame)?;
    let mut rounds = Vec::new();
    let offset = source.offset_before(frame + 1);
    while let Some(batch) = reader.next(source, &mut unheard)?.filter(|b| b.offset == offset) {
        rounds.push(batch.round);
    }
    Ok(rounds)
}
