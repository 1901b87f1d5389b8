//! Thresholds of the lints.

use std::time::Duration;

/// Thresholds of the lints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Used share of a pool for a warning, 0 to 1.
    pub pool_used: f64,
    /// Used share of a pool that is critical, 0 to 1.
    pub pool_used_critical: f64,
    /// Time to exhaustion of a pool for a warning, seconds.
    pub pool_left_s: f64,
    /// Time to exhaustion of a pool that is critical, seconds.
    pub pool_left_critical_s: f64,
    /// Time until a heap is full for a warning, seconds.
    pub heap_left_s: f64,
    /// Time until a heap is full that is critical, seconds.
    pub heap_left_critical_s: f64,
    /// Tolerated missed packets per second.
    pub rx_missed_ps: f64,
    /// Share of the packets of a port whose loss by errors or discards is critical, 0 to 1.
    pub loss_ratio: f64,
    /// Tolerated time without a poll.
    pub idle: Duration,
    /// Time for which a port may receive less than 1 % of its earlier rate.
    pub flat: Duration,
    /// Tolerated stalls per second of one lcore.
    pub stalls_ps: f64,
    /// Share of the time of an lcore that may be stolen, 0 to 1.
    pub stolen_ratio: f64,
    /// Time for which the CPU of an lcore may be stolen at a stretch.
    pub stolen_longest: Duration,
    /// Share of the offered packets that a driver may refuse to send, 0 to 1.
    pub tx_refused: f64,
    /// Number of starts, stops and link changes of a port within a minute that is critical.
    pub port_changes: f64,
    /// Number of starts of an app within a minute that counts as a loop.
    pub restarts: f64,
    /// Assumed descriptors of a receive queue if the driver does not report them.
    pub rx_descriptors: f64,
    /// Limit of the packets of a receive queue, as a multiple of the mean of the others, above 1.
    pub queue_ratio: f64,
    /// Minimum packets of a port between two samples to compare its queues.
    pub queue_packets: f64,
    /// Packets per second that the filter of an interface may drop.
    pub flood_ps: f64,
    /// Share of the packets that arrive at a filter that it may drop, 0 to 1.
    pub flood_ratio: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            pool_used: 0.90,
            pool_used_critical: 0.98,
            pool_left_s: 300.0,
            pool_left_critical_s: 60.0,
            heap_left_s: 3600.0,
            heap_left_critical_s: 60.0,
            rx_missed_ps: 0.0,
            loss_ratio: 0.01,
            idle: Duration::from_secs(1),
            flat: Duration::from_secs(10),
            stalls_ps: 0.0,
            stolen_ratio: 0.01,
            stolen_longest: Duration::from_millis(1),
            tx_refused: 0.01,
            port_changes: 3.0,
            restarts: 3.0,
            rx_descriptors: 512.0,
            queue_ratio: 3.0,
            queue_packets: 1000.0,
            flood_ps: 1000.0,
            flood_ratio: 0.05,
        }
    }
}
