//! Metric families: what all encoders encode. Built anew for each scrape.

/// How the values of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
pub struct Metric {
    /// As in `PromQL`: with `_total` or `_info`; of a histogram without `_bucket`.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Labels of every sample, in order.
    pub labels: &'static [&'static str],
    /// What it counts, and what to conclude from it.
    pub help: &'static str,
}

/// The samples of one metric in one scrape.
#[derive(Debug)]
pub struct Family {
    /// Which metric.
    pub metric: &'static Metric,
    /// Its samples, one per set of labels.
    pub samples: Vec<Sample>,
}

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of the metric's labels, in its order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// The value of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count; told without loss.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Counts per bucket.
    Histogram(Histogram),
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
