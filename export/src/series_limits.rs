//! Limits on the number of series, so that one app cannot flood a server.

use regex::RegexSet;

/// Patterns of xstats about losses and errors, which have different names in each driver.
pub(crate) const XSTATS: [&str; 6] = ["missed", "drop", "discard", "no_buf", "_exceeded", "error"];

/// Limits of the number of series of each kind. Suppressed objects are counted in
/// `dpdk_series_suppressed`.
#[derive(Clone, Debug)]
pub struct SeriesLimits {
    /// Patterns of the xstats that are exported.
    pub xstats: RegexSet,
    /// Most xstats per port.
    pub xstats_per_port: usize,
    /// Most sites of leaks per pool, and most stages per app.
    pub sites_per_pool: usize,
    /// Most queues per port and direction.
    pub queues_per_port: usize,
    /// Most capture sessions per app.
    pub captures: usize,
    /// Export histograms of each queue, about twenty series per queue.
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
