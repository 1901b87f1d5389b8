//! The thread that writes incidents: stored packets and new ones, in one order.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use super::block::{BlockReader, PacketBlock};
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};
use crate::sink::{PacketSink, SinkError, SinkProgress};

/// Bytes of packets between two checks whether the file has space.
const STRIDE: usize = 256 << 10;
/// Most bytes that a packet needs in a file besides its own.
const OVERHEAD: usize = 128;
/// Time between two such checks while it has none.
const PAUSE: Duration = Duration::from_micros(500);
/// Longest wait at the end for a disk without progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the file of an incident; called in the writer's thread.
pub type SinkOpener = Box<dyn FnMut(&Path) -> Result<Box<dyn PacketSink>, SinkError> + Send>;

/// A comment for a packet.
#[derive(Clone, Debug)]
pub(super) struct PendingComment {
    /// Time of the event.
    pub(super) ns: u64,
    /// Number of the packet that it is about; otherwise it is for the first one at or after the time.
    pub(super) packet: Option<u64>,
    pub(super) text: String,
}

impl PendingComment {
    /// Returns whether it is for this packet, or for one before that was lost.
    fn is_due(&self, packet: &Packet<'_>) -> bool {
        self.packet.map_or(self.ns <= packet.ns, |number| number <= packet.id)
    }

    /// Appends another statement.
    pub(super) fn with(mut self, statement: &impl Display) -> Self {
        self.text = format!("{}; {statement}", self.text);
        self
    }
}

/// The next message to the writer.
#[derive(Debug)]
pub(super) enum WriterMessage {
    /// Begins a file.
    Begin {
        path: PathBuf,
        start_ns: u64,
        end_ns: u64,
        mark: PendingComment,
    },
    /// Extends the file.
    Extend {
        end_ns: u64,
        mark: PendingComment,
    },
    Section(SectionOrigin),
    Interface(CaptureInterface),
    /// The records of a block from this offset on.
    Block {
        block: Arc<PacketBlock>,
        from: usize,
    },
    /// Records of a block that is still being filled; `first` if they are its first.
    Part {
        bytes: Vec<u8>,
        first: bool,
    },
    Counters(Vec<InterfaceStatistics>),
    Flush,
    /// Completes the file.
    End,
}

/// State that the writer shares.
#[derive(Debug, Default)]
struct WriterState {
    /// Progress of all files.
    progress: Mutex<SinkProgress>,
    failure: Mutex<Option<SinkError>>,
    failed: AtomicBool,
    /// Number of waiting messages.
    backlog: AtomicUsize,
    /// No more messages follow.
    ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recorder's end of the queue to the writer.
#[derive(Debug)]
pub(super) struct RecorderWriter {
    sender: Option<Sender<WriterMessage>>,
    shared: Arc<WriterState>,
    thread: Option<JoinHandle<()>>,
}

impl RecorderWriter {
    pub(super) fn start(open: SinkOpener) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let shared = Arc::<WriterState>::default();
        let told = Arc::clone(&shared);
        let work = move || WriterThread { open, shared: told, file: None }.run(&receiver);
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(work)?;
        Ok(Self { sender: Some(sender), shared, thread: Some(thread) })
    }

    pub(super) fn send(&self, message: WriterMessage) {
        if let Some(sender) = &self.sender {
            self.shared.backlog.fetch_add(1, Ordering::Relaxed);
            // The thread ends only after the sender is dropped.
            let _ = sender.send(message);
        }
    }

    /// Returns the number of waiting messages.
    pub(super) fn backlog(&self) -> usize {
        self.shared.backlog.load(Ordering::Relaxed)
    }

    /// Returns the error that ended writing, once.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        if !self.shared.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        lock(&self.shared.failure).take().map_or(Ok(()), Err)
    }

    pub(super) fn progress(&self) -> SinkProgress {
        lock(&self.shared.progress).clone()
    }

    /// Waits until everything is written.
    pub(super) fn finish(&mut self) -> Result<(), SinkError> {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic while it wrote is reported as an error below; others were printed on standard
            // error.
            let _ = thread.join();
        }
        self.check()
    }
}

#[derive(Debug)]
struct IncidentFile {
    target: Box<dyn PacketSink>,
    start_ns: u64,
    end_ns: u64,
    marks: Vec<PendingComment>,
    /// Comment for interfaces: a file may have no packet at or after the event.
    reason: String,
    reader: BlockReader,
    /// Bytes since the last check whether the file has space.
    handed: usize,
    shared: Arc<WriterState>,
}

struct WriterThread {
    open: SinkOpener,
    shared: Arc<WriterState>,
    file: Option<IncidentFile>,
}

impl WriterThread {
    fn run(mut self, receiver: &Receiver<WriterMessage>) {
        let mut done = SinkProgress::default();
        while let Ok(message) = receiver.recv() {
            // After a failure, messages are dropped: they hold the memory of packets.
            if !self.shared.failed.load(Ordering::Relaxed)
                && let Err(error) = self.take_or_panic(message, &mut done)
            {
                self.fail(error);
            }
            self.shared.backlog.fetch_sub(1, Ordering::Relaxed);
            self.tell(&done);
        }
        if let Some(file) = self.file.take()
            && let Err(error) = file.finish(&mut done)
        {
            self.fail(error);
        }
        self.tell(&done);
    }

    /// Processes a message, and converts a panic to an error, so that the recorder learns that writing
    /// has ended.
    fn take_or_panic(
        &mut self,
        message: WriterMessage,
        done: &mut SinkProgress,
    ) -> Result<(), SinkError> {
        catch_unwind(AssertUnwindSafe(|| self.take(message, done))).unwrap_or_else(|_| {
            let source = io::Error::other("the thread that writes has panicked");
            Err(SinkError::Write { name: "the flight recorder".to_owned(), source })
        })
    }

    fn fail(&self, error: SinkError) {
        lock(&self.shared.failure).get_or_insert(error);
        self.shared.failed.store(true, Ordering::Relaxed);
    }

    fn tell(&self, done: &SinkProgress) {
        let now = self.file.as_ref().map(|file| file.target.progress());
        *lock(&self.shared.progress) = now.map_or_else(|| done.clone(), |now| sum(done, now));
    }

    fn take(&mut self, message: WriterMessage, done: &mut SinkProgress) -> Result<(), SinkError> {
        if let WriterMessage::Begin { path, start_ns, end_ns, mark } = message {
            let target = (self.open)(&path)?;
            let (reason, marks) = (mark.text.clone(), vec![mark]);
            let (reader, shared) = (BlockReader::default(), Arc::clone(&self.shared));
            self.file = Some(IncidentFile {
                target,
                start_ns,
                end_ns,
                marks,
                reason,
                reader,
                handed: 0,
                shared,
            });
            return Ok(());
        }
        if let WriterMessage::End = message {
            return self.file.take().map_or(Ok(()), |file| file.finish(done));
        }
        self.file.as_mut().map_or(Ok(()), |file| file.take(message))
    }
}

/// Adds the progress of the current file, `now`, to that of the previous ones, `done`.
fn sum(done: &SinkProgress, now: SinkProgress) -> SinkProgress {
    SinkProgress {
        written: done.written + now.written,
        lost: done.lost + now.lost,
        after_end: done.after_end + now.after_end,
        bytes: done.bytes + now.bytes,
        files: done.files + now.files.max(1),
        ..now
    }
}

impl IncidentFile {
    fn take(&mut self, message: WriterMessage) -> Result<(), SinkError> {
        match message {
            WriterMessage::Begin { .. } | WriterMessage::End => Ok(()),
            WriterMessage::Extend { end_ns, mark } => {
                self.end_ns = self.end_ns.max(end_ns);
                self.marks.push(mark);
                Ok(())
            }
            WriterMessage::Section(origin) => self.target.section(&origin),
            WriterMessage::Interface(interface) => self.interface(interface),
            WriterMessage::Block { block, from } => self.write(&block.bytes()[from..], from == 0),
            WriterMessage::Part { bytes, first } => self.write(&bytes, first),
            WriterMessage::Counters(statistics) => {
                self.target.counters(&statistics);
                Ok(())
            }
            WriterMessage::Flush => self.target.flush(),
        }
    }

    fn interface(&mut self, mut interface: CaptureInterface) -> Result<(), SinkError> {
        interface.comment = joined(&interface.comment, &self.reason);
        self.target.interface(&interface)
    }

    fn write(&mut self, mut bytes: &[u8], first: bool) -> Result<(), SinkError> {
        if first {
            self.reader = BlockReader::default();
        }
        while let Some(packet) = self.reader.next(&mut bytes) {
            if packet.ns < self.start_ns || packet.ns > self.end_ns {
                continue;
            }
            self.await_room(packet.data.len() + OVERHEAD);
            if self.marks.iter().any(|mark| mark.is_due(&packet)) {
                let comment = self.due(&packet);
                self.target.packet(&Packet { comment: &comment, ..packet })?;
            } else {
                self.target.packet(&packet)?;
            }
        }
        Ok(())
    }

    /// Waits for space in the file: stored packets can wait for a slow disk. At the end, the wait for a
    /// disk without progress is limited.
    fn await_room(&mut self, size: usize) {
        self.handed += size;
        if self.handed < STRIDE {
            return;
        }
        self.handed = 0;
        let (mut written, mut since) = (0, Instant::now());
        while !self.target.ready() {
            let progress = self.target.progress().written;
            if progress != written || !self.shared.ending.load(Ordering::Relaxed) {
                (written, since) = (progress, Instant::now());
            }
            if since.elapsed() > WRITE_TIMEOUT {
                break;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Removes the marks for a packet, and returns them with its comment.
    fn due(&mut self, packet: &Packet<'_>) -> String {
        let marks = mem::take(&mut self.marks).into_iter();
        let (due, left): (Vec<_>, _) = marks.partition(|mark| mark.is_due(packet));
        self.marks = left;
        due.iter().fold(packet.comment.to_owned(), |text, mark| joined(&text, &mark.text))
    }

    fn finish(mut self, done: &mut SinkProgress) -> Result<(), SinkError> {
        let result = self.target.finish();
        *done = SinkProgress { waiting: None, ..sum(done, self.target.progress()) };
        result
    }
}

fn joined(one: &str, other: &str) -> String {
    if one.is_empty() { other.to_owned() } else { format!("{one}\n{other}") }
}
