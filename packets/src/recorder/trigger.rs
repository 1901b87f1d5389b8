//! What fires a recorder, and what it answers.

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

/// Triggers that may wait for the recorder; more at once mean nothing new.
const WAITING: usize = 64;
/// Time from one firing of a packet filter to the next.
const HOLD: Duration = Duration::from_secs(1);

/// Something has happened.
#[derive(Debug)]
pub struct RecorderTrigger {
    /// What fired, in lower case, digits and underscores: it becomes part of a file name.
    pub name: String,
    /// What has happened, in a sentence; may be empty.
    pub comment: String,
    /// When, wall clock, nanoseconds since 1970.
    pub moment_ns: u64,
    /// When it began, where it lasted for a time that ended at the moment: history is what came before
    /// that.
    pub begin_ns: Option<u64>,
    /// Whom to tell what became of it.
    pub reply: Option<SyncSender<TriggerAnswer>>,
}

/// What became of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerAnswer {
    /// It is in this file, which is being written.
    Writing(PathBuf),
    /// The last file was written; the recorder takes no more.
    Done,
    /// There is no file for it.
    Failed(String),
}

impl RecorderTrigger {
    /// A trigger of this moment that wants no answer.
    pub fn now(name: impl Into<String>, comment: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            comment: comment.into(),
            moment_ns: realtime_ns(),
            begin_ns: None,
            reply: None,
        }
    }

    /// The end of the history.
    pub(super) fn history_end_ns(&self) -> u64 {
        self.begin_ns.map_or(self.moment_ns, |begin| begin.min(self.moment_ns))
    }

    pub(super) fn answer(&self, answer: TriggerAnswer) {
        if let Some(reply) = &self.reply {
            // Whoever asked may have gone.
            let _ = reply.try_send(answer);
        }
    }

    /// What the file says of it.
    pub(super) fn mark(&self) -> PendingComment {
        let moment = Timestamp::from_nanosecond(self.moment_ns.into()).unwrap_or(Timestamp::MAX);
        let colon = if self.comment.is_empty() { "" } else { ": " };
        let text = format!("trigger {} at {moment:.9}{colon}{}", self.name, self.comment);
        PendingComment { ns: self.moment_ns, text }
    }
}

/// Fires a recorder, from any thread.
#[derive(Clone, Debug)]
pub struct TriggerSender {
    sender: SyncSender<RecorderTrigger>,
    waits: Arc<AtomicBool>,
}

impl TriggerSender {
    /// Fires; false when the recorder has ended, or does not even come to look.
    pub fn fire(&self, trigger: RecorderTrigger) -> bool {
        let sent = self.sender.try_send(trigger).is_ok();
        self.waits.store(true, Ordering::Release);
        sent
    }
}

/// The recorder's end.
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
    /// Cheap enough to be asked for every packet.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> Option<RecorderTrigger> {
        self.waits.store(false, Ordering::Relaxed);
        self.receiver.try_recv().ok()
    }
}

/// A packet that fires.
#[derive(Clone, Debug)]
pub struct PacketTrigger {
    expression: String,
    filter: OfflineFilter,
}

impl PacketTrigger {
    /// Any packet that passes a filter expression.
    ///
    /// # Errors
    /// When the expression is no filter.
    pub fn new(expression: &str) -> Result<Self, PacketFilterError> {
        Ok(Self { expression: expression.to_owned(), filter: OfflineFilter::new(expression)? })
    }
}

/// A packet trigger, and when it fired.
#[derive(Debug)]
pub(super) struct ArmedTrigger {
    trigger: PacketTrigger,
    fired_ns: Option<u64>,
}

impl ArmedTrigger {
    pub(super) fn new(trigger: PacketTrigger) -> Self {
        Self { trigger, fired_ns: None }
    }

    /// Fires where the packet matches, and none has within [`HOLD`].
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
            reply: None,
        })
    }
}
