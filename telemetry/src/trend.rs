//! The trend of a number: a robust slope, and whether it is significant.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use crate::rate::rate;

/// Fewer points do not determine a slope.
const MIN_POINTS: usize = 5;

/// If there are more points, only some are used for slopes: the number of pairs grows with their square.
const MAX_SLOPE_POINTS: usize = 64;

/// Threshold of the Mann-Kendall statistic for a rise: less than 1 % of series without a trend exceed it.
const MIN_SCORE: f64 = 2.4;

/// A rise over the window below this share of the whole is not significant.
const MIN_RISE: f64 = 0.005;

/// Windows of trends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrendOptions {
    /// Length of the window.
    pub window: Duration,
    /// Limit of the number of kept points, at least 1.
    pub points: usize,
    /// Window in which restarts are counted.
    pub restarts: Duration,
}

impl Default for TrendOptions {
    fn default() -> Self {
        Self { window: Duration::from_secs(30), points: 600, restarts: Duration::from_secs(60) }
    }
}

/// Values of a sliding window, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ValueTrend {
    points: VecDeque<(u64, u64)>,
}

impl ValueTrend {
    /// Adds a value and drops those before the window, except for the few that a slope needs: the
    /// scrape interval may be longer than the window. A second value at the same time is ignored.
    pub(crate) fn push(&mut self, now_ns: u64, value: u64, window: Duration, most: usize) {
        if self.points.back().is_some_and(|(last, _)| *last >= now_ns) {
            return;
        }
        self.points.push_back((now_ns, value));
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let oldest = now_ns.saturating_sub(window_ns);
        let stale = |p: &(u64, u64)| p.0 < oldest;
        while self.points.len() > most.max(1)
            || (self.points.len() > MIN_POINTS && self.points.front().is_some_and(stale))
        {
            self.points.pop_front();
        }
    }

    /// Returns the values, oldest first.
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> {
        self.points.iter().map(|(_, value)| *value)
    }

    /// Returns the growth per second: the median of the slopes between all pairs of points
    /// (Theil-Sen). Bursts in up to 29 % of the points do not change it. `None` if there are too few
    /// points.
    pub(crate) fn slope(&self) -> Option<f64> {
        (self.points.len() >= MIN_POINTS).then(|| median(&mut slopes(&self.thinned())))?
    }

    /// Returns the growth per second from the oldest value to the newest; `None` for fewer than two,
    /// or a fall.
    pub(crate) fn rate(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        rate(last.1, first.1, last.0.checked_sub(first.0)? as f64 / 1e9)
    }

    /// Whether `slope` is a persistent rise: statistically significant, not tiny compared with
    /// `whole`, and present in the later half of the window as well. The last condition distinguishes
    /// a leak from a step to a new level.
    pub(crate) fn rises(&self, slope: f64, whole: u64) -> bool {
        let points = self.thinned();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
        let rise = slope * (last.0 - first.0);
        let later = points.get(points.len() / 2..).unwrap_or_default();
        slope > 0.0
            && rise >= MIN_RISE * whole as f64
            && score(&points) >= MIN_SCORE
            && median(&mut slopes(later)).is_some_and(|later| later >= slope / 2.0)
    }

    /// Returns at most [`MAX_SLOPE_POINTS`] points, evenly spaced, including the newest: seconds
    /// since the oldest, value.
    fn thinned(&self) -> Vec<(f64, f64)> {
        let origin = self.points.front().map_or(0, |p| p.0);
        let step = self.points.len().div_ceil(MAX_SLOPE_POINTS).max(1);
        let mut points: Vec<_> = self.points.iter().rev().step_by(step).collect();
        points.reverse();
        points.into_iter().map(|(ns, v)| ((ns - origin) as f64 / 1e9, *v as f64)).collect()
    }
}

fn pairs(points: &[(f64, f64)]) -> impl Iterator<Item = (&(f64, f64), &(f64, f64))> {
    points.iter().enumerate().flat_map(|(i, a)| points.iter().skip(i + 1).map(move |b| (a, b)))
}

fn slopes(points: &[(f64, f64)]) -> Vec<f64> {
    pairs(points).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect()
}

/// Returns the median; for an even number the upper middle value, which is exact enough for a slope.
fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the Mann-Kendall score: rising minus falling pairs, in standard deviations of a series
/// without a trend.
fn score(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let sign = |(a, b): (&(f64, f64), &(f64, f64))| match b.1.total_cmp(&a.1) {
        Ordering::Less => -1.0,
        Ordering::Equal => 0.0,
        Ordering::Greater => 1.0,
    };
    let sum: f64 = pairs(points).map(sign).sum();
    sum / (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u64 = 16_383;

    /// Returns the trend of one value per second.
    fn trend(values: impl IntoIterator<Item = u64>) -> ValueTrend {
        let mut trend = ValueTrend::default();
        for (second, value) in (1..).zip(values) {
            trend.push(second * 1_000_000_000, value, Duration::from_secs(30), 600);
        }
        trend
    }

    fn rise(trend: &ValueTrend) -> Option<f64> {
        trend.slope().filter(|slope| trend.rises(*slope, POOL))
    }

    /// Returns a burst pattern without randomness: usually low, sometimes high.
    fn noise(i: u64) -> u64 {
        (i * 7919) % 97 * if i.is_multiple_of(5) { 20 } else { 1 }
    }

    #[test]
    fn a_leak_is_seen_after_five_points_and_through_bursts() {
        assert_eq!(rise(&trend((0..5).map(|i| 1000 + 412 * i))), Some(412.0));
        let slope = rise(&trend((0..30).map(|i| 1000 + 100 * i + noise(i)))).unwrap();
        assert!((80.0..120.0).contains(&slope), "{slope}");
    }

    #[test]
    fn a_leak_that_begins_within_the_window_is_seen() {
        assert!(rise(&trend((0..30).map(|i: u64| 500 + 200 * i.saturating_sub(14)))).is_some());
    }

    #[test]
    fn bursts_steps_and_plateaus_are_no_leak() {
        assert_eq!(rise(&trend((0..30).map(|i| 1000 + noise(i)))), None);
        assert_eq!(rise(&trend([4; 30])), None);
        assert_eq!(rise(&trend((0..30).map(|i| 9000 - 100 * i))), None);
        for step in 0..30 {
            let values = (0..30).map(|i| if i < step { 100 } else { 8000 });
            assert_eq!(rise(&trend(values)), None, "step at {step}");
        }
        for step in 0..5 {
            let values = (0..5).map(|i| if i < step { 100 } else { 8000 });
            assert_eq!(rise(&trend(values)), None, "step at {step} of 5");
        }
    }

    #[test]
    fn a_small_rise_compared_with_the_pool_is_no_finding() {
        let trend = trend((0..30).map(|i| 1000 + i));
        assert_eq!(trend.slope(), Some(1.0));
        assert_eq!(rise(&trend), None);
    }

    #[test]
    fn few_points_have_no_slope() {
        assert_eq!(trend([1, 2, 3, 4]).slope(), None);
        assert_eq!(ValueTrend::default().slope(), None);
        assert!(!ValueTrend::default().rises(1.0, POOL));
    }

    #[test]
    fn the_window_is_bounded_in_time_and_points() {
        assert_eq!(trend(0..100).values().collect::<Vec<_>>(), (69..100).collect::<Vec<_>>());
        let mut trend = ValueTrend::default();
        for i in 0..5000 {
            trend.push(i, i, Duration::from_secs(30), 600);
        }
        assert_eq!(trend.values().count(), 600);
        assert!(trend.thinned().len() <= MAX_SLOPE_POINTS);
        let slope = trend.slope().unwrap();
        assert!((slope - 1e9).abs() < 1.0, "{slope}");
    }

    #[test]
    fn a_rate_is_that_of_the_whole_window() {
        assert_eq!(trend([7]).rate(), None);
        assert_eq!(trend([7, 7, 27]).rate(), Some(10.0));
        assert_eq!(trend([7, 3]).rate(), None);
    }

    #[test]
    fn a_leak_is_found_with_a_sample_per_minute() {
        let mut trend = ValueTrend::default();
        for minute in 1..=9 {
            trend.push(minute * 60_000_000_000, 600 * minute, Duration::from_secs(30), 600);
        }
        assert_eq!((trend.values().count(), rise(&trend)), (MIN_POINTS, Some(10.0)));
        assert_eq!(trend.rate(), Some(10.0));
    }

    #[test]
    fn equal_or_earlier_moments_are_ignored() {
        let mut trend = trend([1, 2, 3, 4, 5]);
        trend.push(5_000_000_000, 99, Duration::from_secs(30), 600);
        trend.push(1, 99, Duration::from_secs(30), 600);
        assert_eq!(trend.slope(), Some(1.0));
    }
}
