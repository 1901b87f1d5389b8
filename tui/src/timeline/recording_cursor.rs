//! A recording as a past.

use std::collections::VecDeque;
use std::sync::Arc;

use pmdscope_recording::{PlaybackNote, RecordingError, RecordingPlayer};
use pmdscope_telemetry::FleetEvent;

use super::{FrameSource, TimeSpan, TimelineFrame};
use crate::clock::NS_PER_SECOND;

/// What is read before the wanted moment and kept: users go back in small steps.
const BACK_NS: u64 = 5 * NS_PER_SECOND;

/// Most moments that are kept.
const KEPT: usize = 64;

/// Further on it is faster to seek than to read.
const FAR_NS: u64 = 30 * NS_PER_SECOND;

/// What a [`RecordingPlayer`] plays, by its wall clock.
#[derive(Debug)]
pub struct RecordingCursor {
    player: RecordingPlayer,
    /// The last moments that were read, without a gap; the player has reached the newest.
    read: VecDeque<TimelineFrame>,
}

impl RecordingCursor {
    /// What that player plays.
    pub fn new(player: RecordingPlayer) -> Self {
        Self { player, read: VecDeque::new() }
    }

    fn keep(&mut self) {
        let mut fleet = self.player.fleet().clone();
        if fleet.is_empty() {
            fleet.apply(FleetEvent::NoApps {
                advice: "No app was recorded at this time.".to_owned(),
            });
        }
        self.read.push_back(TimelineFrame { at: fleet.realtime_ns, fleet: Arc::new(fleet) });
        if self.read.len() > KEPT {
            self.read.pop_front();
        }
    }

    /// Reads one more moment; false at the end.
    fn read_on(&mut self) -> Result<bool, RecordingError> {
        let newest = self.read.back().map_or(0, |moment| moment.at);
        // The wall clock of a recording may have been set back.
        while self.player.next()?.is_some() {
            if self.player.fleet().realtime_ns > newest {
                self.keep();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads what is around `at`: one moment after it as well, where there is one.
    fn reach(&mut self, at: u64) -> Result<(), RecordingError> {
        let near = |oldest: &TimelineFrame, newest: &TimelineFrame| {
            oldest.at <= at && at.saturating_sub(newest.at) <= FAR_NS
        };
        let ends = self.read.front().zip(self.read.back());
        if !ends.is_some_and(|(oldest, newest)| near(oldest, newest)) {
            self.read.clear();
            if self.player.seek(at.saturating_sub(BACK_NS))?.realtime_ns > 0 {
                self.keep();
            }
        }
        while self.read.back().is_some_and(|newest| newest.at <= at) && self.read_on()? {}
        Ok(())
    }

    /// Index of the first kept moment after `at`.
    fn later(&self, at: u64) -> usize {
        self.read.partition_point(|moment| moment.at <= at)
    }
}

impl FrameSource for RecordingCursor {
    type Error = RecordingError;

    fn span(&self) -> Option<TimeSpan> {
        let (oldest, newest) = self.player.span();
        Some(TimeSpan { oldest, newest: newest.max(oldest) })
    }

    fn at(&mut self, at: u64) -> Result<Option<TimelineFrame>, RecordingError> {
        let (oldest, newest) = self.player.span();
        let at = at.min(newest).max(oldest);
        self.reach(at)?;
        Ok(self.read.get(self.later(at).saturating_sub(1)).cloned())
    }

    fn after(&mut self, at: u64) -> Result<Option<TimelineFrame>, RecordingError> {
        self.reach(at)?;
        Ok(self.read.get(self.later(at)).cloned())
    }

    fn notes(&self) -> Vec<String> {
        self.player.notes().iter().map(remark).collect()
    }
}

/// In one line of a screen: the file without its directories.
fn remark(note: &PlaybackNote) -> String {
    let name = note.path.file_name().unwrap_or(note.path.as_os_str());
    format!("{}: {}", name.to_string_lossy(), note.text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
    use pmdscope_telemetry::FleetSettings;

    use super::*;
    use crate::fixture;
    use crate::timeline::SeekTarget;

    const BEGIN: u64 = 1_800_000_000 * NS_PER_SECOND;
    const TENTH: u64 = NS_PER_SECOND / 10;

    /// Ten rounds a second of one app.
    fn recorded(rounds: u64) -> (tempfile::TempDir, RecordingCursor) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("incident.jsonl.zst");
        let interval = Duration::from_millis(100);
        let recording =
            RecordingOptions { path: path.clone(), interval, ..RecordingOptions::default() };
        let mut recorder = TelemetryRecorder::create(recording, BEGIN).unwrap();
        for round in 0..rounds {
            let mut model = fixture::leaking();
            model.sample.monotonic_ns = fixture::MONOTONIC_NS + round * TENTH;
            model.sample.realtime_ns = BEGIN + round * TENTH;
            model.sample.ports[0].stats.rx_packets += round * 100;
            let mut fleet = fixture::fleet_of(model, Vec::new());
            fleet.now_ns = fixture::MONOTONIC_NS + round * TENTH;
            fleet.realtime_ns = BEGIN + round * TENTH;
            recorder.record(&fleet, 0).unwrap();
        }
        recorder.finish().unwrap();
        let cursor =
            RecordingCursor::new(RecordingPlayer::open(&path, &FleetSettings::default()).unwrap());
        (directory, cursor)
    }

    fn round(moment: Option<TimelineFrame>) -> u64 {
        (moment.unwrap().at - BEGIN) / TENTH
    }

    #[test]
    fn all_ways_lead_to_the_moments_of_a_recording() {
        let (_directory, mut cursor) = recorded(600);
        let span = cursor.span().unwrap();
        assert_eq!(span, TimeSpan { oldest: BEGIN, newest: BEGIN + 599 * TENTH });
        let mut go = |from: u64, to| round(cursor.seek(BEGIN + from * TENTH, to).unwrap());
        assert_eq!(go(0, SeekTarget::At(BEGIN + 42 * TENTH + 1)), 42);
        assert_eq!(go(42, SeekTarget::Step(3)), 45);
        assert_eq!(go(45, SeekTarget::Step(-2)), 43);
        assert_eq!(go(43, SeekTarget::At(BEGIN + 500 * TENTH)), 500);
        assert_eq!(go(500, SeekTarget::Step(-300)), 200);
        assert_eq!(go(200, SeekTarget::Step(399)), 599);
        assert_eq!(go(43, SeekTarget::By(-10 * 1_000_000_000)), 0);
        assert_eq!(go(0, SeekTarget::Step(-1)), 0);
        assert_eq!(go(0, SeekTarget::Newest), 599);
        assert_eq!(go(599, SeekTarget::Step(1)), 599);
        assert_eq!(go(599, SeekTarget::Oldest), 0);
        let fleet = cursor.at(BEGIN + 300 * TENTH).unwrap().unwrap().fleet;
        let rate = fleet.apps[0].model.as_ref().unwrap().ports[0].rx_pps;
        assert!(rate.is_some_and(|rate| (rate - 1000.0).abs() < 1.0), "{rate:?}");
    }

    #[test]
    fn any_way_leads_to_the_same_moments() {
        let (_directory, mut cursor) = recorded(500);
        let mut random = 1_u64;
        for _ in 0..40 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Mostly near the last one, sometimes anywhere.
            let tenth = if random >> 62 == 0 { random >> 20 } else { 200 + (random >> 57) } % 510;
            let at = BEGIN + tenth * TENTH + random % TENTH;
            assert_eq!(round(cursor.at(at).unwrap()), tenth.min(499));
            let after = cursor.after(at).unwrap();
            assert_eq!(after.map(|m| (m.at - BEGIN) / TENTH), Some(tenth + 1).filter(|t| *t < 500));
        }
        assert_eq!(round(cursor.at(0).unwrap()), 0);
        assert_eq!(round(cursor.after(0).unwrap()), 0);
    }

    #[test]
    fn seeking_reads_a_part_of_a_recording() {
        let (_directory, mut cursor) = recorded(3_000);
        // What is kept, one moment at or before the wanted one and one after it: fewer than `KEPT`.
        let most = usize::try_from(BACK_NS / TENTH).unwrap() + 2;
        for tenth in [2_999, 3, 1_500, 500, 2_500, 900] {
            assert_eq!(round(cursor.at(BEGIN + tenth * TENTH).unwrap()), tenth);
            assert!(cursor.read.len() <= most, "{} moments read at {tenth}", cursor.read.len());
        }
    }
}
