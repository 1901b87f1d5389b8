//! Terms about conversations in filters of rows: `dport :443`, `state established`.

use pmdscope_flows::Flow;
use pmdscope_flows::filter::{self, FilterSyntaxError, FlowTest, Mistake};
use winnow::error::ErrMode;

use super::{FilterError, has_word};
use crate::table::{TableRow, TextTable};

/// Words that only filters of conversations have.
const THEIRS: [&str; 5] = ["src", "dst", "sport", "dport", "vni"];
/// Words that begin a term of conversations if a blank is behind them: without, they are searched, or name a
/// column.
const COMMON: [&str; 9] =
    ["host", "port", "state", "exclude", "proto", "app", "dev", "vlan", "tunnel"];

/// A term about conversations; in tables of anything else, its words are searched.
#[derive(Clone, Debug)]
pub(super) struct ConversationTerm {
    first: &'static str,
    /// In lower case.
    words: Vec<String>,
    /// What it asks, unless it is wrong.
    asked: Result<FlowTest, Mistake>,
}

impl ConversationTerm {
    /// Parses such a term, if it is one.
    pub(super) fn parse(input: &mut &str) -> Option<Self> {
        let text = *input;
        let end = text.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(text.len());
        let next = text[end..].chars().next();
        let is = |word: &&&str| **word == &text[..end];
        let theirs = THEIRS.iter().find(is).filter(|_| {
            next.is_none_or(|next| {
                next.is_whitespace() || matches!(next, '=' | '!' | '<' | '>' | ':')
            })
        });
        let common = COMMON.iter().find(is).filter(|_| next.is_some_and(char::is_whitespace));
        let first = *theirs.or(common)?;
        let asked = match filter::test(input) {
            Ok(asked) => Ok(asked),
            Err(ErrMode::Backtrack(mistake) | ErrMode::Cut(mistake)) => {
                *input = &text[end..];
                Err(mistake)
            }
            Err(ErrMode::Incomplete(_)) => return None,
        };
        let words = text[..text.len() - input.len()].split_whitespace().map(str::to_lowercase);
        Some(Self { first, words: words.collect(), asked })
    }

    pub(super) fn check(&self, text: &str, tables: &[TextTable]) -> Result<(), FilterError> {
        let conversations = tables.iter().any(|table| table.of_conversations);
        match &self.asked {
            Err(mistake) if conversations => {
                Err(FilterError::Syntax(FilterSyntaxError::new(text, mistake)))
            }
            Ok(_) if !conversations && THEIRS.contains(&self.first) => {
                Err(FilterError::OnlyConversations(self.first))
            }
            _ => Ok(()),
        }
    }

    /// Whether it holds for a conversation of an app; `None` if it is wrong.
    pub(super) fn holds(&self, app: &str, flow: &Flow) -> Option<bool> {
        self.asked.as_ref().ok().map(|asked| asked.holds(app, flow))
    }

    /// Whether its words are in a row of something else.
    pub(super) fn is_in(&self, row: &TableRow) -> bool {
        self.words.iter().all(|word| has_word(row, word))
    }
}
