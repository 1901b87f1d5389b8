//! Filters of conversations, written as in ss(8): `dport :443 and src 10.0.0.0/8`.
//!
//! `src` and `sport` are the local end, `dst` and `dport` the remote one, whoever sent the packets.

mod address;
mod expression;
mod grammar;
mod ports;
mod services;
mod states;
mod test;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::expression::{Expression, FilterSyntaxError, Mistake, Parsed, mistake};
pub use self::grammar::test;
pub use self::test::FlowTest;
use crate::Flow;

/// Which conversations a user wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFilter(Expression<FlowTest>);

impl FlowFilter {
    /// Parses a filter; an empty one takes all conversations.
    ///
    /// # Errors
    /// Where it is wrong, and what is expected there.
    pub fn parse(text: &str) -> Result<Self, FilterSyntaxError> {
        Expression::parse(text, test).map(Self)
    }

    /// Returns whether a text can only be a filter of ss(8): one of tcpdump has neither `sport` and `dport`
    /// nor states.
    pub fn is_of_ss(text: &str) -> bool {
        let is_sign = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.');
        let words = text.split(is_sign).filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let states = words.windows(2).any(|pair| {
            matches!(pair[0], "state" | "exclude") && states::StateSet::named(pair[1]).is_some()
        });
        states || words.iter().any(|word| matches!(*word, "sport" | "dport"))
    }

    /// Returns whether the conversation of an app is one of these.
    pub fn matches(&self, app: &str, flow: &Flow) -> bool {
        self.0.holds(&mut |test: &FlowTest| Some(test.holds(app, flow))) == Some(true)
    }
}

impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
