//! The threads that use a full ring: those with its address on their stacks.
//!
//! Registers of a running thread cannot be read without stopping it. But functions save registers on the stack
//! before they call others, as a poll loop calls its driver, and blocked threads have all of them there. An
//! address may also be left from earlier, so a thread with it only probably uses the ring.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmdscope_telemetry::sample::RingUserSample;

use super::fields::words;
use super::sources::HolderSources;
use super::threads::stack_ends;
use crate::address::AddressRange;
use crate::counts::RingCount;
use crate::target::XrayTarget;

/// Bytes of a stack that are searched.
const MOST_STACK: u64 = 32 << 10;

/// Threads whose stacks are searched.
const MOST_THREADS: usize = 256;

/// Interval at which the stacks are searched again while a ring is full.
const INTERVAL: Duration = Duration::from_secs(5);

/// Least used share of a ring whose users are looked for, in parts of ten: as that of a full ring.
const FULL_TENTHS: u64 = 9;

/// The users of the full rings of one app.
#[derive(Debug, Default)]
pub(crate) struct RingUsers {
    /// By address of the ring, with the time of the search.
    found: BTreeMap<u64, (Instant, Vec<RingUserSample>)>,
}

impl RingUsers {
    /// The users of a ring; none if it is not full.
    pub(crate) fn of(&mut self, target: &XrayTarget, ring: &RingCount) -> Vec<RingUserSample> {
        if ring.used.saturating_mul(10) < ring.capacity.saturating_mul(FULL_TENTHS) {
            self.found.remove(&ring.address);
            return Vec::new();
        }
        let known = self.found.get(&ring.address);
        if let Some((_, users)) = known.filter(|(searched, _)| searched.elapsed() < INTERVAL) {
            return users.clone();
        }
        let users = users(target, ring.address);
        self.found.insert(ring.address, (Instant::now(), users.clone()));
        users
    }
}

fn users(target: &XrayTarget, ring: u64) -> Vec<RingUserSample> {
    let memory = target.memory.as_ref();
    let Ok(maps) = memory.maps() else { return Vec::new() };
    let mut threads = HolderSources::of_memory(memory).threads;
    threads.truncate(MOST_THREADS);
    let has_ring = |end: &AddressRange| {
        let mut bytes = vec![0; usize::try_from(end.bytes()).unwrap_or_default()];
        let is_read = memory.read(end.start(), &mut bytes).is_ok();
        is_read && words(&bytes).any(|word| word == ring)
    };
    let ends = stack_ends(memory, &maps, &threads, MOST_STACK);
    let of_thread = |(tid, end): &(u32, AddressRange)| {
        let thread = threads.iter().find(|thread| thread.id == *tid)?;
        has_ring(end).then(|| RingUserSample { tid: *tid, name: thread.name.clone() })
    };
    ends.iter().filter_map(of_thread).collect()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;
    use crate::layout::Layout;
    use crate::memory::ProcessMemory;

    #[test]
    fn threads_with_the_ring_on_their_stacks_are_found_while_it_is_full() {
        const RING: u64 = 0x5eed_0000_1234_5670;
        let Ok(memory) = ProcessMemory::open(std::process::id()) else { return };
        let (ready, started) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let user = thread::Builder::new().name("ring-user".to_owned());
        let user = user.spawn(move || {
            let address = [black_box(RING); 4];
            ready.send(()).unwrap();
            let _ = ended.recv();
            black_box(&address);
        });
        started.recv().unwrap();
        let target = XrayTarget::new(Arc::new(memory), Layout::dpdk_22_11(), Vec::new());
        let ring = |used| RingCount { address: RING, capacity: 100, used, ..RingCount::default() };
        let mut users = RingUsers::default();
        assert_eq!(users.of(&target, &ring(89)), []);
        // The stack of a thread is known once it waits.
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = loop {
            let found = users.of(&target, &ring(90));
            if found.iter().any(|user| user.name == "ring-user") {
                break found;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            users = RingUsers::default();
            thread::sleep(Duration::from_millis(1));
        };
        drop(end);
        user.unwrap().join().unwrap();
        assert_eq!(users.of(&target, &ring(100)), found, "searched a short time ago");
        assert_eq!(users.of(&target, &ring(0)), []);
    }
}
