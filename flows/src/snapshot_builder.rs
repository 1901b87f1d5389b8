//! Builds a snapshot. Copying a million conversations takes longer than a ring can buffer packets, so
//! they are copied in parts between packets, each as it was when the snapshot began.

use crate::FlowSnapshot;
use crate::rate_windows::RateWindows;
use crate::store::FlowStore;

/// A snapshot that is being built.
#[derive(Debug)]
pub(super) struct SnapshotBuilder {
    /// The snapshot, without the conversations that are still to be copied.
    pub(super) snapshot: FlowSnapshot,
    /// Number of intervals that begin with the snapshot, for each conversation.
    marks: usize,
    /// The slot that ends with the snapshot, and the windows at that time.
    slot: Option<usize>,
    windows: Option<RateWindows>,
    /// Entries from `next` to `end` are still to be copied.
    next: usize,
    end: usize,
    /// A bit for each entry: it was copied, or began after the snapshot.
    done: Vec<u64>,
}

impl SnapshotBuilder {
    /// Starts a snapshot that has everything but the conversations.
    pub(super) fn new(
        mut snapshot: FlowSnapshot,
        marks: usize,
        (slot, windows): (Option<usize>, Option<RateWindows>),
        store: &FlowStore,
    ) -> Self {
        snapshot.flows.reserve(store.live_count());
        let end = store.entries.len();
        Self { snapshot, marks, slot, windows, next: 0, end, done: vec![0; end.div_ceil(64)] }
    }

    /// Copies up to `most` entries; returns true after the last one.
    pub(super) fn go_on(&mut self, store: &mut FlowStore, most: usize) -> bool {
        let end = self.end.min(self.next.saturating_add(most));
        for at in self.next..end {
            self.copy(store, at);
        }
        self.next = end;
        end == self.end
    }

    /// Copies a conversation that is about to change, if it was not copied yet.
    #[inline]
    pub(super) fn copy(&mut self, store: &mut FlowStore, at: usize) {
        if !self.is_due(at) || !store.entries[at].live {
            return;
        }
        let (entry, side) = (&store.entries[at], &mut store.sides[at]);
        (0..self.marks).for_each(|_| side.mark(entry));
        let mut flow = entry.flow(side);
        if let Some(history) = store.histories.get_mut(at) {
            if let Some(slot) = self.slot {
                history.mark(slot, entry.total().bytes);
            }
            flow.window_bps = self.windows.map_or([0.0; 3], |windows| history.bps(&windows));
        }
        self.snapshot.flows.push(flow);
    }

    /// Excludes a conversation that began after the snapshot.
    pub(super) fn pass_over(&mut self, at: usize) {
        self.is_due(at);
    }

    /// Returns true only the first time for each entry.
    #[inline]
    fn is_due(&mut self, at: usize) -> bool {
        let Some(word) = self.done.get_mut(at / 64).filter(|_| at < self.end) else { return false };
        let bit = 1 << (at % 64);
        let due = *word & bit == 0;
        *word |= bit;
        due
    }
}
