//! Styles of text on a terminal.

#[cfg(test)]
mod tests;

use pmdscope_render::{Palette, TextLine, Theme, Tone};
use pmdscope_telemetry::finding::Severity;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Columns that a name keeps, however narrow the screen.
pub(crate) const NAME_MIN: usize = 8;

/// Sign and tone of a severity.
pub(crate) fn severity_look(severity: Severity, theme: Theme) -> (&'static str, Tone) {
    let [critical, warning, info] = theme.signs();
    match severity {
        Severity::Critical => (critical, Tone::Bad),
        Severity::Warning => (warning, Tone::Warn),
        Severity::Info => (info, Tone::Plain),
    }
}

/// The styles of a theme.
pub(crate) trait ThemeStyle {
    /// The style of a tone, on the background of the terminal.
    fn style(self, tone: Tone) -> Style;
}

impl ThemeStyle for Theme {
    fn style(self, tone: Tone) -> Style {
        let color = color(self.palette, tone);
        let modifier = match (tone, color) {
            (Tone::Dim, None) => Modifier::DIM,
            (Tone::Title, _) | (Tone::Warn, None) | (Tone::Bad, Some(_)) => Modifier::BOLD,
            (Tone::Bad, None) => Modifier::BOLD | Modifier::UNDERLINED,
            (Tone::Label, _) => Modifier::UNDERLINED,
            _ => Modifier::empty(),
        };
        Style { fg: color, ..Style::new() }.add_modifier(modifier)
    }
}

/// The colour of a tone; `None` is that of ordinary text. The tests compute what contrast each has.
fn color(palette: Palette, tone: Tone) -> Option<Color> {
    let [dim, good, warn, bad, title, graph] = match palette {
        Palette::Mono => [None; 6],
        // Of the 16, these alone can be read on black in all common palettes. Which grey can be
        // read depends on the palette: dim text is left to the terminal.
        Palette::Ansi | Palette::Console => {
            // Bold would not make yellow brighter: on the console, the sequence of a colour resets it.
            let console = palette == Palette::Console;
            let yellow = if console { Color::LightYellow } else { Color::Yellow };
            let [good, warn, bad, title] =
                [Color::Green, yellow, Color::LightRed, Color::Cyan].map(Some);
            [None, good, warn, bad, title, None]
        }
        Palette::Truecolor => {
            [0xa6_a6_a6, 0x7e_e7_87, 0xf2_cc_60, 0xff_7b_72, 0x79_c0_ff, 0x76_c7_d4]
                .map(|color| Some(Color::from_u32(color)))
        }
        Palette::TruecolorLight => {
            [0x63_63_63, 0x00_70_7a, 0x94_60_00, 0x94_00_2a, 0x66_39_ba, 0x05_50_ae]
                .map(|color| Some(Color::from_u32(color)))
        }
        // Those of the 256 that are nearest to sky blue, yellow, orange and reddish purple of Okabe
        // and Ito, brighter where they need it. Terminals without 24 bits have them as well.
        Palette::Colorblind => {
            [248, 75, 228, 208, 175, 110].map(|index| Some(Color::Indexed(index)))
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

/// The style of the selected row, over the styles of its cells.
pub(crate) fn selected_row() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// A line of a table in the styles of a theme.
pub(crate) fn styled(line: TextLine, theme: Theme) -> Line<'static> {
    let spans = line.spans.into_iter();
    spans.map(|span| Span::styled(span.text, theme.style(span.tone))).collect()
}
