//! Merges the records of several rings into one stream in TSC order.
//!
//! Each ring is sorted by time. As long as every ring has a record waiting, the earliest one is
//! next. A ring that is empty may still get an earlier record, but only one from after the time up
//! to which it was complete when it was last read. Most producers tell whether they have time stamps
//! of records that are not published yet, so an idle ring hardly delays the others; one whose
//! producer does not delays them by the reorder window.

use std::ops::ControlFlow;

use crate::layout::RingRecord;
use crate::records::{RecordData, RecordStream, RingRecordError};

/// A merge of rings, each known by its index in order of [`RecordMerge::add`].
#[derive(Debug, Default)]
pub(crate) struct RecordMerge {
    streams: Vec<RecordStream>,
    newest: u64,
    late: u64,
}

impl RecordMerge {
    /// Adds the records of one more ring.
    pub(crate) fn add(&mut self, records: RecordStream) {
        self.streams.push(records);
    }

    /// Returns the records of one ring, to append more.
    pub(crate) fn stream(&mut self, index: usize) -> Option<&mut RecordStream> {
        self.streams.get_mut(index)
    }

    /// Returns whether a ring has published records that were not drained yet.
    pub(crate) fn waits(&self, index: usize) -> bool {
        self.streams.get(index).is_some_and(|stream| stream.pending() > 0 || stream.is_behind())
    }

    /// Removes a ring; the indexes of those after it decrease by one.
    pub(crate) fn remove(&mut self, index: usize) {
        self.streams.remove(index);
    }

    /// Returns the number of packets that were drained after a later one, because their ring
    /// published them later than the reorder window allows.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Passes packets in order to `each`, with the index of the ring and the number of packets that
    /// each stands for, until `each` breaks. If a ring is empty, packets stay from after the time up
    /// to which it is complete, and all packets stay if a ring was not read up to its next packet.
    ///
    /// # Errors
    /// When a ring contains an invalid record.
    pub(crate) fn drain(
        &mut self,
        mut each: impl FnMut(usize, &RingRecord, RecordData<'_>, u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RingRecordError> {
        while let Some(run) = self.next_run()? {
            let Some(stream) = self.streams.get_mut(run.stream) else { break };
            let before = stream.pending();
            while let Some(record) = stream.peek()? {
                if record.tsc > run.until {
                    break;
                }
                self.late += u64::from(record.tsc < self.newest);
                self.newest = self.newest.max(record.tsc);
                let flow = each(run.stream, &record, stream.data(&record), stream.weight());
                stream.skip(record.size);
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            if stream.pending() == before {
                // The app has changed the times of records after it published them.
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the ring that has the next packet, and the TSC up to which it stays ahead of all
    /// others.
    fn next_run(&mut self) -> Result<Option<RingRun>, RingRecordError> {
        let mut first: Option<(usize, u64)> = None;
        let mut until = u64::MAX;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            match (stream.peek()?.map(|record| record.tsc), first) {
                (None, _) if stream.is_behind() => return Ok(None),
                (None, _) => until = until.min(stream.complete_until()),
                (Some(tsc), Some((_, least))) if tsc >= least => until = until.min(tsc),
                (Some(tsc), earlier) => {
                    until = until.min(earlier.map_or(u64::MAX, |(_, tsc)| tsc));
                    first = Some((index, tsc));
                }
            }
        }
        Ok(first.filter(|(_, tsc)| *tsc <= until).map(|(stream, _)| RingRun { stream, until }))
    }
}

struct RingRun {
    stream: usize,
    until: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::records::tests::packet;

    fn merge(streams: &[Vec<u64>]) -> RecordMerge {
        let mut merge = RecordMerge::default();
        for (index, times) in streams.iter().enumerate() {
            let mut records = RecordStream::new(0, 1 << 20, 1500);
            for tsc in times {
                records.input().extend(packet(*tsc, &[index as u8]).1);
            }
            merge.add(records);
        }
        merge
    }

    fn drain(merge: &mut RecordMerge, complete_until: u64) -> Vec<(usize, u64)> {
        let mut out = Vec::new();
        for stream in &mut merge.streams {
            stream.set_complete_until(complete_until);
        }
        let flow = merge.drain(|stream, record, data, _| {
            assert!(matches!(data, RecordData::Copied(bytes) if *bytes == [stream as u8]));
            out.push((stream, record.tsc));
            ControlFlow::Continue(())
        });
        assert_eq!(flow, Ok(ControlFlow::Continue(())));
        out
    }

    #[test]
    fn an_empty_ring_holds_back_only_what_is_after_the_time_it_is_complete() {
        let mut merge = merge(&[vec![10, 20, 30], vec![]]);
        assert_eq!(drain(&mut merge, 20), [(0, 10), (0, 20)]);
        assert_eq!(drain(&mut merge, 29), []);
        merge.stream(1).unwrap().input().extend(packet(25, &[1]).1);
        assert_eq!(drain(&mut merge, 29), [(1, 25)]);
        assert_eq!(drain(&mut merge, 30), [(0, 30)]);
        assert_eq!(merge.late(), 0);
    }

    #[test]
    fn a_ring_that_was_not_read_to_its_next_packet_holds_back_all() {
        let mut merge = merge(&[vec![10, 30], vec![]]);
        let (_, bytes) = packet(20, &[1]);
        let (now, later) = bytes.split_at(16);
        let stream = merge.stream(1).unwrap();
        stream.input().extend(now);
        stream.set_left(later.len());
        assert_eq!(drain(&mut merge, u64::MAX), []);
        let stream = merge.stream(1).unwrap();
        stream.input().extend(later);
        stream.set_left(0);
        assert_eq!(drain(&mut merge, u64::MAX), [(0, 10), (1, 20), (0, 30)]);
    }

    #[test]
    fn rings_with_records_need_not_be_complete() {
        let mut merge = merge(&[vec![10, 30], vec![20, 40]]);
        assert_eq!(drain(&mut merge, 0), [(0, 10), (1, 20), (0, 30)]);
        assert_eq!(drain(&mut merge, u64::MAX), [(1, 40)]);
    }

    #[test]
    fn a_packet_later_than_the_window_is_kept_and_counted() {
        let mut merge = merge(&[vec![50], vec![]]);
        assert_eq!(drain(&mut merge, 60), [(0, 50)]);
        merge.stream(1).unwrap().input().extend(packet(40, &[1]).1);
        assert_eq!(drain(&mut merge, 70), [(1, 40)]);
        assert_eq!(merge.late(), 1);
    }

    #[test]
    fn a_break_leaves_the_rest() {
        let mut merge = merge(&[vec![1, 2, 3]]);
        let flow = merge.drain(|_, _, _, _| ControlFlow::Break(()));
        assert_eq!(flow, Ok(ControlFlow::Break(())));
        assert_eq!(drain(&mut merge, u64::MAX), [(0, 2), (0, 3)]);
    }

    proptest! {
        #[test]
        fn everything_comes_out_in_order_and_nothing_is_lost(
            mut streams in proptest::collection::vec(
                proptest::collection::vec(0u64..10_000, 0..40), 1..6),
            mut times in proptest::collection::vec(0u64..10_000, 0..6),
        ) {
            for stream in &mut streams {
                stream.sort_unstable();
            }
            times.sort_unstable();
            times.push(u64::MAX);
            let mut merge = merge(&streams);
            let out = times.iter().flat_map(|time| drain(&mut merge, *time)).collect::<Vec<_>>();
            prop_assert!(out.is_sorted_by_key(|(_, tsc)| *tsc));
            prop_assert_eq!(merge.late(), 0);
            for (index, stream) in streams.iter().enumerate() {
                let mine = out.iter().filter(|(l, _)| *l == index).map(|(_, tsc)| *tsc);
                prop_assert_eq!(&mine.collect::<Vec<_>>(), stream);
            }
        }
    }
}
