//! Trends of the heaps of the EAL.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TrendOptions;
use crate::sample::{HeapSample, Sample};
use crate::trend::ValueTrend;

/// Trend of one heap.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapTrend {
    /// Name of the heap.
    pub name: String,
    /// Growth of the allocated memory over the trend window, bytes per second; `None` unless it rises
    /// steadily.
    pub growth_ps: Option<f64>,
    /// Time until nothing can be allocated at that growth, with all free hugepages, seconds; `None` without
    /// growth, or if the free hugepages are unknown.
    pub full_in_s: Option<f64>,
    /// Bytes allocated since the first sample.
    pub grown: u64,
}

/// Allocated memory of the heaps of one app in earlier samples.
#[derive(Debug, Default)]
pub(super) struct HeapHistory(BTreeMap<String, SeenHeap>);

#[derive(Debug)]
struct SeenHeap {
    trend: ValueTrend,
    first: u64,
}

impl HeapHistory {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the trends of all heaps, in the order of the sample.
    pub(super) fn update(&mut self, sample: &Sample, options: TrendOptions) -> Vec<HeapTrend> {
        if !sample.failed("/eal/heap") {
            self.0.retain(|name, _| sample.heaps.iter().any(|heap| heap.name == *name));
        }
        sample.heaps.iter().map(|heap| self.of(heap, options)).collect()
    }

    fn of(&mut self, heap: &HeapSample, options: TrendOptions) -> HeapTrend {
        let seen = self
            .0
            .entry(heap.name.clone())
            .or_insert_with(|| SeenHeap { trend: ValueTrend::default(), first: heap.allocated });
        // Samples repeat a heap until it is read again.
        seen.trend.push(heap.read_ns, heap.allocated, options.window, options.points);
        let growth = seen.trend.slope().filter(|slope| seen.trend.rises(*slope, heap.size));
        let left = heap.growable.map(|growable| heap.free.saturating_add(growable) as f64);
        HeapTrend {
            name: heap.name.clone(),
            growth_ps: growth,
            full_in_s: growth.zip(left).map(|(growth, left)| left / growth),
            grown: heap.allocated.saturating_sub(seen.first),
        }
    }
}
