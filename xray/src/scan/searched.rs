//! The parts of the app's memory that are searched for references to its mbufs.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Mapping;
use crate::memzone::Memzone;
use crate::target::XrayTarget;

use super::free::RingWindow;

/// Prefix of the memzone name of an `rte_ring`.
const RING_ZONE: &str = "RG_";

/// Prefix of the memzone name of a mempool's ring.
const POOL_RING_ZONE: &str = "RG_MP_";

/// A part of the app's memory.
pub(super) type Part = Range<u64>;

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
            match areas.last_mut() {
                Some(area) if area.end == mapping.start => area.end = mapping.end,
                _ => areas.push(mapping.start..mapping.end),
            }
        }
        areas.retain(|area| own.iter().any(|address| area.contains(address)));
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
            |mapping: &Mapping| self.areas.iter().any(|area| area.contains(&mapping.start));
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
                None => parts.push(mapping.start..mapping.end),
                Some(UnsearchedReason::Device) => {}
                Some(UnsearchedReason::OtherProcess) => {
                    found.foreign_bytes += mapping.end - mapping.start;
                }
            }
        }
        found.parts = subtract(parts, left_out);
        found
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

/// Subtracts parts; both lists are ascending, and the rest is cut to whole words.
fn subtract(parts: Vec<Part>, mut left_out: Vec<Part>) -> Vec<Part> {
    left_out.retain(|part| part.start < part.end);
    left_out.sort_unstable_by_key(|part| part.start);
    let mut left = Vec::new();
    for part in parts {
        let mut begin = part.start;
        let first = left_out.partition_point(|out| out.start < begin);
        // A part that begins earlier may extend into it; they may also overlap each other.
        let reach = left_out[..first].iter().map(|out| out.end).max().unwrap_or_default();
        begin = begin.max(reach.min(part.end));
        for out in left_out[first..].iter().take_while(|out| out.start < part.end) {
            if out.start > begin {
                left.push(begin..out.start);
            }
            begin = begin.max(out.end.min(part.end));
        }
        if begin < part.end {
            left.push(begin..part.end);
        }
    }
    let whole = |part: Part| part.start.next_multiple_of(8)..part.end & !7;
    left.into_iter().map(whole).filter(|part| part.start < part.end).collect()
}

/// The slots of all rings of pointers that are empty now. Rings of other entries are searched
/// completely.
pub(super) fn dead_ring_slots(target: &XrayTarget) -> Vec<Part> {
    let rings = rings_of_pointers(target).into_iter();
    rings.flat_map(|(slots, live)| subtract(vec![slots], live.into())).collect()
}

/// The slots of all rings of pointers that contain an entry now, except rings of pools.
pub(super) fn live_ring_slots(target: &XrayTarget) -> Vec<Part> {
    let rings = rings_of_pointers(target).into_iter();
    rings.flat_map(|(_, live)| live).filter(|part| part.start < part.end).collect()
}

/// The slots of each ring of pointers, and its live rows.
fn rings_of_pointers(target: &XrayTarget) -> Vec<(Part, [Part; 2])> {
    let rings = target.memzones.iter().filter(|zone| zone.name.starts_with(RING_ZONE));
    rings
        .filter(|zone| !zone.name.starts_with(POOL_RING_ZONE))
        .filter_map(|zone| slots(target, zone))
        .collect()
}

/// `None` if it changes too fast, is not a ring, or has other entries: all its words may then be
/// references.
fn slots(target: &XrayTarget, zone: &Memzone) -> Option<(Part, [Part; 2])> {
    let window = RingWindow::read(target, zone.address).ok()?;
    let begin = zone.address.saturating_add(target.layout.ring.bytes);
    let end = begin.saturating_add(u64::from(window.slots) * 8);
    // The length of a memzone is a multiple of a cache line.
    let behind = zone.address.saturating_add(zone.bytes);
    if end > behind || behind - end >= 128 {
        return None;
    }
    let live = window.rows().map(|(first, count)| {
        let first = begin + u64::from(first) * 8;
        first..first + u64::from(count) * 8
    });
    Some((begin..end, live))
}
