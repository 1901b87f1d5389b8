//! Metric families, the input of all encoders. They are built for each scrape.

use std::sync::Arc;

/// How the values of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Never goes back, but for restarts of the app.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts per bucket.
    Histogram,
    /// Labels with the constant value 1.
    Info,
    /// The driver does not say which.
    Unknown,
}

/// What is known of a metric before any value: the entry of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricDescriptor {
    /// As in `PromQL`: with `_total` or `_info`; of a histogram without `_bucket`.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// Labels of every sample, in order.
    pub labels: &'static [&'static str],
    /// What it counts, and what to conclude from it; without quotes, backslashes and line breaks, so
    /// that no format has to escape it.
    pub help: &'static str,
}

impl MetricDescriptor {
    /// The name of the family in `OpenMetrics`, where `_total` and `_info` belong to the samples.
    pub fn family(&self) -> &'static str {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            _ => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The base unit that the name ends with; `None` for plain counts and ratios.
    pub fn unit(&self) -> Option<&'static str> {
        const UNITS: [&str; 4] = ["bytes_per_second", "bytes", "hertz", "seconds"];
        let family = self.family();
        let named = |unit: &&&str| family.strip_suffix(**unit).is_some_and(|f| f.ends_with('_'));
        UNITS.iter().find(named).copied()
    }
}

/// The samples of one metric in one scrape.
#[derive(Debug)]
pub struct MetricFamily {
    /// Which metric.
    pub metric: &'static MetricDescriptor,
    /// Its samples, one per set of labels.
    pub samples: Vec<MetricSample>,
}

impl MetricFamily {
    /// The number of series that this becomes in Prometheus.
    pub fn series(&self) -> usize {
        self.samples.iter().map(|sample| sample.value.series()).sum()
    }
}

/// Values of a metric's labels, in its order; shared by all samples about the same thing.
pub type LabelValues = Arc<[String]>;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// Values of the metric's labels, in its order.
    pub labels: LabelValues,
    /// The value.
    pub value: SampleValue,
}

/// The value of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A count; told without loss.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Counts per bucket.
    Histogram(Histogram),
}

impl SampleValue {
    fn series(&self) -> usize {
        match self {
            Self::Count(_) | Self::Number(_) => 1,
            // Sum and count come in pairs.
            Self::Histogram(told) => told.buckets.len() + 1 + 2 * usize::from(told.sum.is_some()),
        }
    }
}

/// A classic histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bound, inclusive, and cumulative count of each bucket but the last, `+Inf`.
    pub buckets: Vec<(f64, u64)>,
    /// All values: the bucket `+Inf`.
    pub count: u64,
    /// Their sum; `None` where nobody counts it.
    pub sum: Option<f64>,
}
