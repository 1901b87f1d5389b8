//! `[top.keys]`: the keys of `pmdscope top`.

use std::fmt::Write;
use std::ops::Range;

use pmdscope_tui::keys::{Key, KeyConflict, KeyContext, KeyError, NamedAction, named_actions};
use toml::Spanned;
use toml::Value;
use toml::de::DeValue;

use crate::config::Config;
use crate::config::error::{Source, meant, nearest};
use crate::config::key::ConfigPart;
use crate::config::kind::{InvalidValue, Kind, List, Text};

/// The keys of each action.
pub(super) struct TopKeys;

/// An action that has other keys in the file.
struct Changed {
    context: KeyContext,
    named: &'static NamedAction,
    span: Range<usize>,
    keys: Vec<Key>,
}

/// One key as text, or a list of keys.
struct Keys;

impl Kind for Keys {
    type Value = Vec<Key>;

    fn description(&self) -> String {
        r#"a key, such as "q", "Q", "ctrl-x", "f2", "pgdn", "shift-tab" or "space", or a list of keys"#
            .to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Vec<Key>, InvalidValue> {
        match value {
            DeValue::Array(_) => List(key()).read(value),
            one => Ok(vec![key().read(one)?]),
        }
    }

    fn write(&self, value: &Vec<Key>) -> Option<Value> {
        List(key()).write(value)
    }
}

fn key() -> Text<Key> {
    let parse = |text: &str| {
        text.parse::<Key>().map_err(|why| match why {
            KeyError::Unknown => format!("{why}; {}", meant(text, Key::names())),
            why => why.to_string(),
        })
    };
    Text { what: "a key", parse, show: Key::to_string }
}

impl TopKeys {
    /// The action with the keys that the file gives it; what is wrong is noted in `source`.
    fn changed(
        &self,
        source: &mut Source<'_>,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Changed> {
        let Some((context, named)) =
            named_actions().find(|(_, named)| named.name == &**name.get_ref())
        else {
            let known = named_actions().map(|(_, named)| named.name);
            let meant = nearest(name.get_ref(), known).map_or_else(
                || "pmdscope top --print-config --config none lists all".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            let text = format!("there is no action {}.{}; {meant}", self.name(), name.get_ref());
            source.blame(&name.span(), text);
            return None;
        };
        match Keys.read(value.get_ref()) {
            Ok(keys) => Some(Changed { context, named, span: value.span(), keys }),
            Err(InvalidValue { span, why }) => {
                let span = span.unwrap_or_else(|| value.span());
                let why = if why.is_empty() { why } else { format!(": {why}") };
                let text = format!(
                    "{}.{} cannot be {}{why}; it must be {}, for instance {}",
                    self.name(),
                    named.name,
                    source.quote(&span),
                    Keys.description(),
                    example(named),
                );
                source.blame(&span, text);
                None
            }
        }
    }
}

/// A line of the file: an action with its keys by default.
fn example(named: &NamedAction) -> String {
    format!("{} = {}", named.name, written(named.default_keys))
}

fn written(keys: &[Key]) -> String {
    Keys.write(&keys.to_vec()).map(|value| value.to_string()).unwrap_or_default()
}

impl ConfigPart for TopKeys {
    fn name(&self) -> &'static str {
        "top.keys"
    }

    fn read(&self, source: &mut Source<'_>, value: &Spanned<DeValue<'_>>, into: &mut Config) {
        let Some(table) = value.get_ref().as_table() else {
            let text = "top.keys must be a table: write [top.keys] above its keys".to_owned();
            return source.blame(&value.span(), text);
        };
        let changed = table.iter().filter_map(|(name, value)| self.changed(source, name, value));
        let changed = changed.collect::<Vec<_>>();
        for Changed { named, keys, .. } in &changed {
            into.top.keys.set(named, keys.clone());
        }
        for Changed { context, named, span, keys } in &changed {
            // Of two that are in the file, the lower one is reported.
            let is_above = |other: &str| {
                changed.iter().any(|c| c.named.name == other && c.span.start > span.start)
            };
            for key in keys {
                let why = match into.top.keys.conflict(*context, named, *key) {
                    Some(KeyConflict::Taken(other)) if !is_above(other) => {
                        format!("it is a key of {other}; give {other} another key")
                    }
                    Some(KeyConflict::Typed) => "it types a character there".to_owned(),
                    Some(KeyConflict::Quits) => "it always quits".to_owned(),
                    Some(KeyConflict::Taken(_)) | None => continue,
                };
                let text = format!("{}.{} cannot be \"{key}\": {why}", self.name(), named.name);
                source.blame(span, text);
            }
        }
    }

    fn print(&self, out: &mut String, from: &mut Config) {
        let _ = writeln!(out, "\n# Each is {}\n[{}]", Keys.description(), self.name());
        for (_, named) in named_actions() {
            let keys = written(from.top.keys.keys(named));
            let _ = writeln!(out, "# {}\n{} = {keys}", capitalized(named.meaning), named.name);
        }
    }

    #[cfg(test)]
    fn rows(&self) -> Vec<String> {
        let row = |(_, named): (KeyContext, &NamedAction)| {
            let (meaning, keys) = (capitalized(named.meaning), written(named.default_keys));
            format!("| `{}` | {meaning} | `{keys}` |", named.name)
        };
        named_actions().map(row).collect()
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(String, String)> {
        let example = |(_, named): (KeyContext, &NamedAction)| {
            let name = format!("{}.{}", self.name(), named.name);
            (format!("{}.{}", self.name(), example(named)), name)
        };
        named_actions().map(example).collect()
    }
}

/// As a sentence begins.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
