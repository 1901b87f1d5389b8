//! The report at the end: totals of the whole time, and histograms.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use pmdscope_interrupts::StolenHistogram;
use pmdscope_render::number::seconds;
use pmdscope_render::{Theme, histogram, table_text};

use super::report::{table, time};
use super::rounds::Rounds;

/// Thieves of the whole time.
const ROWS: usize = 20;

/// Characters of the longest bar.
const BAR: usize = 40;

/// The report as text.
pub(super) fn text(rounds: &Rounds) -> String {
    let table = table(rounds.apps(), ROWS, &TimeZone::system());
    let mut text = format!("\nIn {}:\n", seconds(rounds.seconds()));
    text += &table_text(&table, None, Theme::default());
    for app in rounds.apps() {
        for histogram in &app.histograms {
            text += &histogram_text(&app.app, histogram);
        }
    }
    text
}

fn histogram_text(app: &str, durations: &StolenHistogram) -> String {
    let cause = durations.cause.name().replace('_', " ");
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{app}, lcore {}: {cause}, events by their length", durations.lcore);
    let labels: Vec<String> = (0..durations.buckets.len()).map(label).collect();
    for line in histogram(&labels, &durations.buckets, BAR, Theme::default()) {
        let _ = writeln!(text, "{}", line.to_string().trim_end());
    }
    text
}

/// The least length in a bucket.
fn label(bucket: usize) -> String {
    let ns = 1_u64.checked_shl(u32::try_from(bucket).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
    format!(">={}", time(ns as f64))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::super::report::tests::app;
    use super::*;

    #[test]
    fn a_histogram_names_its_buckets_by_their_least_length() {
        assert_snapshot!(histogram_text("reflector", &app().histograms[0]));
    }
}
