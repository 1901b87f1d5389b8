//! Counts packets for their conversations.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Flow, Snapshot};
use crate::packet::{Interface, Origin, Packet, Statistics};
use crate::target::{Progress, Target, TargetError};

/// Conversations that are kept where nothing else is said.
pub const CAPACITY: usize = 65_536;

/// How to count.
#[derive(Debug)]
pub struct Settings {
    /// Most conversations to keep. Beyond, those with few packets give way.
    pub capacity: usize,
    /// Forget a conversation that was silent for so long, by the times of the packets; `None` keeps it.
    pub idle: Option<Duration>,
    /// Tell `listener` of conversations that go on for so long, and again after as long.
    pub active: Option<Duration>,
    /// Count what is in tunnels, and not the tunnels.
    pub inner: bool,
    /// Is told what became of conversations.
    pub listener: Option<Box<dyn Listener>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { capacity: CAPACITY, idle: None, active: None, inner: true, listener: None }
    }
}

/// Why a listener is told of a conversation; numbers of RFC 5102, flowEndReason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Silent for the idle time.
    Idle = 1,
    /// It goes on.
    Active = 2,
    /// TCP has ended it.
    End = 3,
    /// Counting ends.
    Forced = 4,
    /// It gave way to others.
    Resources = 5,
}

/// Who is told what became of conversations.
pub trait Listener: Debug + Send {
    /// A conversation, with what was counted since it was told of last, and with the times of the first
    /// and the last packet among that.
    fn flow(&mut self, flow: &Flow, apps: &[String], reason: Reason);

    /// About once a second, after the flows of that second; `sample` as of [`Snapshot::sample`].
    fn tick(&mut self, now_ns: u64, sample: u32);

    /// Nothing follows.
    fn finish(&mut self);
}

/// Where the newest snapshot is.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<Mutex<Arc<Snapshot>>>);

impl Latest {
    /// The newest snapshot.
    pub fn get(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// The table, as a target of captures and files.
#[derive(Debug)]
pub struct Table {
    settings: Settings,
    latest: Latest,
    snapshot: Snapshot,
}

impl Table {
    /// An empty table, and where its snapshots will be.
    pub fn new(settings: Settings) -> (Self, Latest) {
        let latest = Latest::default();
        let capacity = settings.capacity;
        let snapshot = Snapshot { capacity, ..Snapshot::default() };
        (Self { settings, latest: latest.clone(), snapshot }, latest)
    }
}

impl Target for Table {
    fn section(&mut self, _origin: &Origin) -> Result<(), TargetError> {
        Ok(())
    }

    fn interface(&mut self, interface: &Interface) -> Result<(), TargetError> {
        self.snapshot.apps.push(interface.name.clone());
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), TargetError> {
        self.snapshot.looked_at += 1;
        self.snapshot.lost += packet.dropped;
        Ok(())
    }

    fn counters(&mut self, _statistics: &[Statistics]) {
        self.latest.set(self.snapshot.clone());
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        Progress { written: self.snapshot.looked_at, ..Progress::default() }
    }

    fn finish(&mut self) -> Result<(), TargetError> {
        if let Some(listener) = &mut self.settings.listener {
            listener.finish();
        }
        self.latest.set(self.snapshot.clone());
        Ok(())
    }
}
