//! Small samples for the tests of this crate, and the round trip of a sample.

use proptest::prelude::*;

use super::*;

pub(crate) fn empty_sample() -> Sample {
    Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: 1_700_000_000_000_000_000,
        monotonic_ns: 1,
        duration_ns: 100_000,
        requests: 3,
        app: AppIdentity { name: "app".into(), pid: 7, start_ticks: 70, ..Default::default() },
        ..Sample::default()
    }
}

/// A started port with this many received packets of 64 bytes.
pub(crate) fn port(id: u16, packets: u64) -> PortSample {
    let rx_bytes = packets.saturating_mul(64);
    PortSample {
        id,
        device: format!("net_null{id}"),
        started: true,
        stats: PortStats { rx_packets: packets, rx_bytes, ..PortStats::default() },
        ..PortSample::default()
    }
}

pub(crate) fn pool(name: &str, size: u64, in_use: u64) -> PoolSample {
    let common = size.saturating_sub(in_use);
    let occupancy = Some(PoolOccupancy { common, cached: 0, in_use });
    PoolSample { name: name.into(), size, occupancy, ..PoolSample::default() }
}

/// A receive queue of port 0 with its polls, empty polls and packets.
pub(crate) fn queue(queue: u16, [polls, empty, packets]: [u64; 3]) -> QueueSample {
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

proptest! {
    #[test]
    fn a_sample_survives_json(
        counters: [u64; 3],
        names in prop::collection::vec(".*", 0..4),
        link: Option<bool>,
    ) {
        let mut sample = empty_sample();
        sample.ports = vec![port(1, counters[0])];
        sample.ports[0].link_up = link;
        sample.pools = names.iter().map(|name| pool(name, counters[1], counters[2])).collect();
        sample.ports[0].xstats = names.iter().map(|n| (n.clone(), counters[2])).collect();
        sample.library = link.map(|_| LibrarySample::default());
        sample.partial = names;
        let json = serde_json::to_string(&sample).unwrap();
        prop_assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
    }

    #[test]
    fn any_text_reads_as_a_sample_or_fails(text: String) {
        let _ = serde_json::from_str::<Sample>(&text);
    }
}
