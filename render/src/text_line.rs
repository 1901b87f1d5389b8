//! Lines of text, each part of which has a tone.

use std::fmt;

use crate::theme::Tone;

/// A line of pieces of text, each with its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextLine {
    /// The pieces, from left to right.
    pub spans: Vec<TextSpan>,
}

/// A piece of text of one tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSpan {
    /// The text itself.
    pub text: String,
    /// Its meaning.
    pub tone: Tone,
}

impl TextLine {
    /// A line of one tone.
    pub fn of(text: impl Into<String>, tone: Tone) -> Self {
        Self { spans: vec![TextSpan { text: text.into(), tone }] }
    }

    /// The line without blanks at its end.
    #[must_use]
    pub fn trimmed(&self) -> Self {
        let mut spans = self.spans.clone();
        while let Some(last) = spans.last_mut() {
            last.text.truncate(last.text.trim_end().len());
            if !last.text.is_empty() {
                break;
            }
            spans.pop();
        }
        Self { spans }
    }
}

impl From<String> for TextLine {
    fn from(text: String) -> Self {
        Self::of(text, Tone::Plain)
    }
}

/// Lines as text without tones, without blanks at the ends of lines.
pub fn plain_text(lines: &[TextLine]) -> String {
    lines.iter().map(|line| format!("{}\n", line.trimmed())).collect()
}

impl fmt::Display for TextLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

/// Width of a text on a terminal. Our own texts are narrow; names from outside are made printable.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_at_the_end_are_left_out_of_all_tones() {
        let span = |text: &str, tone| TextSpan { text: text.to_owned(), tone };
        let spans = vec![span("a ", Tone::Label), span(" b  ", Tone::Bad), span("  ", Tone::Dim)];
        let line = TextLine { spans };
        assert_eq!(line.trimmed().spans, [span("a ", Tone::Label), span(" b", Tone::Bad)]);
        let empty = TextLine::of("  ", Tone::Plain);
        assert_eq!(plain_text(&[line, empty, "c".to_owned().into()]), "a  b\n\nc\n");
    }
}
