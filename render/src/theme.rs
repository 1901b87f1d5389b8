//! Colors and glyphs. Colors only repeat what a word or sign says.

/// What a piece of text means; the theme decides how that looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary text.
    #[default]
    Plain,
    /// Unimportant, unknown or out of date.
    Dim,
    /// As it should be.
    Good,
    /// Will hurt if it goes on.
    Warn,
    /// Hurts now.
    Bad,
    /// Names a section.
    Title,
    /// Names a column or a key.
    Label,
}

/// How things look on this terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    /// Modifiers instead of colours.
    pub mono: bool,
    /// ASCII instead of block and line drawing characters.
    pub ascii: bool,
}

impl Theme {
    /// Signs before critical, warning and info findings.
    pub fn signs(self) -> [&'static str; 3] {
        if self.ascii { ["!!", "! ", "i "] } else { ["✖ ", "▲ ", "● "] }
    }

    /// The bar of a timeline: before the shown moment, that moment, after it.
    pub fn time_bar(self) -> [char; 3] {
        if self.ascii { ['=', '|', '-'] } else { ['━', '┃', '─'] }
    }

    /// The line beside a graph.
    pub fn axis(self) -> char {
        if self.ascii { '|' } else { '│' }
    }

    /// Bar parts: in use, cached, free.
    pub fn bar(self) -> [char; 3] {
        if self.ascii { ['#', '=', '.'] } else { ['█', '▒', '·'] }
    }

    /// Levels of a sparkline, from lowest to highest.
    pub fn spark(self) -> &'static [char] {
        if self.ascii {
            &['_', '.', '-', '=', '#']
        } else {
            &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        }
    }

    /// Shades of a heat map, from nothing to most.
    pub fn heat(self) -> [char; 5] {
        if self.ascii { ['.', ':', '+', '*', '#'] } else { ['·', '░', '▒', '▓', '█'] }
    }

    /// Ends a text that was cut.
    pub fn ellipsis(self) -> char {
        if self.ascii { '~' } else { '…' }
    }

    /// Before a standard error.
    pub fn plus_minus(self) -> &'static str {
        if self.ascii { "+-" } else { "±" }
    }

    /// Marks the column that rows are sorted by: ascending, descending.
    pub fn sort_marks(self) -> [char; 2] {
        if self.ascii { ['^', 'v'] } else { ['▲', '▼'] }
    }
}
