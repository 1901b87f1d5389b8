//! Ports in filters: `:53`, `53`, `:domain`.

use std::fmt;

use super::expression::{Parsed, mistake};
use super::{grammar, services};

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// The operators of ss(8), the first of each as it is printed.
const OPERATORS: [(&str, Comparison); 16] = [
    ("=", Comparison::Equal),
    ("==", Comparison::Equal),
    ("eq", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("ne", Comparison::NotEqual),
    ("neq", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("lt", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    ("le", Comparison::LessOrEqual),
    ("leq", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    ("gt", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
    ("ge", Comparison::GreaterOrEqual),
    ("geq", Comparison::GreaterOrEqual),
];

impl Comparison {
    pub(super) fn named(name: &str) -> Option<Self> {
        OPERATORS.iter().find(|(operator, _)| *operator == name).map(|(_, comparison)| *comparison)
    }

    /// Returns whether it holds for one of the values. What has no value equals nothing.
    pub(super) fn holds<T: Ord>(self, values: impl IntoIterator<Item = T>, wanted: &T) -> bool {
        let mut values = values.into_iter();
        match self {
            Self::Equal => values.any(|value| value == *wanted),
            Self::NotEqual => values.all(|value| value != *wanted),
            Self::Less => values.any(|value| value < *wanted),
            Self::LessOrEqual => values.any(|value| value <= *wanted),
            Self::Greater => values.any(|value| value > *wanted),
            Self::GreaterOrEqual => values.any(|value| value >= *wanted),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printed = OPERATORS.iter().find(|(_, comparison)| comparison == self);
        f.write_str(printed.map_or("", |(operator, _)| operator))
    }
}

/// Parses a port, by its number or service, with or without a colon.
pub(super) fn port(input: &mut &str) -> Parsed<u16> {
    let from = *input;
    let word = grammar::value(input, "expected a port, such as :53 or :domain")?;
    by_name(word.strip_prefix(':').unwrap_or(word)).or_else(|reason| mistake(from, reason))
}

/// The port of a number or service.
pub(super) fn by_name(name: &str) -> Result<u16, String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().map_err(|_| format!("no port {name}: the last is 65535"));
    }
    services::port(name)
        .ok_or_else(|| format!("no service '{name}' in {}: write the number", services::FILE))
}
