//! Rows of metric families: objects with labels, and functions that read a value of each.

use std::collections::{BTreeMap, HashSet};

use super::LiveApp;
use crate::family::{
    Histogram, LabelValues, MetricDescriptor, MetricFamily, MetricSample, SampleValue,
};

/// An object, with the labels of all its metrics.
pub(super) struct LabelledRow<T> {
    pub(super) labels: LabelValues,
    pub(super) of: T,
}

/// Returns the objects of all apps, labelled by app and their own names. Of several objects with the
/// same labels, only the first is exported, and the others are counted.
pub(super) fn rows<'a, T, L, I>(
    live: &[LiveApp<'a>],
    suppressed: &mut SuppressedSeries<'a>,
    things: impl Fn(&LiveApp<'a>) -> I,
) -> Vec<LabelledRow<T>>
where
    L: IntoIterator<Item = String>,
    I: IntoIterator<Item = (L, T)>,
{
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for app in live {
        for (names, of) in things(app) {
            let labels: LabelValues = labels(app.name, names);
            if seen.insert(labels.clone()) {
                rows.push(LabelledRow { labels, of });
            } else {
                suppressed.count(app.name, SuppressReason::Duplicate, 1);
            }
        }
    }
    rows
}

/// Returns label values: the app, and what identifies an object in it.
pub(super) fn labels(app: &str, names: impl IntoIterator<Item = String>) -> LabelValues {
    std::iter::once(app.to_owned()).chain(names).collect()
}

/// The families that were built so far.
#[derive(Default)]
pub(super) struct FamilyList(Vec<MetricFamily>);

impl FamilyList {
    /// Adds a family with one sample for each row with a known value.
    pub(super) fn per<T, V: Into<SampleValue>>(
        &mut self,
        metric: &'static MetricDescriptor,
        rows: &[LabelledRow<T>],
        value: impl Fn(&T) -> Option<V>,
    ) {
        let sample = |row: &LabelledRow<T>| {
            Some(MetricSample { labels: row.labels.clone(), value: value(&row.of)?.into() })
        };
        self.add(metric, rows.iter().filter_map(sample));
    }

    /// Adds a family with these samples, whose labels must differ. Nothing is added without samples.
    pub(super) fn add(
        &mut self,
        metric: &'static MetricDescriptor,
        samples: impl IntoIterator<Item = MetricSample>,
    ) {
        let samples: Vec<MetricSample> = samples.into_iter().collect();
        if !samples.is_empty() {
            self.0.push(MetricFamily { metric, samples });
        }
    }

    pub(super) fn into_vec(self) -> Vec<MetricFamily> {
        self.0
    }
}

/// Why objects are not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SuppressReason {
    Captures,
    Duplicate,
    Queues,
    Sites,
    Stages,
    Xstats,
}

impl SuppressReason {
    const ALL: [Self; 6] =
        [Self::Captures, Self::Duplicate, Self::Queues, Self::Sites, Self::Stages, Self::Xstats];

    fn name(self) -> &'static str {
        match self {
            Self::Captures => "captures",
            Self::Duplicate => "duplicate",
            Self::Queues => "queues",
            Self::Sites => "sites",
            Self::Stages => "stages",
            Self::Xstats => "xstats",
        }
    }
}

/// Number of objects that are not exported, by app and reason.
#[derive(Default)]
pub(super) struct SuppressedSeries<'a>(BTreeMap<(&'a str, SuppressReason), usize>);

impl<'a> SuppressedSeries<'a> {
    pub(super) fn count(&mut self, app: &'a str, cut: SuppressReason, things: usize) {
        *self.0.entry((app, cut)).or_default() += things;
    }

    /// Returns how many of `things` objects to export, and counts the others.
    pub(super) fn keep(
        &mut self,
        app: &'a str,
        cut: SuppressReason,
        things: usize,
        limit: usize,
    ) -> usize {
        self.count(app, cut, things.saturating_sub(limit));
        things.min(limit)
    }

    /// Returns samples of every reason for every app, also if nothing is suppressed.
    pub(super) fn samples(&self, live: &[LiveApp<'a>]) -> Vec<MetricSample> {
        let sample = |app: &LiveApp<'a>, cut: SuppressReason| MetricSample {
            labels: labels(app.name, [cut.name().to_owned()]),
            value: self.0.get(&(app.name, cut)).copied().unwrap_or(0).into(),
        };
        live.iter().flat_map(|app| SuppressReason::ALL.map(|cut| sample(app, cut))).collect()
    }
}

impl From<u64> for SampleValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for SampleValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for SampleValue {
    fn from(is: bool) -> Self {
        Self::Count(is.into())
    }
}

impl From<f64> for SampleValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Histogram> for SampleValue {
    fn from(histogram: Histogram) -> Self {
        Self::Histogram(histogram)
    }
}

/// Converts counts per bucket to a histogram; the last bucket is open-ended. `None` without buckets.
pub(super) fn histogram(
    counts: &[u64],
    bound: impl Fn(i32) -> f64,
    sum: Option<f64>,
) -> Option<Histogram> {
    let (last, bounded) = counts.split_last()?;
    let mut count = 0_u64;
    let mut below = |bucket: u64| {
        count = count.saturating_add(bucket);
        count
    };
    let buckets = (0..).zip(bounded).map(|(i, bucket)| (bound(i), below(*bucket))).collect();
    Some(Histogram { buckets, count: below(*last), sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_is_open() {
        let doubling = |i| 2_f64.powi(i);
        let told = histogram(&[5, 0, 2, 1], doubling, None).unwrap();
        assert_eq!(told.buckets, [(1.0, 5), (2.0, 5), (4.0, 7)]);
        assert_eq!((told.count, told.sum), (8, None));
        assert_eq!(histogram(&[], doubling, None), None);
        assert_eq!(histogram(&[u64::MAX, 1], doubling, None).unwrap().count, u64::MAX);
    }
}
