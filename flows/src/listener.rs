//! Who is told what became of conversations, and why.

use std::fmt::Debug;

use crate::Flow;

/// Why a listener is told of a conversation; numbers of RFC 5102, flowEndReason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEndReason {
    /// Silent for the idle time.
    Idle = 1,
    /// It goes on.
    Active = 2,
    /// TCP has ended it.
    End = 3,
    /// Counting ends.
    Forced = 4,
    /// It was evicted.
    Resources = 5,
}

/// Who is told what became of conversations.
pub trait FlowListener: Debug + Send {
    /// A conversation, with what was counted since it was told of last, and with the times of the first
    /// and the last packet among that.
    fn flow(&mut self, flow: &Flow, apps: &[String], reason: FlowEndReason);

    /// About once a second, after the flows of that second; `sample` as of [`FlowSnapshot::sample`].
    fn tick(&mut self, now_ns: u64, sample: u32);

    /// Nothing follows.
    fn finish(&mut self);
}
