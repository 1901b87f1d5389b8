//! Untrusted text that is shown to people: names that any user may choose, output of apps, contents of files.
//!
//! A terminal interprets control characters, and invisible characters make one name look like
//! another.

/// Whether a character is shown as itself: it is not a control character, does not change the
/// direction of text, and is not invisible, except for the space.
pub fn is_printable(letter: char) -> bool {
    if letter.is_ascii() {
        !letter.is_ascii_control()
    } else {
        !letter.is_control() && !hides(letter)
    }
}

/// Replaces characters that are not printable, except for those that are `wanted`, by `?`.
pub fn harmless(text: &str, wanted: &[char]) -> String {
    // Most text is plain, and this is several times faster. Counting has no early end, so it is vectorized.
    let lines = wanted.contains(&'\n');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') || lines && byte == b'\n';
    if text.bytes().filter(|byte| !is_plain(*byte)).count() == 0 {
        return text.to_owned();
    }
    text.replace(|letter: char| !is_printable(letter) && !wanted.contains(&letter), "?")
}

/// Whether a character is one that displays ignore according to Unicode
/// (`Default_Ignorable_Code_Point`), that ends lines or paragraphs, or that encloses annotations.
fn hides(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_replaced() {
        let evil = "é\x1b[31m\x07\u{9b}2J\r\x7f\n\tx";
        assert_eq!(harmless(evil, &['\n', '\t']), "é?[31m??2J??\n\tx");
        assert_eq!(harmless(evil, &[]), "é?[31m??2J????x");
        let bidi =
            ['\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200e}', '\u{200f}', '\u{61c}'];
        let unseen =
            ['\u{200b}', '\u{200d}', '\u{feff}', '\u{2028}', '\u{2029}', '\u{e0041}', '\u{ad}'];
        for letter in bidi.into_iter().chain(unseen) {
            assert_eq!(harmless(&format!("a{letter}b"), &['\n']), "a?b", "{letter:?}");
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in ["fwd-7:1 [0000:3b:00.0]", "schön", "日本語", "עברית", "▏→ e\u{301}"]
        {
            assert_eq!(harmless(text, &[]), text);
        }
    }
}
