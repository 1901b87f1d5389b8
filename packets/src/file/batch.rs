//! Buffers of blocks, and the queue that passes them to the writer thread.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::sched_getcpu;

use crate::shared::{SharedBytes, SharedParts};
use crate::sink::{SinkError, SinkProgress};

/// Buffer size: large enough for few system calls, and small enough to stay in the cache until it is
/// written.
const BUFFER_SIZE: usize = 256 * 1024;
/// Number of all buffers, which limits the data that waits for a disk.
const MAX_BUFFERS: usize = 64 * 1024 * 1024 / BUFFER_SIZE;

/// Most packets that stay in shared memory until they are written: with the bytes between them, as many
/// vectors as one system call takes.
const MAX_PARTS: usize = 511;
/// Largest part of the shared memory, and largest number of its bytes, that may wait for one write:
/// packets fill the rest of the ring meanwhile.
const SHARE_OF_REGION: usize = 8;
const MAX_SHARED: usize = 1 << 20;

/// Complete blocks on their way to a file.
#[derive(Debug)]
pub(super) struct BlockBatch {
    bytes: Box<[u8]>,
    used: usize,
    /// Bytes in shared memory, between those of `bytes`.
    shared: SharedParts,
    /// The buffer is one of [`MAX_BUFFERS`].
    counted: bool,
    /// Number of packets.
    pub packets: u64,
}

impl BlockBatch {
    /// Returns an empty batch. Zeroed memory is allocated on first use, so an unused buffer costs
    /// nothing.
    fn with_room(size: usize) -> Self {
        let (bytes, shared) = (vec![0; size].into(), SharedParts::default());
        Self { bytes, used: 0, shared, counted: false, packets: 0 }
    }

    /// Reserves the next `size` bytes; `None` if they do not fit.
    pub(super) fn room(&mut self, size: usize) -> Option<&mut [u8]> {
        let room = self.bytes.get_mut(self.used..)?.get_mut(..size)?;
        self.used += size;
        Some(room)
    }

    pub(super) fn has_room(&self, size: usize) -> bool {
        self.bytes.len() - self.used >= size
    }

    /// Returns whether `size` bytes around these shared ones fit.
    pub(super) fn has_room_around(&self, size: usize, data: &SharedBytes<'_>) -> bool {
        let most = MAX_SHARED.min(data.region_size() / SHARE_OF_REGION);
        self.has_room(size) && self.shared.count() < MAX_PARTS && self.shared.len() < most
    }

    /// Reserves `size` bytes around shared ones, which come after the first `head` of them.
    pub(super) fn room_around(
        &mut self,
        size: usize,
        head: usize,
        data: &SharedBytes<'_>,
    ) -> Option<&mut [u8]> {
        if !self.has_room(size) {
            return None;
        }
        self.shared.push(self.used + head, data);
        self.room(size)
    }

    /// The bytes that are not in shared memory.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Returns whether some bytes are in shared memory.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.count() > 0
    }

    /// Returns the number of all bytes.
    pub(super) fn len(&self) -> usize {
        self.used + self.shared.len()
    }

    /// Returns all bytes in order.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.shared.slices(self.bytes())
    }

    /// Returns a copy that has no bytes in shared memory.
    pub(super) fn copied(&self) -> Self {
        let mut copy = Self { packets: self.packets, ..Self::with_room(self.len()) };
        if let Some(room) = copy.room(self.len()) {
            self.shared.copy_to(self.bytes(), room);
        }
        copy
    }

    fn append(&mut self, other: &Self) -> bool {
        if self.is_shared() || other.is_shared() {
            return false;
        }
        let Some(room) = self.room(other.used) else { return false };
        room.copy_from_slice(other.bytes());
        self.packets += other.packets;
        true
    }
}

/// The next command of the writer thread.
#[derive(Debug)]
pub(super) enum WriterCommand {
    Write(BlockBatch),
    /// Complete the file and begin another.
    Next(PathBuf),
}

/// What the writer thread gets from the queue.
#[derive(Debug)]
pub(super) enum QueueItem {
    Do(WriterCommand),
    /// No command arrived in time.
    Idle,
    /// No more commands follow.
    End,
}

#[derive(Debug, Default)]
struct QueueState {
    commands: VecDeque<WriterCommand>,
    free: Vec<BlockBatch>,
    /// Number of existing buffers.
    buffers: usize,
    ending: bool,
    over: bool,
    error: Option<SinkError>,
    progress: SinkProgress,
}

/// The queue, and the other state that both threads share.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    state: Mutex<QueueState>,
    /// Signals work for the writer.
    work: Condvar,
    /// Signals that the writer has ended.
    end: Condvar,
    failed: AtomicBool,
    /// The writer accepts bytes in shared memory.
    shares: AtomicBool,
    /// CPU that the writer last ran on.
    writer_cpu: AtomicUsize,
}

impl BatchQueue {
    /// Locks the state. A thread that panicked leaves it consistent, so poisoning is ignored.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty buffer of at least `size` bytes; `None` if all are waiting for the writer.
    pub(super) fn take(&self, size: usize) -> Option<BlockBatch> {
        let mut state = self.state();
        let free = state.free.pop();
        if free.is_none() {
            if state.buffers >= MAX_BUFFERS {
                return None;
            }
            state.buffers += 1;
        }
        let free = free.filter(|batch| batch.has_room(size));
        Some(free.unwrap_or_else(|| BlockBatch {
            counted: true,
            ..BlockBatch::with_room(size.max(BUFFER_SIZE))
        }))
    }

    /// Returns a buffer as [`Self::take`], beyond the limit if necessary: for blocks that a file needs
    /// to be readable.
    pub(super) fn take_anyway(&self, size: usize) -> BlockBatch {
        self.take(size).unwrap_or_else(|| BlockBatch::with_room(size.max(BUFFER_SIZE)))
    }

    /// Returns whether there are enough empty buffers for a packet that begins another file, or the
    /// writer has ended.
    pub(super) fn has_free(&self) -> bool {
        let state = self.state();
        state.free.len() + MAX_BUFFERS.saturating_sub(state.buffers) > 1 || state.over
    }

    /// Returns whether the writer accepts bytes in shared memory, which it needs only during a write.
    pub(super) fn shares(&self) -> bool {
        self.shares.load(Ordering::Relaxed)
    }

    /// Sets whether the writer accepts bytes in shared memory from now on. If not, waiting ones are
    /// copied.
    pub(super) fn set_shares(&self, shares: bool) {
        let mut state = self.state();
        self.shares.store(shares, Ordering::Relaxed);
        if shares {
            return;
        }
        let mut done = Vec::new();
        for command in &mut state.commands {
            if let WriterCommand::Write(batch) = command
                && batch.is_shared()
            {
                let copy = batch.copied();
                done.push(std::mem::replace(batch, copy));
            }
        }
        for batch in done {
            recycle(&mut state, batch);
        }
    }

    /// Passes a buffer to the writer. It is appended to the last waiting one if it fits there.
    pub(super) fn write(&self, mut batch: BlockBatch) {
        let mut state = self.state();
        if batch.is_shared() && !self.shares() {
            let copy = batch.copied();
            recycle(&mut state, std::mem::replace(&mut batch, copy));
        }
        let appended = match state.commands.back_mut() {
            Some(WriterCommand::Write(last)) => last.append(&batch),
            _ => false,
        };
        if appended || state.over {
            recycle(&mut state, batch);
        } else {
            state.commands.push_back(WriterCommand::Write(batch));
        }
        drop(state);
        self.work.notify_one();
        if self.writer_cpu.load(Ordering::Relaxed) == sched_getcpu() {
            // Otherwise the writer would only run at the end of this thread's time slice, when the
            // buffers have left the cache.
            std::thread::yield_now();
        }
    }

    pub(super) fn next_file(&self, path: PathBuf) {
        self.state().commands.push_back(WriterCommand::Next(path));
        self.work.notify_one();
    }

    /// Waits for the next command for at most `timeout`.
    pub(super) fn turn(&self, timeout: Duration) -> QueueItem {
        let idle = |state: &mut QueueState| state.commands.is_empty() && !state.ending;
        let (mut state, _) = self
            .work
            .wait_timeout_while(self.state(), timeout, idle)
            .unwrap_or_else(PoisonError::into_inner);
        self.writer_cpu.store(sched_getcpu(), Ordering::Relaxed);
        match state.commands.pop_front() {
            Some(command) => QueueItem::Do(command),
            None if state.ending => QueueItem::End,
            None => QueueItem::Idle,
        }
    }

    /// Waits for `pause`, or until the capture ends; returns false in the latter case.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let running = |state: &mut QueueState| !state.ending;
        let (state, _) = self
            .work
            .wait_timeout_while(self.state(), pause, running)
            .unwrap_or_else(PoisonError::into_inner);
        !state.ending
    }

    /// Returns a buffer for reuse.
    pub(super) fn recycle(&self, batch: BlockBatch) {
        recycle(&mut self.state(), batch);
    }

    /// Updates the progress of the writer.
    pub(super) fn report(&self, change: impl FnOnce(&mut SinkProgress)) {
        change(&mut self.state().progress);
    }

    /// Returns the progress of the writer, and whether it has ended.
    pub(super) fn progress(&self) -> (SinkProgress, bool) {
        let state = self.state();
        (state.progress.clone(), state.over)
    }

    /// Marks that the writer has ended, with its error.
    pub(super) fn close(&self, error: Option<SinkError>) {
        let mut state = self.state();
        state.over = true;
        state.commands.clear();
        self.failed.store(error.is_some(), Ordering::Release);
        state.error = error;
        self.end.notify_all();
    }

    /// Marks that the writer has ended, for any reason.
    pub(super) fn abandon(&self) {
        self.state().over = true;
        self.end.notify_all();
    }

    /// Returns the error that ended the writer, once.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        if self.failed.load(Ordering::Acquire) { self.take_error() } else { Ok(()) }
    }

    #[cold]
    fn take_error(&self) -> Result<(), SinkError> {
        self.state().error.take().map_or(Ok(()), Err)
    }

    /// Returns whether the writer has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Announces that no more commands follow.
    pub(super) fn announce_end(&self) {
        self.state().ending = true;
        self.work.notify_one();
    }

    /// Waits for the end of the writer as long as it writes bytes at least every `timeout`, and `abandon` is
    /// false; returns false otherwise. Calls `waits` with the progress every `notice`.
    pub(super) fn await_end(
        &self,
        timeout: Duration,
        notice: Duration,
        abandon: &AtomicBool,
        waits: impl Fn(&SinkProgress),
    ) -> bool {
        let mut state = self.state();
        let mut deadline = Instant::now() + timeout;
        let mut noticed = Instant::now();
        while !state.over && Instant::now() < deadline && !abandon.load(Ordering::Relaxed) {
            if noticed.elapsed() >= notice {
                noticed = Instant::now();
                waits(&state.progress);
            }
            let bytes = state.progress.bytes;
            let left = deadline.saturating_duration_since(Instant::now());
            (state, _) = self
                .end
                .wait_timeout(state, left.min(Duration::from_millis(100)))
                .unwrap_or_else(PoisonError::into_inner);
            if state.progress.bytes != bytes {
                deadline = Instant::now() + timeout;
            }
        }
        state.over
    }
}

fn recycle(state: &mut QueueState, mut batch: BlockBatch) {
    batch.shared.clear();
    if !batch.counted {
        return;
    }
    if batch.bytes.len() == BUFFER_SIZE {
        (batch.used, batch.packets) = (0, 0);
        state.free.push(batch);
    } else {
        state.buffers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(queue: &BatchQueue, size: usize) -> BlockBatch {
        let mut batch = queue.take(size).unwrap();
        batch.room(size).unwrap().fill(7);
        batch.packets = 1;
        batch
    }

    #[test]
    fn buffers_are_bounded_and_come_back() {
        let queue = BatchQueue::default();
        let mut all: Vec<_> = std::iter::from_fn(|| queue.take(0)).collect();
        assert_eq!(all.len(), MAX_BUFFERS);
        assert!(!queue.has_free() && queue.take(2 * BUFFER_SIZE).is_none());
        assert!(queue.take_anyway(1).has_room(BUFFER_SIZE));
        queue.recycle(all.pop().unwrap());
        queue.recycle(all.pop().unwrap());
        assert!(queue.has_free());
        assert!(queue.take(2 * BUFFER_SIZE).unwrap().has_room(2 * BUFFER_SIZE));
    }

    #[test]
    fn large_buffers_are_bounded_as_well() {
        let queue = BatchQueue::default();
        let take = || queue.take(BUFFER_SIZE + 1);
        let mut all: Vec<_> = std::iter::from_fn(take).take(2 * MAX_BUFFERS).collect();
        assert_eq!(all.len(), MAX_BUFFERS);
        queue.recycle(queue.take_anyway(BUFFER_SIZE + 1));
        assert!(take().is_none() && queue.take(0).is_none(), "there is room that nobody gave back");
        queue.recycle(all.pop().unwrap());
        assert!(queue.take(0).is_some() && take().is_none());
    }

    #[test]
    fn small_batches_behind_a_slow_writer_become_one() {
        let queue = BatchQueue::default();
        for _ in 0..1000 {
            queue.write(filled(&queue, 100));
        }
        queue.next_file("next".into());
        queue.write(filled(&queue, 100));
        queue.announce_end();
        let turn = || queue.turn(Duration::ZERO);
        let QueueItem::Do(WriterCommand::Write(batch)) = turn() else { panic!("no batch") };
        assert_eq!((batch.bytes().len(), batch.packets), (100_000, 1000));
        assert!(matches!(turn(), QueueItem::Do(WriterCommand::Next(path)) if path == *"next"));
        assert!(matches!(turn(), QueueItem::Do(WriterCommand::Write(batch)) if batch.packets == 1));
        assert!(matches!(turn(), QueueItem::End));
    }

    #[test]
    fn a_writer_without_progress_times_out() {
        let queue = BatchQueue::default();
        let never = Duration::MAX;
        let (go_on, abandon) = (AtomicBool::new(false), AtomicBool::new(true));
        assert!(!queue.await_end(Duration::from_millis(20), never, &go_on, |_| ()));
        assert!(!queue.await_end(Duration::from_secs(3600), never, &abandon, |_| ()));
        queue.close(None);
        assert!(queue.await_end(Duration::ZERO, never, &go_on, |_| ()));
        assert!(queue.is_over() && queue.check().is_ok());
    }

    #[test]
    fn an_error_is_reported_once() {
        let queue = BatchQueue::default();
        let name = "pipe".to_owned();
        queue.close(Some(SinkError::Closed { name }));
        assert!(queue.check().is_err() && queue.check().is_ok());
    }
}
