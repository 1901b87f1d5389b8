//! Decides when the next file begins, and its name.

use std::path::PathBuf;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::naming::{FileNaming, InvalidFileName};
use super::{FileRotation, FileSettings};

const SECOND: u64 = 1_000_000_000;
/// Time for which an aligned file stays open after its end: packets arrive a little after their time
/// stamps.
const SETTLE: u64 = SECOND / 5;

/// Why another file begins before a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RotationStep {
    BySize,
    ByTime,
}

/// The schedule of the files of a capture.
#[derive(Debug)]
pub(super) struct RotationSchedule {
    rotation: FileRotation,
    naming: FileNaming,
    /// Size limit of a file; without `exact`, the first packet beyond it begins the next file.
    size: u64,
    /// End of the period in nanoseconds, or [`u64::MAX`].
    period_end: u64,
    periods: u32,
    /// The system clock may end a period, not only packets.
    live: bool,
}

impl RotationSchedule {
    /// Returns a schedule for a first file that begins now.
    pub(super) fn new(settings: &FileSettings, now_ns: u64) -> Result<Self, InvalidFileName> {
        let rotation = settings.rotation.clone();
        let quota = settings.quota.map_or(u64::MAX, |quota| quota / 2);
        let mut schedule = Self {
            naming: FileNaming::new(&settings.path, &rotation, now_ns)?,
            size: rotation.bytes.unwrap_or(quota),
            period_end: u64::MAX,
            periods: 1,
            live: settings.begin_ns.is_none(),
            rotation,
        };
        schedule.begin_period(now_ns);
        Ok(schedule)
    }

    /// Returns the name of the current file.
    pub(super) fn path(&self) -> PathBuf {
        self.naming.path()
    }

    /// Returns whether a packet of `size` bytes at `ns` begins another file, if the current one has
    /// `position` bytes. The end of a file takes `reserve` more bytes.
    pub(super) fn due(
        &mut self,
        ns: u64,
        position: u64,
        size: u64,
        reserve: u64,
    ) -> Option<RotationStep> {
        if self.period_end != u64::MAX {
            let period = self.rotation.seconds.unwrap_or(0).saturating_mul(SECOND);
            if ns >= self.period_end {
                return Some(RotationStep::ByTime);
            }
            if self.period_end - ns > period.saturating_add(SECOND) {
                // The clock was set back.
                self.begin_period(ns);
            }
        }
        let full = if self.rotation.exact {
            position + size + reserve > self.size
        } else {
            position > self.size
        };
        full.then_some(RotationStep::BySize)
    }

    /// Returns whether the clock may begin another file without a packet.
    pub(super) fn is_aligned(&self) -> bool {
        self.live && self.rotation.aligned
    }

    /// Returns whether the clock begins another file now.
    pub(super) fn due_by_clock(&self, now_ns: u64) -> bool {
        self.is_aligned() && now_ns >= self.period_end.saturating_add(SETTLE)
    }

    /// Advances to the next file; returns false if the capture has no more files.
    pub(super) fn advance(&mut self, due: RotationStep, ns: u64) -> Result<bool, InvalidFileName> {
        match due {
            RotationStep::BySize => self.naming.next_by_size(),
            RotationStep::ByTime
                if self.rotation.ends_after().is_some_and(|max| self.periods >= max) =>
            {
                return Ok(false);
            }
            RotationStep::ByTime => {
                self.periods = self.periods.saturating_add(1);
                let begin = self.begin_period(ns);
                self.naming.next_by_time(begin)?;
            }
        }
        Ok(true)
    }

    /// Begins the period of `ns`, and returns its start. Like tcpdump, it uses whole seconds.
    fn begin_period(&mut self, ns: u64) -> u64 {
        let Some(seconds) = self.rotation.seconds else { return ns };
        let now = ns / SECOND;
        if !self.rotation.aligned {
            self.period_end = now.saturating_add(seconds).saturating_mul(SECOND);
            return ns;
        }
        let offset = offset_at(now);
        let since = now.saturating_add_signed(offset) % seconds.max(1);
        let end = (now - since.min(now)).saturating_add(seconds);
        // A day with a change to or from daylight saving time is longer or shorter.
        let end = end.saturating_add_signed(offset - offset_at(end)).max(now + 1);
        self.period_end = end.saturating_mul(SECOND);
        // The name of the first file, which begins within a period, has the real start time.
        if self.periods == 1 { ns } else { (now - since.min(now)) * SECOND }
    }
}

/// Returns the offset of local time from UTC in seconds at a time.
fn offset_at(second: u64) -> i64 {
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    TimeZone::system().to_offset(time).seconds().into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BEGIN: u64 = 1_780_000_000 * SECOND;

    fn schedule(rotation: FileRotation) -> RotationSchedule {
        RotationSchedule::new(&FileSettings { rotation, ..FileSettings::new("x%s") }, BEGIN + 5)
            .unwrap()
    }

    fn every(seconds: u64) -> FileRotation {
        FileRotation { seconds: Some(seconds), ..FileRotation::default() }
    }

    #[test]
    fn a_period_begins_with_the_second_of_its_first_packet() {
        let mut schedule = schedule(every(10));
        assert_eq!(schedule.due(BEGIN + 10 * SECOND - 1, 0, 0, 0), None);
        assert_eq!(schedule.due(BEGIN + 10 * SECOND, 0, 0, 0), Some(RotationStep::ByTime));
        let late = BEGIN + 25 * SECOND + 7;
        assert!(schedule.advance(RotationStep::ByTime, late).unwrap());
        assert_eq!(schedule.path(), Path::new("x1780000025"));
        assert_eq!(schedule.due(BEGIN + 35 * SECOND - 1, 0, 0, 0), None);
        assert_eq!(schedule.due(BEGIN + 35 * SECOND, 0, 0, 0), Some(RotationStep::ByTime));
    }

    #[test]
    fn time_wins_over_size() {
        let mut schedule = schedule(FileRotation { bytes: Some(100), ..every(10) });
        assert_eq!(schedule.due(BEGIN, 100, 50, 0), None);
        assert_eq!(schedule.due(BEGIN, 101, 50, 0), Some(RotationStep::BySize));
        assert_eq!(schedule.due(BEGIN + 10 * SECOND, 101, 50, 0), Some(RotationStep::ByTime));
    }

    #[test]
    fn an_exact_size_is_kept_with_what_ends_a_file() {
        let rotation = FileRotation { bytes: Some(100), exact: true, ..FileRotation::default() };
        let mut schedule = schedule(rotation);
        assert_eq!(schedule.due(BEGIN, 30, 50, 20), None);
        assert_eq!(schedule.due(BEGIN, 31, 50, 20), Some(RotationStep::BySize));
    }

    #[test]
    fn aligned_periods_begin_at_multiples_with_or_without_packets() {
        let mut schedule = schedule(FileRotation { aligned: true, ..every(60) });
        // All current offsets from UTC are multiples of 15 minutes.
        let boundary = 1_780_000_020;
        assert_eq!(schedule.path(), Path::new("x1780000000"));
        assert_eq!(schedule.due(boundary * SECOND, 0, 0, 0), Some(RotationStep::ByTime));
        assert!(!schedule.due_by_clock(boundary * SECOND));
        let later = boundary * SECOND + SETTLE;
        assert!(schedule.due_by_clock(later));
        assert!(schedule.advance(RotationStep::ByTime, later).unwrap());
        assert_eq!(schedule.path(), Path::new("x1780000020"));
        assert!(!schedule.due_by_clock(later));
        assert!(schedule.due_by_clock(later + 60 * SECOND));
    }

    #[test]
    fn a_capture_from_a_file_has_no_clock_but_its_packets() {
        let settings = FileSettings {
            rotation: FileRotation { aligned: true, ..every(60) },
            begin_ns: Some(BEGIN),
            ..FileSettings::new("x")
        };
        let schedule = RotationSchedule::new(&settings, BEGIN).unwrap();
        assert!(!schedule.due_by_clock(u64::MAX));
    }

    #[test]
    fn after_the_last_file_there_is_none() {
        let mut schedule = schedule(FileRotation { files: Some(2), ..every(10) });
        assert!(schedule.advance(RotationStep::ByTime, BEGIN + 10 * SECOND).unwrap());
        assert!(!schedule.advance(RotationStep::ByTime, BEGIN + 20 * SECOND).unwrap());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_rotation() {
        let mut schedule = schedule(every(10));
        let back = BEGIN - 3600 * SECOND;
        assert_eq!(schedule.due(back, 0, 0, 0), None);
        assert_eq!(schedule.due(back + 10 * SECOND, 0, 0, 0), Some(RotationStep::ByTime));
    }
}
