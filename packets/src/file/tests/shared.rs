//! Tests of packets in memory that is shared with an app.

use std::sync::Arc;

use super::trouble::{SmallDisk, noise};
use super::*;
use crate::shared::SharedRegion;

/// A directory for files in memory.
const TMPFS: &str = "/dev/shm";

fn region(bytes: &[u8]) -> Arc<SharedRegion> {
    let mut map = memmap2::MmapOptions::new().len(bytes.len()).map_anon().unwrap();
    map.copy_from_slice(bytes);
    Arc::new(SharedRegion::new(map.into()))
}

/// Returns the numbers and sizes of packets: small ones between large ones.
fn sizes() -> impl Iterator<Item = (u64, usize)> {
    (0..3000).map(|id: u64| (id, [60, 1500, 511, 512, 513, 9000, 61][id as usize % 7]))
}

/// Writes the packets, and returns the file, and the position up to which the region is not held.
fn write(settings: &FileSettings, share: bool, bytes: &[u8]) -> (Vec<u8>, u64) {
    let region = region(bytes);
    let mut files = begun(settings);
    let mut end = 0;
    for (id, size) in sizes() {
        // At most as many as the writer takes, so no packet is lost.
        eventually("no buffer comes back", || files.ready());
        let start = end as usize % (bytes.len() - size);
        end += size as u64;
        let shared = region.bytes(start, size, end).unwrap();
        if share {
            let whole = packet(id, &bytes[start..start + size]);
            files.shared_packet(&whole.with_data(shared)).unwrap();
        } else {
            files.packet(&packet(id, &bytes[start..start + size])).unwrap();
        }
        if id % 100 == 0 {
            files.flush().unwrap();
        }
    }
    files.finish().unwrap();
    assert_eq!((files.progress().written, files.progress().lost), (3000, 0));
    let written = fs::read(&settings.path).unwrap();
    assert_eq!(files.progress().bytes, written.len() as u64);
    (written, region.releasable(end))
}

#[test]
fn shared_packets_are_written_as_copied_ones_are() {
    let bytes = noise(1 << 20);
    let end = sizes().map(|(_, size)| size as u64).sum::<u64>();
    let formats = [FileFormat::Pcapng, FileFormat::Pcap { nanos: true }];
    for dir in [Path::new(TMPFS), &std::env::temp_dir()] {
        for format in formats {
            let dir = tempfile::tempdir_in(dir).unwrap();
            let settings = FileSettings { format, ..FileSettings::new(dir.path().join("out")) };
            let (copied, _) = write(&settings, false, &bytes);
            let (shared, released) = write(&settings, true, &bytes);
            assert!(copied == shared, "{format:?} in {dir:?}");
            assert_eq!(released, end, "nothing is held");
        }
    }
}

#[test]
fn what_waits_for_a_full_disk_is_not_held() {
    let Some(disk) = SmallDisk::mount() else { return };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; 700_000]).unwrap();
    let path = disk.path().join("out.pcapng");
    let bytes = noise(1 << 20);
    let region = region(&bytes);
    let mut files = begun(&FileSettings::new(&path));
    let data = |id: u64| region.bytes(id as usize * 1000, 1000, (id + 1) * 1000).unwrap();
    for id in 0..400 {
        files.shared_packet(&packet(id, &bytes[..1000]).with_data(data(id))).unwrap();
    }
    files.flush().unwrap();
    eventually("the disk is not full", || files.progress().waiting.is_some());
    files.shared_packet(&packet(400, &bytes[..1000]).with_data(data(400))).unwrap();
    files.flush().unwrap();
    eventually("an app waits for a disk", || region.releasable(401_000) == 401_000);
    fs::remove_file(&ballast).unwrap();
    files.finish().unwrap();
    let progress = files.progress();
    assert_eq!((progress.written, progress.lost), (401, 0));
    let mut reader = FileReader::open(&path).unwrap();
    let mut next = 0;
    while reader.advance().unwrap() {
        if let FileItem::Packet(packet) = reader.item().unwrap() {
            let mut expected = [0; 1000];
            crate::shared::PacketData::copy_to(&data(next), &mut expected);
            assert_eq!(packet.data, expected);
            next += 1;
        }
    }
    assert_eq!(next, 401);
}

#[test]
fn a_shared_packet_behind_blocks_that_fill_a_buffer_is_written() {
    let dir = tempfile::tempdir_in(TMPFS).unwrap();
    let rotation = FileRotation { bytes: Some(1000), ..FileRotation::default() };
    let path = dir.path().join("out");
    let bytes = noise(1 << 20);
    let region = region(&bytes);
    let mut files = begun(&FileSettings { rotation, ..FileSettings::new(&path) });
    // The interface blocks, which begin each file, are larger than a buffer.
    for _ in 0..5 {
        let filter = "a".repeat(60_000);
        files.interface(&CaptureInterface { filter, ..interface("app:1") }).unwrap();
    }
    for id in 0..3 {
        let data = region.bytes(0, 1000, (id + 1) * 1000).unwrap();
        files.shared_packet(&packet(id, &bytes[..1000]).with_data(data)).unwrap();
    }
    files.finish().unwrap();
    assert_eq!((files.progress().written, files.progress().lost), (3, 0));
    for name in ["out", "out1", "out2"] {
        assert_eq!(numbers_here(&dir.path().join(name)).len(), 1, "{name}");
    }
}
