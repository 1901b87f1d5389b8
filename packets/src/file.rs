//! Capture files: formats, compression and rotation.
//!
//! [`CaptureFiles`] encodes blocks of packets in the thread of the capture, which never waits. A second
//! thread owns the files: it compresses, writes, renames and deletes. If it cannot keep up because a
//! disk is slow or full, packets are lost and counted.

mod batch;
mod closed;
mod codec;
mod naming;
mod packets;
mod pcap;
mod schedule;
mod section;
mod settings;
mod sink;
mod unread;
mod writer;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

pub use pmdscope_files::{FileMode, PART};

use self::batch::{BatchQueue, BlockBatch};
use self::codec::Compressor;
use self::naming::InvalidFileName;
use self::schedule::{RotationSchedule, RotationStep};
use self::section::FileSection;
pub use self::settings::{FileCompression, FileEvent, FileFormat, FileRotation, FileSettings};
use self::sink::{FileSink, SinkOptions};
use self::writer::FileWriter;
use crate::clock::realtime_ns;
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, PacketWith, SectionOrigin};
use crate::shared::{PacketData, SharedBytes};
use crate::sink::{PacketSink, SinkError, SinkProgress};

/// Interval of [`FileEvent::Waiting`] when a capture finishes.
const WAITING_NOTICE: Duration = Duration::from_secs(1);
/// Longest time without progress of a disk or reader before the finish of a capture fails.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// A sink that writes a sequence of files.
#[derive(Debug)]
pub struct CaptureFiles {
    format: FileFormat,
    packet_buffered: bool,
    events: Option<Sender<FileEvent>>,
    /// Packets that are not written yet are given up.
    abandon: Arc<AtomicBool>,
    name: String,
    queue: Arc<BatchQueue>,
    thread: Option<JoinHandle<()>>,
    /// Descriptor of a pipe or device, to notice when its reader closes it.
    reader: Option<OwnedFd>,
    /// The blocks that are being collected.
    batch: Option<BlockBatch>,
    section: FileSection,
    schedule: RotationSchedule,
    /// Link type and snapshot length in the header of a classic pcap file.
    header: Option<(u16, u32)>,
    /// Bytes of the current file, before compression.
    position: u64,
    packets: u64,
    /// Packets in all batches.
    handed: u64,
    /// Packets lost because no buffer was free.
    lost: u64,
    /// Packets after the end of the last file.
    after_end: u64,
    /// Lost packets with another link type than the classic pcap file.
    other_linktypes: u64,
    /// Lost packets with times that pcap does not have.
    too_late: u64,
    /// The last file is complete.
    complete: bool,
    finished: bool,
}

impl CaptureFiles {
    /// Opens the first file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or if settings contradict each other.
    pub fn create(settings: &FileSettings) -> Result<Self, SinkError> {
        let refused = |reason| SinkError::Refused { name: name_of(settings), reason };
        if let Some(reason) = settings.contradiction() {
            return Err(refused(reason.to_owned()));
        }
        let begin_ns = settings.begin_ns.unwrap_or_else(realtime_ns);
        let plan = RotationSchedule::new(settings, begin_ns)
            .map_err(|error| refused(error.to_string()))?;
        let path = plan.path();
        let opened = if settings.is_stdout() {
            FileSink::stdout()
        } else {
            FileSink::open(&path, &SinkOptions::of(settings))
        };
        Self::start(settings, plan, opened.map_err(|source| SinkError::Open { path, source })?)
    }

    /// Writes to an open pipe or socket called `name`. `path` of the settings is ignored.
    ///
    /// # Errors
    /// Fails if settings contradict each other.
    pub fn onto(file: File, name: &str, settings: &FileSettings) -> Result<Self, SinkError> {
        let settings = FileSettings { path: "-".into(), ..settings.clone() };
        let refused = |reason| SinkError::Refused { name: name.to_owned(), reason };
        if let Some(reason) = settings.contradiction() {
            return Err(refused(reason.to_owned()));
        }
        let plan =
            RotationSchedule::new(&settings, 0).map_err(|error| refused(error.to_string()))?;
        Self::start(&settings, plan, FileSink::onto(file, name.to_owned()))
    }

    fn start(
        settings: &FileSettings,
        schedule: RotationSchedule,
        sink: FileSink,
    ) -> Result<Self, SinkError> {
        let queue = Arc::new(BatchQueue::default());
        let (name, reader) = (sink.name().to_owned(), sink.reader());
        let failed = |source| SinkError::Write { name: name.clone(), source };
        let compression =
            settings.compression.unwrap_or_else(|| FileCompression::of(&settings.path));
        let codec = Compressor::new(compression, settings.compression_threads);
        let writer = FileWriter::new(Arc::clone(&queue), settings, codec, sink);
        let thread = std::thread::Builder::new().name("capture-writer".to_owned());
        let thread = thread.spawn(|| writer.run()).map_err(failed)?;
        Ok(Self {
            format: settings.format,
            packet_buffered: settings.packet_buffered,
            events: settings.events.clone(),
            name,
            queue,
            thread: Some(thread),
            reader,
            abandon: Arc::clone(&settings.abandon),
            batch: None,
            section: FileSection::default(),
            schedule,
            header: None,
            position: 0,
            packets: 0,
            handed: 0,
            lost: 0,
            after_end: 0,
            other_linktypes: 0,
            too_late: 0,
            complete: false,
            finished: false,
        })
    }

    /// Appends blocks that must not be lost.
    fn put(&mut self, blocks: &[u8]) {
        if let Some(room) = self.room(blocks.len()) {
            room.copy_from_slice(blocks);
        }
    }

    /// Reserves space for bytes that must not be lost.
    fn room(&mut self, size: usize) -> Option<&mut [u8]> {
        self.position += size as u64;
        self.batch_with_room(size)?.room(size)
    }

    /// Returns the current batch, or a new one, with space for bytes that must not be lost.
    fn batch_with_room(&mut self, size: usize) -> Option<&mut BlockBatch> {
        if !self.batch.as_ref().is_some_and(|batch| batch.has_room(size)) {
            let next = self.queue.take_anyway(size);
            self.hand_over(Some(next));
        }
        self.batch.as_mut()
    }

    /// Passes the collected blocks to the writer, and continues with another buffer.
    fn hand_over(&mut self, next: Option<BlockBatch>) {
        match std::mem::replace(&mut self.batch, next) {
            Some(batch) if batch.bytes().is_empty() => self.queue.recycle(batch),
            Some(batch) => self.queue.write(batch),
            None => {}
        }
    }

    /// Returns whether there is space for a packet; false if the writer has all buffers.
    fn has_room(&mut self, size: usize) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.has_room(size)) || self.make_room(size)
    }

    #[cold]
    fn make_room(&mut self, size: usize) -> bool {
        let next = self.queue.take(size);
        let there = next.is_some();
        if there {
            self.hand_over(next);
        }
        there
    }

    /// Writes the header of a classic pcap file. It has the link type of the first packet, or of the
    /// first interface if there is no packet yet, and the largest snap length. All files of a capture
    /// have the same link type.
    fn put_header(&mut self, linktype: Option<u16>) {
        if let FileFormat::Pcap { nanos } = self.format
            && self.position == 0
            && let known = self.header.map(|(linktype, _)| linktype)
            && let Some((linktype, snaplen)) =
                self.section.widest(known.or(linktype)).or(self.header)
        {
            self.put(&pcap::header(nanos, snaplen, linktype));
            self.header = Some((linktype, snaplen));
        }
    }

    /// Returns whether a classic pcap file can contain this packet: the file has one link type. A
    /// packet longer than the snap length of the header is an error.
    fn fits<D: PacketData>(&self, packet: &PacketWith<'_, D>) -> Result<bool, SinkError> {
        let FileFormat::Pcap { .. } = self.format else { return Ok(true) };
        let Some((linktype, snaplen)) = self.header else { return Ok(true) };
        if self.section.linktype_of(packet) != Some(linktype) {
            return Ok(false);
        }
        if packet.data.size() > snaplen as usize {
            return Err(self.refused(&format!(
                "a pcap file has one snapshot length, and a packet of {} bytes comes after {snaplen} \
                 was written: write pcapng",
                packet.data.size()
            )));
        }
        Ok(true)
    }

    /// Begins another file before a packet if one is due; returns false if there is no buffer for that.
    fn rotate_for<D>(
        &mut self,
        packet: &PacketWith<'_, D>,
        size: usize,
    ) -> Result<bool, SinkError> {
        let reserve = match self.format {
            FileFormat::Pcapng => self.section.statistics_size() as u64,
            FileFormat::Pcap { .. } => 0,
        };
        match self.schedule.due(packet.ns, self.position, size as u64, reserve) {
            Some(RotationStep::BySize) if self.packets == 0 => Ok(true),
            Some(due) => self.rotate(due, packet.ns),
            None => Ok(true),
        }
    }

    #[cold]
    fn rotate(&mut self, due: RotationStep, ns: u64) -> Result<bool, SinkError> {
        let Some(next) = self.queue.take(0) else { return Ok(false) };
        self.end_file();
        self.hand_over(Some(next));
        let advanced = self.schedule.advance(due, ns);
        if !advanced.map_err(|InvalidFileName(reason)| self.refused(&reason))? {
            self.complete = true;
            self.queue.announce_end();
            return Ok(true);
        }
        self.queue.next_file(self.schedule.path());
        (self.position, self.packets) = (0, 0);
        match self.format {
            FileFormat::Pcapng => self.put(&self.section.enter()),
            FileFormat::Pcap { .. } => self.put_header(None),
        }
        Ok(true)
    }

    /// Writes the last blocks of a file.
    fn end_file(&mut self) {
        match self.format {
            FileFormat::Pcapng => {
                let blocks = self.section.leave();
                self.put(&blocks);
            }
            FileFormat::Pcap { .. } => self.put_header(None),
        }
    }

    #[cold]
    fn refused(&self, reason: &str) -> SinkError {
        SinkError::Refused { name: self.name.clone(), reason: reason.to_owned() }
    }

    fn reader_gone(&self) -> bool {
        let Some(reader) = &self.reader else { return false };
        unread::has_no_reader(reader)
    }
}

impl PacketSink for CaptureFiles {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        self.queue.check()?;
        let blocks = self.section.begin(origin);
        if self.format == FileFormat::Pcapng && !self.complete {
            self.put(&blocks);
        }
        Ok(())
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        self.queue.check()?;
        let blocks = self.section.add(interface);
        if self.format == FileFormat::Pcapng && !self.complete {
            self.put(&blocks);
        }
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        self.take_packet(packet)
    }

    fn takes_shared(&self) -> bool {
        true
    }

    fn shared_packet(&mut self, packet: &PacketWith<'_, SharedBytes<'_>>) -> Result<(), SinkError> {
        self.take_packet(packet)
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        self.section.counters(statistics);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.queue.check()?;
        if self.complete {
            return Ok(());
        }
        if self.schedule.is_aligned() {
            let now_ns = realtime_ns();
            if self.schedule.due_by_clock(now_ns) {
                self.rotate(RotationStep::ByTime, now_ns)?;
            }
        }
        self.put_header(None);
        self.hand_over(None);
        Ok(())
    }

    fn done(&mut self) -> bool {
        self.complete || self.queue.is_over() || self.reader_gone()
    }

    fn ready(&mut self) -> bool {
        self.queue.has_free()
    }

    fn progress(&self) -> SinkProgress {
        let (progress, over) = self.queue.progress();
        let unwritten =
            if over || self.finished { self.handed.saturating_sub(progress.written) } else { 0 };
        SinkProgress { lost: self.lost + unwritten, after_end: self.after_end, ..progress }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        if !self.complete {
            self.end_file();
            self.hand_over(None);
            self.queue.announce_end();
        }
        let waits = |progress: &SinkProgress| {
            let name = progress
                .file
                .as_ref()
                .map_or_else(|| self.name.clone(), |file| file.display().to_string());
            let packets = self.handed.saturating_sub(progress.written);
            if let Some(events) = &self.events {
                // The receiver may have been dropped.
                let _ = events.send(FileEvent::Waiting { name, packets });
            }
        };
        if !self.queue.await_end(FINISH_TIMEOUT, WAITING_NOTICE, &self.abandon, waits) {
            let source = if self.abandon.load(Ordering::Relaxed) {
                io::Error::new(io::ErrorKind::Interrupted, "a second signal came")
            } else {
                io::Error::new(io::ErrorKind::TimedOut, "nothing is taken any more")
            };
            return Err(SinkError::Write { name: self.name.clone(), source });
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            return Err(self.refused("the thread that writes has panicked"));
        }
        self.queue.check()?;
        if self.too_late > 0 {
            return Err(SinkError::TooLate { name: self.name.clone(), packets: self.too_late });
        }
        match (self.other_linktypes, self.header) {
            (packets @ 1.., Some((linktype, _))) => {
                Err(SinkError::OtherLinkTypes { name: self.name.clone(), linktype, packets })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for CaptureFiles {
    fn drop(&mut self) {
        // Callers that need the result have called it before.
        let _ = self.finish();
    }
}

fn name_of(settings: &FileSettings) -> String {
    if settings.is_stdout() {
        "standard output".to_owned()
    } else {
        settings.path.display().to_string()
    }
}

#[cfg(test)]
mod tests;
