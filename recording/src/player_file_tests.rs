use std::fs;
use std::io::Write;
use std::ops::{BitXorAssign, Range};

use proptest::prelude::*;

use super::super::fixture::{EACH_SECOND, SECOND, into, only_file, play, record, steady};
use super::*;

/// A recording of 40 s: its states, and the bytes of its file.
fn bytes() -> (Vec<FleetState>, Vec<u8>) {
    let states = steady(EACH_SECOND, 40);
    let dir = tempfile::tempdir().unwrap();
    record(into(dir.path()), &states);
    (states, fs::read(only_file(dir.path())).unwrap())
}

/// Returns the states that can be read from a file with this content, and the notes.
fn read(content: &[u8]) -> Result<(Vec<FleetState>, Vec<String>), RecordingError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst.part");
    fs::write(&path, content).unwrap();
    let mut player = RecordingPlayer::open(&path, &FleetSettings::default())?;
    let states = play(&mut player);
    Ok((states, player.notes().iter().map(short).collect()))
}

/// Formats a note without its directory.
fn short(note: &PlaybackNote) -> String {
    note.to_string().rsplit_once('/').unwrap().1.to_owned()
}

#[test]
fn standard_tools_read_a_recording() {
    let (states, bytes) = bytes();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1 + 2 * states.len());
    assert_eq!(lines[0]["header"]["schema"], 1);
    assert_eq!(lines[1]["sample"]["app"]["name"], "fwd");
    assert_eq!(lines[2]["round"]["realtime_ns"], states[0].realtime_ns);
}

/// Returns the offsets of the frames of data in a file.
fn frame_offsets(file: &[u8]) -> Vec<usize> {
    (0..file.len()).filter(|at| file[*at..].starts_with(&[0x28, 0xB5, 0x2F, 0xFD])).collect()
}

#[test]
fn damage_costs_one_frame() {
    let (states, bytes) = bytes();
    let offsets = frame_offsets(&bytes);
    assert_eq!(offsets.len(), 8);
    let damages: [fn(&mut [u8]); 3] = [
        |frame| frame.fill(0x55),
        // The frame reads without an error until its end, where its checksum is.
        |frame| frame.last_mut().unwrap().bitxor_assign(1),
        // The header of the first block: the frame seems to be longer than the file.
        |frame| frame[6..9].copy_from_slice(&[0xFC, 0xFF, 0x0F]),
    ];
    let places = [(0, false), (0, true), (3, false), (3, true)];
    for ((frame, cut_index), damage) in
        damages.into_iter().flat_map(|damage| places.map(|place| (place, damage)))
    {
        let mut file = bytes.clone();
        damage(&mut file[offsets[frame]..offsets[frame + 1]]);
        file.truncate(if cut_index { bytes.len() - 1 } else { bytes.len() });
        let (read, notes) = read(&file).unwrap();
        let mut expected: Vec<_> = states.iter().map(|fleet| fleet.realtime_ns).collect();
        expected.drain(5 * frame..5 * frame + 5);
        let times: Vec<_> = read.iter().map(|fleet| fleet.realtime_ns).collect();
        assert_eq!(times, expected, "{notes:?}");
        let place = format!("offset {}", offsets[frame]);
        assert!(notes.iter().any(|note| note.contains(&place)), "{notes:?}");
    }
}

#[test]
fn garbage_is_an_error_with_its_place() {
    for (content, expected) in [
        (&b"hello, I am no recording"[..], "no recording at offset 0"),
        (&zstd::encode_all(&b"hello\n"[..], 1).unwrap(), "no line of a recording"),
        (&zstd::encode_all(&b"no end"[..], 1).unwrap(), "no whole line"),
        (b"", "the file is empty"),
    ] {
        let error = read(content).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("x.jsonl.zst.part"), "{error}");
    }
    let (states, bytes) = bytes();
    let (read, notes) = read(&[b"garbage", bytes.as_slice()].concat()).unwrap();
    assert_eq!(read, states);
    assert_eq!(notes, ["x.jsonl.zst.part, offset 0: 7 bytes are no Zstandard frame"]);
}

#[test]
fn a_newer_schema_is_an_error_and_new_fields_are_not() {
    let (states, bytes) = bytes();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let grown = text.replace("\"round\":{", "\"new\":[1],\"round\":{\"more\":{},")
        + "{\"of_another_kind\":7}\n";
    let (read_states, notes) = read(&zstd::encode_all(grown.as_bytes(), 1).unwrap()).unwrap();
    assert_eq!((read_states, notes), (states, Vec::new()));
    for field in ["schema", "sample_schema"] {
        let newer = text.replacen(&format!("\"{field}\":1"), &format!("\"{field}\":2"), 1);
        let error = read(&zstd::encode_all(newer.as_bytes(), 1).unwrap()).unwrap_err();
        assert!(matches!(&error, RecordingError::Newer { schema: 2, known: 1, .. }), "{error}");
        assert!(error.to_string().contains(env!("CARGO_PKG_VERSION")), "{error}");
    }
}

#[test]
fn stolen_time_is_replayed_and_older_recordings_have_none() {
    let (states, bytes) = bytes();
    let stolen = |fleet: &FleetState| fleet.models().next().unwrap().1.stolen.clone();
    let (read_states, _) = read(&bytes).unwrap();
    let rates = stolen(&read_states[9]);
    assert_eq!(rates, stolen(&states[9]));
    assert_eq!(rates[0].worst.as_ref().map(|worst| worst.thief.as_str()), Some("24 eth0"));
    assert!(rates[0].ratio.is_some_and(|ratio| (ratio - 0.01).abs() < 1e-6), "{rates:?}");
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let old = lines.try_fold(String::new(), |old, mut line: serde_json::Value| {
        if let Some(sample) = line.get_mut("sample") {
            sample.as_object_mut()?.remove("tracing")?;
        }
        Some(format!("{old}{line}\n"))
    });
    let (read_states, notes) =
        read(&zstd::encode_all(old.unwrap().as_bytes(), 1).unwrap()).unwrap();
    assert_eq!((read_states.len(), notes), (states.len(), Vec::new()));
    assert!(read_states.iter().all(|fleet| stolen(fleet).is_empty()));
    assert!(read_states[9].models().all(|(_, model)| model.ports[0].rx_pps == Some(1_000_000.0)));
}

#[test]
fn hostile_files_are_bounded() {
    let (_, bytes) = bytes();
    let mut bomb = zstd::stream::write::Encoder::new(bytes.clone(), 1).unwrap();
    for _ in 0..1000 {
        bomb.write_all(&vec![b'['; 1 << 16]).unwrap();
    }
    let (_, notes) = read(&bomb.finish().unwrap()).unwrap();
    assert!(notes.iter().any(|note| note.contains("16 MiB")), "{notes:?}");

    let mut wide = zstd::stream::write::Encoder::new(bytes, 1).unwrap();
    wide.window_log(27).unwrap();
    wide.write_all(b"{}\n").unwrap();
    let (_, notes) = read(&wide.finish().unwrap()).unwrap();
    assert!(notes.iter().any(|note| note.contains("memory")), "{notes:?}");
}

#[test]
fn names_of_apps_are_bounded() {
    let (states, bytes) = bytes();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    let long = text.replace("\"name\":\"fwd\"", &format!("\"name\":\"{}\"", "f".repeat(5000)));
    let (read, notes) = read(&zstd::encode_all(long.as_bytes(), 1).unwrap()).unwrap();
    assert_eq!(read.len(), states.len());
    assert!(read.iter().all(|fleet| fleet.apps.is_empty()));
    assert!(notes.iter().any(|note| note.contains("4096 bytes")), "{notes:?}");
}

proptest! {
    #[test]
    fn any_bytes_give_notes_or_an_error(
        content in prop::collection::vec(any::<u8>(), 0..200),
        lines in prop::collection::vec("\\PC*", 0..5),
    ) {
        let _ = read(&content);
        let _ = read(&zstd::encode_all(lines.join("\n").as_bytes(), 1).unwrap());
    }
}

/// Returns the number of rounds in the frames that overlap with a part of the file of [`bytes`].
fn rounds_of_frames(file: &[u8], part: Range<usize>) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    fs::write(&path, file).unwrap();
    let player = RecordingPlayer::open(&path, &FleetSettings::default()).unwrap();
    let frames = player.sources[0].frames();
    let ends = frames.iter().skip(1).map(|next| next.offset).chain([u64::MAX]);
    let touched = frames
        .iter()
        .zip(ends)
        .filter(|(frame, end)| frame.offset < part.end as u64 && (part.start as u64) < *end);
    let rounds = |frame: &FrameSpan| (frame.last_ns - frame.first_ns) / SECOND + 1;
    touched.map(|(frame, _)| usize::try_from(rounds(frame)).unwrap()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn complete_rounds_are_read_from_a_damaged_file(
        at in any::<prop::sample::Index>(),
        patch in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let (states, mut bytes) = bytes();
        let at = at.index(bytes.len());
        let touched = rounds_of_frames(&bytes, at..at + patch.len());
        let offsets = frame_offsets(&bytes);
        let descriptors = |file: &[u8]| offsets.iter().map(|at| file[at + 4]).collect::<Vec<_>>();
        let checked = descriptors(&bytes);
        for (byte, new) in bytes[at..].iter_mut().zip(patch) {
            *byte = new;
        }
        let (read, notes) = read(&bytes).unwrap();
        let times: Vec<_> = states.iter().map(|fleet| fleet.realtime_ns).collect();
        // Damage of a frame without a checksum cannot be detected.
        if descriptors(&bytes) == checked {
            let odd = read.iter().filter(|fleet| !times.contains(&fleet.realtime_ns)).count();
            prop_assert_eq!(odd, 0, "{:?}", notes);
        }
        let found = times.iter().filter(|time| read.iter().any(|w| w.realtime_ns == **time)).count();
        prop_assert!(found >= states.len() - touched, "{found} found, {touched} touched, {notes:?}");
    }

    #[test]
    fn a_cut_anywhere_leaves_all_whole_rounds(at in any::<prop::sample::Index>()) {
        let (states, bytes) = bytes();
        let at = at.index(bytes.len());
        // What any decoder reads from the part of the file that is there.
        let mut text = Vec::new();
        let mut decoder = zstd::stream::read::Decoder::new(&bytes[..at]).unwrap();
        let mut chunk = [0; 100];
        while let Ok(count @ 1..) = std::io::Read::read(&mut decoder, &mut chunk) {
            text.extend(&chunk[..count]);
        }
        let text = String::from_utf8_lossy(&text);
        let whole = text.matches("{\"round\":").count();
        let (read, notes) = read(&bytes[..at]).unwrap_or_default();
        prop_assert_eq!(&read[..whole], &states[..whole]);
        prop_assert!(read.len() <= whole + 1 && notes.len() <= 1, "{:?}", notes);
    }

    #[test]
    fn any_numbers_can_be_judged(seed: u64, one_in in 2_u64..40) {
        let (_, bytes) = bytes();
        let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
        let mut state = seed | 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let mut hostile = String::new();
        for (at, part) in text.split_inclusive([':', ',', '}', ']', '\n']).enumerate() {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            if at > 40 && digits > 0 && random() % one_in == 0 {
                let number = [0, 1, 255, u64::MAX].into_iter().nth((random() % 4).try_into().unwrap());
                hostile += &number.unwrap().to_string();
                hostile += &part[digits..];
            } else {
                hostile += part;
            }
        }
        read(&zstd::encode_all(hostile.as_bytes(), 1).unwrap()).unwrap();
    }
}
