//! Blocks of the heaps of the EAL by size, and those that become more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pmdscope_telemetry::sample::HeapGroupSample;

use super::heap::Elements;
use crate::target::XrayTarget;

/// Least time between the first two walks through the heaps.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Time between later walks: each reads the headers of all blocks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Groups of a heap that are reported.
const MOST_GROUPS: usize = 3;

/// Numbers of blocks by NUMA node and size.
type Blocks = BTreeMap<(i32, u64), u64>;

/// The blocks of the heaps of one app, without memzones, which have names.
#[derive(Debug, Default)]
pub(crate) struct HeapGroups {
    walked: Option<Instant>,
    walks: u32,
    blocks: Blocks,
    groups: BTreeMap<String, Vec<HeapGroupSample>>,
}

impl HeapGroups {
    /// Walks through the heaps, if the last time is long enough ago.
    pub(crate) fn refresh(&mut self, target: &XrayTarget) {
        let interval = if self.walks < 2 { FIRST_INTERVAL } else { INTERVAL };
        if self.walked.is_some_and(|walked| walked.elapsed() < interval) {
            return;
        }
        let named: BTreeSet<u64> = target.memzones.iter().map(|zone| zone.address).collect();
        let elements = Elements::read(target);
        let is_own = |start: u64| !named.contains(&start);
        let mut blocks = Blocks::new();
        for element in elements.iter().filter(|it| it.is_used && is_own(it.range.start())) {
            let number = blocks.entry((element.socket, element.range.bytes())).or_default();
            *number = number.saturating_add(1);
        }
        self.groups = grouped(&blocks, Some(&self.blocks).filter(|_| self.walks > 0));
        self.blocks = blocks;
        self.walked = Some(Instant::now());
        self.walks = self.walks.saturating_add(1);
    }

    /// The groups of each heap, by its name; those that grew most come first.
    pub(crate) fn groups(&self) -> &BTreeMap<String, Vec<HeapGroupSample>> {
        &self.groups
    }
}

fn grouped(blocks: &Blocks, before: Option<&Blocks>) -> BTreeMap<String, Vec<HeapGroupSample>> {
    let mut groups: BTreeMap<String, Vec<HeapGroupSample>> = BTreeMap::new();
    for ((socket, bytes_each), number) in blocks {
        let before = before.map(|before| before.get(&(*socket, *bytes_each)).copied().unwrap_or(0));
        let group = HeapGroupSample {
            bytes_each: *bytes_each,
            blocks: *number,
            grown: before.map(|before| number.saturating_sub(before)),
        };
        groups.entry(format!("socket_{socket}")).or_default().push(group);
    }
    for groups in groups.values_mut() {
        let bytes = |group: &HeapGroupSample, number: u64| group.bytes_each.saturating_mul(number);
        groups.sort_by_key(|group| {
            let grown = bytes(group, group.grown.unwrap_or(0));
            std::cmp::Reverse((grown, bytes(group, group.blocks)))
        });
        groups.truncate(MOST_GROUPS);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::heap::tests::MadeHeap;
    use crate::memzone::Memzone;

    #[test]
    fn blocks_that_become_more_come_before_larger_ones() {
        let before = Blocks::from([((0, 64), 100), ((0, 1 << 20), 50), ((1, 4096), 7)]);
        let now = Blocks::from([((0, 64), 200), ((0, 1 << 20), 50), ((0, 128), 1), ((1, 4096), 6)]);
        let of = |before: Option<&Blocks>| {
            let groups = grouped(&now, before);
            let group = |it: &HeapGroupSample| (it.bytes_each, it.blocks, it.grown);
            groups.into_iter().map(|(name, it)| (name, it.iter().map(group).collect())).collect()
        };
        let first: Vec<(String, Vec<_>)> = of(None);
        assert_eq!(first[0].1[0], (1 << 20, 50, None));
        let second: Vec<(String, Vec<_>)> = of(Some(&before));
        assert_eq!(
            second,
            [
                (
                    "socket_0".to_owned(),
                    vec![(64, 200, Some(100)), (128, 1, Some(1)), (1 << 20, 50, Some(0))]
                ),
                ("socket_1".to_owned(), vec![(4096, 6, Some(0))]),
            ]
        );
    }

    #[test]
    fn used_blocks_without_a_name_are_counted() {
        let heap = MadeHeap::new(&[(256, true), (256, true), (512, false), (1024, true)]);
        let zone = Memzone { name: "MP_mb".into(), address: heap.data[3], bytes: 1024 };
        let mut groups = HeapGroups::default();
        groups.refresh(&heap.target(vec![zone]));
        let found: Vec<_> = groups.groups().values().flatten().map(|it| it.blocks).collect();
        assert_eq!(found, [2]);
    }
}
