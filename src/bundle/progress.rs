//! Messages and progress on standard error during a collection.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::index::{PartEntry, PartStatus};
use crate::{output, progress};

/// Reports what is collected, and what cannot be.
#[derive(Debug)]
pub(super) struct Progress {
    /// Only errors.
    quiet: bool,
    /// Reasons that were reported.
    told: RefCell<BTreeSet<String>>,
    line: progress::Progress,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let line = progress::Progress::begin("collecting", quiet);
        Self { quiet, told: RefCell::default(), line }
    }

    /// Reports what comes next.
    pub(super) fn tell(&self, text: &str) {
        if !self.quiet {
            output::tell(text);
        }
        self.doing(text);
    }

    /// Says what comes next where progress is shown.
    pub(super) fn doing(&self, text: &str) {
        self.line.say(text);
    }

    /// Reports why a part is missing, or not complete: once, if other parts have the same reason.
    pub(super) fn part(&self, part: &PartEntry) {
        let what = match part.status {
            PartStatus::Complete => return,
            PartStatus::Incomplete => "is incomplete",
            PartStatus::Failed | PartStatus::Skipped => "is not in the bundle",
        };
        let reason = part.reason.as_deref().unwrap_or("for an unknown reason");
        if self.told.borrow_mut().insert(reason.to_owned()) && !self.quiet {
            output::tell(&format!("{} {what}: {reason}", part.name()));
        }
    }
}
