//! Samples for tests of this crate and, with the feature `fixture`, of other crates.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::interface::{
    BypassSample, FilterMode, FilterSample, InterfaceQueueSample, InterfaceReader, InterfaceSample,
    SourceSample, VerdictSample,
};
use crate::sample::{
    LedgerSample, PoolOccupancy, PoolSample, PortSample, PortStats, QueueDirection, QueueSample,
    StageSample, StolenCause, StolenSample, TracingMethod, TracingSample,
};

/// Returns a started port with this number of received packets of 64 bytes.
pub fn port(id: u16, packets: u64) -> PortSample {
    let rx_bytes = packets.saturating_mul(64);
    PortSample {
        id,
        device: format!("net_null{id}"),
        started: true,
        stats: PortStats { rx_packets: packets, rx_bytes, ..PortStats::default() },
        ..PortSample::default()
    }
}

/// Returns a pool with `size` objects, of which `in_use` are in use and none are in caches.
pub fn pool(name: &str, size: u64, in_use: u64) -> PoolSample {
    let common = size.saturating_sub(in_use);
    let occupancy = Some(PoolOccupancy { common, cached: 0, in_use });
    PoolSample { name: name.into(), size, occupancy, ..PoolSample::default() }
}

/// Returns a receive queue of port 0 with its polls, empty polls and packets.
pub fn queue(queue: u16, [polls, empty, packets]: [u64; 3]) -> QueueSample {
    QueueSample {
        port: 0,
        queue,
        direction: QueueDirection::Rx,
        polls,
        empty,
        packets,
        bytes: packets * 64,
        depth: None,
        depth_high_water: None,
        descriptors: None,
        pool_row: None,
        bursts: Vec::new(),
        depths: Vec::new(),
    }
}

/// Returns the ledger of a leaking pool: 9,000 of 16,383 mbufs are in use, and most of them are lost.
pub fn ledger() -> LedgerSample {
    LedgerSample {
        name: "reflector_rx".to_owned(),
        size: 16_383,
        common: 7_083,
        cached: 300,
        rx_posted: 1_024,
        tx_pending: 512,
        rings: 12,
        held: 87,
        leaked: 7_360,
        unplaced: 5,
        prearm: 287,
        armed: true,
        slope_milli: 412_000,
        exhausted_in_ms: Some(17_900),
        walks: 41,
        walk_us: 35,
        ..LedgerSample::default()
    }
}

/// Returns stages of that pool: one that holds mbufs by design, and a receive queue.
pub fn stages() -> Vec<StageSample> {
    let stage = |stage: &str, held, hold, bound_ms, longest_ms| StageSample {
        stage: stage.to_owned(),
        held,
        hold,
        bound_ms,
        longest_ms,
    };
    vec![stage("reassembly", 80, true, 0, 29_000), stage("rx port 0 queue 0", 7, false, 1_000, 3)]
}

/// Returns a tracing sample by BPF for these lcores.
pub fn tracing(lcores: &[u32], stolen: Vec<StolenSample>) -> TracingSample {
    TracingSample {
        method: TracingMethod::Bpf,
        since_realtime_ns: 1_700_000_000_000_000_000,
        lcores: lcores.to_vec(),
        stolen,
        ..TracingSample::default()
    }
}

/// Returns the time that a thief took from an lcore, in events of equal length.
pub fn stolen(
    lcore: u32,
    cause: StolenCause,
    thief: &str,
    count: u64,
    stolen_ns: Option<u64>,
) -> StolenSample {
    let longest_ns = stolen_ns.map(|ns| ns / count.max(1));
    let longest_realtime_ns = longest_ns.map(|_| 1_700_000_000_000_000_000);
    let thief = thief.to_owned();
    StolenSample { lcore, cause, thief, count, stolen_ns, longest_ns, longest_realtime_ns }
}

/// Returns an interface with a filter that drops most of 10,000 packets, times `times`.
pub fn filtered_interface(times: u64) -> InterfaceSample {
    let verdict = |reason: &str, dropped, packets: u64| {
        let packets = packets * times;
        VerdictSample { reason: reason.to_owned(), dropped, packets, bytes: packets * 64 }
    };
    let source = |address: IpAddr, packets: u64| SourceSample { address, packets: packets * times };
    InterfaceSample {
        name: "eth0".to_owned(),
        index: 2,
        driver: "ice".to_owned(),
        rx_packets: Some(10_000 * times),
        rx_dropped: Some(0),
        tx_packets: Some(100 * times),
        filter: Some(FilterSample {
            program: 17,
            mode: FilterMode::Native,
            verdicts: vec![
                verdict("passed", false, 1000),
                verdict("malformed", true, 1000),
                verdict("rate_limit", true, 8000),
            ],
            top_sources: vec![
                source(IpAddr::from([10, 0, 0, 7]), 6000),
                source(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]), 2000),
            ],
            uncounted_sources: 3 * times,
        }),
        ..InterfaceSample::default()
    }
}

/// Returns an interface with two queues; the second one bypasses the kernel to port 0 of the app `dns`.
pub fn split_interface(times: u64) -> InterfaceSample {
    let queue = |queue: u32, packets: u64, redirected: u64| InterfaceQueueSample {
        queue,
        packets: Some(packets * times),
        dropped: Some(u64::from(queue) * 2 * times),
        redirected: Some(redirected * times),
    };
    InterfaceSample {
        name: "eth1".to_owned(),
        index: 3,
        driver: "veth".to_owned(),
        rx_packets: Some(4000 * times),
        rx_dropped: Some(0),
        tx_packets: Some(50 * times),
        queues: vec![queue(0, 1000, 0), queue(1, 3000, 3000)],
        bypass: Some(BypassSample {
            queue: 1,
            app: Some("dns".to_owned()),
            port: Some(0),
            flows: vec!["udp/53".to_owned()],
        }),
        ..InterfaceSample::default()
    }
}

/// A reader of interfaces that a test sets.
#[derive(Debug)]
pub struct FakeInterfaces {
    /// The result of the next read.
    pub next: Mutex<Result<Vec<InterfaceSample>, String>>,
    /// Number of reads.
    pub reads: AtomicU64,
}

impl FakeInterfaces {
    /// Returns a reader of these interfaces.
    pub fn new(interfaces: Vec<InterfaceSample>) -> Arc<Self> {
        Arc::new(Self { next: Mutex::new(Ok(interfaces)), reads: AtomicU64::new(0) })
    }

    /// Sets the result of the next read.
    pub fn set(&self, next: Result<Vec<InterfaceSample>, String>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl InterfaceReader for FakeInterfaces {
    fn read(&self) -> Result<Vec<InterfaceSample>, String> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.next.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
