//! High-water marks of the counts, in the same windows as libpmdscope.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmdscope_telemetry::sample::HighWater;

/// Length of a window: the default of libpmdscope.
const WINDOW: Duration = Duration::from_secs(1);

/// The marks of all pools, or of all rings.
#[derive(Debug, Default)]
pub(super) struct HighWaterMarks {
    window_began: Option<Instant>,
    marks: BTreeMap<String, Mark>,
}

#[derive(Debug, Default)]
struct Mark {
    /// In the current window.
    current: u64,
    /// In the last complete one.
    last: Option<u64>,
    ever: u64,
}

impl HighWaterMarks {
    /// Adds counts of one moment. Pools or rings without a count are forgotten.
    pub(super) fn take<'a>(
        &mut self,
        now: Instant,
        counts: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) {
        self.advance(now);
        let names = counts.clone().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>();
        self.marks.retain(|name, _| names.contains(name.as_str()));
        for (name, count) in counts {
            if !self.marks.contains_key(name) {
                self.marks.insert(name.to_owned(), Mark::default());
            }
            if let Some(mark) = self.marks.get_mut(name) {
                mark.current = mark.current.max(count);
                mark.ever = mark.ever.max(count);
            }
        }
    }

    /// The marks of one pool or ring.
    pub(super) fn of(&self, name: &str) -> Option<HighWater> {
        let mark = self.marks.get(name)?;
        Some(HighWater { window: mark.last.unwrap_or(mark.current), ever: mark.ever })
    }

    fn advance(&mut self, now: Instant) {
        let began = *self.window_began.get_or_insert(now);
        if now.saturating_duration_since(began) < WINDOW {
            return;
        }
        let next = began.checked_add(WINDOW).unwrap_or(now);
        let late = now.saturating_duration_since(next) >= WINDOW;
        self.window_began = Some(if late { now } else { next });
        for mark in self.marks.values_mut() {
            mark.last = Some(std::mem::take(&mut mark.current));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_after_a_second_and_marks_of_what_is_gone_are_forgotten() {
        let mut marks = HighWaterMarks::default();
        let began = Instant::now();
        let mut take = |ms, count| {
            marks.take(began + Duration::from_millis(ms), [("mb", count)].into_iter());
            marks.of("mb").unwrap()
        };
        assert_eq!(take(0, 5), HighWater { window: 5, ever: 5 });
        assert_eq!(take(500, 9), HighWater { window: 9, ever: 9 });
        assert_eq!(take(1000, 3), HighWater { window: 9, ever: 9 });
        assert_eq!(take(1900, 4), HighWater { window: 9, ever: 9 });
        assert_eq!(take(2000, 1), HighWater { window: 4, ever: 9 });
        assert_eq!(take(60_000, 2), HighWater { window: 1, ever: 9 });
        marks.take(began, [("other", 1)].into_iter());
        assert_eq!(marks.of("mb"), None);
    }
}
