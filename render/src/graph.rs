//! Bars, sparklines and histograms, drawn with characters.

use pmdscope_telemetry::sample::MbufPlace;

use crate::ledger;
use crate::theme::Theme;

/// A picture in a table cell.
#[derive(Clone, Debug)]
pub enum Graph {
    /// Parts of a whole: in use, cached; the rest is free.
    Bar {
        /// Objects in use.
        used: u64,
        /// Objects in caches.
        cached: u64,
        /// All objects.
        size: u64,
    },
    /// The mbufs of a pool by where they are, each place with a sign of its own.
    Ledger {
        /// Mbufs in each place.
        parts: Vec<(MbufPlace, u64)>,
    },
    /// A curve over time, oldest first, from `bottom` to `top`.
    Spark {
        /// The values; `None` leaves a gap.
        values: Vec<Option<f64>>,
        /// The value of the lowest level.
        bottom: f64,
        /// The value of the highest level.
        top: f64,
    },
}

impl Graph {
    /// Characters that a graph likes to have.
    pub const WIDTH: usize = 24;

    /// A curve of counts from 0 to `top`.
    pub fn counts(values: &[u64], top: u64) -> Self {
        let values = values.iter().map(|&value| Some(value as f64)).collect();
        Self::Spark { values, bottom: 0.0, top: top as f64 }
    }

    /// Draws in exactly `width` characters.
    pub fn draw(&self, width: usize, theme: Theme) -> String {
        match self {
            Self::Bar { used, cached, size } => bar(*used, *cached, *size, width, theme),
            Self::Ledger { parts } => ledger::bar(parts, width, theme),
            Self::Spark { values, bottom, top } => spark(values, *bottom, *top, width, theme),
        }
    }
}

fn bar(used: u64, cached: u64, size: u64, width: usize, theme: Theme) -> String {
    let [used_char, cached_char, free_char] = theme.bar();
    let full = columns(used, size, width);
    let upto = columns(used.saturating_add(cached), size, width);
    (0..width)
        .map(|x| match x {
            x if x < full => used_char,
            x if x < upto => cached_char,
            _ => free_char,
        })
        .collect()
}

fn spark(values: &[Option<f64>], bottom: f64, top: f64, width: usize, theme: Theme) -> String {
    let levels = theme.spark();
    let newest = &values[values.len().saturating_sub(width)..];
    let share = |value: f64| (value - bottom) / (top - bottom);
    let drawn = newest
        .iter()
        .map(|value| value.map_or(' ', |value| levels[level(share(value), levels.len() - 1)]));
    let pad = width - newest.len();
    std::iter::repeat_n(' ', pad).chain(drawn).collect()
}

/// A share of 1 in so many steps: 0 only for nothing, all only for all.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
pub(crate) fn level(share: f64, steps: usize) -> usize {
    match share {
        share if share >= 1.0 => steps,
        share if share > 0.0 => {
            let scaled = (share * steps as f64) as usize;
            scaled.clamp(1, steps.saturating_sub(1).max(1)).min(steps)
        }
        _ => 0,
    }
}

/// `value` of `size` in `width` columns: nothing only for 0, everything only for all.
fn columns(value: u64, size: u64, width: usize) -> usize {
    if value == 0 || size == 0 || width == 0 {
        return 0;
    }
    if value >= size {
        return width;
    }
    let scaled = u128::from(value) * width as u128 / u128::from(size);
    usize::try_from(scaled).unwrap_or(width).clamp(1, width.saturating_sub(1).max(1))
}

/// One line per bucket from the first to the last that is not empty: label, share, bar.
pub fn histogram(labels: &[String], counts: &[u64], width: usize, theme: Theme) -> Vec<String> {
    let all: u64 = counts.iter().fold(0, |sum, &count| sum.saturating_add(count));
    let most = counts.iter().copied().max().unwrap_or(0);
    let Some(first) = counts.iter().position(|&count| count > 0) else {
        return vec!["nothing counted yet".to_owned()];
    };
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(first);
    (first..=last)
        .map(|bucket| {
            let label = labels.get(bucket).map_or("more", String::as_str);
            let share = crate::number::percent(counts[bucket] as f64 / all as f64);
            let full = columns(counts[bucket], most, width);
            let bar = theme.bar()[0].to_string().repeat(full);
            format!("{label:>11} {share:>6} {bar}")
        })
        .collect()
}

/// Labels of power-of-two buckets: `0`, `1`, `2-3`, `4-7`, ..., the last open-ended.
pub fn doubling_labels(first: &str, buckets: usize, unit: &str) -> Vec<String> {
    let last = buckets.saturating_sub(1);
    (0..buckets)
        .map(|bucket| {
            let from = 1_u64.checked_shl(u32::try_from(bucket).unwrap_or(64).saturating_sub(1));
            let from = from.unwrap_or(u64::MAX);
            match bucket {
                0 => first.to_owned(),
                b if b == last => format!("{from}{unit}+"),
                1 => format!("1{unit}"),
                _ => format!("{from}-{}{unit}", from.saturating_mul(2).saturating_sub(1)),
            }
        })
        .collect()
}

/// Labels of burst sizes.
pub fn burst_labels() -> Vec<String> {
    ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65+"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Theme = Theme { mono: true, ascii: true };

    #[test]
    fn bars_never_look_empty_or_full_unless_they_are() {
        let bar = |used, cached, size| Graph::Bar { used, cached, size }.draw(10, ASCII);
        assert_eq!(bar(0, 0, 100), "..........");
        assert_eq!(bar(1, 0, 1000), "#.........");
        assert_eq!(bar(999, 0, 1000), "#########.");
        assert_eq!(bar(50, 20, 100), "#####==...");
        assert_eq!(bar(100, 0, 100), "##########");
        assert_eq!(bar(u64::MAX, u64::MAX, 1), "##########");
        assert_eq!(bar(5, 5, 0), "..........");
    }

    #[test]
    fn sparks_show_the_newest_values() {
        let graph = Graph::counts(&[0, 1, 50, 99, 100], 100);
        assert_eq!(graph.draw(7, ASCII), "  _.-=#");
        assert_eq!(graph.draw(2, ASCII), "=#");
    }

    #[test]
    fn sparks_have_gaps_and_a_scale() {
        let values = vec![Some(900.0), None, Some(950.0), Some(1000.0), Some(f64::NAN)];
        let spark = |bottom, top| Graph::Spark { values: values.clone(), bottom, top };
        assert_eq!(spark(900.0, 1000.0).draw(5, ASCII), "_ -#_");
        assert_eq!(spark(0.0, 1000.0).draw(5, ASCII), "= =#_");
        assert_eq!(spark(7.0, 7.0).draw(5, ASCII), "# ##_", "a scale without a length");
    }

    #[test]
    fn histograms_leave_out_empty_ends() {
        let labels = doubling_labels("0", 5, "");
        assert_eq!(labels, ["0", "1", "2-3", "4-7", "8+"]);
        let lines = histogram(&labels, &[0, 3, 0, 1, 0], 6, ASCII);
        assert_eq!(
            lines,
            ["          1    75% ######", "        2-3     0% ", "        4-7    25% ##"]
        );
        assert_eq!(histogram(&labels, &[0; 5], 6, ASCII), ["nothing counted yet"]);
    }

    #[test]
    fn labels_never_overflow() {
        assert_eq!(doubling_labels("<1us", 80, "us").len(), 80);
    }
}
