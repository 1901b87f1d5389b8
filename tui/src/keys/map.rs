//! The keys of all actions, as they are configured.

use std::collections::BTreeMap;

use crossterm::event::{KeyEvent, KeyEventKind};

use super::table::{KeyBinding, KeyContext, NamedAction, named_actions};
use super::{ALWAYS_QUITS, Key};
use crate::action::Action;

/// Columns of keys in the help.
pub(crate) const LABEL: usize = 14;

/// So many keys with consecutive digits are shown as a range.
const RANGE_MIN: usize = 3;

/// Keys with digits; 0 is behind 9.
const DIGITS: usize = 10;

/// Actions, and what their keys do together.
pub(crate) type Hint<'a> = (&'a [Action], &'a str);

/// Which keys do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyMap {
    /// The keys of actions that have others than by default, by the name of the action.
    changed: BTreeMap<&'static str, Vec<Key>>,
}

/// A key that cannot have an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyConflict {
    /// Another action has it.
    Taken(&'static str),
    /// It types a character where the action is.
    Typed,
    /// It ends the program, whatever is configured.
    Quits,
}

impl KeyMap {
    /// Gives an action these keys instead of its own.
    pub fn set(&mut self, named: &NamedAction, mut keys: Vec<Key>) {
        if named.action == Action::Quit && !keys.contains(&ALWAYS_QUITS) {
            keys.push(ALWAYS_QUITS);
        }
        self.changed.insert(named.name, keys);
    }

    /// The keys of an action.
    pub fn keys(&self, named: &'static NamedAction) -> &[Key] {
        self.changed.get(named.name).map_or(named.default_keys, Vec::as_slice)
    }

    /// Why an action cannot have a key that it has; `None` where it can.
    pub fn conflict(
        &self,
        context: KeyContext,
        named: &NamedAction,
        key: Key,
    ) -> Option<KeyConflict> {
        if key == ALWAYS_QUITS && named.action != Action::Quit {
            return Some(KeyConflict::Quits);
        }
        if context.takes_text() && key.is_typed() {
            return Some(KeyConflict::Typed);
        }
        let mut others = named_actions().filter(|(_, other)| other.name != named.name);
        let taken = others
            .find(|(other, action)| other.overlaps(context) && self.keys(action).contains(&key));
        taken.map(|(_, other)| KeyConflict::Taken(other.name))
    }

    /// What a key does in a context.
    pub(crate) fn action_of(&self, event: KeyEvent, context: KeyContext) -> Option<Action> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let key = Key::of(event);
        self.action(key, context).or_else(|| self.action(key.plain(), context))
    }

    fn action(&self, key: Key, context: KeyContext) -> Option<Action> {
        if key == ALWAYS_QUITS {
            return Some(Action::Quit);
        }
        let mut actions = named_actions().filter(|(of, _)| of.overlaps(context));
        let found = actions.find(|(_, named)| self.keys(named).contains(&key));
        found.map(|(_, named)| named.action.clone())
    }

    /// The first key of an action on pages, as the display names it; `None` if it has none.
    pub fn label(&self, action: &Action) -> Option<String> {
        self.label_in(KeyContext::Page, action)
    }

    /// The same in another context.
    pub fn label_in(&self, context: KeyContext, action: &Action) -> Option<String> {
        let mut actions = named_actions().filter(|(of, _)| of.overlaps(context));
        let (_, named) = actions.find(|(_, named)| named.action == *action)?;
        self.keys(named).first().map(|key| key.label())
    }

    /// What keys do, as a phrase: for each entry the first keys of its actions, and what they do. What
    /// has no key is left out.
    pub(crate) fn phrase(&self, context: KeyContext, entries: &[Hint<'_>]) -> String {
        self.hints(context, entries).join(", ")
    }

    /// The same behind a text; nothing if no action has a key.
    pub(crate) fn remark(&self, context: KeyContext, entries: &[Hint<'_>]) -> String {
        match self.phrase(context, entries) {
            phrase if phrase.is_empty() => phrase,
            phrase => format!("  ({phrase})"),
        }
    }

    /// The same as a list, whose keys may be commas.
    pub(crate) fn list(&self, context: KeyContext, entries: &[Hint<'_>]) -> String {
        self.hints(context, entries).join("  ")
    }

    fn hints(&self, context: KeyContext, entries: &[Hint<'_>]) -> Vec<String> {
        let hint = |(actions, meaning): &Hint<'_>| {
            let keys = self.labels(context, actions);
            (!keys.is_empty()).then(|| format!("{keys} {meaning}"))
        };
        entries.iter().filter_map(hint).collect()
    }

    /// The first keys of actions; empty if none of them has one.
    pub(crate) fn labels(&self, context: KeyContext, actions: &[Action]) -> String {
        let keys = actions.iter().filter_map(|action| self.label_in(context, action));
        ranges(&keys.collect::<Vec<_>>())
    }

    /// A line of the help: all keys, or the first of each action if those are too many, and what they do.
    /// Actions without a key are left out; `None` if no action has one.
    pub(crate) fn help_line(&self, line: &'static KeyBinding) -> Option<(String, String)> {
        let with_keys = || line.actions.iter().filter(|named| !self.keys(named).is_empty());
        let label = |most: usize| {
            let keys = with_keys().flat_map(|named| self.keys(named).iter().take(most));
            ranges(&keys.map(|key| key.label()).collect::<Vec<_>>())
        };
        let meanings = || with_keys().map(|named| named.meaning).collect::<Vec<_>>().join("; ");
        let text = match line.help {
            Some(help) if with_keys().count() == line.actions.len() => help.to_owned(),
            _ => meanings(),
        };
        match label(usize::MAX) {
            all if all.is_empty() => None,
            all if all.chars().count() <= LABEL => Some((all, text)),
            _ => Some((label(1), text)),
        }
    }
}

/// Labels with spaces between them; consecutive digits as a range.
fn ranges(labels: &[String]) -> String {
    let follows = |before: &String, after: &String| match (before.as_bytes(), after.as_bytes()) {
        ([b'9'], [b'0']) => true,
        ([a @ b'0'..=b'9'], [b @ b'0'..=b'9']) => a + 1 == *b,
        _ => false,
    };
    let run = |run: &[String]| match run {
        run if run.len() == DIGITS => "0-9".to_owned(),
        [first, .., last] if run.len() >= RANGE_MIN => format!("{first}-{last}"),
        run => run.join(" "),
    };
    labels.chunk_by(follows).map(run).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::keys::BINDINGS;

    fn find(name: &str) -> (KeyContext, &'static NamedAction) {
        named_actions().find(|(_, named)| named.name == name).unwrap()
    }

    fn map(changes: &[(&str, &[&str])]) -> KeyMap {
        let mut map = KeyMap::default();
        for (name, keys) in changes {
            let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
            map.set(find(name).1, keys);
        }
        map
    }

    /// All keys that cannot have their actions.
    fn conflicts(map: &KeyMap) -> Vec<(&'static str, String, KeyConflict)> {
        let all = named_actions().flat_map(|(context, named)| {
            map.keys(named).iter().filter_map(move |key| {
                Some((named.name, key.to_string(), map.conflict(context, named, *key)?))
            })
        });
        all.collect()
    }

    #[test]
    fn every_action_has_a_name_of_its_own_a_meaning_and_a_key() {
        let mut names = BTreeSet::new();
        for (_, named) in named_actions() {
            let name = named.name;
            assert!(names.insert(name), "{name}");
            assert!(name.bytes().all(|b| b"-abcdefghijklmnopqrstuvwxyz0123456789".contains(&b)));
            assert!(!named.meaning.is_empty() && !named.default_keys.is_empty(), "{name}");
        }
    }

    #[test]
    fn no_default_key_has_two_meanings() {
        assert_eq!(conflicts(&KeyMap::default()), []);
    }

    #[test]
    fn a_key_is_given_to_one_action() {
        let taken = map(&[("filter", &["q"])]);
        assert_eq!(
            conflicts(&taken),
            [
                ("filter", "q".to_owned(), KeyConflict::Taken("quit")),
                ("quit", "q".to_owned(), KeyConflict::Taken("filter")),
            ]
        );
        assert_eq!(conflicts(&map(&[("filter", &["q"]), ("quit", &["x"])])), []);
        assert_eq!(conflicts(&map(&[("attach", &["esc"]), ("back", &["B"])])), []);
        let typed = map(&[("filter-apply", &["x"]), ("suspend", &["S"])]);
        let typed = conflicts(&typed).into_iter().map(|(name, _, why)| (name, why));
        let expected = [("suspend", KeyConflict::Typed), ("filter-apply", KeyConflict::Typed)];
        assert_eq!(typed.collect::<Vec<_>>(), expected);
        let everywhere = conflicts(&map(&[("suspend", &["esc"])]));
        assert_eq!(everywhere.len(), 6, "{everywhere:?}");
    }

    #[test]
    fn control_c_quits_whatever_is_configured() {
        let map = map(&[("quit", &["x"])]);
        assert_eq!(map.keys(find("quit").1), [Key::char('x'), ALWAYS_QUITS]);
        let taken = self::map(&[("help", &["ctrl-c"])]);
        assert!(conflicts(&taken).contains(&("help", "ctrl-c".to_owned(), KeyConflict::Quits)));
        let typed = [KeyContext::Filter, KeyContext::Prompt, KeyContext::Capture];
        for context in typed.into_iter().chain([KeyContext::Question]) {
            assert_eq!(taken.action(ALWAYS_QUITS, context), Some(Action::Quit));
        }
    }

    #[test]
    fn labels_are_those_of_the_mapped_keys() {
        let pages = &BINDINGS[0];
        let help = |map: &KeyMap, line| map.help_line(line).unwrap_or_default();
        assert_eq!(help(&KeyMap::default(), pages).0, "0-9 Tab S-Tab");
        let map = map(&[("page-ports", &["f2"]), ("page-raw", &[]), ("filter", &[])]);
        assert_eq!(help(&map, pages).0, "1 F2 3-9 Tab S-Tab");
        assert!(!help(&map, pages).1.contains("page Raw"));
        let filter = BINDINGS.iter().find(|line| line.actions[0].name == "filter").unwrap();
        assert_eq!(map.help_line(filter), None);
        let hints = map.list(
            KeyContext::Page,
            &[(&[Action::Filter], "filter"), (&[Action::Help, Action::Quit], "help, quit")],
        );
        assert_eq!(hints, "? q help, quit");
    }
}
