//! The command line of the display: what is typed, what was run, and the ways to complete it.

use tui_input::{Input, InputRequest};

/// Longest command, bytes.
const LENGTH_MAX: usize = 400;

/// Commands that are kept; they are forgotten when the display ends.
const HISTORY_MAX: usize = 50;

/// Several ways to complete what was typed, one of which is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionChoice {
    /// Where the word that is completed begins, bytes.
    pub(crate) start: usize,
    /// What may stand there.
    pub(crate) words: Vec<String>,
    /// The one that does.
    pub(crate) at: usize,
}

/// The command line.
#[derive(Clone, Debug, Default)]
pub struct CommandPrompt {
    input: Input,
    /// What was run, the oldest first.
    history: Vec<String>,
    /// The command of the history that is shown, counted from the newest; `None` for a new one.
    recalled: Option<usize>,
    /// Ways to complete it, after the first.
    pub(crate) choice: Option<CompletionChoice>,
    /// Why what was typed could not be run.
    pub(crate) problem: Option<String>,
}

impl CommandPrompt {
    /// An empty line, with the same history.
    pub(crate) fn clear(&mut self) {
        self.set("");
        self.recalled = None;
    }

    /// What is typed.
    pub(crate) fn text(&self) -> &str {
        self.input.value()
    }

    /// The place of the cursor, in characters.
    pub(crate) fn cursor(&self) -> usize {
        self.input.cursor()
    }

    /// Puts another text there, with the cursor behind it.
    pub(crate) fn set(&mut self, text: &str) {
        self.input = Input::new(text.to_owned());
        (self.choice, self.problem) = (None, None);
    }

    /// Changes the text. One that is full takes nothing more.
    pub(crate) fn edit(&mut self, request: InputRequest) {
        let before = self.input.clone();
        self.input.handle(request);
        if self.text().len() > LENGTH_MAX {
            self.input = before;
        } else {
            (self.choice, self.problem) = (None, None);
        }
    }

    /// Puts `word` in place of what begins at that byte.
    pub(crate) fn replace(&mut self, start: usize, word: &str) {
        let kept = self.text().get(..start).unwrap_or_default();
        let text = format!("{kept}{word}");
        self.set(&text);
    }

    /// Keeps a command that was run.
    pub(crate) fn remember(&mut self) {
        let text = self.text().trim().to_owned();
        if text.is_empty() || self.history.last() == Some(&text) {
            return;
        }
        self.history.push(text);
        let excess = self.history.len().saturating_sub(HISTORY_MAX);
        self.history.drain(..excess);
    }

    /// Shows the command that was run before the one that is shown.
    pub(crate) fn older(&mut self) {
        self.recall(self.recalled.map_or(0, |back| back + 1));
    }

    /// Shows the command that was run after it; after the newest, an empty line.
    pub(crate) fn newer(&mut self) {
        match self.recalled {
            Some(back @ 1..) => self.recall(back - 1),
            Some(0) => self.clear(),
            None => {}
        }
    }

    fn recall(&mut self, back: usize) {
        let at = self.history.len().checked_sub(back + 1);
        if let Some(text) = at.and_then(|at| self.history.get(at)).cloned() {
            self.set(&text);
            self.recalled = Some(back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(prompt: &mut CommandPrompt, text: &str) {
        text.chars().for_each(|letter| prompt.edit(InputRequest::InsertChar(letter)));
    }

    #[test]
    fn commands_are_recalled_and_bounded() {
        let mut prompt = CommandPrompt::default();
        for number in 0..HISTORY_MAX + 5 {
            prompt.clear();
            typed(&mut prompt, &format!(" {number} "));
            prompt.remember();
            prompt.remember();
        }
        prompt.clear();
        prompt.newer();
        assert_eq!(prompt.text(), "");
        prompt.older();
        prompt.older();
        assert_eq!(prompt.text(), (HISTORY_MAX + 3).to_string());
        prompt.newer();
        assert_eq!(prompt.text(), (HISTORY_MAX + 4).to_string());
        prompt.newer();
        assert_eq!(prompt.text(), "");
        (0..200).for_each(|_| prompt.older());
        assert_eq!(prompt.text(), "5", "the oldest that is kept");
    }

    #[test]
    fn a_command_has_a_longest_length_and_can_be_edited_within() {
        let mut prompt = CommandPrompt::default();
        typed(&mut prompt, &"é".repeat(LENGTH_MAX));
        assert_eq!(prompt.text().len(), LENGTH_MAX);
        prompt.edit(InputRequest::DeletePrevChar);
        assert_eq!(prompt.text().len(), LENGTH_MAX - 2);
        prompt.replace(2, "x");
        assert_eq!((prompt.text(), prompt.cursor()), ("éx", 2));
        prompt.replace(1, "y");
        assert_eq!(prompt.text(), "y", "within a letter");
    }
}
