//! Styles of text on a terminal.

#[cfg(test)]
mod tests;

use pmdscope_render::{Palette, TextColor, TextLine, Theme, Tone};
use pmdscope_telemetry::finding::Severity;
use pmdscope_telemetry::printable::harmless;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Columns that a name keeps, however narrow the screen.
pub(crate) const NAME_MIN: usize = 8;

/// Sign and tone of a severity.
pub(crate) fn severity_look(severity: Severity, theme: Theme) -> (&'static str, Tone) {
    let [critical, warning, info] = theme.signs();
    let sign = match severity {
        Severity::Critical => critical,
        Severity::Warning => warning,
        Severity::Info => info,
    };
    (sign, Tone::of(severity))
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
    Some(match palette.color(tone)? {
        TextColor::Green => Color::Green,
        TextColor::Yellow => Color::Yellow,
        TextColor::Cyan => Color::Cyan,
        TextColor::LightRed => Color::LightRed,
        TextColor::LightYellow => Color::LightYellow,
        TextColor::Indexed(index) => Color::Indexed(index),
        TextColor::Rgb([red, green, blue]) => Color::Rgb(red, green, blue),
    })
}

/// The style of the selected row, over the styles of its cells.
pub(crate) fn selected_row() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// A text that is edited, with the cursor before the character of that number.
pub(crate) fn edited(text: &str, cursor: usize) -> [Span<'static>; 3] {
    let part = |from: usize, to: usize| {
        harmless(&text.chars().skip(from).take(to - from).collect::<String>(), &[])
    };
    let under = part(cursor, cursor + 1);
    let under = if under.is_empty() { " ".to_owned() } else { under };
    [
        Span::raw(part(0, cursor)),
        Span::styled(under, selected_row()),
        Span::raw(part(cursor + 1, usize::MAX)),
    ]
}

/// A line of a table in the styles of a theme.
pub(crate) fn styled(line: TextLine, theme: Theme) -> Line<'static> {
    let spans = line.spans.into_iter();
    spans.map(|span| Span::styled(span.text, theme.style(span.tone))).collect()
}
