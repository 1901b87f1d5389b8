//! Colors and glyphs. Colors only repeat the meaning of a word or sign.

use std::fmt;

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
    /// Will cause harm if it continues.
    Warn,
    /// Causes harm now.
    Bad,
    /// Names a section.
    Title,
    /// Names a column or a key.
    Label,
    /// Draws values that are neither good nor bad.
    Graph,
}

/// The colours of the tones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// The 16 colours that the user has chosen for the terminal.
    #[default]
    Ansi,
    /// The same on the console of Linux, whose yellow is brown.
    Console,
    /// Colours of 24 bits for a dark background.
    Truecolor,
    /// The same for a light background.
    TruecolorLight,
    /// Colours that stay apart without red or without green, for a dark background.
    Colorblind,
    /// Modifiers instead of colours.
    Mono,
}

impl Palette {
    /// All that users can choose.
    pub const ALL: [Self; 5] =
        [Self::Ansi, Self::Truecolor, Self::TruecolorLight, Self::Colorblind, Self::Mono];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ansi | Self::Console => "ansi",
            Self::Truecolor => "truecolor",
            Self::TruecolorLight => "truecolor-light",
            Self::Colorblind => "colorblind",
            Self::Mono => "mono",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|palette| palette.name() == name)
    }
}

impl fmt::Display for Palette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How things look on this terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    /// Colours.
    pub palette: Palette,
    /// ASCII instead of block and line drawing characters.
    pub ascii: bool,
}

impl Theme {
    /// Neither colours nor other characters than ASCII.
    pub const ASCII: Self = Self { palette: Palette::Mono, ascii: true };

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
