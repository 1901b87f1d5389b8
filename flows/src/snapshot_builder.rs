//! A snapshot in the making. Copying a million conversations takes longer than rings can wait, so they
//! are copied part by part between packets, each as it was when the snapshot began.

use crate::FlowSnapshot;
use crate::rate_windows::RateWindows;
use crate::store::FlowStore;

/// What is known of it.
#[derive(Debug)]
pub(super) struct SnapshotBuilder {
    /// All but the conversations that are still to be copied.
    pub(super) snapshot: FlowSnapshot,
    /// Intervals that begin with it, for each conversation.
    marks: usize,
    /// A slot that ends with it, and the windows then.
    slot: Option<usize>,
    windows: Option<RateWindows>,
    /// Entries behind it are still to be looked at, up to the end.
    next: usize,
    end: usize,
    /// Entries that are done, or were not there when it began; a bit for each.
    done: Vec<u64>,
}

impl SnapshotBuilder {
    /// Begins with all but the conversations.
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

    /// Looks at so many entries more; true if those were the last.
    pub(super) fn go_on(&mut self, store: &mut FlowStore, most: usize) -> bool {
        let end = self.end.min(self.next.saturating_add(most));
        for at in self.next..end {
            self.copy(store, at);
        }
        self.next = end;
        end == self.end
    }

    /// Copies a conversation, if that was not done yet: it is about to change.
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

    /// A conversation that has begun since.
    pub(super) fn pass_over(&mut self, at: usize) {
        self.is_due(at);
    }

    /// False from the second time on.
    #[inline]
    fn is_due(&mut self, at: usize) -> bool {
        let Some(word) = self.done.get_mut(at / 64).filter(|_| at < self.end) else { return false };
        let bit = 1 << (at % 64);
        let due = *word & bit == 0;
        *word |= bit;
        due
    }
}
