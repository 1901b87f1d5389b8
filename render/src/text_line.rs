//! Lines of text, each part of which has a tone.

use std::fmt;
use std::ops::Range;

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

    /// The same in lines of at most `width` characters, broken between words; the second and later ones begin with
    /// `indent` blanks. A longer word stays whole.
    pub fn wrapped(&self, width: usize, indent: usize) -> Vec<Self> {
        let text = self.to_string();
        let (mut lines, mut from, mut to, mut at) = (Vec::new(), 0, 0, 0);
        for word in text.split(' ') {
            let end = at + word.len();
            let before = if lines.is_empty() { 0 } else { indent };
            if !word.is_empty() {
                if to > from && before + self::width(&text[from..end]) > width {
                    lines.push(self.part(from..to, before));
                    from = at;
                }
                to = end;
            }
            at = end + 1;
        }
        let before = if lines.is_empty() { 0 } else { indent };
        lines.push(self.part(from..to, before));
        lines
    }

    /// Some of its bytes, behind so many blanks.
    fn part(&self, bytes: Range<usize>, indent: usize) -> Self {
        let mut spans = Vec::new();
        if indent > 0 {
            spans.push(TextSpan { text: " ".repeat(indent), tone: Tone::Plain });
        }
        let mut at = 0;
        for TextSpan { text, tone } in &self.spans {
            let (from, to) = (bytes.start.max(at), bytes.end.min(at + text.len()));
            if from < to {
                spans.push(TextSpan { text: text[from - at..to - at].to_owned(), tone: *tone });
            }
            at += text.len();
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
    lines.iter().flat_map(|line| [line.trimmed().to_string(), "\n".to_owned()]).collect()
}

impl fmt::Display for TextLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

/// Lines, of which those with more than `width` characters are broken between words.
pub fn fitted(lines: &[TextLine], width: Option<usize>) -> Vec<TextLine> {
    /// The rest of a line is further to the right than its beginning.
    const HANGING: usize = 4;
    let Some(width) = width else { return lines.to_vec() };
    let wrapped = |line: &TextLine| {
        let text = line.to_string();
        line.wrapped(width, text.len() - text.trim_start().len() + HANGING)
    };
    lines.iter().flat_map(wrapped).collect()
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

    fn line(parts: &[(&str, Tone)]) -> TextLine {
        let span = |(text, tone): &(&str, Tone)| TextSpan { text: (*text).to_owned(), tone: *tone };
        TextLine { spans: parts.iter().map(span).collect() }
    }

    #[test]
    fn lines_break_between_words_and_keep_their_tones() {
        let long =
            line(&[("  why: ", Tone::Label), ("it is  very ", Tone::Plain), ("bad", Tone::Bad)]);
        let parts = long.wrapped(14, 4);
        assert_eq!(
            parts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["  why: it is", "    very bad"]
        );
        assert_eq!(parts[1].spans.last().map(|span| span.tone), Some(Tone::Bad));
        assert_eq!(parts[0].spans[0].tone, Tone::Label);
        assert_eq!(long.wrapped(80, 4), std::slice::from_ref(&long));
        assert_eq!(TextLine::default().wrapped(5, 4), [TextLine::default()]);
    }

    #[test]
    fn no_word_is_broken_and_none_is_lost() {
        let text =
            "fwd net_pcap0: rx_missed: 31,096 µs/s of 198.18.0.1:49152\n    why: a b  c\n\nend\n";
        let lines: Vec<TextLine> = text.lines().map(|line| line.to_owned().into()).collect();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in 1..90 {
            let narrow = plain_text(&fitted(&lines, Some(width)));
            assert_eq!(words(&narrow), words(text), "{width}");
            let longest = |line: &str| line.split_whitespace().map(|word| word.len() + 8).max();
            for line in narrow.lines() {
                let fits = line.chars().count() <= width || longest(line) >= Some(line.len());
                assert!(fits, "{width}: {narrow}");
            }
        }
        assert_eq!(fitted(&lines, None), lines);
        assert_eq!(plain_text(&fitted(&lines, Some(90))), text);
    }
}
