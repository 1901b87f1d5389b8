//! Reads one ring of a capture.

use std::time::Instant;

use crate::clock::TscClock;
use crate::records::RecordStream;
use crate::ring::{Ring, RingError};

/// Mean size of records from which on they are read in place, bytes.
const LARGE_RECORD: u64 = 512;

#[derive(Debug)]
pub(super) struct RingReader {
    pub(super) source: usize,
    pub(super) ring: Ring,
    pub(super) clock: Option<TscClock>,
    pub(super) anchor_seq: u32,
    pub(super) opened: Instant,
    /// Whether anything was read in the current second.
    pub(super) fed: bool,
    /// Bytes in the ring that the merge holds back.
    pub(super) held_back: usize,
    /// Nothing with a time stamp from before the current round is missing in what was read.
    pub(super) complete: bool,
}

impl RingReader {
    /// Packets that cannot be read yet because the clock of their app is not known.
    pub(super) fn untimed(&self) -> u64 {
        if self.clock.is_some() { 0 } else { self.ring.counters().records }
    }

    /// Lets `records` read the ring in place, or copies them out. Many small records are copied
    /// faster at once than one by one, and records that wait for other rings must not fill this
    /// one. Returns the number of bytes that are new, or that were copied.
    pub(super) fn read(
        &mut self,
        records: &mut RecordStream,
        share: bool,
        most: usize,
    ) -> Result<usize, RingError> {
        // Before the head is read.
        self.complete = self.ring.is_between_bursts();
        let new = self.ring.look();
        let half = self.ring.data_size() as usize / 2;
        let large = self.ring.mean_record() >= LARGE_RECORD;
        if share && large && records.copied() == 0 && self.held_back <= half {
            self.ring.view(records).map(|()| new)
        } else {
            self.ring.read(most, records)
        }
    }

    /// Updates the clock from new anchors; keeps the old clock while the anchors are being written.
    pub(super) fn refresh_clock(&mut self) {
        let seq = self.ring.anchor_seq();
        if self.clock.is_some() && seq == self.anchor_seq {
            return;
        }
        if let Some(clock) =
            self.ring.anchors().and_then(|(first, last)| TscClock::new(first, last))
        {
            let paced = self.clock.map_or(clock, |earlier| clock.paced_since(&earlier));
            self.clock = Some(paced);
            self.anchor_seq = seq;
        }
    }
}
