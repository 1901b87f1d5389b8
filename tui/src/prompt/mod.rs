//! What can be typed on the command line of the display: pages, what tables show, and all actions that
//! have keys.

mod completion;

use pmdscope_render::{Column, SortOrder, TextTable};
use pmdscope_telemetry::FleetState;

pub(crate) use self::completion::complete;
use crate::action::{Action, ColumnAction};
use crate::keys::{KeyContext, NamedAction, named_actions};
use crate::state::{HelpPage, PageTab, ViewFilter, ViewState};
use crate::tables;

/// What follows `columns` to show a table as it was at first.
const OWN_COLUMNS: &str = "default";

/// What follows a column to sort by: lowest first, highest first.
const ORDERS: [&str; 2] = ["asc", "desc"];

/// A command with words behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Filter,
    Sort,
    Columns,
    Help,
    Quit,
}

impl Verb {
    pub(crate) const ALL: [Self; 5] =
        [Self::Filter, Self::Sort, Self::Columns, Self::Help, Self::Quit];

    fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Sort => "sort",
            Self::Columns => "columns",
            Self::Help => "help",
            Self::Quit => "quit",
        }
    }

    /// What is typed, with the words behind it.
    pub(crate) fn usage(self) -> &'static str {
        match self {
            Self::Filter => "filter [TERM ...]",
            Self::Sort => "sort [COLUMN [asc]]",
            Self::Columns => "columns [COLUMN ...]",
            Self::Help => "help [PAGE]",
            Self::Quit => "quit",
        }
    }

    /// What it does.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Filter => "show rows that match all terms; alone: all rows",
            Self::Sort => "highest first, or lowest; alone: the table's order",
            Self::Columns => "show these; default: its own; alone: the window",
            Self::Help => "keys, filters, commands, signs",
            Self::Quit => "quit; also q",
        }
    }
}

/// What a command does.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// What a key does.
    Act(Action),
    /// Shows a page of the help.
    Help(HelpPage),
    /// Shows the rows that match.
    Filter(ViewFilter),
    /// Sorts a table, or leaves it in its own order.
    Sort(&'static str, Option<SortOrder>),
    /// Has a table show these columns, or its own.
    Columns(&'static str, Option<Vec<&'static str>>),
}

/// What the words of a command may name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandScope {
    /// The tables of the shown page, with all of their columns.
    pub(crate) tables: Vec<TextTable>,
    /// The title of the selected one.
    pub(crate) selected: Option<&'static str>,
}

impl CommandScope {
    /// That of the shown page.
    pub(crate) fn of(view: &ViewState, fleet: &FleetState) -> Self {
        let selected = tables::selected_table(view, fleet).map(|table| table.title);
        Self { tables: tables::of(view.tab, fleet, view), selected }
    }

    /// The selected table.
    fn table(&self) -> Option<&TextTable> {
        self.tables.iter().find(|table| Some(table.title) == self.selected)
    }
}

/// Actions that keys of pages have: each is a command of that name.
pub(crate) fn actions() -> impl Iterator<Item = &'static NamedAction> {
    let here = named_actions().filter(|(context, _)| context.overlaps(KeyContext::Page));
    let is_verb = |name: &str| Verb::ALL.iter().any(|verb| verb.name() == name);
    here.map(|(_, named)| named).filter(move |named| !is_verb(named.name))
}

/// The command that is typed; `None` for an empty line.
///
/// # Errors
/// Why it is none.
pub(crate) fn parse(text: &str, scope: &CommandScope) -> Result<Option<Command>, String> {
    let text = text.trim().trim_start_matches(':').trim_start();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (word, rest) = (word.to_lowercase(), rest.trim());
    if word.is_empty() {
        return Ok(None);
    }
    let command = match meant(&word)? {
        Meant::Verb(Verb::Filter) => Command::Filter(ViewFilter::checked(rest, &scope.tables)?),
        Meant::Verb(Verb::Sort) => sort(rest, scope)?,
        Meant::Verb(Verb::Columns) => columns(rest, scope)?,
        Meant::Verb(Verb::Help) => help(rest)?,
        _ if !rest.is_empty() => return Err(format!("nothing can follow {word}")),
        Meant::Verb(Verb::Quit) => Command::Act(Action::Quit),
        Meant::Page(tab) => Command::Act(Action::Go(tab)),
        Meant::Action(named) => Command::Act(named.action.clone()),
    };
    Ok(Some(command))
}

/// What the first word of a command names.
enum Meant {
    Verb(Verb),
    Page(PageTab),
    Action(&'static NamedAction),
}

/// The beginning is enough for pages and commands of the display if nothing else of these begins so.
/// Actions are written in full: some begin something outside of the display.
fn meant(word: &str) -> Result<Meant, String> {
    let verb = |is_it: &dyn Fn(&str) -> bool| {
        Verb::ALL.into_iter().filter(|verb| is_it(verb.name())).map(Meant::Verb).collect::<Vec<_>>()
    };
    let page = |is_it: &dyn Fn(&str) -> bool| {
        PageTab::ALL
            .into_iter()
            .filter(|tab| is_it(&tab.name()))
            .map(Meant::Page)
            .collect::<Vec<_>>()
    };
    let is_word = |name: &str| name == word;
    let action = actions().find(|named| named.name == word).map(Meant::Action);
    let mut exact = verb(&is_word).into_iter().chain(page(&is_word)).chain(action);
    if let Some(meant) = exact.next() {
        return Ok(meant);
    }
    if matches!(word, "q" | "q!") {
        return Ok(Meant::Verb(Verb::Quit));
    }
    let begins = |name: &str| name.starts_with(word);
    let mut beginning = verb(&begins);
    beginning.extend(page(&begins));
    let several = beginning.len() > 1;
    match beginning.pop().filter(|_| !several) {
        Some(meant) => Ok(meant),
        None if several => Err(format!("'{word}' is the beginning of several commands")),
        None => Err(format!("no command '{word}'")),
    }
}

fn table(scope: &CommandScope) -> Result<&TextTable, String> {
    scope.table().ok_or_else(|| "there is no table with rows on this page".to_owned())
}

fn sort(rest: &str, scope: &CommandScope) -> Result<Command, String> {
    let table = table(scope)?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (column, descending) = match words[..] {
        [] => return Ok(Command::Sort(table.title, None)),
        [column] | [column, "desc"] => (column, true),
        [column, "asc"] => (column, false),
        _ => return Err(format!("expected {}", Verb::Sort.usage())),
    };
    let column = table.column(column).map_err(|why| why.to_string())?.name();
    Ok(Command::Sort(table.title, Some(SortOrder { column, descending })))
}

fn columns(rest: &str, scope: &CommandScope) -> Result<Command, String> {
    if rest.is_empty() {
        return Ok(Command::Act(Action::Columns(ColumnAction::Window)));
    }
    let table = table(scope)?;
    if rest == OWN_COLUMNS {
        return Ok(Command::Columns(table.title, None));
    }
    let separated = |letter: char| letter.is_whitespace() || letter == ',';
    let words = rest.split(separated).filter(|word| !word.is_empty());
    let names: Result<Vec<_>, _> = words.map(|word| table.column(word).map(Column::name)).collect();
    Ok(Command::Columns(table.title, Some(names.map_err(|why| why.to_string())?)))
}

fn help(rest: &str) -> Result<Command, String> {
    let mut pages = HelpPage::ALL.into_iter();
    let page = pages.find(|page| page.title().to_lowercase().starts_with(&rest.to_lowercase()));
    page.map(Command::Help).ok_or_else(|| {
        let names = HelpPage::ALL.map(|page| page.title().to_lowercase());
        format!("the help has the pages {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests;
