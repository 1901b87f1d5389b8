//! The interface for reports about conversations, and the reasons of the reports.

use std::fmt::Debug;

use crate::Flow;

/// Why a conversation is reported; values of the IPFIX element `flowEndReason` (RFC 5102).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEndReason {
    /// No packet for the idle timeout.
    Idle = 1,
    /// The conversation continues.
    Active = 2,
    /// TCP has ended the conversation.
    End = 3,
    /// Counting ends.
    Forced = 4,
    /// The conversation was evicted.
    Resources = 5,
}

/// Receives reports about conversations.
pub trait FlowListener: Debug + Send {
    /// Reports a conversation: the counts since its last report, and the times of the first and the
    /// last packet among them.
    fn flow(&mut self, flow: &Flow, apps: &[String], reason: FlowEndReason);

    /// Called about once a second, after the reports of that second; `sample` is that of
    /// [`FlowSnapshot::sample`].
    fn tick(&mut self, now_ns: u64, sample: u32);

    /// Called at the end; nothing follows.
    fn finish(&mut self);
}
