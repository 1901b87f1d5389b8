//! Lint for heaps of the EAL (`rte_malloc()`) that grow, or are full.

use std::fmt::Write;
use std::time::Duration;

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::{HeapTrend, Model};
use crate::sample::HeapSample;

/// Largest free block of a heap that is full, bytes: larger requests fail.
const LARGEST_FREE: u64 = 64 << 10;

/// Share of its memory that a full heap has free at most, one part in this many.
const FREE_PART: u64 = 200;

/// Growth of an app that has just started is its initialisation.
const YOUTH: Duration = Duration::from_secs(10);

/// Returns the heaps that grow, or are full.
pub(super) fn heaps<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let heaps = model.sample.heaps.iter().zip(&model.heaps);
    heaps.filter_map(|(heap, trend)| of_heap(model, heap, trend, thresholds))
}

fn of_heap(
    model: &Model,
    heap: &HeapSample,
    trend: &HeapTrend,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let growth = trend.growth_ps.filter(|_| !is_young(model));
    let is_full = is_full(heap);
    if growth.is_none() && !is_full {
        return None;
    }
    let left = trend.full_in_s;
    let severity = match left {
        _ if is_full && trend.grown > 0 => Severity::Critical,
        Some(left) if left < thresholds.heap_left_critical_s => Severity::Critical,
        Some(left) if !is_full && left >= thresholds.heap_left_s => Severity::Info,
        _ => Severity::Warning,
    };
    let mut evidence = format!(
        "{} of {} allocated in {} blocks",
        bytes(heap.allocated as f64),
        bytes(heap.size as f64),
        heap.allocations
    );
    if let Some(growth) = growth {
        let _ = write!(evidence, ", growing by {}/s", bytes(growth));
    }
    evidence += &room_text(heap, growth.and(left));
    if let Some(group) = heap.groups.first() {
        let each = bytes(group.bytes_each as f64);
        let all = bytes(group.bytes_each.saturating_mul(group.blocks) as f64);
        let _ = match group.grown.filter(|grown| *grown > 0) {
            Some(grown) => {
                write!(
                    evidence,
                    "; {grown} more blocks of {each}, now {}, {all} in all",
                    group.blocks
                )
            }
            None => write!(evidence, "; most are blocks of {each}: {}, {all} in all", group.blocks),
        };
    }
    let threshold = format!(
        "no steady growth that fills the heap within {:.0} s, and a free block of {}",
        thresholds.heap_left_s,
        bytes(LARGEST_FREE as f64)
    );
    let advice = if growth.is_some() {
        "look for rte_malloc(), rte_zmalloc() or memzones that are not freed, and for tables that only grow; \
         the trace points lib.eal.mem.* (--trace) name the sizes and types of allocations"
    } else {
        "rte_malloc(), memzones, new mempools and queues fail: free what is not needed, reserve more hugepages, \
         or start the app with more memory (-m, --socket-mem, --socket-limit); if it only grew, look for \
         rte_malloc() without rte_free()"
    };
    let subject = FindingSubject::Heap(heap.name.clone());
    Some(finding(model, Lint::HeapExhausting, severity, subject, evidence, &threshold, advice))
}

/// Whether hardly anything can be allocated, and no free hugepages are left.
fn is_full(heap: &HeapSample) -> bool {
    let is_used = heap.size > 0 && heap.free <= heap.size / FREE_PART;
    is_used && heap.greatest_free < LARGEST_FREE && heap.growable == Some(0)
}

fn is_young(model: &Model) -> bool {
    let begun = model.sample.app.start_realtime_ns;
    let age_ns = model.sample.realtime_ns.saturating_sub(begun);
    begun > 0 && u128::from(age_ns) < YOUTH.as_nanos()
}

fn room_text(heap: &HeapSample, full_in_s: Option<f64>) -> String {
    let free = bytes(heap.free as f64);
    let room = match heap.growable {
        Some(0) => format!("; {free} are free, and it cannot grow"),
        Some(growable) => {
            format!("; {free} are free, and {} in hugepages", bytes(growable as f64))
        }
        None => format!("; {free} are free; whether it can grow is unknown"),
    };
    full_in_s.map_or(room.clone(), |left| format!("{room}: full in {}", duration(left)))
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1024.0 => format!("{bytes:.0} B"),
        bytes if bytes < 1_048_576.0 => format!("{:.0} KiB", bytes / 1024.0),
        bytes if bytes < 1_073_741_824.0 => format!("{:.1} MiB", bytes / 1_048_576.0),
        bytes => format!("{:.1} GiB", bytes / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};
    use crate::sample::{HeapGroupSample, Sample};

    const MIB: u64 = 1 << 20;

    /// Evaluates five samples, half a second apart, of a heap of 256 MiB with this memory allocated.
    fn judged(allocated: [u64; 5], change: impl Fn(&mut Sample)) -> Option<Finding> {
        let mut tracker = ModelTracker::default();
        let mut found = Vec::new();
        for (at, allocated) in (1..).zip(allocated) {
            let mut sample = empty_sample();
            sample.monotonic_ns = at * 500_000_000;
            sample.ports = vec![port(0, 0)];
            let free = 256 * MIB - allocated;
            sample.heaps = vec![HeapSample {
                name: "socket_0".into(),
                size: 256 * MIB,
                allocated,
                free,
                greatest_free: free,
                allocations: 900,
                read_ns: sample.monotonic_ns,
                growable: Some(64 * MIB),
                ..HeapSample::default()
            }];
            change(&mut sample);
            found = evaluate(&tracker.update(sample), &LintRules::default());
        }
        found.into_iter().find(|finding| finding.lint == Lint::HeapExhausting)
    }

    fn growing() -> [u64; 5] {
        [100, 101, 102, 103, 104].map(|mib| mib * MIB)
    }

    #[test]
    fn a_heap_that_grows_is_named_with_its_growth_and_the_time_left() {
        let found = judged(growing(), |sample| {
            let group = HeapGroupSample { bytes_each: 2048, blocks: 51_200, grown: Some(1024) };
            sample.heaps[0].groups = vec![group];
        });
        let found = found.unwrap();
        assert_eq!(
            (found.severity, found.subject.to_string().as_str()),
            (Severity::Warning, "socket_0")
        );
        assert_eq!(
            found.evidence,
            "104.0 MiB of 256.0 MiB allocated in 900 blocks, growing by 2.0 MiB/s; 152.0 MiB are free, and 64.0 MiB \
             in hugepages: full in 108 s; 1024 more blocks of 2 KiB, now 51200, 100.0 MiB in \
             all"
        );
        let soon = judged(growing(), |sample| sample.heaps[0].growable = Some(0));
        assert!(soon.unwrap().evidence.contains("and it cannot grow: full in 76 s"));
        let late = judged(growing(), |sample| sample.heaps[0].growable = Some(1 << 40));
        assert_eq!(late.unwrap().severity, Severity::Info);
        let unknown = judged(growing(), |sample| sample.heaps[0].growable = None).unwrap();
        assert_eq!(unknown.severity, Severity::Warning);
        assert!(!unknown.evidence.contains("full in"), "{unknown:?}");
    }

    #[test]
    fn a_heap_that_does_not_grow_or_of_an_app_that_starts_is_fine() {
        assert_eq!(judged([100 * MIB; 5], |_| ()), None);
        assert_eq!(judged([100, 101, 100, 101, 100].map(|mib| mib * MIB), |_| ()), None);
        let starts = |sample: &mut Sample| {
            sample.app.start_realtime_ns = sample.realtime_ns - 5_000_000_000;
        };
        assert_eq!(judged(growing(), starts), None);
        let repeated = |sample: &mut Sample| sample.heaps[0].read_ns = 1;
        assert_eq!(judged(growing(), repeated), None, "read once");
    }

    #[test]
    fn a_heap_without_room_is_full_and_critical_if_it_grew() {
        let full = |sample: &mut Sample| {
            sample.heaps[0].growable = Some(0);
            sample.heaps[0].greatest_free = sample.heaps[0].free.min(4096);
        };
        let found = judged([256 * MIB - 8192; 5], full).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.evidence.ends_with("; 8 KiB are free, and it cannot grow"), "{found:?}");
        let filled = [200 * MIB, 256 * MIB, 256 * MIB, 256 * MIB, 256 * MIB];
        assert_eq!(judged(filled, full).unwrap().severity, Severity::Critical);
        let more = |sample: &mut Sample| sample.heaps[0].greatest_free = 4096;
        assert_eq!(judged([256 * MIB - 8192; 5], more), None, "hugepages are free");
        let fragmented = |sample: &mut Sample| {
            full(sample);
            sample.heaps[0].free = 10 * MIB;
        };
        assert_eq!(judged([246 * MIB; 5], fragmented), None);
    }
}
