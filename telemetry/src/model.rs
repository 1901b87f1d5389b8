//! Rates, resets, gaps and ages, derived from two samples. The only place that does.

use serde::Serialize;

use crate::sample::{Direction, Sample};

/// The derived state of one app: the newest sample and what changed since the one before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// The newest sample.
    pub sample: Sample,
    /// Seconds between the two samples; `None` for a first sample or after a restart.
    pub interval_s: Option<f64>,
    /// The app was restarted between the two samples.
    pub restarted: bool,
    /// Derived per port, in the order of `sample.ports`.
    pub ports: Vec<PortRates>,
    /// Derived per queue, in the order of `sample.queues`.
    pub queues: Vec<QueueRates>,
    /// Derived per pool, in the order of `sample.pools`.
    pub pools: Vec<PoolTrend>,
    /// Derived per lcore, in the order of `sample.lcores`.
    pub lcores: Vec<LcoreRates>,
}

/// Per-second rates of one port. A rate is `None` without an earlier sample or across a counter reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortRates {
    /// DPDK port id.
    pub id: u16,
    /// Packets received.
    pub rx_pps: Option<f64>,
    /// Packets sent.
    pub tx_pps: Option<f64>,
    /// Bits received, without FCS, preamble and gap.
    pub rx_bps: Option<f64>,
    /// Bits sent.
    pub tx_bps: Option<f64>,
    /// Packets missed by the NIC.
    pub rx_missed_ps: Option<f64>,
    /// Receive errors.
    pub rx_errors_ps: Option<f64>,
    /// Transmit errors.
    pub tx_errors_ps: Option<f64>,
    /// Failed buffer allocations.
    pub rx_nombuf_ps: Option<f64>,
    /// A counter went backwards: the app or its peer reset it.
    pub reset: bool,
}

/// Per-second rates of one queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueRates {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction.
    pub direction: Direction,
    /// Packets.
    pub pps: Option<f64>,
    /// Bits.
    pub bps: Option<f64>,
    /// Polls.
    pub polls_ps: Option<f64>,
    /// Share of polls that brought packets, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// Mean packets per non-empty burst.
    pub mean_burst: Option<f64>,
    /// This queue's share of the packets of its port and direction, 0 to 1.
    pub share: Option<f64>,
}

/// Trend of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolTrend {
    /// Name.
    pub name: String,
    /// Objects in use, 0 to 1 of the size; `None` when the occupancy is unknown.
    pub used_ratio: Option<f64>,
    /// Growth of the in-use count over the trend window, objects per second; `None` until there are
    /// enough samples. Robust against bursts: the median of pairwise slopes.
    pub slope_ps: Option<f64>,
    /// Seconds until the pool is empty at that slope; `None` when it does not grow.
    pub exhausted_in_s: Option<f64>,
    /// In-use counts of the trend window, oldest first, for sparklines.
    pub history: Vec<u64>,
}

/// Per-second rates of one lcore.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LcoreRates {
    /// lcore id.
    pub lcore: u32,
    /// Turns of the poll loop.
    pub polls_ps: Option<f64>,
    /// Packets.
    pub pps: Option<f64>,
    /// Share of turns with packets, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// Stalls.
    pub stalls_ps: Option<f64>,
}
