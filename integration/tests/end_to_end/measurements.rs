//! What the generator measures: latency, pace, loss and their files, checked by other readers.

use std::fs;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Link, Pair, PairOptions};
use pmdscope_integration::scratch::Scratch;
use serde_json::Value;

use crate::support::{LIMIT, Needs, number, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("hdr_log_agrees_with_the_summary", Needs::Apps, hdr_log)]
}

/// Quantiles by their name in the summary.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
    ("p99_999", 0.99999),
];

fn pair(scratch: &Scratch, queues: u16) -> Result<Pair> {
    Pair::start(scratch, PairOptions { link: Link::Memif, queues, ..PairOptions::default() })
}

/// The latencies of each interval as `HdrHistogram`'s own decoder reads them.
fn intervals(log: &[u8]) -> Result<Vec<Histogram<u64>>> {
    let mut histograms = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        let entry = entry.map_err(|error| anyhow::anyhow!("the log is no log: {error:?}"))?;
        let LogEntry::Interval(interval) = entry else { continue };
        if interval.tag().is_some() {
            continue;
        }
        let bytes = BASE64_STANDARD.decode(interval.encoded_histogram())?;
        let histogram = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| anyhow::anyhow!("the histogram cannot be read: {error:?}"))?;
        histograms.push(histogram);
    }
    Ok(histograms)
}

/// Whether two values agree within the two digits that the generator keeps.
fn close(a: u64, b: u64) -> bool {
    a.abs_diff(b) * 100 <= a.max(b) + 100
}

fn hdr_log(scratch: &Scratch) -> Result<()> {
    let pair = pair(scratch, 2)?;
    let path = scratch.path("latency.hlog");
    let path_text = path.to_str().context("the path is text")?;
    let args = ["--rate", "50k", "--duration", "1", "--interval", "0.2", "--hdr-log", path_text];
    let summary = pair.generate(scratch, &args)?.finish(LIMIT)?;
    let histograms = intervals(&fs::read(&path)?)?;

    ensure!(histograms.len() >= 2, "{} intervals", histograms.len());
    let mut all = Histogram::<u64>::new(3)?;
    for histogram in &histograms {
        all.add(histogram)?;
    }
    ensure!(all.len() == number(&summary, "received")?, "{} values: {summary}", all.len());
    let latency = &summary["latency_ns"];
    for (name, quantile) in QUANTILES {
        check(latency, name, all.value_at_quantile(quantile))?;
    }
    check(latency, "min", all.min())?;
    check(latency, "max", all.max())
}

fn check(latency: &Value, name: &str, logged: u64) -> Result<()> {
    ensure!(close(number(latency, name)?, logged), "{name} is {logged} in the log: {latency}");
    Ok(())
}
