//! Requests that are announced, so that they can be sent ahead.

use std::collections::VecDeque;

use crate::commands::TelemetryCommand;

/// Requests in the order in which they will be made; the first `sent` ones have been sent.
#[derive(Debug, Default)]
pub(super) struct AnnouncedRequests {
    commands: VecDeque<TelemetryCommand>,
    sent: usize,
}

impl AnnouncedRequests {
    pub(super) fn new(commands: Vec<TelemetryCommand>) -> Self {
        Self { commands: commands.into(), sent: 0 }
    }

    /// Whether replies to some of them are outstanding.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent > 0
    }

    /// Whether the next requests are these.
    pub(super) fn begin_with<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a TelemetryCommand>,
    ) -> bool {
        let mut announced = self.commands.iter();
        requests.into_iter().all(|request| announced.next() == Some(request))
    }

    /// Removes the next request; returns whether it has been sent.
    pub(super) fn pop(&mut self) -> bool {
        self.commands.pop_front();
        let is_sent = self.sent > 0;
        self.sent = self.sent.saturating_sub(1);
        is_sent
    }

    /// Returns the next request to send, if fewer than `limit` are outstanding.
    pub(super) fn next_to_send(&self, limit: usize) -> Option<&TelemetryCommand> {
        self.commands.get(self.sent).filter(|_| self.sent < limit)
    }

    /// Notes that this request has been sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }
}
