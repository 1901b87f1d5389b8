//! One mapped capture ring: the only code that accesses memory shared with an app.
//!
//! Headers of records are copied before they are checked, and so are packets, unless they go into a
//! file unseen: a producer that changes them later can spoil its own capture and nothing else.
#![allow(unsafe_code)] // Reads and writes memory that another process maps.

use std::fs::File;
use std::iter::Sum;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use pmdscope_packets::SharedRegion;
use rustix::fs::{FsWord, SealFlags};

use crate::layout::{
    ANCHOR_SEQ, ANCHOR_SIZE, ANCHORS, ClockAnchor, DROPPED, FEATURE_GAPS, FEATURE_IN_BURST,
    FEATURE_MAPPED, FEATURE_RESAMPLE, FILTERED, HEAD, IN_BURST, PORT_DROPPED, RECORD_SIZE, RECORDS,
    RING_ALIGN, RING_HEADER_SIZE, RING_MAGIC, RING_MAX_SIZE, RING_MIN_SIZE, RING_PORTS, RingHeader,
    SAMPLED_OUT, TAIL_SIZE, VERSION,
};
use crate::protocol::{BadHead, RingCursor, is_between_bursts, read_locked};
use crate::records::RecordStream;

/// `f_type` of the file system of huge pages.
const HUGETLBFS: FsWord = 0x9584_58f6;
/// Longest wait for a producer that is in a burst, when its ring is closed. A burst takes microseconds, unless its
/// lcore is preempted.
const BURST_TIMEOUT: Duration = Duration::from_millis(5);
/// Longest wait for head and counters of the same moment, which a hostile producer may never give.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Attempts to read the anchors before giving up until the next round.
const SEQLOCK_TRIES: usize = 64;

/// Why a ring cannot be used, or can no longer be.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A descriptor could not be examined or mapped.
    #[error("cannot map the {what} of a capture ring")]
    Map {
        /// "data" or "tail".
        what: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The memory could be removed while it is mapped.
    #[error("the {0} of a capture ring is not sealed against shrinking")]
    Unsealed(&'static str),
    /// The memory is in huge pages, where an access to a hole fails if they are used up or limited.
    #[error("the {0} of a capture ring is in huge pages")]
    HugePages(&'static str),
    /// The memory is smaller than its header says.
    #[error("the {what} of a capture ring has {found} bytes, {expected} are needed")]
    Short {
        /// "data" or "tail".
        what: &'static str,
        /// Size of the descriptor, bytes.
        found: u64,
        /// Size needed, bytes.
        expected: u64,
    },
    /// It is no ring, or one of another version.
    #[error("a capture ring has {field} {found:#x}, this pmdscope needs {expected}")]
    Header {
        /// Field of the header.
        field: &'static str,
        /// Its value.
        found: u64,
        /// Expected value.
        expected: &'static str,
    },
    /// The producer violated the rules of the head.
    #[error(
        "the head of lcore {lcore}'s capture ring went from {from} to {to}: the ring is broken"
    )]
    Head {
        /// Producing lcore.
        lcore: u16,
        /// Position of the consumer.
        from: u64,
        /// The new head.
        to: u64,
    },
}

/// Counters of a ring since it was made, packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Written to the ring.
    pub records: u64,
    /// Lost because the ring was full.
    pub dropped: u64,
    /// Rejected by the filter.
    pub filtered: u64,
    /// Left out by sampling.
    pub sampled_out: u64,
}

impl RingCounters {
    /// Returns the number of packets that passed the filter, kept or not.
    pub fn passed_filter(&self) -> u64 {
        self.records.saturating_add(self.dropped).saturating_add(self.sampled_out)
    }

    /// Returns the mean sampling: one in this many packets that passed the filter was kept or
    /// dropped; 1 is all.
    pub fn mean_sample(&self) -> f64 {
        let kept = self.records.saturating_add(self.dropped);
        if kept == 0 { 1.0 } else { self.passed_filter() as f64 / kept as f64 }
    }

    /// Returns the number of all packets that the filter processed.
    pub fn seen(&self) -> u64 {
        self.passed_filter().saturating_add(self.filtered)
    }
}

impl Sum for RingCounters {
    fn sum<I: Iterator<Item = Self>>(rings: I) -> Self {
        rings.fold(Self::default(), |sum, ring| Self {
            records: sum.records.saturating_add(ring.records),
            dropped: sum.dropped.saturating_add(ring.dropped),
            filtered: sum.filtered.saturating_add(ring.filtered),
            sampled_out: sum.sampled_out.saturating_add(ring.sampled_out),
        })
    }
}

/// A ring at the moment at which the capture of it ended.
#[derive(Debug)]
struct ClosedRing {
    head: AtomicU64,
    counters: RingCounters,
    /// Drops by port.
    dropped: Vec<u64>,
}

/// A ring of one producing lcore, read by this process.
#[derive(Debug)]
pub struct Ring {
    data: Arc<SharedRegion>,
    tail: MmapRaw,
    header: RingHeader,
    cursor: RingCursor,
    /// Head and number of records when they were last read.
    seen: u64,
    counted: u64,
    /// Mean size of the records between the last two reads of the counters, bytes.
    mean_record: u64,
    closed: Option<ClosedRing>,
}

impl Ring {
    /// Maps a ring from its two descriptors and checks all its constant properties.
    ///
    /// # Errors
    /// When the descriptors are not a ring that can be read without risk to this process.
    pub fn map(data: OwnedFd, tail: OwnedFd) -> Result<Self, RingError> {
        let (data, tail) = (File::from(data), File::from(tail));
        let data_len = check_memfd("data", &data, RING_HEADER_SIZE as u64)?;
        check_memfd("tail", &tail, TAIL_SIZE as u64)?;
        let header = read_header(&data)?;
        check_header(&header)?;
        let expected = RING_HEADER_SIZE as u64 + u64::from(header.data_size);
        if data_len < expected {
            return Err(RingError::Short { what: "data", found: data_len, expected });
        }
        let map_len = RING_HEADER_SIZE + header.data_size as usize;
        let data = MmapOptions::new()
            .len(map_len)
            .map_raw_read_only(&data)
            .map_err(|source| RingError::Map { what: "data", source })?;
        let tail = MmapOptions::new()
            .len(TAIL_SIZE)
            .map_raw(&tail)
            .map_err(|source| RingError::Map { what: "tail", source })?;
        let cursor = RingCursor::new(tail_word(&tail), header.data_size, RING_ALIGN);
        let data = Arc::new(SharedRegion::new(data));
        let seen = cursor.consumed();
        let (counted, mean_record, closed) = (0, 0, None);
        let ring = Self { data, tail, header, cursor, seen, counted, mean_record, closed };
        ring.cursor.available(ring.word(HEAD)).map_err(|head| ring.bad_head(head))?;
        Ok(ring)
    }

    /// Returns the producing lcore.
    pub fn lcore(&self) -> u16 {
        self.header.lcore
    }

    /// Returns the size of the data area, bytes, a power of two.
    pub fn data_size(&self) -> u32 {
        self.header.data_size
    }

    /// Returns the most bytes that the producer copies of one packet.
    pub fn snaplen(&self) -> u32 {
        self.header.snaplen
    }

    /// Returns whether the producer counts drops per port and per gap.
    pub fn counts_gaps(&self) -> bool {
        self.header.features & FEATURE_GAPS != 0
    }

    /// Returns whether the sampling of the producer can be changed; it then marks in the ring where
    /// that happens.
    pub fn resamples(&self) -> bool {
        self.header.features & FEATURE_RESAMPLE != 0
    }

    /// Returns whether the producer waits for a confirmation that this ring is mapped.
    pub(crate) fn wants_confirmation(&self) -> bool {
        self.header.features & FEATURE_MAPPED != 0
    }

    /// Returns whether all records with time stamps before this call are published. False if the
    /// producer is in a burst, or does not tell.
    pub(crate) fn is_between_bursts(&self) -> bool {
        self.header.features & FEATURE_IN_BURST != 0
            && is_between_bursts(half_word(self.data.map(), IN_BURST))
    }

    /// Returns the number of bytes read so far, which is the ring position of the next byte.
    pub fn consumed(&self) -> u64 {
        self.cursor.consumed()
    }

    /// Returns the mean size of the records that were published recently, bytes.
    pub(crate) fn mean_record(&self) -> u64 {
        self.mean_record
    }

    /// Ends the capture of this ring: what its producer publishes from now on is neither read nor counted.
    pub(crate) fn close(&mut self) {
        let begin = Instant::now();
        while self.closed.is_none() {
            let dropped = (0..RING_PORTS).map(|port| self.word(PORT_DROPPED + 8 * port));
            let closed = ClosedRing {
                counters: self.counters(),
                dropped: dropped.map(|count| count.load(Ordering::Relaxed)).collect(),
                head: self.word(HEAD).load(Ordering::Acquire).into(),
            };
            let waited = begin.elapsed();
            let is_published = self.is_between_bursts()
                || self.header.features & FEATURE_IN_BURST == 0
                || waited >= BURST_TIMEOUT;
            // Afterwards: a burst that is published now changes them, and so do all those that were published if
            // this thread was preempted.
            let is_one_moment = self.word(HEAD).load(Ordering::Acquire)
                == closed.head.load(Ordering::Relaxed)
                && self.counters() == closed.counters;
            if is_one_moment && is_published || waited >= CLOSE_TIMEOUT {
                self.closed = Some(closed);
            }
        }
    }

    /// Reads head and counters; returns the number of bytes published since the last call.
    pub(crate) fn look(&mut self) -> usize {
        let head = self.word(HEAD).load(Ordering::Relaxed);
        let records = self.word(RECORDS).load(Ordering::Relaxed);
        let new = head.saturating_sub(self.seen);
        if let Some(mean) = new.checked_div(records.saturating_sub(self.counted)) {
            self.mean_record = mean;
        }
        (self.seen, self.counted) = (head, records);
        usize::try_from(new).unwrap_or(usize::MAX)
    }

    /// Lets `records` read in place what was published, up to the end of the ring.
    /// [`Ring::release`] must follow.
    ///
    /// # Errors
    /// As [`Ring::read`].
    pub(crate) fn view(&mut self, records: &mut RecordStream) -> Result<(), RingError> {
        let head = last_head(self.closed.as_ref(), self.data.map());
        let (end, left) = self.cursor.contiguous(head).map_err(|head| self.bad_head(head))?;
        records.view(&self.data, end);
        records.set_left(left);
        Ok(())
    }

    /// Releases the room of what was read and is not held by a file.
    pub(crate) fn release(&mut self, records: &RecordStream) {
        if let Some(position) = records.viewed() {
            self.cursor.advance(position);
        }
        let position = self.data.releasable(self.cursor.consumed());
        self.cursor.release(tail_word(&self.tail), position);
    }

    /// Returns the number of bytes that were read and not yet released.
    pub(crate) fn kept(&self) -> u64 {
        self.cursor.kept()
    }

    /// Copies what was published, at most `most` bytes, to `records`, releases the room to the
    /// producer, and returns the number of bytes. The last record may be cut; the next call
    /// continues with it.
    ///
    /// # Errors
    /// When the head went back, or is further ahead than the size of the ring. The ring cannot be
    /// used any more.
    pub fn read(&mut self, most: usize, records: &mut RecordStream) -> Result<usize, RingError> {
        if let Some(position) = records.viewed() {
            self.cursor.advance(position);
        }
        let map = self.data.map();
        let out = records.input();
        let copy = |offset, len| copy_out(map, self.header.data_size, offset, len, out);
        let head = last_head(self.closed.as_ref(), map);
        let read = self.cursor.read(head, most, copy);
        let (count, left) = read.map_err(|head| self.bad_head(head))?;
        records.set_left(left);
        self.release(records);
        Ok(count)
    }

    /// Returns the counters of the producer, of a closed ring those of that moment.
    pub fn counters(&self) -> RingCounters {
        if let Some(closed) = &self.closed {
            return closed.counters;
        }
        let load = |at| self.word(at).load(Ordering::Relaxed);
        RingCounters {
            records: load(RECORDS),
            dropped: load(DROPPED),
            filtered: load(FILTERED),
            sampled_out: load(SAMPLED_OUT),
        }
    }

    /// Returns the number of packets of one port that were lost because the ring was full; `None`
    /// when that is not counted.
    pub fn port_dropped(&self, port: u16) -> Option<u64> {
        let port = usize::from(port);
        if !self.counts_gaps() || port >= RING_PORTS {
            return None;
        }
        match &self.closed {
            Some(closed) => closed.dropped.get(port).copied(),
            None => Some(self.word(PORT_DROPPED + 8 * port).load(Ordering::Relaxed)),
        }
    }

    /// Returns the sequence number of the anchors, which changes when they do.
    pub fn anchor_seq(&self) -> u32 {
        half_word(self.data.map(), ANCHOR_SEQ).load(Ordering::Acquire)
    }

    /// Returns the first and the latest anchor; `None` while they are being written.
    pub fn anchors(&self) -> Option<(ClockAnchor, ClockAnchor)> {
        for _ in 0..SEQLOCK_TRIES {
            let seq = half_word(self.data.map(), ANCHOR_SEQ);
            let anchors = read_locked(seq, || (self.anchor(0), self.anchor(1)));
            if anchors.is_some() {
                return anchors;
            }
            std::hint::spin_loop();
        }
        None
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        word(self.data.map(), offset)
    }

    fn bad_head(&self, BadHead(to): BadHead) -> RingError {
        RingError::Head { lcore: self.lcore(), from: self.consumed(), to }
    }

    fn anchor(&self, index: usize) -> ClockAnchor {
        let at = ANCHORS + index * ANCHOR_SIZE;
        let load = |at| self.word(at).load(Ordering::Relaxed);
        ClockAnchor { tsc: load(at), realtime_ns: load(at + 8), raw_ns: load(at + 16) }
    }
}

/// Returns the head up to which a ring may be read.
fn last_head<'a>(closed: Option<&'a ClosedRing>, map: &'a MmapRaw) -> &'a AtomicU64 {
    closed.map_or_else(|| word(map, HEAD), |closed| &closed.head)
}

/// Copies bytes of the data area to `out`. `offset + len` is at most the size of the data area.
fn copy_out(data: &MmapRaw, size: u32, offset: usize, len: usize, out: &mut Vec<u8>) {
    debug_assert!(offset + len <= size as usize);
    let end = out.len() + len;
    out.reserve(len);
    // SAFETY: callers keep offset + len within data_size, which `Ring::map` checked to be mapped;
    // `reserve` made room for len bytes, all of which are written before set_len. The producer does
    // not write bytes between tail and head; if it does nevertheless, arbitrary bytes arrive, which
    // every reader of `out` must expect.
    unsafe {
        let from = data.as_ptr().add(RING_HEADER_SIZE + offset);
        from.copy_to_nonoverlapping(out.as_mut_ptr().add(out.len()), len);
        out.set_len(end);
    }
}

fn word(data: &MmapRaw, offset: usize) -> &AtomicU64 {
    // SAFETY: offset is one of the constants of `layout`, a multiple of 8 within the mapped
    // header page; the mapping lives as long as the reference. It is read-only: callers only load.
    unsafe { AtomicU64::from_ptr(data.as_ptr().add(offset).cast_mut().cast()) }
}

fn half_word(data: &MmapRaw, offset: usize) -> &AtomicU32 {
    // SAFETY: as in `word`; the constant is a multiple of 4.
    unsafe { AtomicU32::from_ptr(data.as_ptr().add(offset).cast_mut().cast()) }
}

fn tail_word(tail: &MmapRaw) -> &AtomicU64 {
    // SAFETY: the tail mapping is page-aligned, writable, at least 8 bytes long and lives as
    // long as the reference.
    unsafe { AtomicU64::from_ptr(tail.as_mut_ptr().cast()) }
}

/// Checks that a file can be mapped; returns its size. An access to a mapping faults when its file
/// shrinks, or when there is no huge page for a hole in it, so such files are refused.
fn check_memfd(what: &'static str, file: &File, expected: u64) -> Result<u64, RingError> {
    let found = file.metadata().map_err(|source| RingError::Map { what, source })?.len();
    if found < expected {
        return Err(RingError::Short { what, found, expected });
    }
    let system =
        rustix::fs::fstatfs(file).map_err(|errno| RingError::Map { what, source: errno.into() })?;
    if system.f_type == HUGETLBFS {
        return Err(RingError::HugePages(what));
    }
    match rustix::fs::fcntl_get_seals(file.as_fd()) {
        Ok(seals) if seals.contains(SealFlags::SHRINK) => Ok(found),
        _ => Err(RingError::Unsealed(what)),
    }
}

fn read_header(data: &File) -> Result<RingHeader, RingError> {
    let mut bytes = [0; RingHeader::SIZE];
    std::os::unix::fs::FileExt::read_exact_at(data, &mut bytes, 0)
        .map_err(|source| RingError::Map { what: "data", source })?;
    Ok(RingHeader::parse(&bytes))
}

fn check_header(header: &RingHeader) -> Result<(), RingError> {
    let size = header.data_size;
    let size_ok = size.is_power_of_two() && (RING_MIN_SIZE..=RING_MAX_SIZE).contains(&size);
    let checks = [
        ("magic", u64::from(header.magic), header.magic == RING_MAGIC, "0x52444d50 (PMDR)"),
        ("version", header.version.into(), header.version == VERSION, "1"),
        (
            "header size",
            header.header_size.into(),
            usize::from(header.header_size) == RING_HEADER_SIZE,
            "4096",
        ),
        (
            "record size",
            header.record_size.into(),
            usize::from(header.record_size) == RECORD_SIZE,
            "32",
        ),
        ("data size", size.into(), size_ok, "a power of two from 64 KiB to 64 MiB"),
    ];
    match checks.into_iter().find(|(_, _, ok, _)| !ok) {
        None => Ok(()),
        Some((field, found, _, expected)) => Err(RingError::Header { field, found, expected }),
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
