//! Tests of slow or failing disks and files, triggers by packets, and the clock.

use super::*;

/// Returns an opener of real files.
fn file_opener() -> SinkOpener {
    Box::new(|path| Ok(Box::new(CaptureFiles::create(&FileSettings::new(path))?)))
}

#[test]
fn a_blocked_disk_loses_packets_and_each_is_counted() {
    let (mut recorder, fire, disk) = recorder(settings(SECOND, SECOND));
    disk.shut(true);
    fire.fire(trigger("stall", 0));
    let data = vec![7; 1500];
    let total = 40_000;
    for id in 0..total {
        let dropped = if id % 100 == 0 { 3 } else { 0 };
        let packet = at(id);
        let packet = Packet { data: &data, len: 1500, dropped, ..packet.packet() };
        recorder.packet(&packet).unwrap();
    }
    let lost = recorder.progress().lost;
    assert!(lost > 25_000, "{lost}");
    disk.shut(false);
    settle(&recorder);
    send(&mut recorder, [total]);
    recorder.finish().unwrap();
    let [seen] = disk.files().try_into().unwrap();
    assert_eq!(seen.packets.len() as u64 + lost, total + 1);
    let dropped = seen.packets.iter().map(|(_, packet)| packet.dropped).sum::<u64>();
    assert_eq!(dropped, lost + 3 * total / 100);
}

#[test]
fn history_comes_faster_than_a_disk_writes_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng.zst");
    let memory = 150 << 20;
    let settings = RecorderSettings { path, memory, ..settings(SECOND, SECOND) };
    let (mut recorder, fire) = FlightRecorder::start(settings, file_opener()).unwrap();
    section(&mut recorder, "first");
    let data = vec![7; 1500];
    let total = 80_000;
    for id in 0..total {
        recorder.packet(&Packet { data: &data, len: 1500, ..at(id).packet() }).unwrap();
    }
    fire.fire(trigger("stall", total));
    recorder.finish().unwrap();
    let progress = recorder.progress();
    assert_eq!((progress.written, progress.lost, progress.files), (total, 0, 1));
    let name = progress.file.unwrap();
    assert!(name.to_str().unwrap().ends_with("-1-stall.pcapng.zst"), "{name:?}");
}

#[test]
fn a_file_says_how_its_packets_were_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng");
    let settings = RecorderSettings { path, ..settings(SECOND, SECOND) };
    let (mut recorder, fire) = FlightRecorder::start(settings, file_opener()).unwrap();
    section(&mut recorder, "first");
    for (id, weight) in [1, 16, 16, 8].into_iter().enumerate() {
        recorder.packet(&Owned { weight, ..at(id as u64) }.packet()).unwrap();
    }
    fire.fire(trigger("signal", 3));
    recorder.finish().unwrap();
    let content = std::fs::read(recorder.progress().file.unwrap()).unwrap();
    let comment = b"Sampled: a packet stands for 10.25 on average, the last one for 8.";
    assert!(content.windows(comment.len()).any(|part| part == comment));
}

#[test]
fn packets_fire_and_are_held_off_for_a_second() {
    let filters = vec![PacketTrigger::new("ether[0] = 1").unwrap()];
    let (mut recorder, _, disk) = recorder(RecorderSettings { filters, ..settings(10, 5) });
    let packet = |ns, first: u8| Owned { data: [&[first][..], &[0; 13]].concat(), ..at(ns) };
    let mut send = |ns, first| recorder.packet(&packet(ns, first).packet()).unwrap();
    for ns in 0..100 {
        send(ns, u8::from((50..60).contains(&ns)));
    }
    send(SECOND + 49, 1);
    send(SECOND + 50, 1);
    recorder.finish().unwrap();
    let [first, second] = disk.files().try_into().unwrap();
    assert_eq!((times(&first), marked(&first)), ((40..=55).collect(), vec![50]));
    assert_eq!(marked(&second), [SECOND + 50]);
    assert_eq!(times(&second), [SECOND + 49, SECOND + 50]);
    assert!(first.packets[10].1.comment.contains(": packet 50 matches 'ether[0] = 1'; "));
    assert!(first.path.to_str().unwrap().ends_with("-1-filter.pcapng"));
}

#[test]
fn an_idle_recorder_ends_the_incident_by_the_clock() {
    let (mut recorder, fire, disk) = recorder(settings(SECOND, 10_000_000));
    let now = realtime_ns();
    let packet = Owned { ns: now, ..Owned::default() };
    recorder.packet(&packet.packet()).unwrap();
    fire.fire(RecorderTrigger::now("signal", ""));
    recorder.flush().unwrap();
    assert!(recorder.status().recording());
    while recorder.status().recording() {
        std::thread::sleep(Duration::from_millis(1));
        recorder.flush().unwrap();
    }
    let lasted = Duration::from_nanos(realtime_ns() - now);
    assert!(lasted >= LATE_PACKET_TIMEOUT + Duration::from_millis(10), "{lasted:?}");
    settle(&recorder);
    let [seen] = disk.files().try_into().unwrap();
    assert!(seen.complete && seen.packets.len() == 1);
    recorder.finish().unwrap();
}

#[test]
fn an_incident_is_flushed_while_it_lasts() {
    let (mut recorder, fire, disk) = recorder(settings(SECOND, SECOND));
    fire.fire(trigger("signal", 0));
    let there = || disk.files().first().map_or(0, |seen| seen.packets.len());
    for round in 1..=3 {
        send(&mut recorder, [round]);
        while there() < round as usize {
            std::thread::sleep(Duration::from_millis(5));
            recorder.flush().unwrap();
        }
    }
    recorder.finish().unwrap();
    assert_eq!(times(&disk.files()[0]), [1, 2, 3]);
}

#[test]
fn a_file_that_cannot_be_opened_is_reported() {
    let open: SinkOpener = Box::new(|path| {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err(SinkError::Open { path: path.to_owned(), source })
    });
    let (mut recorder, fire) = FlightRecorder::start(settings(10, 5), open).unwrap();
    section(&mut recorder, "first");
    fire.fire(trigger("stall", 0));
    // The thread fails at some time.
    let result = recorder.packet(&at(0).packet()).and_then(|()| recorder.finish());
    assert!(matches!(result, Err(SinkError::Open { .. })));
}

#[test]
fn a_panic_of_the_writer_thread_is_reported() {
    let open: SinkOpener = Box::new(|_| panic!("a bug"));
    let (mut recorder, fire) = FlightRecorder::start(settings(10, 5), open).unwrap();
    section(&mut recorder, "first");
    fire.fire(trigger("stall", 0));
    let result = recorder.packet(&at(0).packet()).and_then(|()| recorder.finish());
    let Err(SinkError::Write { source, .. }) = result else { panic!("{result:?}") };
    assert!(source.to_string().contains("panicked"), "{source}");
}
