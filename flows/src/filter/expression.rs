//! And, or, not and parentheses around tests, as in ss(8): without an operator between two tests both must
//! hold, and `or` binds less than `and`.

use std::fmt;

use winnow::Parser;
use winnow::combinator::{alt, opt, peek, preceded, separated, terminated};
use winnow::error::{ErrMode, ParserError};
use winnow::token::take_while;

/// Longest filter, bytes.
const LENGTH_MAX: usize = 1024;
/// Most parentheses and negations inside each other.
const NESTING_MAX: usize = 32;

/// Tests, and how they belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression<T> {
    /// All of these hold, also if there are none.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// This does not hold.
    Not(Box<Self>),
    /// One test.
    Test(T),
}

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterSyntaxError {
    /// Where, in characters from 1.
    place: usize,
    at_end: bool,
    reason: String,
}

impl FilterSyntaxError {
    /// The error of a mistake in a text.
    pub fn new(text: &str, mistake: &Mistake) -> Self {
        let before = text.len().saturating_sub(mistake.rest);
        let place = 1 + text.get(..before).map_or(0, |before| before.chars().count());
        Self { place, at_end: mistake.rest == 0, reason: mistake.reason.clone() }
    }

    /// What is expected there.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for FilterSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, at_end, reason } = self;
        let end = if *at_end { ", the end" } else { "" };
        write!(f, "at character {place}{end}: {reason}")
    }
}

impl std::error::Error for FilterSyntaxError {}

/// A mistake in the text that is left to parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes from the mistake to the end of the text.
    rest: usize,
    reason: String,
}

impl<'i> ParserError<&'i str> for Mistake {
    type Inner = Self;

    fn from_input(input: &&'i str) -> Self {
        Self { rest: input.len(), reason: String::new() }
    }

    fn into_inner(self) -> Result<Self::Inner, Self> {
        Ok(self)
    }
}

/// What a parser returns.
pub type Parsed<T> = Result<T, ErrMode<Mistake>>;

/// Refuses a text from here on.
///
/// # Errors
/// Always.
pub fn mistake<T>(input: &str, reason: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Mistake { rest: input.len(), reason: reason.into() }))
}

impl<T> Expression<T> {
    /// Parses a text, with a parser of one test. Blanks alone are a filter without tests.
    ///
    /// # Errors
    /// Where it is wrong, and what is expected there.
    pub fn parse(
        text: &str,
        parser: impl Fn(&mut &str) -> Parsed<T>,
    ) -> Result<Self, FilterSyntaxError> {
        let mut input = text;
        whole(&mut input, &parser).map_err(|error| match error {
            ErrMode::Backtrack(mistake) | ErrMode::Cut(mistake) => {
                FilterSyntaxError::new(text, &mistake)
            }
            ErrMode::Incomplete(_) => FilterSyntaxError {
                place: 1 + text.chars().count(),
                at_end: true,
                reason: "expected more".to_owned(),
            },
        })
    }

    /// Returns whether it holds, by the results of its tests; `None` if that depends on a test whose result
    /// is unknown.
    pub fn holds(&self, test: &mut dyn FnMut(&T) -> Option<bool>) -> Option<bool> {
        let (parts, decisive) = match self {
            Self::Test(one) => return test(one),
            Self::Not(inner) => return inner.holds(test).map(|holds| !holds),
            Self::All(parts) => (parts, false),
            Self::Any(parts) => (parts, true),
        };
        let mut known = true;
        for part in parts {
            match part.holds(test) {
                Some(holds) if holds == decisive => return Some(decisive),
                Some(_) => {}
                None => known = false,
            }
        }
        known.then_some(!decisive)
    }

    /// The same expression of what `of` makes of each test.
    pub fn map<'a, U>(&'a self, of: &dyn Fn(&'a T) -> U) -> Expression<U> {
        let all = |parts: &'a [Self]| parts.iter().map(|part| part.map(of)).collect();
        match self {
            Self::All(parts) => Expression::All(all(parts)),
            Self::Any(parts) => Expression::Any(all(parts)),
            Self::Not(inner) => Expression::Not(Box::new(inner.map(of))),
            Self::Test(test) => Expression::Test(of(test)),
        }
    }

    /// All tests, as they were written.
    pub fn tests(&self) -> Vec<&T> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::tests).collect(),
            Self::Not(inner) => inner.tests(),
            Self::Test(test) => vec![test],
        }
    }
}

impl<T> Default for Expression<T> {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl<T: fmt::Display> fmt::Display for Expression<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |part: &Self, f: &mut fmt::Formatter<'_>| match part {
            Self::All(_) | Self::Any(_) => write!(f, "({part})"),
            Self::Not(_) | Self::Test(_) => part.fmt(f),
        };
        let (parts, word) = match self {
            Self::Test(test) => return test.fmt(f),
            Self::Not(part) => {
                f.write_str("not ")?;
                return inner(part, f);
            }
            Self::All(parts) => (parts, " and "),
            Self::Any(parts) => (parts, " or "),
        };
        for (at, part) in parts.iter().enumerate() {
            f.write_str(if at > 0 { word } else { "" })?;
            inner(part, f)?;
        }
        Ok(())
    }
}

type TestParser<'a, T> = &'a dyn Fn(&mut &str) -> Parsed<T>;

fn whole<T>(input: &mut &str, test: TestParser<'_, T>) -> Parsed<Expression<T>> {
    if let Some(rest @ 1..) = input.len().checked_sub(LENGTH_MAX) {
        let reason = format!("a filter has at most {LENGTH_MAX} bytes");
        return Err(ErrMode::Cut(Mistake { rest, reason }));
    }
    blanks(input)?;
    if input.is_empty() {
        return Ok(Expression::default());
    }
    let expression = any(input, NESTING_MAX, test)?;
    blanks(input)?;
    if input.is_empty() { Ok(expression) } else { mistake(input, "no ( is open here") }
}

/// Alternatives, of which one may be enough.
fn any<T>(input: &mut &str, depth: usize, test: TestParser<'_, T>) -> Parsed<Expression<T>> {
    let part = |input: &mut &str| all(input, depth, test);
    let parts = separated(1.., part, or).parse_next(input)?;
    Ok(joined(parts, Expression::Any))
}

/// What must hold together.
fn all<T>(input: &mut &str, depth: usize, test: TestParser<'_, T>) -> Parsed<Expression<T>> {
    let mut parts = vec![one(input, depth, test)?];
    while opt(and).parse_next(input)?.is_some() || goes_on(input) {
        parts.push(one(input, depth, test)?);
    }
    Ok(joined(parts, Expression::All))
}

fn one<T>(input: &mut &str, depth: usize, test: TestParser<'_, T>) -> Parsed<Expression<T>> {
    blanks(input)?;
    if depth == 0 {
        return mistake(input, format!("at most {NESTING_MAX} parentheses and negations nest"));
    }
    if opt(alt(("!", word("not")))).parse_next(input)?.is_some() {
        return Ok(Expression::Not(Box::new(one(input, depth - 1, test)?)));
    }
    if !sign(input, "(")? {
        return test(input).map(Expression::Test);
    }
    let inner = any(input, depth - 1, test)?;
    blanks(input)?;
    if sign(input, ")")? {
        Ok(inner)
    } else {
        mistake(input, "expected and, or, or the ) of an open (")
    }
}

/// Takes a parenthesis, if it is there.
fn sign(input: &mut &str, sign: &'static str) -> Parsed<bool> {
    opt(sign).map(|found| found.is_some()).parse_next(input)
}

fn joined<T>(
    mut parts: Vec<Expression<T>>,
    join: fn(Vec<Expression<T>>) -> Expression<T>,
) -> Expression<T> {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            join(parts)
        }
    }
}

fn or<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    preceded(blanks, alt(("||", "|", word("or")))).parse_next(input)
}

fn and<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    preceded(blanks, alt(("&&", "&", word("and")))).parse_next(input)
}

/// Another test follows, without an operator before it.
fn goes_on(rest: &str) -> bool {
    let mut rest = rest.trim_start();
    !rest.is_empty() && !rest.starts_with(')') && or(&mut rest).is_err()
}

/// An operator in letters, which is not the beginning of another word.
fn word<'i>(name: &'static str) -> impl Parser<&'i str, &'i str, ErrMode<Mistake>> {
    terminated(name, peek(word_end))
}

fn word_end(input: &mut &str) -> Parsed<()> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '!');
    if input.chars().next().is_none_or(ends) {
        return Ok(());
    }
    Err(ErrMode::Backtrack(Mistake::from_input(input)))
}

/// Skips blanks.
pub(super) fn blanks<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    take_while(0.., char::is_whitespace).parse_next(input)
}
