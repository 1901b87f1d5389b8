//! Which rows of tables a user wants to see: `word`, `/expression/`, `column:word`, `column>1k`, and
//! each of them with `!` before it.
//!
//! A filter is parsed once, [`RowFilter::bind`] looks up its columns once per table.

mod quantity;

use std::fmt;

use regex::{Regex, RegexBuilder};

use self::quantity::Quantity;
use crate::table::{Column, ColumnNumber, TableRow, TextTable, plain};

/// Most bytes of a compiled regular expression, and of what it keeps while it is matched.
const REGEX_BYTES: usize = 1 << 18;

/// What rows must match: all terms of it.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    terms: Vec<FilterTerm>,
}

#[derive(Clone, Debug)]
struct FilterTerm {
    negated: bool,
    column: Option<String>,
    test: TermTest,
}

#[derive(Clone, Debug)]
enum TermTest {
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
    /// A regular expression without an end.
    Unclosed,
    /// An invalid regular expression, and why.
    Pattern(String),
    /// A value that is compared, and is not a number.
    NoNumber(String),
    /// No table has such a column.
    UnknownColumn(String),
    /// A column of words.
    Words(&'static str),
    /// A column that is compared with a number of another unit, and what it is.
    Unit(&'static str, &'static str),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => write!(f, "the regular expression has no / at its end"),
            Self::Pattern(reason) => write!(f, "regular expression: {reason}"),
            Self::NoNumber(text) => write!(f, "no number: '{text}'"),
            Self::UnknownColumn(name) => write!(f, "no column '{name}' on this page"),
            Self::Words(title) => write!(f, "{title} has words: use a colon"),
            Self::Unit(title, wanted) => write!(f, "{title} is {wanted}"),
        }
    }
}

impl std::error::Error for FilterError {}

impl RowFilter {
    /// Parses the typed text.
    ///
    /// # Errors
    /// Which part of it means nothing.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut terms = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (term, after) = FilterTerm::parse(rest)?;
            terms.extend(term);
            rest = after.trim_start();
        }
        Ok(Self { terms })
    }

    /// Whether the tables with such columns have those that it names, and numbers in the units that
    /// it compares with.
    ///
    /// # Errors
    /// The first that no table has.
    pub fn check(&self, tables: &[&[Column]]) -> Result<(), FilterError> {
        self.terms.iter().try_for_each(|term| term.check(tables))
    }

    /// The filter for the rows of one table.
    pub fn bind(&self, columns: &[Column]) -> TableFilter<'_> {
        TableFilter {
            terms: self.terms.iter().map(|term| (term.negated, term.bind(columns))).collect(),
        }
    }
}

impl FilterTerm {
    /// The first term of `typed`, `None` for one that has no effect yet; and what follows.
    fn parse(typed: &str) -> Result<(Option<Self>, &str), FilterError> {
        let body = typed.trim_start_matches('!');
        let negated = (typed.len() - body.len()) % 2 == 1;
        let end = body.find(char::is_whitespace).unwrap_or(body.len());
        let word = &body[..end];
        let operator =
            word.find([':', '<', '>', '=']).filter(|at| *at > 0 && !word.starts_with('/'));
        let column = operator.map(|at| word[..at].to_owned());
        let value = operator.map_or(0, |at| at + usize::from(word[at..].starts_with(':')));
        if body[value..].starts_with('/') {
            let (pattern, rest) = expression(&body[value + 1..])?;
            let test = TermTest::Pattern(pattern);
            return Ok((Some(Self { negated, column, test }), rest));
        }
        let rest = &body[end..];
        let compared = Comparison::ALL
            .iter()
            .find(|(sign, _)| column.is_some() && word[value..].starts_with(sign));
        let test = match compared {
            _ if word.is_empty() => return Ok((None, rest)),
            Some((sign, comparison)) => {
                let number = &word[value + sign.len()..];
                let quantity = Quantity::parse(number)
                    .ok_or_else(|| FilterError::NoNumber(number.to_owned()))?;
                TermTest::Compare(*comparison, quantity)
            }
            None => {
                TermTest::Word { word: word[value..].to_lowercase(), whole: word.to_lowercase() }
            }
        };
        Ok((Some(Self { negated, column, test }), rest))
    }

    fn check(&self, tables: &[&[Column]]) -> Result<(), FilterError> {
        let (Some(name), false) = (&self.column, matches!(self.test, TermTest::Word { .. })) else {
            return Ok(());
        };
        let mut error = FilterError::UnknownColumn(name.clone());
        for columns in tables {
            let Some((at, _)) = find(columns, name) else { continue };
            match &self.test {
                TermTest::Compare(_, quantity) => match quantity.of_column(&columns[at]) {
                    Ok(_) => return Ok(()),
                    Err(reason) => error = reason,
                },
                TermTest::Word { .. } | TermTest::Pattern(_) => return Ok(()),
            }
        }
        Err(error)
    }

    fn bind(&self, columns: &[Column]) -> BoundTerm<'_> {
        let at = self.column.as_ref().map(|name| find(columns, name));
        match (&self.test, at) {
            (TermTest::Word { word, .. }, Some(Some((at, _)))) => BoundTerm::WordIn(at, word),
            (TermTest::Word { whole, .. }, _) => BoundTerm::Word(whole),
            (TermTest::Pattern(pattern), None) => BoundTerm::Pattern(pattern),
            (TermTest::Pattern(pattern), Some(Some((at, _)))) => BoundTerm::PatternIn(at, pattern),
            (TermTest::Compare(comparison, quantity), Some(Some((at, which)))) => {
                match quantity.of_column(&columns[at]) {
                    Ok(number) => BoundTerm::Compare(at, which, *comparison, number * which.factor),
                    Err(_) => BoundTerm::Never,
                }
            }
            (TermTest::Pattern(_) | TermTest::Compare(..), _) => BoundTerm::Never,
        }
    }
}

/// A regular expression behind its first `/`, and what follows its last: the one before a space.
fn expression(text: &str) -> Result<(Regex, &str), FilterError> {
    let mut escaped = false;
    let mut end = None;
    for (at, letter) in text.char_indices() {
        let rest = &text[at + letter.len_utf8()..];
        if letter == '/' && !escaped && rest.chars().next().is_none_or(char::is_whitespace) {
            end = Some((at, rest));
            break;
        }
        escaped = letter == '\\' && !escaped;
    }
    let (end, rest) = end.ok_or(FilterError::Unclosed)?;
    let pattern = &text[..end];
    let regex = RegexBuilder::new(pattern)
        .case_insensitive(!has_capital(pattern))
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .build();
    Ok((regex.map_err(|error| FilterError::Pattern(reason(&error)))?, rest))
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
    terms: Vec<(bool, BoundTerm<'a>)>,
}

#[derive(Debug)]
enum BoundTerm<'a> {
    Word(&'a str),
    WordIn(usize, &'a str),
    Pattern(&'a Regex),
    PatternIn(usize, &'a Regex),
    Compare(usize, ColumnNumber, Comparison, f64),
    /// The table has no such column.
    Never,
}

impl TableFilter<'_> {
    /// The row matches all terms.
    pub fn passes(&self, row: &TableRow) -> bool {
        self.terms.iter().all(|(negated, term)| term.passes(row, *negated))
    }
}

impl BoundTerm<'_> {
    fn passes(&self, row: &TableRow, negated: bool) -> bool {
        let text = |at: usize| row.cells.get(at).map_or("", |cell| cell.text.as_str());
        let anywhere = |holds: &dyn Fn(&str) -> bool| {
            row.cells.iter().map(|cell| &cell.text).chain(&row.notes).any(|text| holds(text))
        };
        let matches = match self {
            Self::Word(word) => anywhere(&|text| text.to_lowercase().contains(word)),
            Self::WordIn(at, word) => text(*at).to_lowercase().contains(word),
            Self::Pattern(pattern) => anywhere(&|text| pattern.is_match(text)),
            Self::PatternIn(at, pattern) => pattern.is_match(text(*at)),
            Self::Compare(at, which, comparison, number) => {
                let Some(value) = row.cells.get(*at).and_then(|cell| cell.number_of(*which)) else {
                    // An unknown value is neither more nor less.
                    return false;
                };
                comparison.holds(value, *number)
            }
            Self::Never => return false,
        };
        matches != negated
    }
}

impl TextTable {
    /// Keeps the rows that match.
    pub fn filter(&mut self, filter: &RowFilter) {
        let filter = filter.bind(&self.columns);
        self.rows.retain(|row| filter.passes(row));
    }
}

#[cfg(test)]
mod tests;
