//! The filter of the tables: what was typed, and as much of it as is valid.

use pmdscope_render::{FilterError, RowFilter, TextTable};

/// Longest filter, bytes.
const LENGTH_MAX: usize = 200;

/// What a user typed to see fewer rows.
#[derive(Clone, Debug, Default)]
pub struct ViewFilter {
    text: String,
    rows: RowFilter,
    problem: Option<FilterError>,
}

impl ViewFilter {
    /// What was typed before.
    pub(crate) fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        match RowFilter::parse(&text) {
            Ok(rows) => Self { text, rows, problem: None },
            Err(problem) => Self { text, rows: RowFilter::default(), problem: Some(problem) },
        }
    }

    /// A filter that is to be valid.
    ///
    /// # Errors
    /// Why it is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            let length = text.len();
            return Err(format!("it has {length} bytes; at most {LENGTH_MAX} are possible"));
        }
        let filter = Self::of(text);
        filter
            .problem
            .as_ref()
            .map_or_else(|| Ok(filter.clone()), |problem| Err(problem.with_place()))
    }

    /// A filter that is to be valid for one of these tables.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn checked(text: &str, tables: &[TextTable]) -> Result<Self, String> {
        let filter = Self::parse(text)?;
        filter.problem_in(tables).map_or(Ok(filter), |problem| Err(problem.with_place()))
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What rows must match: the terms before the one that is not valid.
    pub fn rows(&self) -> &RowFilter {
        &self.rows
    }

    /// Why what was typed last is not valid.
    pub fn problem(&self) -> Option<&FilterError> {
        self.problem.as_ref()
    }

    /// Why it matches no row of these tables, whatever is in them.
    pub(crate) fn problem_in(&self, tables: &[TextTable]) -> Option<FilterError> {
        self.rows.check(tables).err()
    }

    /// Adds a letter.
    pub(crate) fn push(&mut self, letter: char, tables: &[TextTable]) {
        if self.text.len() + letter.len_utf8() <= LENGTH_MAX {
            self.text.push(letter);
            self.understand(tables);
        }
    }

    /// Takes off the last letter.
    pub(crate) fn pop(&mut self, tables: &[TextTable]) {
        self.text.pop();
        self.understand(tables);
    }

    /// While the last term is not valid, those before it stay: of `gap>5us`, `gap` is valid, but is
    /// not what was meant.
    fn understand(&mut self, tables: &[TextTable]) {
        let valid = |text: &str| {
            let rows = RowFilter::parse(text)?;
            rows.check(tables).map(|()| rows)
        };
        match valid(&self.text) {
            Ok(rows) => (self.rows, self.problem) = (rows, None),
            Err(problem) => {
                let mut ends = self.text.rmatch_indices(char::is_whitespace).map(|(at, _)| at);
                let before = ends.find_map(|at| valid(&self.text[..at]).ok());
                (self.rows, self.problem) = (before.unwrap_or_default(), Some(problem));
            }
        }
    }
}
