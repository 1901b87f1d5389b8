//! A recording as a past.

use std::sync::Arc;

use pmdscope_telemetry::record::{Note, Player, RecordError};
use pmdscope_telemetry::world::Event;

use super::{Moment, Past, Span};

/// What a [`Player`] plays, by its wall clock.
#[derive(Debug)]
pub struct Tape {
    player: Player,
}

impl Tape {
    /// What that player plays.
    pub fn new(player: Player) -> Self {
        Self { player }
    }

    fn reached(&self) -> u64 {
        self.player.world().realtime_ns
    }

    fn moment(&self) -> Option<Moment> {
        let at = self.reached();
        (at > 0).then(|| {
            let mut world = self.player.world().clone();
            if world.apps.is_empty() {
                world.apply(Event::NoApps { advice: "No app was recorded then.".to_owned() });
            }
            Moment { at, world: Arc::new(world) }
        })
    }
}

impl Past for Tape {
    type Error = RecordError;

    fn span(&self) -> Option<Span> {
        let (oldest, newest) = self.player.span();
        Some(Span { oldest, newest: newest.max(oldest) })
    }

    fn at(&mut self, at: u64) -> Result<Option<Moment>, RecordError> {
        let (oldest, newest) = self.player.span();
        self.player.seek(at.max(oldest).min(newest))?;
        Ok(self.moment())
    }

    fn after(&mut self, at: u64) -> Result<Option<Moment>, RecordError> {
        if self.reached() != at {
            self.at(at)?;
        }
        // The wall clock of a recording may have been set back.
        while self.reached() <= at {
            if self.player.next()?.is_none() {
                return Ok(None);
            }
        }
        Ok(self.moment())
    }

    fn notes(&self) -> Vec<String> {
        self.player.notes().iter().map(remark).collect()
    }
}

/// In one line of a screen: the file without its directories.
fn remark(note: &Note) -> String {
    let name = note.path.file_name().unwrap_or(note.path.as_os_str());
    format!("{}: {}", name.to_string_lossy(), note.text)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pmdscope_telemetry::Settings;
    use pmdscope_telemetry::record::{Recorder, Recording};

    use super::*;
    use crate::fixture;
    use crate::timeline::{SECOND, Seek};

    const BEGIN: u64 = 1_800_000_000 * SECOND;
    const TENTH: u64 = SECOND / 10;

    /// Ten rounds a second of one app.
    fn recorded(rounds: u64) -> (tempfile::TempDir, Tape) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("incident.jsonl.zst");
        let interval = Duration::from_millis(100);
        let recording = Recording { path: path.clone(), interval, ..Recording::default() };
        let mut recorder = Recorder::create(recording, BEGIN).unwrap();
        for round in 0..rounds {
            let mut model = fixture::leaking();
            model.sample.monotonic_ns = fixture::MONOTONIC_NS + round * TENTH;
            model.sample.realtime_ns = BEGIN + round * TENTH;
            model.sample.ports[0].stats.rx_packets += round * 100;
            let mut world = fixture::world_of(model, Vec::new());
            world.now_ns = fixture::MONOTONIC_NS + round * TENTH;
            world.realtime_ns = BEGIN + round * TENTH;
            recorder.record(&world, 0).unwrap();
        }
        recorder.finish().unwrap();
        let tape = Tape::new(Player::open(&path, &Settings::default()).unwrap());
        (directory, tape)
    }

    fn round(moment: Option<Moment>) -> u64 {
        (moment.unwrap().at - BEGIN) / TENTH
    }

    #[test]
    fn all_ways_lead_to_the_moments_of_a_recording() {
        let (_directory, mut tape) = recorded(600);
        let span = tape.span().unwrap();
        assert_eq!(span, Span { oldest: BEGIN, newest: BEGIN + 599 * TENTH });
        let mut go = |from: u64, to| round(tape.seek(BEGIN + from * TENTH, to).unwrap());
        assert_eq!(go(0, Seek::At(BEGIN + 42 * TENTH + 1)), 42);
        assert_eq!(go(42, Seek::Step(3)), 45);
        assert_eq!(go(45, Seek::Step(-2)), 43);
        assert_eq!(go(43, Seek::By(-10 * 1_000_000_000)), 0);
        assert_eq!(go(0, Seek::Step(-1)), 0);
        assert_eq!(go(0, Seek::Newest), 599);
        assert_eq!(go(599, Seek::Step(1)), 599);
        assert_eq!(go(599, Seek::Oldest), 0);
        let world = tape.at(BEGIN + 300 * TENTH).unwrap().unwrap().world;
        let rate = world.apps[0].model.as_ref().unwrap().ports[0].rx_pps;
        assert!(rate.is_some_and(|rate| (rate - 1000.0).abs() < 1.0), "{rate:?}");
    }

    /// The bound is that of a build without optimisation on a busy machine.
    #[test]
    fn seeking_is_instant() {
        let (_directory, mut tape) = recorded(3_000);
        let mut slowest = Duration::ZERO;
        for tenth in [2_999, 3, 1_500, 1_499, 2_500, 500] {
            let start = Instant::now();
            assert_eq!(round(tape.at(BEGIN + tenth * TENTH).unwrap()), tenth);
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    }
}
