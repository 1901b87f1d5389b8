//! The parts of the app's memory that are searched for references to its mbufs.

use std::collections::BTreeSet;

use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::memzone::Memzone;
use crate::target::XrayTarget;

use super::free::RingWindow;

/// Prefix of the memzone name of an `rte_ring`.
const RING_ZONE: &str = "RG_";

/// Prefix of the memzone name of a mempool's ring.
const POOL_RING_ZONE: &str = "RG_MP_";

const WORD_BYTES: u64 = 8;

/// `sizeof(struct rte_event)`.
const EVENT_BYTES: u64 = 16;

/// How often a ring is read again that changes during the read.
const ATTEMPTS: u32 = 8;

/// The longest cache line.
const MOST_LINE_BYTES: u64 = 128;

/// A part of the app's memory.
pub(super) type Part = AddressRange;

/// Why a writable mapping is not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsearchedReason {
    /// Registers of a device, or buffers that the kernel shares with the app.
    Device,
    /// DPDK memory or guest memory of another process.
    OtherProcess,
}

/// Distinguishes the app's own memory from that of others.
#[derive(Debug)]
struct OwnMemory<'a> {
    maps: &'a [Mapping],
    /// Rows of adjacent mappings that contain the app's memzones and pools: areas that the EAL
    /// reserved.
    areas: Vec<Part>,
    /// Directory and prefix of the app's own huge page files, such as `/dev/hugepages/rte`.
    prefixes: BTreeSet<&'a str>,
}

impl<'a> OwnMemory<'a> {
    fn new(maps: &'a [Mapping], own: &[u64]) -> Self {
        let mut areas: Vec<Part> = Vec::new();
        for mapping in maps {
            let range = AddressRange::from(mapping);
            if !areas.last_mut().is_some_and(|area| area.join(&range)) {
                areas.push(range);
            }
        }
        areas.retain(|area| own.iter().any(|address| area.contains(*address)));
        let holds = |mapping: &Mapping| own.iter().any(|address| mapping.contains(*address));
        let prefixes = maps.iter().filter(|mapping| holds(mapping));
        let prefixes = prefixes.filter_map(|mapping| huge_file_prefix(&mapping.path)).collect();
        Self { maps, areas, prefixes }
    }

    fn foreign(&self, mapping: &Mapping) -> Option<UnsearchedReason> {
        if is_device(&mapping.path) {
            return Some(UnsearchedReason::Device);
        }
        let in_area =
            |mapping: &Mapping| self.areas.iter().any(|area| area.contains(mapping.start));
        if !mapping.shared || in_area(mapping) {
            return None;
        }
        let other = match huge_file_prefix(&mapping.path) {
            Some(prefix) => !self.areas.is_empty() && !self.prefixes.contains(prefix),
            None => is_segment(&mapping.path) && !self.areas.is_empty(),
        };
        // A page that is mapped twice, as by legacy memory, is still the app's own.
        let same = |own: &&Mapping| (&own.device, own.inode) == (&mapping.device, mapping.inode);
        let twice = mapping.inode != 0 && self.maps.iter().filter(same).any(in_area);
        (other && !twice).then_some(UnsearchedReason::OtherProcess)
    }
}

/// Reading registers of a device could change its state; the kernel refuses it for most.
fn is_device(path: &str) -> bool {
    const DEVICES: [&str; 7] =
        ["socket:[", "/dev/vfio", "/dev/uio", "/dev/infiniband", "/sys/", "anon_inode:", "[v"];
    DEVICES.iter().any(|device| path.starts_with(device))
}

/// `/dev/hugepages/rte` of `/dev/hugepages/rtemap_12`.
fn huge_file_prefix(path: &str) -> Option<&str> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let (prefix, number) = path.rsplit_once("map_")?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (digits && prefix.starts_with('/')).then_some(prefix)
}

/// Memory that one process creates and passes to another as a file descriptor: memory of DPDK apps
/// without files, of virtual machines, and regions of memif.
fn is_segment(path: &str) -> bool {
    const NAMES: [&str; 7] = [
        "/memfd:seg_",
        "/memfd:nohuge",
        "/memfd:memif",
        "/memfd:memory-backend",
        "/memfd:pc.ram",
        "/anon_hugepage",
        "/dev/hugepages/libvirt/",
    ];
    NAMES.iter().any(|name| path.starts_with(name))
}

/// The memory to search, ascending and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SearchedMemory {
    /// Parts that may hold references, aligned to words.
    pub(super) parts: Vec<Part>,
    /// Bytes of other processes' memory that the app maps.
    pub(super) foreign_bytes: u64,
}

impl SearchedMemory {
    /// All writable mappings of the app's own, except `left_out`. `own` are addresses in memory
    /// that certainly belongs to the app.
    pub(super) fn new(maps: &[Mapping], own: &[u64], left_out: Vec<Part>) -> Self {
        let memory = OwnMemory::new(maps, own);
        let mut found = Self::default();
        let mut parts = Vec::new();
        for mapping in maps.iter().filter(|mapping| mapping.writable && mapping.readable) {
            match memory.foreign(mapping) {
                None => parts.push(mapping.into()),
                Some(UnsearchedReason::Device) => {}
                Some(UnsearchedReason::OtherProcess) => {
                    let bytes = AddressRange::from(mapping).bytes();
                    found.foreign_bytes = found.foreign_bytes.saturating_add(bytes);
                }
            }
        }
        found.parts = subtract(&parts, left_out);
        found
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(Part::bytes).fold(0, u64::saturating_add)
    }
}

/// Subtracts parts; both lists are ascending, and the rest is cut to whole words.
fn subtract(parts: &[Part], mut left_out: Vec<Part>) -> Vec<Part> {
    left_out.retain(|part| !part.is_empty());
    left_out.sort_unstable();
    // Parts that overlap or follow each other are one.
    left_out.dedup_by(|next, last| last.join(next));
    let mut left = Vec::new();
    for part in parts {
        let mut rest = *part;
        let first = left_out.partition_point(|out| out.end() <= part.start());
        for out in left_out[first..].iter().take_while(|out| out.start() < part.end()) {
            left.push(rest.split_at(out.start()).0);
            (_, rest) = rest.split_at(out.end());
        }
        left.push(rest);
    }
    left.iter().map(|part| part.whole(WORD_BYTES)).filter(|part| !part.is_empty()).collect()
}

/// The slots of all rings that are empty now. Rings of unknown form are searched completely.
pub(super) fn dead_ring_slots(target: &XrayTarget) -> Vec<Part> {
    let rings = rings(target).into_iter();
    rings.flat_map(|(slots, live)| subtract(&[slots], live.into())).collect()
}

/// The slots of all rings that contain an entry now, except rings of pools.
pub(super) fn live_ring_slots(target: &XrayTarget) -> Vec<Part> {
    let rings = rings(target).into_iter();
    let live = rings.flat_map(|(_, live)| live).map(|row| row.whole(WORD_BYTES));
    live.filter(|part| !part.is_empty()).collect()
}

/// The slots of each ring, and its live rows.
fn rings(target: &XrayTarget) -> Vec<(Part, [Part; 2])> {
    let rings = target.memzones.iter().filter(|zone| zone.name.starts_with(RING_ZONE));
    rings
        .filter(|zone| !zone.name.starts_with(POOL_RING_ZONE))
        .filter_map(|zone| slots(target, zone))
        .collect()
}

/// `None` if it changes too fast, or is not a ring: all its words may then be references.
fn slots(target: &XrayTarget, zone: &Memzone) -> Option<(Part, [Part; 2])> {
    let window = (0..ATTEMPTS).find_map(|_| RingWindow::read(target, zone.address).ok())?;
    let (_, room) = zone.range().split_at(Address(zone.address).plus(target.layout.ring.bytes)?);
    let bytes_each = entry_bytes(room.bytes(), window.slots)?;
    let begin = Address(room.start());
    let slots = AddressRange::of_elements(begin.0, window.slots.into(), bytes_each)?;
    let live = window.rows().map(|(first, count)| {
        let first = begin.element(first.into(), bytes_each);
        let row = first.and_then(|it| AddressRange::of_elements(it, count.into(), bytes_each));
        row.unwrap_or_default()
    });
    Some((slots, live))
}

/// Bytes of an entry of a ring: 8 of a ring of pointers, 16 of a ring of events, others of the app
/// (`rte_ring_create_elem()`). The slots fill the memzone, whose length is a multiple of a cache line.
fn entry_bytes(room: u64, slots: u32) -> Option<u64> {
    let fills = |bytes: &u64| {
        let slots = AddressRange::of_elements(0, slots.into(), *bytes);
        let rest = slots.and_then(|slots| room.checked_sub(slots.bytes()));
        *bytes > 0 && rest.is_some_and(|rest| rest < MOST_LINE_BYTES)
    };
    // Other lengths are multiples of 4.
    let largest = room.checked_div(slots.into())? & !3;
    [WORD_BYTES, EVENT_BYTES, largest].into_iter().find(fills)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_rings_fill_their_memzones() {
        // A ring of 1,024 pointers, of events, and of 4 and 24 bytes each.
        let lengths = [(8192, 1024), (16_384, 1024), (4096, 1024), (24_576, 1024)];
        let found = lengths.map(|(room, slots)| entry_bytes(room, slots));
        assert_eq!(found, [Some(8), Some(16), Some(4), Some(24)]);
        // Rounded up to a cache line.
        assert_eq!([entry_bytes(64, 2), entry_bytes(128, 4)], [Some(8), Some(8)]);
        assert_eq!([entry_bytes(100, 1024), entry_bytes(0, 0), entry_bytes(8192, 0)], [None; 3]);
    }
}
