//! Encodes families as text: Prometheus 0.0.4 or `OpenMetrics` 1.0.
//!
//! No crate writes both formats from values that are built for each scrape: existing encoders use their
//! own registry, support only one format, or convert counts to floats.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::family::{
    Histogram, LabelValues, MetricDescriptor, MetricFamily, MetricKind, SampleValue,
};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextFormat {
    /// Prometheus 0.0.4, which all clients read.
    Text,
    /// `OpenMetrics` 1.0, which has units and infos.
    OpenMetrics,
}

impl TextFormat {
    /// Returns the value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Appends the families to `out`; a cleared string of an earlier scrape saves allocations.
pub fn encode(families: &[MetricFamily], format: TextFormat, out: &mut String) {
    let mut writer = TextWriter { format, out };
    // Writing to a string does not fail.
    let _ = families.iter().try_for_each(|family| writer.family(family));
    if format == TextFormat::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
}

struct TextWriter<'a> {
    format: TextFormat,
    out: &'a mut String,
}

impl TextWriter<'_> {
    fn family(&mut self, family: &MetricFamily) -> fmt::Result {
        self.head(family.metric)?;
        for sample in &family.samples {
            let labels = (family.metric, &sample.labels);
            match &sample.value {
                SampleValue::Histogram(histogram) => self.histogram(labels, histogram)?,
                SampleValue::Count(count) => {
                    self.series(labels, "", None)?;
                    writeln!(self.out, " {count}")?;
                }
                SampleValue::Number(number) => {
                    self.series(labels, "", None)?;
                    self.out.push(' ');
                    self.number(*number)?;
                    self.out.push('\n');
                }
            }
        }
        Ok(())
    }

    fn head(&mut self, metric: &MetricDescriptor) -> fmt::Result {
        let name = match self.format {
            TextFormat::Text => metric.name,
            TextFormat::OpenMetrics => metric.family(),
        };
        self.out.push_str("# HELP ");
        self.out.push_str(name);
        self.out.push(' ');
        self.out.push_str(metric.help);
        writeln!(self.out, "\n# TYPE {name} {}", self.kind(metric.kind))?;
        match metric.unit() {
            Some(unit) if self.format == TextFormat::OpenMetrics => {
                writeln!(self.out, "# UNIT {name} {unit}")
            }
            _ => Ok(()),
        }
    }

    fn kind(&self, kind: MetricKind) -> &'static str {
        match (kind, self.format) {
            (MetricKind::Counter, _) => "counter",
            (MetricKind::Histogram, _) => "histogram",
            (MetricKind::Gauge, _) | (MetricKind::Info, TextFormat::Text) => "gauge",
            (MetricKind::Info, TextFormat::OpenMetrics) => "info",
            (MetricKind::Unknown, TextFormat::Text) => "untyped",
            (MetricKind::Unknown, TextFormat::OpenMetrics) => "unknown",
        }
    }

    /// Writes a histogram. Sum and count are written only if the sum is known: `OpenMetrics` does not
    /// allow one without the other.
    fn histogram(
        &mut self,
        labels: (&MetricDescriptor, &LabelValues),
        histogram: &Histogram,
    ) -> fmt::Result {
        for (bound, count) in &histogram.buckets {
            self.series(labels, "_bucket", Some(*bound))?;
            writeln!(self.out, " {count}")?;
        }
        self.series(labels, "_bucket", Some(f64::INFINITY))?;
        writeln!(self.out, " {}", histogram.count)?;
        let Some(sum) = histogram.sum else { return Ok(()) };
        self.series(labels, "_count", None)?;
        writeln!(self.out, " {}", histogram.count)?;
        self.series(labels, "_sum", None)?;
        self.out.push(' ');
        self.number(sum)?;
        self.out.push('\n');
        Ok(())
    }

    /// Writes name and labels. A label with an empty value is equivalent to none, and is left out.
    fn series(
        &mut self,
        (metric, values): (&MetricDescriptor, &LabelValues),
        suffix: &str,
        bound: Option<f64>,
    ) -> fmt::Result {
        self.out.push_str(metric.name);
        self.out.push_str(suffix);
        let mut separator = '{';
        for (label, value) in metric.labels.iter().zip(values.iter()) {
            if value.is_empty() {
                continue;
            }
            self.out.push(separator);
            self.out.push_str(label);
            self.out.push_str("=\"");
            self.escape(value);
            self.out.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            self.out.push(separator);
            self.out.push_str("le=\"");
            self.bound(bound)?;
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        Ok(())
    }

    fn escape(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'\\' | b'\n' | b'"')) {
            let (plain, special) = rest.split_at(at);
            self.out.push_str(plain);
            self.out.push_str(match special.as_bytes()[0] {
                b'\n' => "\\n",
                b'"' => "\\\"",
                _ => "\\\\",
            });
            rest = &special[1..];
        }
        self.out.push_str(rest);
    }

    fn number(&mut self, number: f64) -> fmt::Result {
        match number {
            _ if number.is_nan() => self.out.push_str("NaN"),
            f64::INFINITY => self.out.push_str("+Inf"),
            f64::NEG_INFINITY => self.out.push_str("-Inf"),
            _ if number != 0.0 && !(1e-4..1e21).contains(&number.abs()) => {
                return write!(self.out, "{number:e}");
            }
            _ => return write!(self.out, "{number}"),
        }
        Ok(())
    }

    /// Writes the bound of a bucket. It is part of the identity of a series, so it has the common
    /// spelling: always a float, and small ones as `1e-06`.
    fn bound(&mut self, bound: f64) -> fmt::Result {
        if bound.is_infinite() {
            self.out.push_str("+Inf");
            return Ok(());
        }
        if bound == 0.0 || (1e-4..1e6).contains(&bound) {
            return write!(self.out, "{bound:?}");
        }
        let spelled = format!("{bound:e}");
        let (digits, exponent) = spelled.split_once('e').unwrap_or((&spelled, "0"));
        let (sign, power) = match exponent.strip_prefix('-') {
            Some(power) => ('-', power),
            None => ('+', exponent),
        };
        write!(self.out, "{digits}e{sign}{power:0>2}")
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
