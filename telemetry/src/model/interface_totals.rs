//! Totals of interfaces of the kernel.

use super::interfaces::{InterfaceRates, rates};
use crate::interface::{FilterSample, InterfaceQueueSample, InterfaceSample, VerdictSample};

impl InterfaceRates {
    /// Returns the counts since `before`, in place of each rate. A counter that is not in there, or
    /// was reset, counts from its start. The packets that the kernel processes are unknown if another
    /// filter was attached for part of that time.
    pub fn totals(now: &InterfaceSample, before: Option<&InterfaceSample>) -> Self {
        // With an interval of one second, counts per second are totals.
        let mut totals = rates(now, Some((&start(now, before), 1.0)));
        totals.interval_s = None;
        let program = |sample: &InterfaceSample| sample.filter.as_ref().map(|of| of.program);
        let other_filter = match before {
            Some(before) => program(before) != program(now),
            None => now.filter.is_some(),
        };
        if other_filter {
            totals.kernel_pps = None;
        }
        totals
    }
}

/// Returns the counters at the start, from which those of `now` grew.
fn start(now: &InterfaceSample, before: Option<&InterfaceSample>) -> InterfaceSample {
    let of = |of: fn(&InterfaceSample) -> Option<u64>| counted(of(now), before.and_then(of));
    InterfaceSample {
        rx_packets: of(|sample| sample.rx_packets),
        rx_dropped: of(|sample| sample.rx_dropped),
        tx_packets: of(|sample| sample.tx_packets),
        queues: now.queues.iter().map(|queue| queue_start(queue, before)).collect(),
        filter: now.filter.as_ref().map(|filter| {
            let before = before.and_then(|before| before.filter.as_ref());
            filter_start(filter, before.filter(|before| before.program == filter.program))
        }),
        ..InterfaceSample::default()
    }
}

fn queue_start(
    now: &InterfaceQueueSample,
    before: Option<&InterfaceSample>,
) -> InterfaceQueueSample {
    let before = before.and_then(|of| of.queues.iter().find(|queue| queue.queue == now.queue));
    let of = |of: fn(&InterfaceQueueSample) -> Option<u64>| counted(of(now), before.and_then(of));
    InterfaceQueueSample {
        queue: now.queue,
        packets: of(|queue| queue.packets),
        dropped: of(|queue| queue.dropped),
        redirected: of(|queue| queue.redirected),
    }
}

fn filter_start(now: &FilterSample, before: Option<&FilterSample>) -> FilterSample {
    let verdict = |now: &VerdictSample| {
        let mut verdicts = before.iter().flat_map(|before| &before.verdicts);
        let before = verdicts.find(|before| before.reason == now.reason);
        let nothing = VerdictSample { packets: 0, bytes: 0, ..now.clone() };
        before.cloned().unwrap_or(nothing)
    };
    FilterSample {
        verdicts: now.verdicts.iter().map(verdict).collect(),
        top_sources: before.map_or_else(Vec::new, |before| before.top_sources.clone()),
        ..now.clone()
    }
}

/// Returns the start of a counter: 0 if it went back, `None` if it is not counted now.
fn counted(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    let now = now?;
    Some(before.filter(|before| *before <= now).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{filtered_interface, split_interface};

    #[test]
    fn totals_count_from_the_start_or_the_mark() {
        let totals = InterfaceRates::totals(&split_interface(5), None);
        assert_eq!((totals.rx_pps, totals.tx_pps), (Some(20_000.0), Some(250.0)));
        assert_eq!((totals.bypassed_pps, totals.kernel_pps), (Some(15_000.0), Some(5000.0)));
        let queue = &totals.queues[1];
        assert_eq!((queue.pps, queue.dropped_ps), (Some(15_000.0), Some(10.0)));
        let since = InterfaceRates::totals(&split_interface(5), Some(&split_interface(3)));
        assert_eq!(since, InterfaceRates::totals(&split_interface(2), None));
        let reset = InterfaceRates::totals(&split_interface(2), Some(&split_interface(3)));
        assert_eq!(reset, InterfaceRates::totals(&split_interface(2), None));
    }

    #[test]
    fn what_another_filter_dropped_is_not_taken_for_traffic_of_the_kernel() {
        let totals = InterfaceRates::totals(&filtered_interface(5), None);
        assert_eq!((totals.rx_pps, totals.filtered_pps), (Some(50_000.0), Some(45_000.0)));
        assert_eq!(totals.kernel_pps, None);
        let worst = totals.filter.as_ref().and_then(|filter| filter.worst());
        assert_eq!(
            worst.map(|worst| (worst.reason.as_str(), worst.pps)),
            Some(("rate_limit", Some(40_000.0)))
        );
        let since = |before| InterfaceRates::totals(&filtered_interface(5), Some(&before));
        let totals = since(filtered_interface(3));
        assert_eq!((totals.filtered_pps, totals.kernel_pps), (Some(18_000.0), Some(2000.0)));
        let mut replaced = filtered_interface(3);
        replaced.filter.as_mut().unwrap().program = 99;
        let totals = since(replaced);
        assert_eq!((totals.filtered_pps, totals.kernel_pps), (Some(45_000.0), None));
        let totals = since(InterfaceSample { filter: None, ..filtered_interface(3) });
        assert_eq!((totals.rx_pps, totals.kernel_pps), (Some(50_000.0), None));
    }

    #[test]
    fn totals_that_nobody_counts_are_unknown() {
        let mut interface = split_interface(1);
        (interface.tx_packets, interface.queues[1].redirected) = (None, None);
        let totals = InterfaceRates::totals(&interface, None);
        assert_eq!((totals.tx_pps, totals.bypassed_pps, totals.kernel_pps), (None, None, None));
        assert_eq!(totals.rx_pps, Some(4000.0));
    }
}
