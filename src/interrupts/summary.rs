//! The report at the end: totals of the whole time, and histograms.

use jiff::tz::TimeZone;
use pmdscope_interrupts::StolenHistogram;
use pmdscope_render::number::seconds;
use pmdscope_render::{TextLine, Theme, Tone, histogram, table_lines};

use super::report::{table, time};
use super::rounds::Rounds;

/// Thieves of the whole time.
const ROWS: usize = 20;

/// Characters of the longest bar.
const BAR: usize = 40;

/// The report in lines.
pub(super) fn lines(rounds: &Rounds) -> Vec<TextLine> {
    let table = table(rounds.apps(), ROWS, &TimeZone::system());
    let mut lines = title(&format!("In {}:", seconds(rounds.seconds())));
    lines.extend(table_lines(&table, None, Theme::default()));
    for app in rounds.apps() {
        lines.extend(app.histograms.iter().flat_map(|of| histogram_lines(&app.app, of)));
    }
    lines
}

fn histogram_lines(app: &str, durations: &StolenHistogram) -> Vec<TextLine> {
    let cause = durations.cause.name().replace('_', " ");
    let lcore = durations.lcore;
    let mut lines = title(&format!("{app}, lcore {lcore}: {cause}, events by their length"));
    let labels: Vec<String> = (0..durations.buckets.len()).map(label).collect();
    lines.extend(histogram(&labels, &durations.buckets, BAR, Theme::default()));
    lines
}

fn title(text: &str) -> Vec<TextLine> {
    vec![TextLine::default(), TextLine::of(text, Tone::Title)]
}

/// The least length in a bucket.
fn label(bucket: usize) -> String {
    let ns = 1_u64.checked_shl(u32::try_from(bucket).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
    format!(">={}", time(ns as f64))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_render::plain_text;

    use super::super::report::tests::app;
    use super::*;

    #[test]
    fn a_histogram_names_its_buckets_by_their_least_length() {
        assert_snapshot!(plain_text(&histogram_lines("reflector", &app().histograms[0])));
    }
}
