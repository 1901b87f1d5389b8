//! Median and quartiles.

use std::fmt;

/// Median and quartiles of one number over the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// First quartile.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

impl Spread {
    /// Computes them from values; all are NaN without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values = values.into_iter().collect::<Vec<_>>();
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let last = values.len().saturating_sub(1);
            values.get((last * quarter + 2) / 4).copied().unwrap_or(f64::NAN)
        };
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        let Self { low, median, high } = self;
        write!(f, "{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}
