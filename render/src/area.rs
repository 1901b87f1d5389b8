//! Areas over time, drawn with the dots of braille characters, or with plain ones in ASCII.

use crate::graph::level;
use crate::theme::Theme;

/// The dots of a braille character from the lowest to the highest, left and right.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// The first braille character, without dots.
const BRAILLE: u32 = 0x2800;

/// An area between 0 and a curve, oldest value first.
#[derive(Clone, Debug)]
pub struct AreaGraph {
    /// The values; `None` leaves a gap. One for each of [`AreaGraph::columns`].
    pub values: Vec<Option<f64>>,
    /// The value of a full column.
    pub top: f64,
}

impl AreaGraph {
    /// Values side by side in `width` characters.
    pub fn columns(width: usize, theme: Theme) -> usize {
        if theme.ascii { width } else { 2 * width }
    }

    /// Draws it in lines of characters, from top to bottom.
    pub fn lines(&self, height: usize, theme: Theme) -> Vec<String> {
        let (steps, across) = if theme.ascii { (2, 1) } else { (4, 2) };
        let levels: Vec<Option<usize>> =
            self.values.iter().map(|value| Some(self.steps((*value)?, height * steps))).collect();
        (0..height)
            .rev()
            .map(|row| {
                // The part of each column in this line.
                let filled = |level: &Option<usize>| {
                    level.map(|level| level.saturating_sub(row * steps).min(steps))
                };
                let cells = levels.chunks(across).map(|cell| cell.iter().map(filled));
                if theme.ascii {
                    cells.map(|mut cell| plain(cell.next().flatten(), row == 0)).collect()
                } else {
                    cells.map(|cell| braille(cell, row == 0)).collect()
                }
            })
            .collect()
    }

    /// Steps of `all`; 0 only for nothing, which differs from a gap by the line below it.
    fn steps(&self, value: f64, all: usize) -> usize {
        // The lowest dots are that line: the least value is above it.
        if value > 0.0 { level(value / self.top, all).max(2.min(all)) } else { 0 }
    }
}

fn plain(filled: Option<usize>, lowest: bool) -> char {
    match filled {
        Some(0) if lowest => '_',
        None | Some(0) => ' ',
        Some(1) => '.',
        Some(_) => '#',
    }
}

fn braille(cell: impl Iterator<Item = Option<usize>>, lowest: bool) -> char {
    let least = usize::from(lowest);
    let filled = DOTS
        .iter()
        .zip(cell)
        .flat_map(|(dots, filled)| dots.iter().take(filled.map_or(0, |filled| filled.max(least))));
    let dots = filled.fold(0, |all, dot| all | dot);
    match char::from_u32(BRAILLE + u32::from(dots)) {
        Some(character) if dots > 0 => character,
        _ => ' ',
    }
}

/// The end of an axis from 0 that `most` fits on: 1, 2 or 5 times a power of ten, and 1 at least.
pub fn axis_top(most: f64) -> f64 {
    let most = if most.is_finite() { most.max(1.0) } else { 1.0 };
    let power = 10_f64.powf(most.log10().floor());
    let ends = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    ends.into_iter().find(|end| *end >= most).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Theme = Theme::ASCII;

    fn draw(values: &[Option<f64>], top: f64, height: usize, theme: Theme) -> Vec<String> {
        AreaGraph { values: values.to_vec(), top }.lines(height, theme)
    }

    #[test]
    fn nothing_is_a_line_and_a_gap_is_none() {
        let values = [Some(0.0), Some(0.001), None, Some(5.0), Some(10.0), Some(99.0)];
        assert_eq!(draw(&values, 10.0, 2, ASCII), ["    ##", "_# ###"]);
        assert_eq!(draw(&values, 10.0, 2, Theme::default()), ["  ⣿", "⣠⢸⣿"]);
        assert_eq!(draw(&[None; 4], 10.0, 1, Theme::default()), ["  "]);
    }

    #[test]
    fn each_step_is_a_dot() {
        let values: Vec<_> = (0..=8).map(|value| Some(f64::from(value))).collect();
        assert_eq!(draw(&values, 8.0, 2, Theme::default()), ["  ⢀⣴⡇", "⣠⣴⣿⣿⡇"]);
        assert_eq!(draw(&values, 8.0, 1, ASCII), ["_########"]);
    }

    #[test]
    fn any_number_is_drawn() {
        for value in [f64::NAN, f64::INFINITY, -1.0, f64::MAX] {
            for top in [0.0, 1.0, f64::NAN, f64::INFINITY] {
                for height in 0..3 {
                    let lines = draw(&[Some(value)], top, height, Theme::default());
                    assert_eq!(lines.len(), height);
                }
            }
        }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let cases = [
            (0.0, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (412.0, 500.0),
            (14.2e6, 20e6),
            (1000.0, 1000.0),
            (f64::NAN, 1.0),
        ];
        for (most, top) in cases {
            assert!((axis_top(most) - top).abs() < 1e-6, "{most}: {}", axis_top(most));
        }
    }
}
