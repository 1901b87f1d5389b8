//! Tests of slow readers, full disks and sudden ends.

use std::io::Read;

use super::*;

#[test]
fn packet_buffered_files_have_every_packet_at_once() {
    for name in ["out.pcapng", "out.pcapng.gz", "out.pcapng.zst"] {
        let (dir, path) = in_dir(name);
        let packet_buffered = true;
        let mut files = begun(&FileSettings { packet_buffered, ..FileSettings::new(&path) });
        let part = dir.path().join(format!("{name}.part"));
        for id in 0..3 {
            put(&mut files, id..id + 1, 60);
            eventually("the packet does not come", || files.progress().written == id + 1);
            assert!(numbers_here(&part).into_iter().eq(0..=id), "{name}");
        }
        assert!(!path.exists());
    }
}

#[test]
fn a_crash_loses_at_most_the_last_block() {
    for name in ["out.pcapng.gz", "out.pcapng.zst"] {
        let (_dir, path) = in_dir(name);
        let mut files = begun(&FileSettings::new(&path));
        let mut data = noise(1400);
        for id in 0..8000_u64 {
            data[..8].copy_from_slice(&id.to_be_bytes());
            data[8..].rotate_left(1);
            files.packet(&packet(id, &data)).unwrap();
        }
        files.finish().unwrap();
        // Three pieces; the last one is truncated.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 200]).unwrap();
        if let Some(numbers) = numbers(&path) {
            let there = numbers.len() as u64;
            assert!((5600..8000).contains(&there), "{name}: {there}");
            assert!(numbers.into_iter().eq(0..there), "{name}");
        }
    }
}

#[test]
fn idle_packets_come_out_of_a_compressed_file_within_seconds() {
    let (_dir, path) = in_dir("out.pcapng.zst");
    let mut files = begun(&FileSettings::new(&path));
    put(&mut files, 0..3, 60);
    files.flush().unwrap();
    eventually("the piece does not end", || files.progress().written == 3);
}

#[test]
fn a_slow_reader_loses_packets_and_does_not_block() {
    let (reader, writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(writer));
    let mut files = CaptureFiles::onto(file, "pipe", &FileSettings::default()).unwrap();
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    // There is no reader yet: a sink that waited would never return.
    put(&mut files, 0..60_000, 1400);
    let lost = files.progress().lost;
    assert!((1000..20_000).contains(&lost), "{lost}");
    assert!(!files.ready());
    let (dir, path) = in_dir("out.pcapng");
    let copy = std::thread::spawn(move || {
        let (mut reader, mut file) = (reader, File::create(&path).unwrap());
        io::copy(&mut reader, &mut file).unwrap();
        path
    });
    eventually("there is no room", || files.ready());
    put(&mut files, 60_000..60_001, 1400);
    files.finish().unwrap();
    let progress = files.progress();
    assert_eq!((progress.lost, progress.written), (lost, 60_001 - lost));
    drop(files);
    let path = copy.join().unwrap();
    if let Some(rows) = fields(&path, &["frame.drop_count"]) {
        assert_eq!(rows.len() as u64, 60_001 - lost);
        assert_eq!(rows.last().unwrap()[0], lost.to_string());
    }
    drop(dir);
}

#[test]
fn an_end_that_waits_for_a_reader_is_told() {
    let (mut reader, writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(writer));
    let (events, told) = std::sync::mpsc::channel();
    let settings = FileSettings { events: Some(events), ..FileSettings::default() };
    let mut files = CaptureFiles::onto(file, "pipe", &settings).unwrap();
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    put(&mut files, 0..1000, 1400);
    let end = std::thread::spawn(move || {
        files.finish().unwrap();
        files.progress()
    });
    // The reader does nothing before the event.
    let event = told.recv_timeout(Duration::from_secs(60)).unwrap();
    let FileEvent::Waiting { name, packets } = event else { panic!("{event:?}") };
    assert!(name == "pipe" && packets == 1000, "{name}: {packets}");
    io::copy(&mut reader, &mut io::sink()).unwrap();
    let progress = end.join().unwrap();
    assert_eq!((progress.written, progress.lost), (1000, 0));
}

#[test]
fn a_closed_pipe_is_noticed_while_idle_and_at_a_write() {
    let (reader, writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(writer));
    let settings = FileSettings { packet_buffered: true, ..FileSettings::default() };
    let mut files = CaptureFiles::onto(file, "pipe", &settings).unwrap();
    files.section(&SectionOrigin::default()).unwrap();
    files.interface(&interface("app:0")).unwrap();
    assert!(!files.done());
    drop(reader);
    assert!(files.done());
    put(&mut files, 0..1, 60);
    let mut error = None;
    eventually("the end is not told", || {
        error = files.flush().err();
        error.is_some()
    });
    assert!(matches!(error, Some(SinkError::Closed { name }) if name == "pipe"));
    files.finish().unwrap();
    assert_eq!(files.progress().lost, 1);
}

#[test]
fn what_a_reader_leaves_in_its_pipe_is_lost() {
    let pcap = FileFormat::Pcap { nanos: true };
    let compressed = Some(FileCompression::Zstd);
    for (format, compression) in
        [(FileFormat::Pcapng, None), (pcap, None), (FileFormat::Pcapng, compressed)]
    {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        let packet_buffered = true;
        let settings =
            FileSettings { format, compression, packet_buffered, ..FileSettings::default() };
        let mut files = CaptureFiles::onto(file, "pipe", &settings).unwrap();
        files.section(&SectionOrigin::default()).unwrap();
        files.interface(&interface("app:0")).unwrap();
        put(&mut files, 0..3, 60);
        eventually("the first packets are not written", || files.progress().written == 3);
        let there = rustix::io::ioctl_fionread(&reader).unwrap();
        put(&mut files, 3..10, 60);
        eventually("the packets are not written", || files.progress().written == 10);
        // Also a part of the fourth packet.
        reader.read_exact(&mut vec![0; there as usize + 10]).unwrap();
        drop(reader);
        eventually("the end is not noticed", || files.done());
        assert!(matches!(files.finish(), Ok(()) | Err(SinkError::Closed { .. })));
        let progress = files.progress();
        assert_eq!((progress.written, progress.lost), (3, 7), "{format:?} {compression:?}");
    }
}

#[test]
fn a_device_that_stays_full_is_reported_and_ends_with_an_error() {
    let path = Path::new("/dev/full");
    if !path.exists() {
        return skip(&current_test(), "no /dev/full");
    }
    let mut files = begun(&FileSettings::new(path));
    put(&mut files, 0..3, 60);
    files.flush().unwrap();
    eventually("nothing is told", || files.progress().waiting.is_some());
    let waiting = files.progress().waiting.unwrap();
    assert!(waiting.starts_with("cannot write to /dev/full: "), "{waiting}");
    assert!(!files.done());
    let error = files.finish().unwrap_err();
    let full = io::ErrorKind::StorageFull;
    assert!(matches!(error, SinkError::Write { source, .. } if source.kind() == full));
    assert_eq!((files.progress().lost, files.progress().waiting), (3, None));
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error =
        CaptureFiles::create(&FileSettings::new("/nowhere/at/all")).unwrap_err().to_string();
    assert_eq!(error, "cannot write to /nowhere/at/all");
    let (dir, path) = in_dir("gone/x");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let rotation = FileRotation { bytes: Some(1), ..FileRotation::default() };
    let mut files = begun(&FileSettings { rotation, ..FileSettings::new(&path) });
    fs::remove_dir_all(dir.path().join("gone")).unwrap();
    put(&mut files, 0..1, 60);
    let mut error = None;
    eventually("the failure is not told", || {
        error = files.packet(&packet(1, &[0; 60])).err().or_else(|| files.flush().err());
        error.is_some()
    });
    assert!(matches!(error, Some(SinkError::Write { .. } | SinkError::Open { .. })));
    assert!(files.done());
    files.finish().unwrap();
}

/// A separate file system, which is unmounted on drop.
pub(super) struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(dir.path());
        match mount.output() {
            Ok(out) if out.status.success() => Some(Self { dir }),
            failed => {
                skip(&current_test(), format!("cannot mount a tmpfs: {failed:?}"));
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[test]
fn a_full_disk_pauses_and_goes_on_in_the_same_file() {
    for name in ["out.pcapng", "out.pcap", "out.pcapng.gz"] {
        let Some(disk) = SmallDisk::mount() else { return };
        let ballast = disk.dir.path().join("ballast");
        fs::write(&ballast, vec![1; 700_000]).unwrap();
        let path = disk.dir.path().join(name);
        let part = disk.dir.path().join(format!("{name}.part"));
        let nanos = FileFormat::Pcap { nanos: true };
        let format = if name == "out.pcap" { nanos } else { FileFormat::Pcapng };
        let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
        let noise = noise(400_000);
        for id in 0..400 {
            files.packet(&packet(id, &noise[id as usize * 1000..][..1000])).unwrap();
        }
        files.flush().unwrap();
        eventually("the disk is not full", || files.progress().waiting.is_some());
        files.packet(&packet(400, &noise[..1000])).unwrap();
        if FileCompression::of(&path) == FileCompression::None
            && let Some(out) = run("capinfos", &["-c", "-T", "-r"], &part)
        {
            let count = text(&out).split_whitespace().last().unwrap().parse().unwrap();
            assert!(out.status.success() && (200..350).contains(&count), "{out:?}");
        }
        fs::remove_file(&ballast).unwrap();
        eventually("it does not go on", || files.progress().waiting.is_none());
        files.finish().unwrap();
        let progress = files.progress();
        assert_eq!((progress.written, progress.lost), (401, 0), "{name}");
        assert_eq!(progress.bytes, fs::metadata(&path).unwrap().len());
        if let Some(out) = run("capinfos", &["-c", "-T", "-r"], &path) {
            assert!(text(&out).ends_with("\t401\n"), "{name}: {out:?}");
        }
    }
}

#[test]
fn a_disk_that_stays_full_loses_packets_that_do_not_fit() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.dir.path().join("out.pcapng");
    let mut files = begun(&FileSettings::new(&path));
    put(&mut files, 0..2000, 1000);
    let error = files.finish().unwrap_err();
    let full = io::ErrorKind::StorageFull;
    assert!(matches!(error, SinkError::Write { source, .. } if source.kind() == full));
    let progress = files.progress();
    assert_eq!(progress.written + progress.lost, 2000);
    if let Some(numbers) = numbers(&path) {
        assert!(numbers.into_iter().eq(0..progress.written));
        assert!(run("capinfos", &["-c"], &path).unwrap().status.success());
    }
}

/// Returns bytes that do not compress.
pub(super) fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..size).map(|_| next()).collect()
}

/// The process that [`a_killed_capture_leaves_whole_blocks`] kills.
#[test]
#[ignore = "captures until it is killed"]
fn captures_until_it_is_killed() {
    let Some(path) = std::env::var_os("PMDSCOPE_TEST_FILE") else {
        return; // part of another test
    };
    let mut files = begun(&FileSettings::new(path));
    for id in 0.. {
        put(&mut files, id..id + 1, 200);
        if id % 1000 == 0 {
            files.flush().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_killed_capture_leaves_whole_blocks() {
    for name in ["out.pcapng", "out.pcapng.zst"] {
        let (dir, path) = in_dir(name);
        let part = dir.path().join(format!("{name}.part"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "file::tests::trouble::captures_until_it_is_killed"])
            .env("PMDSCOPE_TEST_FILE", &path)
            .stdout(std::process::Stdio::null());
        let mut child = spawn(&mut command).unwrap();
        let large = || fs::metadata(&part).is_ok_and(|file| file.len() > 200_000);
        eventually("nothing is captured", large);
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(numbers) = numbers(&part) {
            let count = numbers.len() as u64;
            assert!(count > 500 && numbers.into_iter().eq(0..count), "{name}: {count}");
        }
    }
}

#[test]
fn any_number_of_drops_can_be_told() {
    let (_dir, path) = in_dir("out.pcap");
    let format = FileFormat::Pcap { nanos: true };
    let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
    files.interface(&CaptureInterface { linktype: 113, ..interface("app:1") }).unwrap();
    put(&mut files, 0..1, 60);
    // A file of another program may contain this.
    for id in 1..4 {
        let other = Packet { interface: 1, dropped: u64::MAX, ..packet(id, &[0; 60]) };
        files.packet(&other).unwrap();
    }
    assert!(matches!(files.finish(), Err(SinkError::OtherLinkTypes { packets: 3, .. })));
}

#[test]
fn times_that_pcap_does_not_have_are_counted_and_told() {
    let (_dir, path) = in_dir("out.pcap");
    let last = (u64::from(u32::MAX) + 1) * SECOND - 1;
    for nanos in [true, false] {
        let format = FileFormat::Pcap { nanos };
        let mut files = begun(&FileSettings { format, ..FileSettings::new(&path) });
        for (id, ns) in [last, last + 1, u64::MAX, BEGIN].into_iter().enumerate() {
            files.packet(&Packet { ns, ..packet(id as u64, &[0; 60]) }).unwrap();
        }
        let error = files.finish().unwrap_err();
        assert!(matches!(error, SinkError::TooLate { packets: 2, .. }), "{error}");
        assert!(error.to_string().contains("after the year 2106 (2)"), "{error}");
        assert_eq!((files.progress().written, files.progress().lost), (2, 2));
    }
    let (_dir, path) = in_dir("out.pcapng");
    let mut files = begun(&FileSettings::new(&path));
    files.packet(&Packet { ns: u64::MAX, ..packet(0, &[0; 60]) }).unwrap();
    files.finish().unwrap();
    assert_eq!(files.progress().written, 1);
}
