//! Ways to complete what is typed on the command line.

use pmdscope_render::{Column, TextTable};

use super::{CommandScope, Meant, ORDERS, OWN_COLUMNS, Verb, actions, meant};
use crate::state::{HelpPage, PageTab};

/// What may stand in place of the last word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completions {
    /// Where that word begins, bytes.
    pub(crate) start: usize,
    /// What may stand there.
    pub(crate) words: Vec<String>,
    /// Behind a column of a filter comes a sign, behind other words a space.
    pub(crate) spaced: bool,
}

/// The ways to complete the last word of that text.
pub(crate) fn complete(text: &str, scope: &CommandScope) -> Completions {
    let begin = text
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let before: Vec<&str> = text[..begin].split_whitespace().collect();
    let Some((first, others)) = before.split_first() else {
        let start = begin + prefix(&text[begin..], ':');
        return beginning(start, &text[start..], names());
    };
    let typed = &text[begin..];
    match (meant(&first.trim_start_matches(':').to_lowercase()), others) {
        (Ok(Meant::Verb(Verb::Filter)), _) => {
            let start = begin + prefix(typed, '!');
            let found = beginning(start, &text[start..], columns(&scope.tables));
            Completions { spaced: false, ..found }
        }
        (Ok(Meant::Verb(Verb::Sort)), []) => beginning(begin, typed, columns(scope.table())),
        (Ok(Meant::Verb(Verb::Sort)), [_]) => {
            beginning(begin, typed, ORDERS.map(str::to_owned).to_vec())
        }
        (Ok(Meant::Verb(Verb::Columns)), others) => {
            let mut words = columns(scope.table());
            words.retain(|word| !others.contains(&word.as_str()));
            if others.is_empty() {
                words.push(OWN_COLUMNS.to_owned());
            }
            beginning(begin, typed, words)
        }
        (Ok(Meant::Verb(Verb::Help)), []) => {
            let pages = HelpPage::ALL.map(|page| page.title().to_lowercase());
            beginning(begin, typed, pages.to_vec())
        }
        _ => Completions { start: begin, ..Completions::default() },
    }
}

/// Bytes of the signs at the beginning of a word.
fn prefix(word: &str, sign: char) -> usize {
    word.len() - word.trim_start_matches(sign).len()
}

/// All first words: those of the display, pages, actions.
fn names() -> Vec<String> {
    let verbs = Verb::ALL.into_iter().map(|verb| verb.name().to_owned());
    let pages = PageTab::ALL.into_iter().map(PageTab::name);
    let actions = actions().map(|named| named.name.to_owned());
    verbs.chain(pages).chain(actions).collect()
}

/// Names of the columns of tables.
fn columns<'a>(tables: impl IntoIterator<Item = &'a TextTable>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in tables.into_iter().flat_map(|table| &table.columns).map(Column::typed_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Those that begin as it was typed, in upper or lower case.
fn beginning(start: usize, typed: &str, mut words: Vec<String>) -> Completions {
    let typed = typed.to_lowercase();
    words.retain(|word| word.starts_with(&typed));
    Completions { start, words, spaced: true }
}
