//! Passes the newest snapshot to the threads that show it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::FlowSnapshot;

/// A shared reference to the newest snapshot.
#[derive(Clone, Debug, Default)]
pub struct LatestSnapshot(Arc<Mutex<Arc<FlowSnapshot>>>);

impl LatestSnapshot {
    /// Returns the newest snapshot.
    pub fn get(&self) -> Arc<FlowSnapshot> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the newest snapshot; returns the previous one.
    pub(super) fn set(&self, snapshot: FlowSnapshot) -> Arc<FlowSnapshot> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut latest, Arc::new(snapshot))
    }

    pub(super) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
