//! Samples for tests, of this crate and, by the feature `fixture`, of others.

use crate::sample::{
    LedgerSample, PoolOccupancy, PoolSample, PortSample, PortStats, QueueDirection, QueueSample,
    StageSample, StolenCause, StolenSample, TracingMethod, TracingSample,
};

/// A started port with this many received packets of 64 bytes.
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

/// A pool with this many objects, and so many in use, none of them in caches.
pub fn pool(name: &str, size: u64, in_use: u64) -> PoolSample {
    let common = size.saturating_sub(in_use);
    let occupancy = Some(PoolOccupancy { common, cached: 0, in_use });
    PoolSample { name: name.into(), size, occupancy, ..PoolSample::default() }
}

/// A receive queue of port 0 with its polls, empty polls and packets.
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
        bursts: Vec::new(),
        depths: Vec::new(),
    }
}

/// The ledger of a pool that leaks: 9,000 of 16,383 mbufs are in use, and most of them are lost.
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

/// Stages of that pool: one that holds mbufs by design, and a receive queue.
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

/// What BPF saw of these lcores.
pub fn tracing(lcores: &[u32], stolen: Vec<StolenSample>) -> TracingSample {
    TracingSample {
        method: TracingMethod::Bpf,
        since_realtime_ns: 1_700_000_000_000_000_000,
        lcores: lcores.to_vec(),
        stolen,
        ..TracingSample::default()
    }
}

/// What a thief took from an lcore, in events of equal length.
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
