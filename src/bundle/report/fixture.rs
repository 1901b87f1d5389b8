//! Recordings for the tests of the page.

use jiff::tz::TimeZone;
use pmdscope_telemetry::finding::LintRules;
use pmdscope_telemetry::fixture::{pool, port, queue};
use pmdscope_telemetry::fleet::Evaluator;
use pmdscope_telemetry::sample::{AppIdentity, SAMPLE_SCHEMA, Sample};
use pmdscope_telemetry::{FleetEvent, FleetState};

use super::RecordedHistory;

/// 2026-11-21T08:56:00Z.
pub(super) const BEGIN_NS: u64 = 1_795_251_360_000_000_000;
/// Time between two rounds.
pub(super) const ROUND_NS: u64 = 200_000_000;

/// States of one app, of which `change` may change the samples by the number of the round.
pub(super) fn states(
    app: &str,
    rounds: u64,
    mut change: impl FnMut(u64, &mut Sample),
) -> Vec<FleetState> {
    let mut evaluator = Evaluator::new(LintRules::default());
    let mut fleet = FleetState::default();
    let state = |round| {
        let mut sample = sample(app, round);
        change(round, &mut sample);
        fleet.now_ns = sample.monotonic_ns;
        fleet.realtime_ns = sample.realtime_ns;
        fleet.apply(evaluator.sampled(sample));
        fleet.clone()
    };
    (0..rounds).map(state).collect()
}

/// A state after the last one, in which the app does not answer.
pub(super) fn without_answer(last: &FleetState, app: &str) -> FleetState {
    let mut fleet = last.clone();
    fleet.realtime_ns += ROUND_NS;
    let class = pmdscope_telemetry::ErrorClass::Timeout;
    let (app, reason) = (app.to_owned(), "timed out".to_owned());
    fleet.apply(FleetEvent::Lost { app, class, reason, finding: None });
    fleet
}

/// Two ports, of which the first receives more and more and misses packets at the end, and two pools.
fn sample(app: &str, round: u64) -> Sample {
    let passed_ns = round * ROUND_NS;
    let mut sample = Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: BEGIN_NS + passed_ns,
        monotonic_ns: 77_000_000_000 + passed_ns,
        duration_ns: 100_000,
        requests: 3,
        app: AppIdentity {
            name: app.to_owned(),
            pid: 42,
            start_ticks: 70,
            ..AppIdentity::default()
        },
        ..Sample::default()
    };
    sample.ports = vec![port(0, round * round * 100), port(1, round * 200)];
    sample.ports[0].stats.tx_packets = round * 180;
    sample.ports[0].stats.rx_missed = round.saturating_sub(40) * 7;
    sample.pools = vec![pool("mbufs", 16_384, round * 100), pool("idle", 512, 3)];
    sample.queues =
        (0..2).map(|number| queue(number, [round * 900, round * 300, round * 250])).collect();
    sample
}

/// What a recording of these states shows.
pub(super) fn history(states: &[FleetState]) -> RecordedHistory {
    let (first, last) = (&states[0], &states[states.len() - 1]);
    let span_ns = (first.realtime_ns, last.realtime_ns);
    let mut history = RecordedHistory::new(span_ns, TimeZone::UTC);
    for state in states {
        history.note(state);
    }
    history.last = last.clone();
    history
}
