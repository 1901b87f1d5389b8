//! The producing side of a capture ring, for packets that a thread of this process collects.
#![allow(unsafe_code)] // Writes memory that the reading side maps.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::layout::{
    ANCHOR_SEQ, ANCHOR_SIZE, ANCHORS, ClockAnchor, DROPPED, FEATURE_GAPS, FILTERED, HEAD,
    PORT_DROPPED, RECORD_PACKET, RECORD_PAD, RECORD_SIZE, RECORDS, RING_ALIGN, RING_HEADER_SIZE,
    RING_MAGIC, RING_MAX_SIZE, RING_MIN_SIZE, RING_PORTS, RingRecord, SAMPLED_OUT, TAIL_SIZE,
    VERSION,
};

/// Why a packet was not written to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// Rejected by the filter.
    Filtered,
    /// Skipped by sampling.
    Sampled,
}

/// A ring that this process fills.
#[derive(Debug)]
pub(crate) struct RingWriter {
    files: [File; 2],
    data: MmapRaw,
    tail: MmapRaw,
    size: u64,
    head: u64,
    /// Packets dropped since the last record, by port.
    gaps: [u32; RING_PORTS],
}

impl RingWriter {
    /// Creates a ring of at least `size` bytes, within the limits of rings, with this lcore id in
    /// its header.
    pub(crate) fn new(size: u32, snaplen: u32, lcore: u16) -> io::Result<Self> {
        let size = size.clamp(RING_MIN_SIZE, RING_MAX_SIZE).next_power_of_two();
        let data_len = RING_HEADER_SIZE + usize::try_from(size).map_err(io::Error::other)?;
        let data = sealed("pmdscope-peek-data", data_len)?;
        let tail = sealed("pmdscope-peek-tail", TAIL_SIZE)?;
        let header = [
            &RING_MAGIC.to_ne_bytes()[..],
            &VERSION.to_ne_bytes(),
            &u16::try_from(RING_HEADER_SIZE).map_err(io::Error::other)?.to_ne_bytes(),
            &size.to_ne_bytes(),
            &u16::try_from(RECORD_SIZE).map_err(io::Error::other)?.to_ne_bytes(),
            &lcore.to_ne_bytes(),
            &FEATURE_GAPS.to_ne_bytes(),
            &snaplen.to_ne_bytes(),
        ];
        data.write_all_at(&header.concat(), 0)?;
        Ok(Self {
            data: MmapOptions::new().len(data_len).map_raw(&data)?,
            tail: MmapOptions::new().len(TAIL_SIZE).map_raw(&tail)?,
            files: [data, tail],
            size: size.into(),
            head: 0,
            gaps: [0; RING_PORTS],
        })
    }

    /// Returns descriptors for the reading side: data and tail.
    pub(crate) fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        let [data, tail] = &self.files;
        Ok([data.try_clone()?.into(), tail.try_clone()?.into()])
    }

    /// Sets the anchors, which relate time stamps of records to the wall clock.
    pub(crate) fn set_anchors(&self, first: ClockAnchor, last: ClockAnchor) {
        let seq = self.seq();
        let before = seq.load(Ordering::Relaxed);
        seq.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (index, anchor) in [first, last].into_iter().enumerate() {
            let at = ANCHORS + index * ANCHOR_SIZE;
            for (place, value) in
                [anchor.tsc, anchor.realtime_ns, anchor.raw_ns].into_iter().enumerate()
            {
                self.word(at + 8 * place).store(value, Ordering::Relaxed);
            }
        }
        seq.store(before.wrapping_add(2), Ordering::Release);
    }

    /// Counts a packet that is not written.
    pub(crate) fn leave_out(&self, why: LeftOut) {
        let counter = match why {
            LeftOut::Filtered => FILTERED,
            LeftOut::Sampled => SAMPLED_OUT,
        };
        self.word(counter).fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a packet, or counts it as dropped. Sizes, type and gap of the record are set here.
    pub(crate) fn push(&mut self, record: RingRecord, data: &[u8]) {
        let most = usize::try_from(self.size).unwrap_or(usize::MAX) / 2;
        let data = &data[..data.len().min(most)];
        let caplen = u32::try_from(data.len()).unwrap_or_default();
        let header_size = u32::try_from(RECORD_SIZE).unwrap_or_default();
        let size = (header_size + caplen).next_multiple_of(RING_ALIGN);
        let port = usize::from(record.port);
        if !self.reserve(size) {
            self.word(DROPPED).fetch_add(1, Ordering::Relaxed);
            if let Some(gap) = self.gaps.get_mut(port) {
                *gap = gap.saturating_add(1);
                self.word(PORT_DROPPED + 8 * port).fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let gap = self.gaps.get_mut(port).map(std::mem::take).unwrap_or_default();
        let record = RingRecord { size, kind: RECORD_PACKET, caplen, gap, ..record };
        self.write(&record.encode());
        self.write(data);
        self.head = self.head.next_multiple_of(RING_ALIGN.into());
        self.word(RECORDS).fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes what was written to the reading side.
    pub(crate) fn publish(&self) {
        self.word(HEAD).store(self.head, Ordering::Release);
    }

    /// Returns whether there is room for a contiguous record; fills the ring up to its end if
    /// necessary.
    fn reserve(&mut self, size: u32) -> bool {
        // SAFETY: the tail mapping is page-aligned and at least 8 bytes long.
        let tail = unsafe { AtomicU64::from_ptr(self.tail.as_mut_ptr().cast()) };
        let left = self.size - self.head % self.size;
        let padding = if u64::from(size) > left { left } else { 0 };
        let used = self.head.checked_sub(tail.load(Ordering::Acquire));
        if used.is_none_or(|used| used + padding + u64::from(size) > self.size) {
            return false;
        }
        if padding > 0 {
            let size = u32::try_from(padding).unwrap_or_default();
            let filler = RingRecord { size, kind: RECORD_PAD, ..RingRecord::default() }.encode();
            // There may be room only for size and type.
            self.write(&filler[..filler.len().min(usize::try_from(padding).unwrap_or_default())]);
            self.head = self.head.next_multiple_of(self.size);
        }
        true
    }

    /// Writes bytes at the head, up to the end of the ring.
    fn write(&mut self, bytes: &[u8]) {
        let offset = usize::try_from(self.head % self.size).unwrap_or_default();
        let room = usize::try_from(self.size).unwrap_or_default() - offset;
        let bytes = &bytes[..bytes.len().min(room)];
        // SAFETY: offset and length are within the data area, which is mapped after the header. The
        // reading side does not read it before `publish`.
        unsafe {
            let at = self.data.as_mut_ptr().add(RING_HEADER_SIZE + offset);
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.head += bytes.len() as u64;
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: offset is one of the constants of `layout`, a multiple of 8 within the header.
        unsafe { AtomicU64::from_ptr(self.data.as_mut_ptr().add(offset).cast()) }
    }

    fn seq(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; ANCHOR_SEQ is a multiple of 4 within the header.
        unsafe { AtomicU32::from_ptr(self.data.as_mut_ptr().add(ANCHOR_SEQ).cast()) }
    }
}

/// Creates a memfd that the reading side can map safely.
fn sealed(name: &str, len: usize) -> io::Result<File> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordStream;
    use crate::ring::{Ring, RingCounters};

    fn record(id: u32) -> RingRecord {
        RingRecord { len: id % 1400, tsc: id.into(), port: 1, ..RingRecord::default() }
    }

    #[test]
    fn what_is_written_is_read_over_the_end_of_the_ring() {
        let mut writer = RingWriter::new(RING_MIN_SIZE, 1500, 7).unwrap();
        let [data, tail] = writer.descriptors().unwrap();
        let mut ring = Ring::map(data, tail).unwrap();
        assert_eq!((ring.lcore(), ring.resamples()), (7, false));
        let anchor = |ns| ClockAnchor { tsc: ns, realtime_ns: ns + 5, raw_ns: ns };
        writer.set_anchors(anchor(1), anchor(2));
        assert_eq!(ring.anchors(), Some((anchor(1), anchor(2))));
        let mut records = RecordStream::new(0, RING_MIN_SIZE, 1500);
        let mut next = 0;
        for round in 0..2000u32 {
            let id = round * 3;
            for id in id..id + 3 {
                writer.push(record(id), &vec![id as u8; (id % 1400) as usize]);
            }
            assert_eq!(ring.read(usize::MAX, &mut records).unwrap(), 0, "not published");
            writer.publish();
            ring.read(usize::MAX, &mut records).unwrap();
            while let Some(read) = records.peek().unwrap() {
                assert_eq!((read.tsc, read.caplen), (next.into(), next % 1400));
                assert!(records.payload(&read).iter().all(|byte| *byte == next as u8));
                records.skip(read.size);
                next += 1;
            }
        }
        assert_eq!(next, 6000);
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let mut writer = RingWriter::new(RING_MIN_SIZE, 1500, 7).unwrap();
        let [data, tail] = writer.descriptors().unwrap();
        let mut ring = Ring::map(data, tail).unwrap();
        writer.leave_out(LeftOut::Filtered);
        writer.leave_out(LeftOut::Sampled);
        for id in 0..100 {
            writer.push(RingRecord { len: 1000, ..record(id) }, &[1; 1000]);
        }
        writer.publish();
        let counters = ring.counters();
        assert_eq!(counters.records + counters.dropped, 100);
        assert!(counters.dropped > 0);
        let left_out = RingCounters { filtered: 1, sampled_out: 1, ..counters };
        assert_eq!((counters, ring.port_dropped(1)), (left_out, Some(counters.dropped)));
        let mut records = RecordStream::new(0, RING_MIN_SIZE, 1500);
        ring.read(usize::MAX, &mut records).unwrap();
        writer.push(RingRecord { len: 1000, ..record(100) }, &[1; 1000]);
        writer.publish();
        ring.read(usize::MAX, &mut records).unwrap();
        let mut last = RingRecord::default();
        while let Some(read) = records.peek().unwrap() {
            records.skip(read.size);
            last = read;
        }
        assert_eq!((last.tsc, u64::from(last.gap)), (100, counters.dropped));
    }
}
