//! The owner of each word of an app's memory: a queue, a ring, a memzone, an element of the EAL's
//! heap, a variable, a stack.
//!
//! Built once per scan. Of several owners the most specific one counts: a queue before the memzone
//! that contains it, and that before the element of the heap.

mod af_xdp;
mod feeds;
mod fields;
mod heap;
mod heap_groups;
mod intervals;
mod link_maps;
mod malloc;
mod modules;
mod page_tables;
#[cfg(test)]
mod process_tests;
mod queues;
mod ring_users;
mod sources;
mod tables;
mod threads;
mod zones;

use std::collections::BTreeMap;

use crate::Mapping;
use crate::address::AddressRange;
use crate::report::Holder;
use crate::target::XrayTarget;

pub(crate) use af_xdp::{AfXdpSockets, KernelPool};
pub(crate) use feeds::PoolFeeds;
use heap::Elements;
pub(crate) use heap_groups::HeapGroups;
use intervals::{Interval, Intervals};
pub(crate) use malloc::MallocHeaps;
use modules::Module;
pub(crate) use ring_users::RingUsers;
pub use sources::HolderSources;

/// A holder of a [`HolderMap`]; smaller ones come first in the order of [`Holder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u32);

/// The owner of each word of an app's memory, at the time when the map was made.
#[derive(Debug)]
pub struct HolderMap {
    /// In ascending order, without overlaps.
    owned: Intervals,
    /// By [`HolderId`].
    holders: Vec<Numbered>,
    /// Modules whose variables are holders.
    modules: Vec<Module>,
    /// Memory whose words are not references.
    meaningless: Intervals,
    af_xdp: AfXdpSockets,
    problems: Vec<String>,
}

impl HolderMap {
    /// Reads the heap, the ports and the threads of an app, and the symbols of its modules. Memory
    /// of a part that cannot be read gets the next less specific owner, see
    /// [`HolderMap::problems`].
    pub fn new(target: &XrayTarget, sources: &HolderSources, maps: &[Mapping]) -> Self {
        let mut builder = Builder::default();
        builder.add(mappings(maps));
        let memory = target.memory.as_ref();
        let (modules, unread) = modules::modules(memory, sources.pid, maps);
        builder.problems.extend(unread);
        builder.add(modules.iter().flat_map(Module::data).collect());
        let numbered = modules.iter().enumerate();
        builder.add(numbered.flat_map(|(number, module)| module.variables(number)).collect());
        builder.add(threads::stacks(target, maps, &modules, &sources.threads));
        let elements = Elements::read(target);
        if !elements.is_whole {
            builder.problems.push(
                "the heap of the EAL could not be read completely: some of its elements are reported as \
                 mappings"
                    .to_owned(),
            );
        }
        builder.add(heap_elements(&elements));
        builder.add(tables::tables(target, &elements));
        let ports = queues::ports(target);
        builder.add(zones::memzones(target, &ports));
        builder.add(queues::queue_memory(target, &elements, maps, &ports));
        builder.af_xdp = AfXdpSockets::of_ports(target, &ports, maps);
        builder.add(builder.af_xdp.owned());
        let free = elements.iter().filter(|element| !element.is_used);
        let tables = page_tables::page_tables(target, maps, &elements.heaps);
        let meaningless = free.map(|element| element.range).chain(tables);
        let meaningless = meaningless.map(|range| Interval { range, value: 0 });
        builder.meaningless = Intervals::new(meaningless.collect());
        builder.build(modules)
    }

    /// The owner of the word at this address; a binary search.
    pub fn id(&self, address: u64) -> HolderId {
        // The last id is that of memory that is not mapped.
        let unmapped = u32::try_from(self.holders.len().saturating_sub(1)).unwrap_or(u32::MAX);
        HolderId(self.owned.find(address).unwrap_or(unmapped))
    }

    /// Whether it is the heap of the C library, or another anonymous mapping.
    pub(crate) fn is_process_heap(&self, id: HolderId) -> bool {
        let numbered = usize::try_from(id.0).ok().and_then(|index| self.holders.get(index));
        numbered.is_some_and(|(holder, _)| *holder == Holder::ProcessHeap)
    }

    /// The holder with an id of this map. The first variable of a module may take a while: its
    /// debug information is read.
    pub fn get(&self, id: HolderId) -> Holder {
        let numbered = usize::try_from(id.0).ok().and_then(|index| self.holders.get(index));
        let Some((holder, variable)) = numbered else { return not_mapped() };
        let place = variable.and_then(|variable| self.place(variable));
        match holder.clone() {
            Holder::Global { symbol, module, .. } => Holder::Global { symbol, module, place },
            other => other,
        }
    }

    fn place(&self, variable: Variable) -> Option<String> {
        self.modules.get(variable.module)?.place(variable.address)
    }

    /// The owner of the word at this address. To count many, use [`HolderMap::id`] and look each id up
    /// once.
    pub fn holder(&self, address: u64) -> Holder {
        self.get(self.id(address))
    }

    /// Whether the word at this address can be a reference: not in free memory of the EAL's heap,
    /// nor in its page tables. Valid until the app allocates that memory: make a new map for each
    /// scan.
    pub fn can_refer(&self, address: u64) -> bool {
        self.meaningless.find(address).is_none()
    }

    /// The `AF_XDP` sockets of its ports, whose references are not pointers.
    pub(crate) fn af_xdp(&self) -> &AfXdpSockets {
        &self.af_xdp
    }

    /// Descriptions of what could not be read, one sentence each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

fn not_mapped() -> Holder {
    Holder::Mapping { path: "[not mapped]".to_owned() }
}

/// A variable of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Variable {
    /// Number of the module.
    module: usize,
    /// Address in its file.
    address: u64,
}

/// Two variables of a module may have the same name.
type Numbered = (Holder, Option<Variable>);

/// A piece of memory and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    range: AddressRange,
    holder: Holder,
    /// For [`Holder::Global`].
    variable: Option<Variable>,
}

impl Owned {
    fn new(range: AddressRange, holder: Holder) -> Self {
        Self { range, holder, variable: None }
    }
}

/// Collects owners, the most specific ones last.
#[derive(Debug, Default)]
struct Builder {
    owned: Intervals,
    holders: Vec<Numbered>,
    meaningless: Intervals,
    known: BTreeMap<Numbered, u32>,
    af_xdp: AfXdpSockets,
    problems: Vec<String>,
}

impl Builder {
    /// Adds owners that take precedence over all earlier ones. If they overlap each other, the one
    /// that begins first counts.
    fn add(&mut self, owned: Vec<Owned>) {
        let intervals = owned.into_iter().map(|owned| Interval {
            range: owned.range,
            value: self.number((owned.holder, owned.variable)),
        });
        let above = Intervals::new(intervals.collect());
        self.owned = std::mem::take(&mut self.owned).overlaid(&above);
    }

    fn number(&mut self, holder: Numbered) -> u32 {
        let next = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry(holder.clone()).or_insert(next);
        if number == next {
            self.holders.push(holder);
        }
        number
    }

    /// Ids ascend in the order of the holders.
    fn build(mut self, modules: Vec<Module>) -> HolderMap {
        let mut order: Vec<usize> = (0..self.holders.len()).collect();
        order.sort_by(|a, b| self.holders[*a].cmp(&self.holders[*b]));
        let mut ids = vec![0; order.len()];
        for (id, index) in order.iter().enumerate() {
            ids[*index] = u32::try_from(id).unwrap_or(u32::MAX);
        }
        self.owned.renumber(|index| ids[index as usize]);
        let mut holders: Vec<Numbered> =
            order.into_iter().map(|index| self.holders[index].clone()).collect();
        holders.push((not_mapped(), None));
        HolderMap {
            owned: self.owned,
            holders,
            modules,
            meaningless: self.meaningless,
            af_xdp: self.af_xdp,
            problems: self.problems,
        }
    }
}

/// The elements in use.
fn heap_elements(elements: &Elements) -> Vec<Owned> {
    let used = elements.iter().filter(|element| element.is_used);
    let owned = |element: &heap::Element| {
        let holder = Holder::HeapElement { bytes: element.range.bytes(), socket: element.socket };
        Owned::new(element.range, holder)
    };
    used.map(owned).collect()
}

/// Owners of memory of which nothing more is known.
fn mappings(maps: &[Mapping]) -> Vec<Owned> {
    let holder = |path: &str| match path {
        "" | "[heap]" => Holder::ProcessHeap,
        // Anonymous memory that was given a name by prctl(2).
        name if name.starts_with("[anon") => Holder::ProcessHeap,
        path => Holder::Mapping { path: path.to_owned() },
    };
    let owned = |mapping: &Mapping| Owned::new(mapping.into(), holder(&mapping.path));
    maps.iter().map(owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(owned: Vec<Vec<Owned>>) -> HolderMap {
        let mut builder = Builder::default();
        for layer in owned {
            builder.add(layer);
        }
        builder.build(Vec::new())
    }

    #[test]
    fn ids_are_in_the_order_of_holders() {
        let zone = |name: &str| Holder::Memzone { name: name.to_owned() };
        let owned = |start: u64, end, holder| Owned::new((start..end).into(), holder);
        let queue = Holder::RxQueue { port: 1, queue: 0 };
        let below = vec![
            owned(0x1000, 0x3000, Holder::ProcessHeap),
            owned(0x3000, 0x4000, Holder::Mapping { path: "/dev/zero".into() }),
        ];
        let above = vec![owned(0x1800, 0x1900, zone("b")), owned(0x2000, 0x2100, zone("a"))];
        let map = map(vec![below, above, vec![owned(0x1880, 0x18a0, queue.clone())]]);
        assert_eq!(map.holder(0x1000), Holder::ProcessHeap);
        assert_eq!(map.holder(0x1800), zone("b"));
        assert_eq!(map.holder(0x1880), queue);
        assert_eq!(map.holder(0x18a0), zone("b"));
        assert_eq!(map.holder(0x1900), Holder::ProcessHeap);
        assert_eq!(map.holder(0x3fff), Holder::Mapping { path: "/dev/zero".into() });
        assert_eq!(map.holder(0x4000), not_mapped());
        let ids = [0x1880, 0x2000, 0x1800, 0x1000, 0x3000].map(|address| map.id(address));
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(ids.iter().all(|id| *id <= map.id(0)));
    }

    #[test]
    fn anonymous_memory_is_the_heap_of_the_process() {
        let mapping =
            |path: &str| Mapping { start: 1, end: 2, path: path.to_owned(), ..Mapping::default() };
        let holder = |path| mappings(&[mapping(path)])[0].holder.clone();
        assert_eq!(holder(""), Holder::ProcessHeap);
        assert_eq!(holder("[heap]"), Holder::ProcessHeap);
        assert_eq!(holder("[anon:buffers]"), Holder::ProcessHeap);
        assert_eq!(holder("[stack]"), Holder::Mapping { path: "[stack]".into() });
    }
}
