//! Which rows of tables a user wants to see: `word`, `/expression/`, `column:word`, `column>1k`, of
//! conversations also `dport :443` as in ss(8); with `and`, `or`, `not` and parentheses.
//!
//! A filter is parsed once, [`RowFilter::bind`] looks up its columns once per table.

mod conversation_term;
mod quantity;

use std::fmt;

use pmdscope_flows::Flow;
use pmdscope_flows::filter::{Expression, FilterSyntaxError, Parsed, mistake};
use regex::{Regex, RegexBuilder};

use self::conversation_term::ConversationTerm;
use self::quantity::Quantity;
use crate::table::{Column, ColumnNumber, TableRow, TextTable, plain};

/// Most columns that a message lists.
const COLUMNS_MAX: usize = 40;

/// Most bytes of a compiled regular expression, and of what it keeps while it is matched.
const REGEX_BYTES: usize = 1 << 18;

/// What rows must match.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    /// As it was typed.
    text: String,
    terms: Expression<FilterTerm>,
}

#[derive(Clone, Debug)]
enum FilterTerm {
    /// What cells must have.
    Cells(CellTerm),
    /// What conversations must be.
    Conversation(ConversationTerm),
}

#[derive(Clone, Debug)]
struct CellTerm {
    column: Option<String>,
    test: CellTest,
}

#[derive(Clone, Debug)]
enum CellTest {
    /// In lower case.
    Word {
        word: String,
        /// With the name of the column, which is a part of the word where there is no such column.
        whole: String,
    },
    Pattern(Regex),
    Compare(Comparison, Quantity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    const ALL: [(&'static str, Self); 5] = [
        (">=", Self::GreaterOrEqual),
        ("<=", Self::LessOrEqual),
        (">", Self::Greater),
        ("<", Self::Less),
        ("=", Self::Equal),
    ];

    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Equal => a.total_cmp(&b).is_eq(),
            Self::GreaterOrEqual => a >= b,
            Self::Greater => a > b,
        }
    }
}

/// Why a filter is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// It has a mistake.
    Syntax(FilterSyntaxError),
    /// No table has such a column.
    UnknownColumn {
        /// As it was typed.
        name: String,
        /// Those that there are, as users type them, the most similar first.
        columns: Vec<String>,
    },
    /// A column of words.
    Words(&'static str),
    /// A column that is compared with a number of another unit, and what it is.
    Unit(&'static str, &'static str),
    /// Only conversations have this.
    OnlyConversations(&'static str),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The cursor is there.
            Self::Syntax(error) => f.write_str(error.reason()),
            Self::UnknownColumn { name, columns } if columns.is_empty() => {
                write!(f, "no column '{name}'")
            }
            Self::UnknownColumn { name, columns } => {
                let named = columns.iter().take(COLUMNS_MAX).map(String::as_str);
                let named = named.collect::<Vec<_>>().join(", ");
                let more = columns.len().saturating_sub(COLUMNS_MAX);
                let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                write!(f, "no column '{name}'; there are {named}{more}")
            }
            Self::Words(title) => write!(f, "{title} has words: use a colon"),
            Self::Unit(title, wanted) => write!(f, "{title} is {wanted}"),
            Self::OnlyConversations(word) => write!(f, "only conversations have '{word}'"),
        }
    }
}

impl std::error::Error for FilterError {}

impl FilterError {
    /// In words, with the place of the mistake.
    pub fn with_place(&self) -> String {
        match self {
            Self::Syntax(error) => error.to_string(),
            other => other.to_string(),
        }
    }

    /// None of these columns has that name.
    fn unknown<'a>(name: &str, columns: impl Iterator<Item = &'a Column>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for typed in columns.map(Column::typed_name) {
            if !names.contains(&typed) {
                names.push(typed);
            }
        }
        let alike = |typed: &String| {
            let pairs = typed.chars().zip(name.chars());
            pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
        };
        names.sort_by_key(|typed| std::cmp::Reverse(alike(typed)));
        Self::UnknownColumn { name: name.to_owned(), columns: names }
    }
}

/// What is before a colon can only be meant as the name of a column: addresses, places in source
/// code and PCI devices have colons as well.
fn is_column_like(name: &str) -> bool {
    let letters = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '/');
    name.starts_with(char::is_alphabetic)
        && name.chars().all(letters)
        && !name.chars().all(|letter| letter.is_ascii_hexdigit())
}

impl RowFilter {
    /// Parses the typed text.
    ///
    /// # Errors
    /// Which part of it means nothing.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let terms = Expression::parse(text, FilterTerm::parse).map_err(FilterError::Syntax)?;
        Ok(Self { text: text.to_owned(), terms })
    }

    /// Whether these tables have the columns that it names, with numbers in the units that it compares with,
    /// and conversations if it is about them.
    ///
    /// # Errors
    /// The first that no table has.
    pub fn check(&self, tables: &[TextTable]) -> Result<(), FilterError> {
        self.terms.tests().into_iter().try_for_each(|term| match term {
            FilterTerm::Cells(term) => term.check(tables),
            FilterTerm::Conversation(term) => term.check(&self.text, tables),
        })
    }

    /// The filter for the rows of one table.
    pub fn bind(&self, columns: &[Column]) -> TableFilter<'_> {
        let terms = self.terms.map(&|term| match term {
            FilterTerm::Cells(term) => term.bind(columns),
            FilterTerm::Conversation(term) => BoundTerm::Conversation(term),
        });
        TableFilter { terms }
    }
}

impl FilterTerm {
    fn parse(input: &mut &str) -> Parsed<Self> {
        match ConversationTerm::parse(input) {
            Some(term) => Ok(Self::Conversation(term)),
            None => CellTerm::parse(input).map(Self::Cells),
        }
    }
}

/// Length of the word at the beginning: up to a blank, or to a parenthesis that is not opened in it.
fn word_length(text: &str) -> usize {
    let mut open = 0_usize;
    let ends = |letter: char| match letter {
        '(' => {
            open += 1;
            false
        }
        ')' if open > 0 => {
            open -= 1;
            false
        }
        letter => letter == ')' || letter.is_whitespace(),
    };
    text.find(ends).unwrap_or(text.len())
}

impl CellTerm {
    fn parse(input: &mut &str) -> Parsed<Self> {
        let body = *input;
        let (word, rest) = body.split_at(word_length(body));
        if matches!(word, "" | "and" | "or" | "&" | "&&" | "|" | "||") {
            return mistake(input, "expected a word, /expression/, column:word or column>number");
        }
        let operator =
            word.find([':', '<', '>', '=']).filter(|at| *at > 0 && !word.starts_with('/'));
        let column = operator.map(|at| word[..at].to_owned());
        let value = operator.map_or(0, |at| at + usize::from(word[at..].starts_with(':')));
        if let Some(pattern) = body[value..].strip_prefix('/') {
            *input = pattern;
            return Ok(Self { column, test: CellTest::Pattern(expression(input)?) });
        }
        *input = rest;
        let compared = Comparison::ALL
            .iter()
            .find(|(sign, _)| column.is_some() && word[value..].starts_with(sign));
        let test = match compared {
            Some((sign, comparison)) => {
                let number = &word[value + sign.len()..];
                let Some(quantity) = Quantity::parse(number) else {
                    return mistake(&body[value + sign.len()..], format!("no number: '{number}'"));
                };
                CellTest::Compare(*comparison, quantity)
            }
            None => {
                CellTest::Word { word: word[value..].to_lowercase(), whole: word.to_lowercase() }
            }
        };
        Ok(Self { column, test })
    }

    fn check(&self, tables: &[TextTable]) -> Result<(), FilterError> {
        let Some(name) = &self.column else { return Ok(()) };
        if matches!(self.test, CellTest::Word { .. }) && !is_column_like(name) {
            return Ok(());
        }
        let columns = tables.iter().flat_map(|table| &table.columns);
        let mut error = FilterError::unknown(name, columns);
        for columns in tables.iter().map(|table| &table.columns) {
            let Some((at, _)) = find(columns, name) else { continue };
            match &self.test {
                CellTest::Compare(_, quantity) => match quantity.of_column(&columns[at]) {
                    Ok(_) => return Ok(()),
                    Err(reason) => error = reason,
                },
                CellTest::Word { .. } | CellTest::Pattern(_) => return Ok(()),
            }
        }
        Err(error)
    }

    fn bind(&self, columns: &[Column]) -> BoundTerm<'_> {
        let at = self.column.as_ref().map(|name| find(columns, name));
        match (&self.test, at) {
            (CellTest::Word { word, .. }, Some(Some((at, _)))) => BoundTerm::WordIn(at, word),
            (CellTest::Word { whole, .. }, _) => BoundTerm::Word(whole),
            (CellTest::Pattern(pattern), None) => BoundTerm::Pattern(pattern),
            (CellTest::Pattern(pattern), Some(Some((at, _)))) => BoundTerm::PatternIn(at, pattern),
            (CellTest::Compare(comparison, quantity), Some(Some((at, which)))) => {
                match quantity.of_column(&columns[at]) {
                    Ok(number) => BoundTerm::Compare(at, which, *comparison, number * which.factor),
                    Err(_) => BoundTerm::Never,
                }
            }
            (CellTest::Pattern(_) | CellTest::Compare(..), _) => BoundTerm::Never,
        }
    }
}

/// A regular expression up to its last `/`: the one before a blank or a parenthesis.
fn expression(input: &mut &str) -> Parsed<Regex> {
    let text = *input;
    let ends = |letter: char| letter.is_whitespace() || letter == ')';
    let mut escaped = false;
    let mut end = None;
    for (at, letter) in text.char_indices() {
        let rest = &text[at + letter.len_utf8()..];
        if letter == '/' && !escaped && rest.chars().next().is_none_or(ends) {
            end = Some((at, rest));
            break;
        }
        escaped = letter == '\\' && !escaped;
    }
    let Some((end, rest)) = end else {
        return mistake("", "the regular expression has no / at its end");
    };
    let pattern = &text[..end];
    *input = rest;
    let regex = RegexBuilder::new(pattern)
        .case_insensitive(!has_capital(pattern))
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .build();
    regex.or_else(|error| mistake(text, format!("regular expression: {}", reason(&error))))
}

/// Classes such as `\S` do not count.
fn has_capital(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            letter if letter.is_uppercase() => return true,
            _ => {}
        }
    }
    false
}

/// In one line.
fn reason(error: &regex::Error) -> String {
    if let regex::Error::CompiledTooBig(_) = error {
        return "too large".to_owned();
    }
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// The column that a user calls so, and the number of it that is meant: by a title that it may have,
/// in any case and without blanks and signs, where `/s` may be left out; or by the start of the name of
/// only one column.
fn find(columns: &[Column], name: &str) -> Option<(usize, ColumnNumber)> {
    let name = plain(name);
    let titles = || {
        let numbered = columns.iter().enumerate();
        let titles = numbered
            .map(|(at, column)| column.titles().map(move |(title, number)| (title, at, number)));
        titles.flatten()
    };
    let names = || {
        columns.iter().enumerate().filter_map(|(at, column)| {
            column.titles().next().map(|(title, number)| (title, at, number))
        })
    };
    let is_it = |(title, ..): &(&str, usize, ColumnNumber)| plain(title) == name;
    let without = |(title, ..): &(&str, usize, ColumnNumber)| {
        title.strip_suffix("/s").is_some_and(|title| plain(title) == name)
    };
    let begins = |(title, ..): &(&str, usize, ColumnNumber)| {
        !name.is_empty() && plain(title).starts_with(&name)
    };
    let found =
        names().find(is_it).or_else(|| titles().find(is_it)).or_else(|| titles().find(without));
    let found = found.or_else(|| {
        let mut matching = names().filter(begins);
        matching.next().filter(|_| matching.next().is_none())
    });
    found.map(|(_, at, number)| (at, number))
}

/// A filter of the rows of one table.
#[derive(Debug)]
pub struct TableFilter<'a> {
    terms: Expression<BoundTerm<'a>>,
}

#[derive(Debug)]
enum BoundTerm<'a> {
    Word(&'a str),
    WordIn(usize, &'a str),
    Pattern(&'a Regex),
    PatternIn(usize, &'a Regex),
    Compare(usize, ColumnNumber, Comparison, f64),
    Conversation(&'a ConversationTerm),
    /// The table has no such column.
    Never,
}

impl TableFilter<'_> {
    /// The row matches.
    pub fn passes(&self, row: &TableRow) -> bool {
        self.terms.holds(&mut |term| term.passes(row, None)) == Some(true)
    }

    /// The row matches, which is of this conversation of an app.
    pub fn passes_conversation(&self, row: &TableRow, app: &str, flow: &Flow) -> bool {
        self.terms.holds(&mut |term| term.passes(row, Some((app, flow)))) == Some(true)
    }
}

/// One of the texts of a row has a word, which is in lower case.
fn has_word(row: &TableRow, word: &str) -> bool {
    any_text(row, &|text| text.to_lowercase().contains(word))
}

fn any_text(row: &TableRow, holds: &dyn Fn(&str) -> bool) -> bool {
    row.cells.iter().map(|cell| &cell.text).chain(&row.notes).any(|text| holds(text))
}

impl BoundTerm<'_> {
    /// `None` if that is unknown: an unknown value is neither more nor less.
    fn passes(&self, row: &TableRow, conversation: Option<(&str, &Flow)>) -> Option<bool> {
        let text = |at: usize| row.cells.get(at).map_or("", |cell| cell.text.as_str());
        Some(match self {
            Self::Word(word) => has_word(row, word),
            Self::WordIn(at, word) => text(*at).to_lowercase().contains(word),
            Self::Pattern(pattern) => any_text(row, &|text| pattern.is_match(text)),
            Self::PatternIn(at, pattern) => pattern.is_match(text(*at)),
            Self::Compare(at, which, comparison, number) => {
                comparison.holds(row.cells.get(*at)?.number_of(*which)?, *number)
            }
            Self::Conversation(term) => match conversation {
                Some((app, flow)) => term.holds(app, flow)?,
                None => term.is_in(row),
            },
            Self::Never => return None,
        })
    }
}

impl TextTable {
    /// The column that a user calls so, as in filters.
    ///
    /// # Errors
    /// Which columns there are.
    pub fn column(&self, name: &str) -> Result<&Column, FilterError> {
        let found = find(&self.columns, name).map(|(at, _)| &self.columns[at]);
        found.ok_or_else(|| FilterError::unknown(name, self.columns.iter()))
    }

    /// Keeps the rows that match. Those of conversations were filtered as they were made.
    pub fn filter(&mut self, filter: &RowFilter) {
        if !self.of_conversations {
            let filter = filter.bind(&self.columns);
            self.rows.retain(|row| filter.passes(row));
        }
    }
}

#[cfg(test)]
mod tests;
