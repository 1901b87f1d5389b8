//! Colours and glyphs. Colour only repeats what a word or sign says already.

use ratatui::style::{Color, Modifier, Style};

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
    /// The style of a tone. Only the 16 colours of the terminal's own palette.
    pub fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        match (tone, self.mono) {
            (Tone::Plain, _) | (Tone::Good, true) => plain,
            (Tone::Dim, _) => plain.add_modifier(Modifier::DIM),
            (Tone::Good, false) => plain.fg(Color::Green),
            (Tone::Warn, false) => plain.fg(Color::Yellow),
            (Tone::Warn | Tone::Title, true) => plain.add_modifier(Modifier::BOLD),
            (Tone::Bad, false) => plain.fg(Color::LightRed).add_modifier(Modifier::BOLD),
            (Tone::Bad, true) => plain.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            (Tone::Title, false) => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            (Tone::Label, false) => plain.fg(Color::Blue),
            (Tone::Label, true) => plain.add_modifier(Modifier::UNDERLINED),
        }
    }

    /// The style of the selected row, over the styles of its cells.
    pub fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Signs before critical, warning and info findings.
    pub fn signs(self) -> [&'static str; 3] {
        if self.ascii { ["!!", "! ", "i "] } else { ["✖ ", "▲ ", "● "] }
    }

    /// The bar of a timeline: before the shown moment, that moment, after it.
    pub fn strip(self) -> [char; 3] {
        if self.ascii { ['=', '|', '-'] } else { ['━', '┃', '─'] }
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
