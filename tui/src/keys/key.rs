//! One key: how the configuration writes it, and how the display names it.

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with a name: as the configuration writes it, and as the display shows it.
const NAMED: [(&str, &str, KeyCode); 15] = [
    ("space", "space", KeyCode::Char(' ')),
    ("enter", "Enter", KeyCode::Enter),
    ("esc", "Esc", KeyCode::Esc),
    ("tab", "Tab", KeyCode::Tab),
    ("backspace", "Bksp", KeyCode::Backspace),
    ("insert", "Ins", KeyCode::Insert),
    ("delete", "Del", KeyCode::Delete),
    ("home", "Home", KeyCode::Home),
    ("end", "End", KeyCode::End),
    ("pgup", "PgUp", KeyCode::PageUp),
    ("pgdn", "PgDn", KeyCode::PageDown),
    ("up", "Up", KeyCode::Up),
    ("down", "Down", KeyCode::Down),
    ("left", "Left", KeyCode::Left),
    ("right", "Right", KeyCode::Right),
];

/// Function keys are those from F1 to this one.
const LAST_FUNCTION_KEY: u8 = 24;

/// Before the name of a key, in the order in which they are printed.
const MODIFIERS: [(&str, KeyModifiers); 3] = [
    ("ctrl-", KeyModifiers::CONTROL),
    ("alt-", KeyModifiers::ALT),
    ("shift-", KeyModifiers::SHIFT),
];

/// A key that a terminal sends, in the one form that all ways to press it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// A text that names no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// No key has such a name.
    Unknown,
    /// Shift gives another character, which is to be written.
    Shifted,
    /// Terminals report control only for letters and the space bar.
    Control,
    /// Terminals send the same as for this key.
    SentAs(&'static str),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such key"),
            Self::Shifted => f.write_str("write the character that shift gives"),
            Self::Control => {
                f.write_str("terminals send ctrl- only with a to z, space and named keys")
            }
            Self::SentAs(name) => write!(f, "terminals send the same for {name}"),
        }
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// The key of this character.
    pub const fn char(character: char) -> Self {
        Self::code(KeyCode::Char(character))
    }

    /// The control key and this lowercase letter.
    pub const fn ctrl(letter: char) -> Self {
        Self { code: KeyCode::Char(letter), modifiers: KeyModifiers::CONTROL }
    }

    /// The shift key and one that is no character.
    pub const fn shift(code: KeyCode) -> Self {
        Self { code, modifiers: KeyModifiers::SHIFT }
    }

    /// A key without modifiers.
    pub const fn code(code: KeyCode) -> Self {
        Self { code, modifiers: KeyModifiers::NONE }
    }

    /// The key of an event.
    pub fn of(event: KeyEvent) -> Self {
        let mut modifiers =
            event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let code = match event.code {
            KeyCode::Tab if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
            KeyCode::Char(letter) if modifiers.contains(KeyModifiers::CONTROL) => {
                KeyCode::Char(letter.to_ascii_lowercase())
            }
            code => code,
        };
        // They are in the code already.
        if matches!(code, KeyCode::Char(_) | KeyCode::BackTab) {
            modifiers -= KeyModifiers::SHIFT;
        }
        Self { code, modifiers }
    }

    /// The same key without Alt and Shift, which a terminal may report although the user did not press
    /// them: a key right after `Esc` is reported like one with Alt.
    pub(super) fn plain(self) -> Self {
        let modifiers = self.modifiers & KeyModifiers::CONTROL;
        Self { modifiers, ..self }
    }

    /// It types a character.
    pub fn is_typed(self) -> bool {
        matches!(self.code, KeyCode::Char(_)) && !self.modifiers.contains(KeyModifiers::CONTROL)
    }

    /// The character that it types or that it is combined with.
    pub(crate) fn character(self) -> Option<char> {
        match self.code {
            KeyCode::Char(character) => Some(character),
            _ => None,
        }
    }

    /// As the display names it, in few columns.
    pub fn label(self) -> String {
        let ctrl = self.modifiers.contains(KeyModifiers::CONTROL);
        let (code, shift) = match self.code {
            KeyCode::BackTab => (KeyCode::Tab, true),
            code => (code, self.modifiers.contains(KeyModifiers::SHIFT)),
        };
        let alt = if self.modifiers.contains(KeyModifiers::ALT) { "M-" } else { "" };
        let shift = if shift { "S-" } else { "" };
        let (ctrl, name) = match (named(code), code) {
            (Some((_, label)), _) => (if ctrl { "C-" } else { "" }, label.to_owned()),
            (None, KeyCode::Char(letter)) if ctrl => ("^", letter.to_ascii_uppercase().to_string()),
            (None, KeyCode::Char(letter)) => ("", letter.to_string()),
            (None, KeyCode::F(number)) => (if ctrl { "C-" } else { "" }, format!("F{number}")),
            (None, _) => ("", "?".to_owned()),
        };
        format!("{alt}{shift}{ctrl}{name}")
    }

    /// The names of keys that are no characters, as the configuration writes them.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        NAMED.iter().map(|(name, ..)| *name)
    }
}

/// The names of a key: of the configuration, and of the display.
fn named(code: KeyCode) -> Option<(&'static str, &'static str)> {
    NAMED.iter().find(|(_, _, named)| *named == code).map(|(name, label, _)| (*name, *label))
}

impl fmt::Display for Key {
    /// As the configuration writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, modifiers) = match self.code {
            KeyCode::BackTab => (KeyCode::Tab, self.modifiers | KeyModifiers::SHIFT),
            code => (code, self.modifiers),
        };
        for (name, modifier) in MODIFIERS {
            if modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        match (named(code), code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(character)) => write!(f, "{character}"),
            (None, KeyCode::F(number)) => write!(f, "f{number}"),
            (None, _) => f.write_str("unknown"),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (mut rest, mut modifiers) = (text, KeyModifiers::NONE);
        while let Some((name, modifier)) = MODIFIERS.into_iter().find(|(name, modifier)| {
            // What is left must be a key: "ctrl--" is control and minus.
            rest.len() > name.len()
                && rest.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
                && !modifiers.contains(*modifier)
        }) {
            rest = &rest[name.len()..];
            modifiers |= modifier;
        }
        let mut characters = rest.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => of_character(character, modifiers),
            _ => of_name(rest, modifiers),
        }
    }
}

fn of_name(name: &str, modifiers: KeyModifiers) -> Result<Key, KeyError> {
    let name = name.to_ascii_lowercase();
    let found = NAMED.iter().find(|(known, ..)| *known == name).map(|(_, _, code)| *code);
    let function_key = || {
        let number = name.strip_prefix('f')?.parse().ok()?;
        let is_known = (1..=LAST_FUNCTION_KEY).contains(&number) && name == format!("f{number}");
        is_known.then_some(KeyCode::F(number))
    };
    match found.or_else(function_key).ok_or(KeyError::Unknown)? {
        KeyCode::Char(_) if modifiers.contains(KeyModifiers::SHIFT) => {
            Err(KeyError::SentAs("space"))
        }
        code => Ok(Key::of(KeyEvent::new(code, modifiers))),
    }
}

fn of_character(character: char, modifiers: KeyModifiers) -> Result<Key, KeyError> {
    let (shift, ctrl) =
        (modifiers.contains(KeyModifiers::SHIFT), modifiers.contains(KeyModifiers::CONTROL));
    match character.to_ascii_lowercase() {
        // A space has a name, and other blanks are no keys.
        blank if blank.is_whitespace() || blank.is_control() => Err(KeyError::Unknown),
        'i' if ctrl => Err(KeyError::SentAs("tab")),
        'm' if ctrl => Err(KeyError::SentAs("enter")),
        '[' if ctrl => Err(KeyError::SentAs("esc")),
        _ if ctrl && !character.is_ascii_alphabetic() => Err(KeyError::Control),
        _ if shift && ctrl => Err(KeyError::Control),
        _ if shift && !character.is_ascii_alphabetic() => Err(KeyError::Shifted),
        _ => {
            let code = if shift { character.to_ascii_uppercase() } else { character };
            Ok(Key::of(KeyEvent::new(KeyCode::Char(code), modifiers)))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_read_as_people_write_them() {
        let modified = |code, modifiers| Key { code, modifiers };
        for (text, key, label) in [
            ("q", Key::char('q'), "q"),
            ("Q", Key::char('Q'), "Q"),
            ("shift-q", Key::char('Q'), "Q"),
            ("-", Key::char('-'), "-"),
            ("ctrl-c", Key::ctrl('c'), "^C"),
            ("Ctrl-C", Key::ctrl('c'), "^C"),
            ("f1", Key::code(KeyCode::F(1)), "F1"),
            ("F12", Key::code(KeyCode::F(12)), "F12"),
            ("f", Key::char('f'), "f"),
            ("pgdn", Key::code(KeyCode::PageDown), "PgDn"),
            ("shift-tab", Key::code(KeyCode::BackTab), "S-Tab"),
            ("space", Key::char(' '), "space"),
            ("ctrl-space", Key::ctrl(' '), "C-space"),
            ("alt-x", modified(KeyCode::Char('x'), KeyModifiers::ALT), "M-x"),
            ("alt--", modified(KeyCode::Char('-'), KeyModifiers::ALT), "M--"),
            ("shift-up", modified(KeyCode::Up, KeyModifiers::SHIFT), "S-Up"),
            ("ctrl-left", modified(KeyCode::Left, KeyModifiers::CONTROL), "C-Left"),
            ("ü", Key::char('ü'), "ü"),
        ] {
            assert_eq!(text.parse(), Ok(key), "{text}");
            assert_eq!(key.label(), label);
        }
    }

    #[test]
    fn what_no_terminal_sends_is_refused() {
        for (text, error) in [
            ("", KeyError::Unknown),
            (" ", KeyError::Unknown),
            ("pagedown", KeyError::Unknown),
            ("f0", KeyError::Unknown),
            ("f025", KeyError::Unknown),
            ("f25", KeyError::Unknown),
            ("ctrl-", KeyError::Unknown),
            ("ctrl-ctrl-a", KeyError::Unknown),
            ("ctrl-i", KeyError::SentAs("tab")),
            ("ctrl-M", KeyError::SentAs("enter")),
            ("ctrl-1", KeyError::Control),
            ("ctrl-shift-a", KeyError::Control),
            ("shift-1", KeyError::Shifted),
            ("shift-space", KeyError::SentAs("space")),
        ] {
            assert_eq!(text.parse::<Key>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_key_is_the_same_however_a_terminal_tells_it() {
        let of = |code, modifiers| Key::of(KeyEvent::new(code, modifiers));
        assert_eq!(of(KeyCode::Char('Q'), KeyModifiers::SHIFT), Key::char('Q'));
        assert_eq!(of(KeyCode::BackTab, KeyModifiers::SHIFT), Key::code(KeyCode::BackTab));
        assert_eq!(of(KeyCode::Tab, KeyModifiers::SHIFT), Key::code(KeyCode::BackTab));
        assert_eq!(of(KeyCode::Char('C'), KeyModifiers::CONTROL), Key::ctrl('c'));
        assert_eq!(of(KeyCode::Char('j'), KeyModifiers::ALT).plain(), Key::char('j'));
        assert!(Key::char('x').is_typed() && !Key::ctrl('x').is_typed());
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(
            prefixes in prop::collection::vec(prop::sample::select(&["ctrl-", "alt-", "shift-"]), 0..3),
            name in prop_oneof![
                any::<char>().prop_map(String::from),
                "[!-~]",
                "f[0-9]{1,2}",
                prop::sample::select(Key::names().collect::<Vec<_>>()).prop_map(str::to_owned),
            ],
        ) {
            if let Ok(key) = format!("{}{name}", prefixes.concat()).parse::<Key>() {
                prop_assert_eq!(key.to_string().parse(), Ok(key));
                prop_assert!(!key.label().is_empty());
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = text.parse::<Key>();
        }
    }
}
