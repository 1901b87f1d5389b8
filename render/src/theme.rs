//! Colors and glyphs. Colors only repeat the meaning of a word or sign.

use std::fmt;

use pmdscope_telemetry::finding::Severity;

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

impl Tone {
    /// The tone of a severity.
    pub fn of(severity: Severity) -> Self {
        match severity {
            Severity::Critical => Self::Bad,
            Severity::Warning => Self::Warn,
            Severity::Info => Self::Plain,
        }
    }
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

/// A colour of text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextColor {
    /// Green of the 16 colours of the terminal.
    Green,
    /// Yellow of the 16.
    Yellow,
    /// Cyan of the 16.
    Cyan,
    /// Bright red of the 16.
    LightRed,
    /// Bright yellow of the 16.
    LightYellow,
    /// One of the 256 colours of xterm.
    Indexed(u8),
    /// Red, green and blue.
    Rgb([u8; 3]),
}

impl Palette {
    /// The colour of a tone; `None` is that of ordinary text. The tests of `tui` compute what contrast each has.
    pub fn color(self, tone: Tone) -> Option<TextColor> {
        let [dim, good, warn, bad, title, graph] = match self {
            Self::Mono => [None; 6],
            // Of the 16, these alone can be read on black in all common palettes. Which grey can be
            // read depends on the palette: dim text is left to the terminal.
            Self::Ansi | Self::Console => {
                // Bold would not make yellow brighter: on the console, the sequence of a colour resets it.
                let console = self == Self::Console;
                let yellow = if console { TextColor::LightYellow } else { TextColor::Yellow };
                let [good, warn, bad, title] =
                    [TextColor::Green, yellow, TextColor::LightRed, TextColor::Cyan].map(Some);
                [None, good, warn, bad, title, None]
            }
            Self::Truecolor => {
                [0xa6_a6_a6, 0x7e_e7_87, 0xf2_cc_60, 0xff_7b_72, 0x79_c0_ff, 0x76_c7_d4]
                    .map(|color| Some(TextColor::rgb(color)))
            }
            Self::TruecolorLight => {
                [0x63_63_63, 0x00_70_7a, 0x94_60_00, 0x94_00_2a, 0x66_39_ba, 0x05_50_ae]
                    .map(|color| Some(TextColor::rgb(color)))
            }
            // Those of the 256 that are nearest to sky blue, yellow, orange and reddish purple of Okabe
            // and Ito, brighter where they need it. Terminals without 24 bits have them as well.
            Self::Colorblind => {
                [248, 75, 228, 208, 175, 110].map(|index| Some(TextColor::Indexed(index)))
            }
        };
        match tone {
            Tone::Plain | Tone::Label => None,
            Tone::Dim => dim,
            Tone::Good => good,
            Tone::Warn => warn,
            Tone::Bad => bad,
            Tone::Title => title,
            Tone::Graph => graph,
        }
    }
}

impl TextColor {
    fn rgb(color: u32) -> Self {
        let [_, red, green, blue] = color.to_be_bytes();
        Self::Rgb([red, green, blue])
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
