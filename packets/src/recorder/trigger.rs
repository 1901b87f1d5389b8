//! Triggers of a recorder, and its answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use jiff::Timestamp;

use super::writer::PendingComment;
use crate::clock::realtime_ns;
use crate::filter::{OfflineFilter, PacketFilterError};
use crate::packet::Packet;

/// Most waiting triggers; more at the same time would not add information.
const WAITING: usize = 64;
/// Minimum time between two triggers of one packet filter.
const HOLD: Duration = Duration::from_secs(1);

/// An event that starts the writing of a file.
#[derive(Debug)]
pub struct RecorderTrigger {
    /// Name in lower case, digits and underscores: it becomes part of a file name.
    pub name: String,
    /// A sentence about the event; may be empty.
    pub comment: String,
    /// Time of the event, wall clock, nanoseconds since 1970.
    pub moment_ns: u64,
    /// Start of the event, if it lasted until `moment_ns`: the history ends there.
    pub begin_ns: Option<u64>,
    /// Number of the packet that is the event, which gets the comment. Without one, it is the first packet
    /// at or after `moment_ns`.
    pub packet: Option<u64>,
    /// Receives the answer.
    pub reply: Option<SyncSender<TriggerAnswer>>,
}

/// The answer to a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerAnswer {
    /// The event is in this file, which is being written.
    Writing(PathBuf),
    /// The last file was written; the recorder accepts no more triggers.
    Done,
    /// No file could be named for it.
    Failed(String),
}

impl RecorderTrigger {
    /// Returns a trigger with the current time, without an answer.
    pub fn now(name: impl Into<String>, comment: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            comment: comment.into(),
            moment_ns: realtime_ns(),
            begin_ns: None,
            packet: None,
            reply: None,
        }
    }

    /// Returns the end of the history.
    pub(super) fn history_end_ns(&self) -> u64 {
        self.begin_ns.map_or(self.moment_ns, |begin| begin.min(self.moment_ns))
    }

    pub(super) fn answer(&self, answer: TriggerAnswer) {
        if let Some(reply) = &self.reply {
            // The receiver may have been dropped.
            let _ = reply.try_send(answer);
        }
    }

    /// Returns the comment for the packet of the event.
    pub(super) fn mark(&self) -> PendingComment {
        let moment = Timestamp::from_nanosecond(self.moment_ns.into()).unwrap_or(Timestamp::MAX);
        let colon = if self.comment.is_empty() { "" } else { ": " };
        let text = format!("trigger {} at {moment:.9}{colon}{}", self.name, self.comment);
        PendingComment { ns: self.moment_ns, packet: self.packet, text }
    }
}

/// Sends triggers to a recorder, from any thread.
#[derive(Clone, Debug)]
pub struct TriggerSender {
    sender: SyncSender<RecorderTrigger>,
    waits: Arc<AtomicBool>,
}

impl TriggerSender {
    /// Sends a trigger; returns false if the recorder has ended, or does not process its queue.
    pub fn fire(&self, trigger: RecorderTrigger) -> bool {
        let sent = self.sender.try_send(trigger).is_ok();
        self.waits.store(true, Ordering::Release);
        sent
    }
}

/// The recorder's end of the queue.
#[derive(Debug)]
pub(super) struct TriggerQueue {
    receiver: Receiver<RecorderTrigger>,
    waits: Arc<AtomicBool>,
}

pub(super) fn queue() -> (TriggerSender, TriggerQueue) {
    let (sender, receiver) = sync_channel(WAITING);
    let waits = Arc::<AtomicBool>::default();
    (TriggerSender { sender, waits: Arc::clone(&waits) }, TriggerQueue { receiver, waits })
}

impl TriggerQueue {
    /// Returns whether a trigger may be waiting; fast enough to be called for every packet.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> Option<RecorderTrigger> {
        self.waits.store(false, Ordering::Relaxed);
        self.receiver.try_recv().ok()
    }
}

/// A packet filter that triggers.
#[derive(Clone, Debug)]
pub struct PacketTrigger {
    expression: String,
    filter: OfflineFilter,
}

impl PacketTrigger {
    /// Triggers on any packet that passes a filter expression.
    ///
    /// # Errors
    /// Fails if the expression is not a valid filter.
    pub fn new(expression: &str) -> Result<Self, PacketFilterError> {
        Ok(Self { expression: expression.to_owned(), filter: OfflineFilter::new(expression)? })
    }
}

/// A packet trigger, and the time when it last fired.
#[derive(Debug)]
pub(super) struct ArmedTrigger {
    trigger: PacketTrigger,
    fired_ns: Option<u64>,
}

impl ArmedTrigger {
    pub(super) fn new(trigger: PacketTrigger) -> Self {
        Self { trigger, fired_ns: None }
    }

    /// Returns a trigger if the packet matches, and no packet has within [`HOLD`].
    pub(super) fn look(&mut self, packet: &Packet<'_>) -> Option<RecorderTrigger> {
        let held = |fired: u64| Duration::from_nanos(packet.ns.abs_diff(fired)) < HOLD;
        if self.fired_ns.is_some_and(held) {
            return None;
        }
        if !self.trigger.filter.matches(packet.data, packet.len) {
            return None;
        }
        self.fired_ns = Some(packet.ns);
        Some(RecorderTrigger {
            name: "filter".to_owned(),
            comment: format!("packet {} matches '{}'", packet.id, self.trigger.expression),
            moment_ns: packet.ns,
            begin_ns: None,
            packet: Some(packet.id),
            reply: None,
        })
    }
}
