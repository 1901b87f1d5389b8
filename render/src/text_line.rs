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

impl fmt::Display for TextLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

/// Width of a text on a terminal. Our own texts are narrow; names from outside are made printable.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}
