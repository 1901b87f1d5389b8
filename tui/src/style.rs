//! Styles of text on a terminal.

use pmdscope_render::{TextLine, Theme, Tone};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The styles of a theme.
pub(crate) trait ThemeStyle {
    /// The style of a tone. Only the 16 colours of the terminal's own palette.
    fn style(self, tone: Tone) -> Style;
}

impl ThemeStyle for Theme {
    fn style(self, tone: Tone) -> Style {
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
            // Blue is hard to read on black, and any other colour on black or on white.
            (Tone::Label, _) => plain.add_modifier(Modifier::UNDERLINED),
        }
    }
}

/// The style of the selected row, over the styles of its cells.
pub(crate) fn selected_row() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// A line of a table in the styles of a theme.
pub(crate) fn styled(line: TextLine, theme: Theme) -> Line<'static> {
    let spans = line.spans.into_iter();
    spans.map(|span| Span::styled(span.text, theme.style(span.tone))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_contrast_of_plain_text() {
        for mono in [false, true] {
            let style = Theme { mono, ascii: false }.style(Tone::Label);
            assert_eq!((style.fg, style.bg), (None, None), "the colours of the terminal");
            assert_ne!(style, Style::new(), "and still no plain text");
        }
    }
}
