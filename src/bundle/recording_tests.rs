//! Tests of copying recordings.

use pmdscope_recording::RecordingPlayer;
use pmdscope_telemetry::FleetSettings;

use super::*;

const SECOND: u64 = 1_000_000_000;
/// A moment in 2026.
const START: u64 = 1_780_000_000 * SECOND;

/// Writes a recording of ten rounds, a second apart, in frames of two; both apps are lost.
fn recording(path: &Path) {
    let mut out = Vec::new();
    for frame in 0..5 {
        let mut lines = String::new();
        if frame == 0 {
            lines.extend([format!(
                "{{\"header\":{{\"schema\":1,\"sample_schema\":1,\"tool\":\"0\",\"host\":\"gw7\",\
                 \"boot_id\":\"b\",\"run\":1,\"realtime_ns\":{START},\"interval_ms\":1000,\
                 \"utc_offset_s\":0}}}}\n"
            )]);
        }
        for round in [2 * frame, 2 * frame + 1] {
            let at = START + round * SECOND;
            for app in ["one", "two"] {
                lines.extend([format!(
                    "{{\"lost\":{{\"realtime_ns\":{at},\"app\":\"{app}\",\"class\":\"timeout\",\
                     \"reason\":\"198.18.0.1 is silent\"}}}}\n"
                )]);
            }
            lines.extend([format!(
                "{{\"round\":{{\"realtime_ns\":{at},\"monotonic_ns\":{at}}}}}\n"
            )]);
        }
        let mut encoder = Encoder::new(&mut out, 1).unwrap();
        encoder.write_all(lines.as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    out.extend_from_slice(&[0x5d, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    fs::write(path, out).unwrap();
}

fn options(rounds: u64) -> CopyOptions<'static> {
    let since = UNIX_EPOCH + Duration::from_nanos(START + (10 - rounds) * SECOND);
    CopyOptions { since, app: None, most_bytes: 1 << 20 }
}

fn text(path: &Path) -> String {
    let file = File::open(path).unwrap();
    String::from_utf8(zstd::decode_all(file).unwrap()).unwrap()
}

#[test]
fn only_the_last_rounds_are_copied_with_the_header() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.jsonl.zst.part");
    recording(&source);
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let copied = copy(&[source], &into, &options(3)).unwrap();
    assert_eq!(copied.files, [into.join("a.jsonl.zst")]);
    let text = text(&copied.files[0]);
    assert!(text.starts_with("{\"header\""), "{text}");
    assert_eq!(text.matches("\"round\"").count(), 3);
    let player = RecordingPlayer::open(&copied.files[0], &FleetSettings::default()).unwrap();
    assert_eq!(player.span().1, START + 9 * SECOND);
    assert!(player.notes().is_empty(), "{:?}", player.notes());
}

#[test]
fn other_apps_and_addresses_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.jsonl.zst");
    recording(&source);
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let mut redactor = Redactor::new(&["gw7".to_owned()]).unwrap();
    let options = CopyOptions { app: Some("two"), ..options(10) };
    let copied = copy(std::slice::from_ref(&source), &into, &options).unwrap();
    redact(&copied.files[0], &mut redactor).unwrap();
    let text = text(&copied.files[0]);
    assert_eq!((text.matches("\"two\"").count(), text.matches("\"one\"").count()), (10, 0));
    assert!(!text.contains("198.18.0.1") && !text.contains("gw7"), "{text}");
    redact(&source, &mut redactor).unwrap();
    let text = self::text(&source);
    assert!(text.contains("\"one\"") && !text.contains("198.18.0.1"), "{text}");
}

#[test]
fn a_recording_that_is_cut_off_is_copied_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.jsonl.zst.part");
    recording(&source);
    let bytes = fs::read(&source).unwrap();
    fs::write(&source, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let copied = copy(std::slice::from_ref(&source), &into, &options(10)).unwrap();
    assert!(text(&copied.files[0]).matches("\"round\"").count() >= 6);
    fs::write(&source, b"no recording").unwrap();
    let error = copy(&[source], &into, &options(10)).unwrap_err();
    assert!(error.to_string().starts_with("cannot copy a recording: "), "{error}");
}

#[test]
fn a_recorder_that_runs_is_found_with_its_earlier_files() {
    let dir = tempfile::tempdir().unwrap();
    let earlier = dir.path().join("pmdscope-20261122T080000Z.jsonl.zst");
    let open = dir.path().join("pmdscope-20261122T080100Z.jsonl.zst.part");
    let other = dir.path().join("other.jsonl.zst");
    for path in [&earlier, &open, &other] {
        fs::write(path, "x").unwrap();
    }
    assert!(!running_recordings().contains(&open));
    let file = File::open(&open).unwrap();
    let found = running_recordings();
    assert!(found.contains(&open) && found.contains(&earlier) && !found.contains(&other));
    drop(file);
    assert_eq!(given_recordings(dir.path()).unwrap().len(), 3);
    assert!(given_recordings(&dir.path().join("missing")).is_err());
}
