//! Holders in this process, and in random memory.

use std::cell::Cell;
use std::fs::File;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::heap::tests::MadeHeap;
use super::{HolderMap, HolderSources};
use crate::layout::Layout;
use crate::memory::{ProcessMemory, read_u32};
use crate::memzone::Memzone;
use crate::report::Holder;
use crate::target::XrayTarget;
use crate::thread::AppThread;

static HELD_BY_A_STATIC: [u64; 5] = [1, 2, 3, 4, 5];
static HELD_IN_DATA: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);

thread_local! {
    static HELD_BY_A_THREAD: Cell<[u64; 9]> = const { Cell::new([3; 9]) };
}

fn address<T>(value: &T) -> u64 {
    ptr::from_ref(value) as usize as u64
}

fn of_this_process() -> HolderMap {
    let pid = std::process::id();
    let memory = Arc::new(ProcessMemory::open(pid).unwrap());
    let target = XrayTarget::new(memory, Layout::dpdk_22_11(), Vec::new());
    HolderMap::new(&target, &HolderSources::of_process(pid), &target.memory.maps().unwrap())
}

/// A map with the variables of that thread. Threads of other tests begin and end while the list of
/// threads is read, so one read may miss it.
fn of_this_process_with(thread: &str) -> HolderMap {
    let has_thread = |map: &HolderMap| {
        let is_local = |holder: &Holder| matches!(holder, Holder::ThreadLocal { thread: of, .. } if of == thread);
        map.holders.iter().any(|holder| is_local(&holder.0))
    };
    let mut looks = std::iter::repeat_with(of_this_process).take(50);
    looks.find(has_thread).expect("the thread is never seen")
}

#[test]
fn globals_are_named() {
    let map = of_this_process();
    let Holder::Global { symbol, module, place } = map.holder(address(&HELD_IN_DATA)) else {
        panic!("{}", map.holder(address(&HELD_IN_DATA)));
    };
    assert!(symbol.as_ref().is_some_and(|name| name.contains("HELD_IN_DATA")), "{symbol:?}");
    assert!(module.starts_with("pmdscope_xray"), "{module}");
    // This build may lack debug information.
    assert!(place.as_ref().is_none_or(|at| at.starts_with("process_tests.rs:")), "{place:?}");
    // Read-only memory has no variables.
    let constant = map.holder(address(&HELD_BY_A_STATIC));
    assert!(matches!(constant, Holder::Mapping { .. }), "{constant}");
    let boxed = Box::new(1_u64);
    assert_eq!(map.holder(address(boxed.as_ref())), Holder::ProcessHeap);
}

#[test]
fn stacks_and_thread_local_variables_are_those_of_their_thread() {
    let ((end, wait), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
    let named = thread::Builder::new().name("held-on-stack".to_owned());
    let worker = named.spawn(move || {
        let on_stack = std::hint::black_box([5_u64; 4]);
        let local = HELD_BY_A_THREAD.with(address);
        tell.send((address(&on_stack), local)).unwrap();
        let _ = wait.recv();
        on_stack[0]
    });
    let (on_stack, local) = told.recv().unwrap();
    let map = of_this_process_with("held-on-stack");
    let thread = "held-on-stack".to_owned();
    assert_eq!(map.holder(on_stack), Holder::Stack { thread: thread.clone() });
    let Holder::ThreadLocal { thread: of, symbol } = map.holder(local) else {
        panic!("{}", map.holder(local));
    };
    assert_eq!(of, thread);
    assert!(symbol.as_ref().is_some_and(|name| name.contains("HELD_BY_A_THREAD")), "{symbol:?}");
    drop(end);
    assert_eq!(worker.unwrap().join().unwrap(), 5);
}

/// The C library has such a variable for the last error of each thread.
#[test]
fn thread_local_variables_of_libraries_have_names() {
    const TOO_LONG: u32 = 36;
    let (failed, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (tell, told) = (failed.clone(), end.clone());
    let worker = thread::Builder::new().name("made-an-error".to_owned()).spawn(move || {
        let error = File::open("x".repeat(5000)).unwrap_err();
        tell.store(true, Ordering::SeqCst);
        // No other call may fail.
        while !told.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        error
    });
    while !failed.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let pid = std::process::id();
    let map = of_this_process_with("made-an-error");
    let errno = Holder::ThreadLocal {
        thread: "made-an-error".to_owned(),
        symbol: Some("errno".to_owned()),
    };
    let place = map.owned.iter().find(|it| map.holders[it.value as usize].0 == errno);
    let place = place.map(|it| it.range.start());
    let value = place.map(|at| read_u32(&ProcessMemory::open(pid).unwrap(), at).unwrap());
    end.store(true, Ordering::SeqCst);
    assert_eq!(value, Some(TOO_LONG));
    assert_eq!(worker.unwrap().join().unwrap().raw_os_error(), Some(36));
}

proptest! {
    #[test]
    fn any_memory_has_holders(
        words in vec((0..500_u64, any::<u64>()), 0..40),
        pointers in vec((0..500_u64, 0..500_u64), 0..80),
        zones in vec((0..500_u64, 0..0x4000_u64, 0..5_usize), 0..6),
        asked in vec(any::<u64>(), 8),
    ) {
        let names = ["RG_x", "MP_x", "rte_eth_dev_data", "eth_p0_q1_rx_ring", "port0_vq3"];
        let mut heap = MadeHeap::new(&[(256, true); 20]);
        let begin = heap.data[0] - 128;
        for (at, word) in words {
            heap.memory.write_u64(begin + 8 * at, word);
        }
        for (at, to) in pointers {
            heap.memory.write_u64(begin + 8 * at, begin + 8 * to);
        }
        let zone = |(at, bytes, name): (u64, u64, usize)| Memzone {
            name: names[name].to_owned(),
            address: begin + 8 * at,
            bytes,
        };
        let mut zones: Vec<Memzone> = zones.into_iter().map(zone).collect();
        zones.push(Memzone { name: "first".into(), address: heap.data[0], bytes: 64 });
        let threads = vec![AppThread { id: 1, is_main: true, name: "made".into() }];
        let sources = HolderSources { pid: None, threads };
        let target = heap.target(zones);
        let map = HolderMap::new(&target, &sources, &target.memory.maps().unwrap());
        for address in asked.into_iter().chain((0..640).map(|at| begin + 8 * at)) {
            prop_assert!(!map.holder(address).to_string().is_empty());
            map.can_refer(address);
        }
    }
}
