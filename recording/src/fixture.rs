//! States of a fleet as if it were live, for the tests of recordings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{RecordingOptions, RecordingPlayer, RecordingTotals, TelemetryRecorder};
use pmdscope_telemetry::finding::{self, LintRules};
use pmdscope_telemetry::fixture::{pool, port, queue, stolen, tracing};
use pmdscope_telemetry::fleet::{Evaluator, FleetSettings};
use pmdscope_telemetry::sample::{AppIdentity, SAMPLE_SCHEMA, Sample, StolenCause};
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};

/// 2026-11-21T08:56:00Z.
pub(super) const BEGIN: u64 = 1_795_251_360_000_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// An interval of recorders.
pub(super) const EACH_SECOND: Duration = Duration::from_secs(1);

/// Action of an app in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppAct {
    Answer,
    Restart,
    TimeOut,
    Leave,
}

/// A model of a fleet.
pub(super) struct LiveFleet {
    pub(super) fleet: FleetState,
    evaluators: BTreeMap<String, Evaluator>,
    pids: BTreeMap<String, u32>,
    interval_ns: u64,
    rounds: u64,
}

impl LiveFleet {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            fleet: FleetState::default(),
            evaluators: BTreeMap::new(),
            pids: BTreeMap::new(),
            interval_ns: interval.as_nanos().try_into().unwrap(),
            rounds: 0,
        }
    }

    /// Runs another round; returns the state after it.
    pub(super) fn round(&mut self, acts: &[(&str, AppAct)]) -> &FleetState {
        self.rounds += 1;
        let passed_ns = self.rounds * self.interval_ns;
        for (app, act) in acts {
            let event = self.event(app, *act, passed_ns);
            self.fleet.apply(event);
        }
        self.fleet.now_ns = 77 * SECOND + passed_ns;
        self.fleet.realtime_ns = BEGIN + passed_ns;
        &self.fleet
    }

    /// Skips rounds, without recording them.
    pub(super) fn skip(&mut self, rounds: u64) {
        self.rounds += rounds;
    }

    fn event(&mut self, app: &str, act: AppAct, passed_ns: u64) -> FleetEvent {
        let name = app.to_owned();
        match act {
            AppAct::Leave => {
                self.evaluators.remove(app);
                FleetEvent::Gone { app: name }
            }
            AppAct::TimeOut => FleetEvent::Lost {
                app: name,
                class: ErrorClass::Timeout,
                reason: format!("silent at {passed_ns}"),
                finding: Some(finding::evaluate_missing(app)),
            },
            AppAct::Answer | AppAct::Restart => {
                let pid = self.pids.entry(name.clone()).or_insert(1);
                *pid += u32::from(act == AppAct::Restart);
                let mut sample = sample(app, *pid, passed_ns);
                sample.monotonic_ns += 77 * SECOND;
                let evaluator = self
                    .evaluators
                    .entry(name)
                    .or_insert_with(|| Evaluator::new(LintRules::default()));
                evaluator.sampled(sample)
            }
        }
    }
}

/// Returns a sample with counters that grow, a pool that drains, and other data.
fn sample(app: &str, pid: u32, passed_ns: u64) -> Sample {
    let since = passed_ns / 1_000_000;
    let mut sample = Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: BEGIN + passed_ns - 1000,
        monotonic_ns: passed_ns - 1000,
        duration_ns: 100_000,
        requests: 3,
        app: AppIdentity { name: app.to_owned(), pid, start_ticks: 70, ..Default::default() },
        ..Sample::default()
    };
    sample.ports = vec![port(0, since * 1000 / u64::from(pid)), port(1, since * 7)];
    sample.ports[0].stats.rx_missed = since / 5000;
    sample.ports[1].xstats = (0..30).map(|i| (format!("rx_q{i}_errors"), since * i)).collect();
    sample.pools = vec![pool("mbufs", 16_384, (since / 4).min(16_384)), pool("idle", 512, 3)];
    sample.queues = (0..4).map(|q| queue(q, [since * 900, since * 300, since * 250])).collect();
    let irq = stolen(1, StolenCause::Irq, "24 eth0", since, Some(since * 10_000));
    let ipi = stolen(1, StolenCause::Ipi, "reschedule", since / 7, None);
    sample.tracing = Some(tracing(&[1, 2], vec![irq, ipi]));
    sample
}

/// Records states of a fleet.
pub(super) fn record(recording: RecordingOptions, states: &[FleetState]) -> RecordingTotals {
    let mut recorder = TelemetryRecorder::create(recording, states[0].realtime_ns).unwrap();
    for fleet in states {
        recorder.record(fleet, 0).unwrap();
    }
    recorder.finish().unwrap()
}

/// Returns states of one app that answers.
pub(super) fn steady(interval: Duration, rounds: usize) -> Vec<FleetState> {
    let mut live = LiveFleet::new(interval);
    (0..rounds).map(|_| live.round(&[("fwd", AppAct::Answer)]).clone()).collect()
}

pub(super) fn into(path: impl Into<PathBuf>) -> RecordingOptions {
    RecordingOptions {
        path: path.into(),
        interval: Duration::from_secs(1),
        ..RecordingOptions::default()
    }
}

pub(super) fn player(path: &Path) -> RecordingPlayer {
    RecordingPlayer::open(path, &FleetSettings::default()).unwrap()
}

/// Returns all states of a recording.
pub(super) fn play(player: &mut RecordingPlayer) -> Vec<FleetState> {
    let mut states = Vec::new();
    while let Some(fleet) = player.next().unwrap() {
        states.push(fleet.clone());
    }
    states
}

/// Returns the only file of a directory.
pub(super) fn only_file(dir: &Path) -> PathBuf {
    let files = files(dir);
    let [file] = files.as_slice() else { panic!("{files:?}") };
    file.clone()
}

pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
