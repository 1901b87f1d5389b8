//! Columns, and the values in them.

use std::cmp::Ordering;
use std::fmt;

use super::counters::{Counted, CounterMode};
use crate::graph::Graph;
use crate::text_line::width;
use crate::theme::{Theme, Tone};

/// Alignment of the text of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAlign {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The name of a column as users type it: without characters that are hard to type.
pub(crate) fn plain(title: &str) -> String {
    title.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Unit of the numbers of a column, for comparisons in filters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColumnUnit {
    /// A number, or a number per second.
    Count,
    /// A share of 1.
    Share,
    /// A time, in units of so many nanoseconds.
    Time(f64),
}

impl ColumnUnit {
    /// A time in seconds.
    pub const SECONDS: Self = Self::Time(1e9);
    /// A time in milliseconds.
    pub const MILLIS: Self = Self::Time(1e6);
    /// A time in microseconds.
    pub const MICROS: Self = Self::Time(1e3);
    /// A time in nanoseconds.
    pub const NANOS: Self = Self::Time(1.0);
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub(super) name: &'static str,
    pub(crate) align: TextAlign,
    pub(crate) unit: ColumnUnit,
    pub(super) counted: Counted,
    pub(super) mode: CounterMode,
    pub(super) priority: u8,
    pub(super) flex: Option<usize>,
    pub(super) whole: bool,
}

impl Column {
    /// A column of words.
    pub const fn text(title: &'static str) -> Self {
        Self::new(title, TextAlign::Left)
    }

    /// A column of numbers.
    pub const fn number(title: &'static str) -> Self {
        Self::new(title, TextAlign::Right)
    }

    const fn new(name: &'static str, align: TextAlign) -> Self {
        Self {
            name,
            align,
            unit: ColumnUnit::Count,
            counted: Counted::Nothing,
            mode: CounterMode { totals: false, bytes: false },
            priority: 0,
            flex: None,
            whole: false,
        }
    }

    /// Sets the unit of its numbers.
    #[must_use]
    pub const fn unit(mut self, unit: ColumnUnit) -> Self {
        self.unit = unit;
        self
    }

    /// May be dropped when space is short; the highest priority goes first. 0 stays always.
    #[must_use]
    pub const fn drop_at(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Shrinks down to `least` characters before any column is dropped, and takes a part of the
    /// remaining width.
    #[must_use]
    pub const fn flex(mut self, least: usize) -> Self {
        self.flex = Some(least);
        self
    }

    /// Is never cut, as numbers are not: an address that lacks a digit is another one.
    #[must_use]
    pub const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Its name in all counter modes: its heading as a rate, in bits.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its name as users type it: `rx_pps`, `miss/s`, `pool_1m`.
    pub fn typed_name(&self) -> String {
        let letters = |letter: char| letter.is_alphanumeric() || letter == '/';
        let words = self.name.split(|letter| !letters(letter)).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
    }

    /// Whether this is its name, ignoring case, blanks and signs.
    pub fn is(&self, name: &str) -> bool {
        plain(self.name) == plain(name)
    }

    /// Alignment of its text.
    pub const fn alignment(&self) -> TextAlign {
        self.align
    }

    /// Unit of its numbers.
    pub const fn measures(&self) -> ColumnUnit {
        self.unit
    }

    /// Order of two values in this column; unknown ones come last either way.
    pub fn compare(&self, a: &Cell, b: &Cell, descending: bool) -> Ordering {
        let unknown = self.align == TextAlign::Right && (a.number.is_none() || b.number.is_none());
        if unknown || descending { b.compare(a) } else { a.compare(b) }
    }
}

/// One value; filters match its text.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub(crate) text: String,
    pub(super) tone: Tone,
    pub(crate) number: Option<f64>,
    pub(super) graph: Option<Graph>,
    /// The value in the other mode: the total of a rate, or the rate of a total.
    pub(super) other: Option<Box<Cell>>,
}

impl Cell {
    /// A word.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number as `text`, sorted by `number`; unknown numbers come last.
    pub fn number(number: Option<f64>, text: impl Into<String>) -> Self {
        Self { text: text.into(), number, ..Self::default() }
    }

    /// A graph that fills its column; `text` stands for it in filters.
    pub fn graph(graph: Graph) -> Self {
        Self { graph: Some(graph), tone: Tone::Graph, ..Self::default() }
    }

    /// Sets the tone of the value.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Puts a sign before the value: a tone alone is not visible without colours.
    #[must_use]
    pub fn flag(mut self) -> Self {
        self.text.insert(0, '!');
        self
    }

    /// What the value means.
    pub const fn meaning(&self) -> Tone {
        self.tone
    }

    /// A graph in its preferred width; `None` for a value without one.
    pub fn drawing(&self, theme: Theme) -> Option<String> {
        self.graph.as_ref().map(|graph| graph.draw(graph.width(), theme))
    }

    /// The number that it is sorted by and compared with.
    pub fn value(&self) -> Option<f64> {
        self.number
    }

    pub(super) fn width(&self) -> usize {
        self.graph.as_ref().map_or_else(|| width(&self.text), Graph::width)
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
