//! Stacks and thread-local storage of the threads of an app.
//!
//! The registers of a thread cannot be read without stopping it. But the C library (glibc) keeps a
//! `struct pthread` of each thread, above the stack, in lists that begin in its own data or in that
//! of the dynamic linker. An entry is used if its neighbours point back to it and its thread id is
//! one of the app's.

use std::collections::{BTreeMap, BTreeSet};

use super::Owned;
use super::fields::Fields;
use super::modules::{Module, ThreadLocals};
use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::memory::Memory;
use crate::report::Holder;
use crate::target::XrayTarget;
use crate::thread::AppThread;

/// Offsets in `struct pthread` of glibc, which have not changed since 2.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PthreadLayout {
    /// Links to the next and the previous one.
    list: u64,
    tid: u64,
    /// Pointers to the structure itself, and to the table of its thread-local blocks: on x86-64,
    /// where the blocks are below the structure. On arm64 they are above.
    head: Option<HeadLayout>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadLayout {
    own: [u64; 2],
    dtv: u64,
}

const X86_64: PthreadLayout =
    PthreadLayout { list: 704, tid: 720, head: Some(HeadLayout { own: [0, 16], dtv: 8 }) };
const ARM64: PthreadLayout = PthreadLayout { list: 192, tid: 208, head: None };

/// Bytes of the structure that contain its stack's address in all releases.
const PTHREAD_BYTES: u64 = 2304;

/// Bytes of a module's data that are searched for the start of a list.
const MOST_SEARCHED: u64 = 1 << 20;

/// Variable with the lcore number of a thread: `RTE_PER_LCORE(_lcore_id)`.
const LCORE_ID: &str = "per_lcore__lcore_id";

/// Beginnings of the names of libraries with the list of threads: the C library and the dynamic linker.
const LIBRARIES: [&str; 5] = ["ld-linux", "ld-2.", "libc.so", "libc-2.", "libpthread"];

/// Further threads are not followed.
const MOST_THREADS: usize = 1 << 16;

/// Maximum number of thread-local blocks of a thread, and their maximum distance below its
/// structure.
const MOST_BLOCKS: u64 = 1024;
const MOST_LOCAL_BYTES: u64 = 1 << 24;

/// An entry of the dynamic thread vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    address: u64,
    /// 0 for a block below the structure of the thread.
    to_free: u64,
}

/// Bytes of an entry.
const BLOCK_BYTES: u64 = 16;

/// A block that is not allocated yet.
const NO_BLOCK: u64 = u64::MAX;

/// A thread whose structure was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    tid: u32,
    /// Address of its `struct pthread`.
    pthread: u64,
    /// The stack according to the C library; `None` for the main thread.
    stack: Option<AddressRange>,
    /// Its blocks of thread-local storage below the structure, by number of the module.
    blocks: BTreeMap<u64, u64>,
    /// Blocks that were allocated at their first use, as for libraries that were loaded later.
    allocated: BTreeMap<u64, u64>,
}

/// The stacks and the thread-local storage of these threads. Parts that cannot be read are left
/// out.
pub(super) fn stacks(
    target: &XrayTarget,
    maps: &[Mapping],
    modules: &[Module],
    threads: &[AppThread],
) -> Vec<Owned> {
    let memory = target.memory.as_ref();
    let tids: BTreeSet<u32> = threads.iter().map(|thread| thread.id).collect();
    let data = library_data(modules);
    let search = |layout| ThreadSearch { memory, maps, layout, tids: &tids }.run(&data);
    let mut found = search(X86_64);
    if found.is_empty() {
        found = search(ARM64);
    }
    let locals = thread_locals(modules);
    let mut owned = Vec::new();
    for thread in threads {
        let found = found.iter().find(|found| found.tid == thread.id);
        let lcore = || found?.lcore(memory, &locals).filter(|id| *id < target.layout.max_lcore);
        let name = match thread.name.as_str() {
            "" => lcore().map_or(thread.id.to_string(), |lcore| format!("lcore {lcore}")),
            name => name.to_owned(),
        };
        owned.extend(found.into_iter().flat_map(|found| found.owned(maps, &name, &locals)));
        if thread.is_main {
            let stack = maps.iter().find(|mapping| mapping.path == "[stack]");
            let holder = Holder::Stack { thread: name };
            owned.extend(stack.map(|stack| Owned::new(stack.into(), holder)));
        }
    }
    owned
}

/// The ends of the stacks of these threads, where their first functions have their data: a poll loop is one of
/// the first functions of its thread. At most this many bytes each, by thread id.
pub(super) fn stack_ends(
    memory: &dyn Memory,
    maps: &[Mapping],
    threads: &[AppThread],
    most: u64,
) -> Vec<(u32, AddressRange)> {
    let tids: BTreeSet<u32> = threads.iter().map(|thread| thread.id).collect();
    let is_library = |mapping: &&Mapping| {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        mapping.writable && LIBRARIES.iter().any(|library| name.starts_with(library))
    };
    let data = maps.iter().filter(is_library).map(AddressRange::from);
    let data: Vec<_> = data.filter_map(|data| data.chunks(MOST_SEARCHED).next()).collect();
    let search = |layout| ThreadSearch { memory, maps, layout, tids: &tids }.run(&data);
    let mut found = search(X86_64);
    if found.is_empty() {
        found = search(ARM64);
    }
    let end = |range: AddressRange| {
        let begin = range.end().saturating_sub(most).max(range.start());
        AddressRange::from(begin..range.end())
    };
    let of_thread = |found: &Found| Some((found.tid, end(found.stack?.split_at(found.pthread).0)));
    let mut ends: Vec<_> = found.iter().filter_map(of_thread).collect();
    let main = threads.iter().find(|thread| thread.is_main);
    let stack = maps.iter().find(|mapping| mapping.path == "[stack]");
    ends.extend(main.zip(stack).map(|(main, stack)| (main.id, end(stack.into()))));
    ends
}

/// Thread-local storage of modules, by their numbers. The executable has the first, if it has any.
fn thread_locals(modules: &[Module]) -> BTreeMap<u64, &ThreadLocals> {
    let numbered = modules.iter().filter_map(|module| {
        let locals = module.tls.as_ref()?;
        Some((locals.number.or(module.is_executable.then_some(1))?, locals))
    });
    numbered.collect()
}

/// Data in which lists of threads can begin: that of the C library and of the dynamic linker; for a
/// statically linked app its own.
fn library_data(modules: &[Module]) -> Vec<AddressRange> {
    let is_library = |module: &&Module| LIBRARIES.iter().any(|name| module.name.starts_with(name));
    let libraries: Vec<&Module> = modules.iter().filter(is_library).collect();
    let of_app = modules.iter().filter(|module| module.is_executable && libraries.is_empty());
    let ranges = libraries.iter().copied().chain(of_app).flat_map(Module::writable);
    let begin = |data: AddressRange| data.chunks(MOST_SEARCHED).next();
    ranges.filter_map(begin).collect()
}

struct ThreadSearch<'a> {
    memory: &'a dyn Memory,
    maps: &'a [Mapping],
    layout: PthreadLayout,
    tids: &'a BTreeSet<u32>,
}

impl ThreadSearch<'_> {
    fn run(&self, data: &[AddressRange]) -> Vec<Found> {
        let mut found = BTreeMap::new();
        for data in data {
            let fields = Fields::read_large(self.memory, data.start(), data.bytes());
            let Some(fields) = fields else {
                continue;
            };
            for word in fields.words().filter(|word| self.is_writable(*word)) {
                if !found.contains_key(&word) && self.is_linked(word) {
                    self.follow(word, &mut found);
                }
            }
        }
        found.into_values().collect()
    }

    /// All threads of a list, beginning at one of them. The head of the list is not a thread.
    fn follow(&self, first: u64, found: &mut BTreeMap<u64, Found>) {
        let mut link = first;
        for _ in 0..MOST_THREADS {
            if self.is_linked(link) {
                let Some(thread) = self.thread(link) else { return };
                if found.insert(link, thread).is_some() {
                    return;
                }
            }
            let Some(next) = self.word(link) else { return };
            if next == first || next == link {
                return;
            }
            link = next;
            // Either the head, or a thread that the app has just created.
            if !self.is_linked(link) {
                let Some(next) = self.word(link).filter(|next| self.is_linked(*next)) else {
                    return;
                };
                link = next;
            }
        }
    }

    fn is_writable(&self, address: u64) -> bool {
        let behind = self.maps.partition_point(|mapping| mapping.start <= address);
        let mapping = self.maps[..behind].last();
        address.is_multiple_of(8)
            && mapping.is_some_and(|mapping| mapping.contains(address) && mapping.writable)
    }

    fn word(&self, address: u64) -> Option<u64> {
        Fields::read(self.memory, address, 8)?.u64(0)
    }

    /// Whether the link of a thread of the app is at this address.
    fn is_linked(&self, link: u64) -> bool {
        let check = || {
            let pthread = link.checked_sub(self.layout.list)?;
            let fields = Fields::read(self.memory, pthread, Address(self.layout.tid).plus(4)?)?;
            let own = self
                .layout
                .head
                .is_none_or(|head| head.own.iter().all(|own| fields.u64(*own) == Some(pthread)));
            let tid = fields.u32(self.layout.tid)?;
            let next = fields.u64(self.layout.list)?;
            let previous = fields.u64(Address(self.layout.list).plus(8)?)?;
            let back = self.word(Address(next).plus(8)?)? == link && self.word(previous)? == link;
            Some(own && back && self.tids.contains(&tid))
        };
        check().unwrap_or(false)
    }

    fn thread(&self, link: u64) -> Option<Found> {
        let pthread = link.checked_sub(self.layout.list)?;
        let behind = self.maps.partition_point(|mapping| mapping.start <= pthread);
        let mapping = self.maps[..behind].last().filter(|mapping| mapping.contains(pthread))?;
        let structure = AddressRange::up_to_length(pthread, PTHREAD_BYTES);
        let structure = structure.intersection(&mapping.into());
        let fields = Fields::read(self.memory, pthread, structure.bytes())?;
        let vector = self.layout.head.and_then(|head| self.vector(fields.u64(head.dtv)?));
        let vector = vector.unwrap_or_default();
        let is_below = |address: u64| {
            let below = pthread.checked_sub(address);
            below.is_some_and(|below| (1..MOST_LOCAL_BYTES).contains(&below))
        };
        let blocks = vector.iter().filter(|(_, it)| it.to_free == 0 && is_below(it.address));
        let allocated = vector.iter().filter(|(_, it)| it.to_free != 0);
        let address = |(module, block): (&u64, &Block)| (*module, block.address);
        Some(Found {
            tid: fields.u32(self.layout.tid)?,
            pthread,
            stack: self.stack(&fields, pthread),
            blocks: blocks.map(address).collect(),
            allocated: allocated.map(address).collect(),
        })
    }

    /// The address and length of the stack are consecutive words of the structure, which is itself
    /// in that stack.
    fn stack(&self, fields: &Fields, pthread: u64) -> Option<AddressRange> {
        const PAGE: u64 = 4096;
        let words: Vec<u64> = fields.words().collect();
        let behind = usize::try_from(self.layout.tid / 8).ok()?;
        let stack = |pair: &[u64]| {
            let stack = AddressRange::of_length(pair[0], pair[1])?;
            let is_stack = pair[0].is_multiple_of(PAGE)
                && pair[1].is_multiple_of(PAGE)
                && pair[0] != 0
                && stack.contains(pthread);
            is_stack.then_some(stack)
        };
        words.get(behind..)?.windows(2).find_map(stack)
    }

    /// The dynamic thread vector: pairs of an address and the memory to free, by number of the
    /// module. Its length precedes it.
    fn vector(&self, dtv: u64) -> Option<BTreeMap<u64, Block>> {
        let count = self.word(dtv.checked_sub(16)?)?.min(MOST_BLOCKS);
        let vector = AddressRange::of_elements(dtv, count, BLOCK_BYTES)?;
        let bytes = Address(vector.bytes()).plus(BLOCK_BYTES)?;
        let fields = Fields::read(self.memory, dtv, bytes)?;
        let block = |module: u64| {
            let at = Address(0).element(module, BLOCK_BYTES)?;
            let (address, to_free) = (fields.u64(at)?, fields.u64(Address(at).plus(8)?)?);
            let is_set = address != 0 && address != NO_BLOCK;
            is_set.then_some((module, Block { address, to_free }))
        };
        Some((1..=count).filter_map(block).collect())
    }
}

impl Found {
    fn owned(
        &self,
        maps: &[Mapping],
        name: &str,
        locals: &BTreeMap<u64, &ThreadLocals>,
    ) -> Vec<Owned> {
        let mapping = maps.iter().find(|mapping| mapping.contains(self.pthread));
        let Some(mapping) = mapping else { return Vec::new() };
        let structure = AddressRange::up_to_length(self.pthread, PTHREAD_BYTES);
        let stack = self.stack.unwrap_or((mapping.start..structure.end()).into());
        let stack = stack.intersection(&mapping.into());
        let in_stack = |block: &&u64| **block >= stack.start();
        let lowest = self.blocks.values().filter(in_stack).min().copied();
        let local = lowest.unwrap_or(self.pthread);
        let thread_local = |symbol| Holder::ThreadLocal { thread: name.to_owned(), symbol };
        let mut owned = Vec::new();
        let (below, mut rest) = stack.split_at(local);
        if self.stack.is_some() {
            let holder = Holder::Stack { thread: name.to_owned() };
            owned.push(Owned::new(below, holder));
        }
        // The structure of the main thread has its own mapping, without a stack.
        for (variable, symbol) in self.variables(&self.blocks, locals) {
            if rest.contains_all(&variable) && variable.end() <= self.pthread {
                owned.push(Owned::new(rest.split_at(variable.start()).0, thread_local(None)));
                owned.push(Owned::new(variable, thread_local(Some(symbol))));
                (_, rest) = rest.split_at(variable.end());
            }
        }
        owned.push(Owned::new(rest, thread_local(None)));
        let allocated = self.variables(&self.allocated, locals).into_iter();
        owned.extend(
            allocated.map(|(variable, symbol)| Owned::new(variable, thread_local(Some(symbol)))),
        );
        owned
    }

    /// Thread-local variables in these blocks, by address.
    fn variables(
        &self,
        blocks: &BTreeMap<u64, u64>,
        locals: &BTreeMap<u64, &ThreadLocals>,
    ) -> Vec<(AddressRange, String)> {
        let mut variables = Vec::new();
        for (number, block) in blocks {
            let Some(locals) = locals.get(number).filter(|it| self.is_certain(it, *block)) else {
                continue;
            };
            let segment = AddressRange::up_to_length(0, locals.segment.bytes);
            variables.extend(locals.variables.iter().filter_map(|symbol| {
                let inside = symbol.range.intersection(&segment);
                Some((inside.moved(0, *block)?, symbol.name.clone()))
            }));
        }
        variables.sort_by_key(|(variable, _)| *variable);
        variables
    }

    /// Whether a block belongs to this module. That of the executable, the first one, ends below
    /// the structure.
    fn is_certain(&self, locals: &ThreadLocals, block: u64) -> bool {
        let gap = || self.pthread.checked_sub(Address(block).plus(locals.segment.bytes)?);
        locals.number.is_some() || gap().is_some_and(|gap| gap < 4096)
    }

    /// The lcore of the thread in the EAL.
    fn lcore(&self, memory: &dyn Memory, locals: &BTreeMap<u64, &ThreadLocals>) -> Option<u32> {
        let blocks = [&self.blocks, &self.allocated];
        let mut variables = blocks.into_iter().flat_map(|blocks| self.variables(blocks, locals));
        let (variable, _) = variables.find(|(.., name)| name == LCORE_ID)?;
        Fields::read(memory, variable.start(), 4)?.u32(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::test_memory::TestMemory;

    const DATA: u64 = 0x10_0000;
    const STACKS: u64 = 0x20_0000;
    const STACK: u64 = 0x4000;

    /// Threads 1 to 4 in a list that begins in the data, each at the end of its stack.
    fn made() -> (TestMemory, Vec<u64>) {
        let mut memory = TestMemory::default();
        memory.map(DATA, 0x1000);
        memory.map(STACKS, 4 * STACK);
        let pthread = |number: u64| STACKS + (number + 1) * STACK - PTHREAD_BYTES;
        let pthreads: Vec<u64> = (0..4).map(pthread).collect();
        let head = DATA + 0x100;
        let mut links = vec![head];
        links.extend(pthreads.iter().map(|pthread| pthread + X86_64.list));
        for (index, link) in links.iter().enumerate() {
            memory.write_u64(*link, links[(index + 1) % 5]);
            memory.write_u64(*link + 8, links[(index + 4) % 5]);
        }
        for (index, pthread) in (0_u32..).zip(&pthreads) {
            memory.write_u64(*pthread, *pthread);
            memory.write_u64(*pthread + 16, *pthread);
            memory.write_u32(*pthread + X86_64.tid, index + 1);
            memory.write_u64(*pthread + 1680, STACKS + u64::from(index) * STACK);
            memory.write_u64(*pthread + 1688, STACK);
        }
        (memory, pthreads)
    }

    fn search(memory: &TestMemory) -> Vec<Found> {
        let maps = memory.maps().unwrap();
        let tids = BTreeSet::from([1, 2, 4]);
        let search = ThreadSearch { memory, maps: &maps, layout: X86_64, tids: &tids };
        search.run(&[(DATA..DATA + 0x1000).into()])
    }

    #[test]
    fn threads_are_found_by_the_list_of_the_c_library() {
        let (memory, pthreads) = made();
        let found: Vec<_> =
            search(&memory).iter().map(|it| (it.tid, it.pthread, it.stack)).collect();
        let stack = |number| Some((STACKS + number * STACK..STACKS + (number + 1) * STACK).into());
        // An entry that is not a thread of the app is skipped.
        assert!(found.contains(&(1, pthreads[0], stack(0))), "{found:?}");
        assert!(found.contains(&(4, pthreads[3], stack(3))), "{found:?}");
        assert!(found.iter().all(|(tid, ..)| *tid != 3));
    }

    proptest! {
        #[test]
        fn garbage_neither_hangs_nor_crashes(
            links in vec((0..5_usize, 0..5_usize, 0..3_u64), 0..12),
            words in vec((0..0x2200_u64, prop_oneof![any::<u64>(), DATA..DATA + 0x1000]), 0..40),
        ) {
            let (mut memory, pthreads) = made();
            let mut places: Vec<u64> = pthreads.iter().map(|it| it + X86_64.list).collect();
            places.push(DATA + 0x100);
            for (from, to, offset) in links {
                memory.write_u64(places[from] + 8 * (offset % 2), places[to] + 8 * (offset / 2));
            }
            for (at, word) in words {
                memory.write_u64(STACKS + 8 * at, word);
            }
            prop_assert!(search(&memory).len() <= 4);
        }
    }
}
