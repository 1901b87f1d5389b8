use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
use pmdscope_telemetry::FleetEvent;

use super::*;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_795_251_360 * SECOND;

/// Ten states, one a second, of an app that never answered.
fn player(app: Option<&str>) -> (tempfile::TempDir, RecordingPlayer) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    let recording = RecordingOptions { path: path.clone(), ..RecordingOptions::default() };
    let mut recorder = TelemetryRecorder::create(recording, BEGIN).unwrap();
    let mut fleet = FleetState::default();
    for second in 0..10 {
        let class = pmdscope_telemetry::ErrorClass::Timeout;
        let (app, reason) = ("fwd".to_owned(), "silent".to_owned());
        fleet.apply(FleetEvent::Lost { app, class, reason, finding: None });
        fleet.realtime_ns = BEGIN + second * SECOND;
        recorder.record(&fleet, 0).unwrap();
    }
    recorder.finish().unwrap();
    let player = super::player(&path, app, &FleetSettings::default()).unwrap();
    (dir, player)
}

fn chosen(app: Option<&str>) -> AppArg {
    AppArg { app: app.map(str::to_owned), config: crate::config::ConfigArg::default() }
}

/// Seconds of the states that a source gives.
fn seconds(mut source: Source) -> Result<Vec<u64>> {
    let mut seconds = Vec::new();
    source.prepare();
    while source.advance()? {
        seconds.push((source.fleet().realtime_ns - BEGIN) / SECOND);
    }
    Ok(seconds)
}

fn steps(at: Option<&str>, left: u64) -> Result<Vec<u64>> {
    let (_dir, player) = player(None);
    let at = AtArg { at: at.map(|at| at.parse().unwrap()) };
    seconds(Source::steps(player, &chosen(None), &at, Duration::from_secs(2), left)?)
}

#[test]
fn a_whole_recording_is_all_of_its_states() {
    let (_dir, player) = player(None);
    let all: Vec<_> = (0..10).collect();
    assert_eq!(seconds(Source::whole(player, &chosen(None))).unwrap(), all);
}

#[test]
fn steps_lead_on_from_a_moment_or_up_to_the_end() {
    assert_eq!(steps(None, 1).unwrap(), [9]);
    assert_eq!(steps(None, 3).unwrap(), [5, 7, 9]);
    assert_eq!(steps(None, 99).unwrap(), [0, 2, 4, 6, 8]);
    assert_eq!(steps(Some("-6s"), 2).unwrap(), [3, 5]);
    assert_eq!(steps(Some("-6s"), 99).unwrap(), [3, 5, 7, 9]);
    assert_eq!(steps(Some("08:56:04"), 1).unwrap(), [4]);
    let error = steps(Some("08:55:00"), 1).unwrap_err().to_string();
    assert!(error.contains("08:56:09"), "{error}");
}

#[test]
fn an_app_that_was_not_recorded_is_an_error_with_those_that_were() {
    let (_dir, player) = player(Some("fdw"));
    let error = seconds(Source::whole(player, &chosen(Some("fdw")))).unwrap_err().to_string();
    assert_eq!(error, "no app named \"fdw\" was recorded; there is fwd");
}
