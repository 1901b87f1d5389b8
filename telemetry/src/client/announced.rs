//! Requests of which is known that they are made next.

use std::collections::VecDeque;

use crate::commands::TelemetryCommand;

/// Requests in the order in which they are made; the first ones may have been sent.
#[derive(Debug, Default)]
pub(super) struct AnnouncedRequests {
    commands: VecDeque<TelemetryCommand>,
    sent: usize,
}

impl AnnouncedRequests {
    pub(super) fn new(commands: Vec<TelemetryCommand>) -> Self {
        Self { commands: commands.into(), sent: 0 }
    }

    /// Replies to some of them are under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent > 0
    }

    /// These are the next ones.
    pub(super) fn begin_with<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a TelemetryCommand>,
    ) -> bool {
        let mut announced = self.commands.iter();
        requests.into_iter().all(|request| announced.next() == Some(request))
    }

    /// The next one is made: whether it has been sent.
    pub(super) fn pop(&mut self) -> bool {
        self.commands.pop_front();
        let is_sent = self.sent > 0;
        self.sent = self.sent.saturating_sub(1);
        is_sent
    }

    /// The next one to send, if fewer than so many are under way.
    pub(super) fn next_to_send(&self, limit: usize) -> Option<&TelemetryCommand> {
        self.commands.get(self.sent).filter(|_| self.sent < limit)
    }

    /// That one has been sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }
}
