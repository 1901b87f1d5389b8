//! Verdicts on packets, in the order of the BPF program's counters.

use pmdscope_telemetry::interface::VerdictSample;

/// Names of the entries of `counters`; as in `enum reason` in `filter.h`.
const REASONS: [&str; 7] =
    ["passed", "malformed", "not_ip", "fragment", "denied", "rate_limit", "syn_flood"];

/// Number of entries of `counters`: the reasons, and packets dropped with a source.
pub(crate) const COUNTERS: u32 = 8;

/// Index of the entry of packets that were dropped and have a source.
pub(crate) const WITH_SOURCE: u32 = COUNTERS - 1;

/// One entry of `counters`, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Converts counters to verdicts.
pub(crate) fn verdicts(counters: &[Counter]) -> Vec<VerdictSample> {
    let of = |(index, (reason, counter)): (usize, (&&str, &Counter))| VerdictSample {
        reason: (*reason).to_owned(),
        dropped: index > 0,
        packets: counter.packets,
        bytes: counter.bytes,
    };
    REASONS.iter().zip(counters).enumerate().map(of).collect()
}
