//! Bars, sparklines and histograms, drawn with characters.

use pmdscope_telemetry::sample::MbufPlace;

use crate::ledger;
use crate::text_line::{TextLine, TextSpan};
use crate::theme::{Theme, Tone};

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
    /// Shares of several things side by side, each as a shade, with its text where there is room.
    Heat {
        /// One cell for each thing.
        cells: Vec<HeatCell>,
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

/// One cell of a [`Graph::Heat`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatCell {
    /// 0 to 1; `None` where it is not known.
    pub share: Option<f64>,
    /// The value.
    pub text: String,
    /// It is unhealthy.
    pub marked: bool,
}

impl Graph {
    /// Preferred width of most graphs, characters.
    const WIDTH: usize = 24;

    /// Preferred width, characters.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Heat { cells } => cells.len() * heat_slot(cells),
            Self::Bar { .. } | Self::Ledger { .. } | Self::Spark { .. } => Self::WIDTH,
        }
    }

    /// Draws in exactly `width` characters, as pieces; those that are not marked have `tone`.
    pub(crate) fn pieces(&self, width: usize, theme: Theme, tone: Tone) -> Vec<TextSpan> {
        match self {
            Self::Heat { cells } => heat(cells, width, theme, tone),
            _ => vec![TextSpan { text: self.draw(width, theme), tone }],
        }
    }

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
            Self::Heat { cells } => {
                let pieces = heat(cells, width, theme, Tone::Graph).into_iter();
                pieces.map(|piece| piece.text).collect()
            }
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

/// Columns of a shade, a mark, the longest text, and a space.
fn heat_slot(cells: &[HeatCell]) -> usize {
    cells.iter().map(|cell| cell.text.chars().count()).max().unwrap_or(0) + 3
}

fn heat(cells: &[HeatCell], width: usize, theme: Theme, tone: Tone) -> Vec<TextSpan> {
    // Where there are more things than columns, several share one.
    let together = cells.len().div_ceil(width.max(1)).max(1);
    let slot = width.checked_div(cells.len().div_ceil(together)).unwrap_or(0).min(heat_slot(cells));
    let mut pieces: Vec<TextSpan> =
        cells.chunks(together).map(|cells| heat_piece(cells, slot, theme, tone)).collect();
    let used: usize = pieces.iter().map(|piece| piece.text.chars().count()).sum();
    pieces.push(TextSpan { text: " ".repeat(width.saturating_sub(used)), tone });
    pieces
}

fn heat_piece(cells: &[HeatCell], slot: usize, theme: Theme, tone: Tone) -> TextSpan {
    let marked = cells.iter().any(|cell| cell.marked);
    let most = cells.iter().filter_map(|cell| cell.share).reduce(f64::max);
    let shades = theme.heat();
    let shade = most.map_or(' ', |most| shades[level(most, shades.len() - 1)]);
    let text = match (slot, cells) {
        (0, _) => String::new(),
        (1, _) if marked => "!".to_owned(),
        (_, [cell]) if slot >= cell.text.chars().count() + 3 => {
            let mark = if marked { "!" } else { "" };
            format!("{:<slot$}", format!("{shade}{mark}{}", cell.text))
        }
        (slot, _) => {
            let shades = shade.to_string().repeat(slot - usize::from(marked));
            if marked { shades + "!" } else { shades }
        }
    };
    TextSpan { text, tone: if marked { Tone::Warn } else { tone } }
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
pub fn histogram(labels: &[String], counts: &[u64], width: usize, theme: Theme) -> Vec<TextLine> {
    let span = |text, tone| TextSpan { text, tone };
    let all: u64 = counts.iter().fold(0, |sum, &count| sum.saturating_add(count));
    let most = counts.iter().copied().max().unwrap_or(0);
    let Some(first) = counts.iter().position(|&count| count > 0) else {
        return vec![TextLine { spans: vec![span("nothing counted yet".to_owned(), Tone::Plain)] }];
    };
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(first);
    (first..=last)
        .map(|bucket| {
            let label = labels.get(bucket).map_or("more", String::as_str);
            let share = crate::number::percent(counts[bucket] as f64 / all as f64);
            let full = columns(counts[bucket], most, width);
            let bar = theme.bar()[0].to_string().repeat(full);
            let label = span(format!("{label:>11} {share:>6} "), Tone::Plain);
            TextLine { spans: vec![label, span(bar, Tone::Graph)] }
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

    const ASCII: Theme = Theme::ASCII;

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

    fn heat_of(cells: &[(Option<f64>, &str, bool)]) -> Graph {
        let cell = |&(share, text, marked): &(Option<f64>, &str, bool)| HeatCell {
            share,
            text: text.to_owned(),
            marked,
        };
        Graph::Heat { cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn heat_has_numbers_where_there_is_room_and_marks_always() {
        let graph =
            heat_of(&[(Some(0.0), "0%", false), (Some(1.0), "100%", true), (None, "-", false)]);
        assert_eq!(graph.width(), 21);
        assert_eq!(graph.draw(21, ASCII), ".0%    #!100%  -     ");
        assert_eq!(graph.draw(10, ASCII), "...##!    ");
        assert_eq!(graph.draw(3, ASCII), ".! ");
        assert_eq!(graph.draw(2, ASCII), "! ");
        assert_eq!(graph.draw(0, ASCII), "");
        let pieces = graph.pieces(21, ASCII, Tone::Graph);
        let marked: Vec<_> = pieces.iter().filter(|piece| piece.tone == Tone::Warn).collect();
        assert!(marked.len() == 1 && marked[0].text.contains("!100%"));
    }

    #[test]
    fn heat_of_any_number_fits_any_width() {
        for count in 0..70 {
            let cells: Vec<_> =
                (0..count).map(|n| (Some(f64::from(n) / 70.0), "7%", n == 3)).collect();
            for width in 0..90 {
                let drawn = heat_of(&cells).draw(width, ASCII);
                assert_eq!(drawn.chars().count(), width, "{count}: {drawn:?}");
                assert!(count < 4 || width == 0 || drawn.contains('!'), "{count}: {drawn:?}");
            }
        }
    }

    #[test]
    fn histograms_leave_out_empty_ends() {
        let labels = doubling_labels("0", 5, "");
        assert_eq!(labels, ["0", "1", "2-3", "4-7", "8+"]);
        let drawn = |counts: &[u64]| -> Vec<String> {
            histogram(&labels, counts, 6, ASCII).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            drawn(&[0, 3, 0, 1, 0]),
            ["          1    75% ######", "        2-3     0% ", "        4-7    25% ##"]
        );
        assert_eq!(drawn(&[0; 5]), ["nothing counted yet"]);
    }

    #[test]
    fn labels_never_overflow() {
        assert_eq!(doubling_labels("<1us", 80, "us").len(), 80);
    }
}
