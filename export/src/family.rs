//! Metric families, the input of all encoders. They are built for each scrape.

use std::sync::Arc;

/// How the values of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases, except at restarts of the app.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts per bucket.
    Histogram,
    /// Labels with the constant value 1.
    Info,
    /// The type is unknown, because the driver does not report it.
    Unknown,
}

/// A metric without values: an entry of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricDescriptor {
    /// Name as in `PromQL`: with `_total` or `_info`; for a histogram without `_bucket`.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Labels of every sample, in order.
    pub labels: &'static [&'static str],
    /// Help text: what it measures, and what to conclude from it; without quotes, backslashes and line
    /// breaks, so that no format has to escape it.
    pub help: &'static str,
}

impl MetricDescriptor {
    /// Returns the name of the family in `OpenMetrics`, where `_total` and `_info` belong to the
    /// samples.
    pub fn family(&self) -> &'static str {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            _ => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// Returns the base unit at the end of the name; `None` for plain counts and ratios.
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
    /// The metric.
    pub metric: &'static MetricDescriptor,
    /// The samples, one per set of labels.
    pub samples: Vec<MetricSample>,
}

impl MetricFamily {
    /// Returns the number of series in Prometheus.
    pub fn series(&self) -> usize {
        self.samples.iter().map(|sample| sample.value.series()).sum()
    }
}

/// Label values in the order of the metric's labels; shared by all samples of the same object.
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
    /// A count, exported exactly.
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
            // Sum and count are exported together.
            Self::Histogram(told) => told.buckets.len() + 1 + 2 * usize::from(told.sum.is_some()),
        }
    }
}

/// A classic histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Inclusive upper bound and cumulative count of each bucket except the last, `+Inf`.
    pub buckets: Vec<(f64, u64)>,
    /// Number of all values, which is the bucket `+Inf`.
    pub count: u64,
    /// Sum of all values; `None` if it is not counted.
    pub sum: Option<f64>,
}
