//! Limits on the number of series, so that one app cannot flood a server.

use regex::RegexSet;

/// Extended counters that tell of losses and errors, whatever the driver calls them.
pub(crate) const XSTATS: [&str; 6] = ["missed", "drop", "discard", "no_buf", "_exceeded", "error"];

/// How many series there may be of each kind. What is cut is counted in `dpdk_series_suppressed`.
#[derive(Clone, Debug)]
pub struct SeriesLimits {
    /// Extended counters that are exported, by name.
    pub xstats: RegexSet,
    /// Most of these, per port.
    pub xstats_per_port: usize,
    /// Most sites of leaks, per pool, and most stages, per app.
    pub sites_per_pool: usize,
    /// Most queues, per port and direction.
    pub queues_per_port: usize,
    /// Most capture sessions, per app.
    pub captures: usize,
    /// Export histograms of each queue, some twenty series per queue.
    pub queue_histograms: bool,
}

impl Default for SeriesLimits {
    fn default() -> Self {
        Self {
            // The patterns are valid: the tests compile them.
            xstats: RegexSet::new(XSTATS).unwrap_or_default(),
            xstats_per_port: 40,
            sites_per_pool: 20,
            queues_per_port: 256,
            captures: 16,
            queue_histograms: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_errors_are_exported_by_default() {
        let limits = SeriesLimits::default();
        assert_eq!(limits.xstats.len(), XSTATS.len());
        for name in ["rx_missed_errors", "pps_allowance_exceeded", "rx_no_buffer", "tx_dropped"] {
            assert!(limits.xstats.is_match(name), "{name}");
        }
        assert!(!limits.xstats.is_match("rx_size_64_packets"));
    }
}
