//! The writer thread, the only one that waits for disks and readers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{BatchQueue, BlockBatch, QueueItem, WriterCommand};
use super::closed::ClosedFiles;
use super::codec::Compressor;
use super::sink::{FileSink, SinkOptions};
use super::{FileFormat, FileSettings, pcap};
use crate::pcapng;
use crate::sink::SinkError;

/// Time between two attempts to write to a full disk, and between two checks of commands and pieces.
const RETRY: Duration = Duration::from_millis(200);

/// Writes the batches of the queue.
#[derive(Debug)]
pub(super) struct FileWriter {
    queue: Arc<BatchQueue>,
    format: FileFormat,
    options: SinkOptions,
    packet_buffered: bool,
    codec: Option<Compressor>,
    sink: Option<FileSink>,
    closed: ClosedFiles,
}

impl FileWriter {
    pub(super) fn new(
        queue: Arc<BatchQueue>,
        settings: &FileSettings,
        codec: Option<Compressor>,
        sink: FileSink,
    ) -> Self {
        let mut writer = Self {
            queue,
            format: settings.format,
            options: SinkOptions::of(settings),
            packet_buffered: settings.packet_buffered,
            codec,
            sink: None,
            closed: ClosedFiles::new(settings),
        };
        writer.take(sink);
        writer
    }

    /// Writes until the queue ends, or until an error.
    pub(super) fn run(mut self) {
        let result = self.work();
        self.count_unread();
        let closed = self.close();
        self.queue.close(result.and(closed).err());
    }

    fn work(&mut self) -> Result<(), SinkError> {
        loop {
            match self.queue.turn(RETRY) {
                QueueItem::Do(WriterCommand::Write(batch)) => self.write(batch)?,
                QueueItem::Do(WriterCommand::Next(path)) => {
                    self.end_data()?;
                    self.close()?;
                    self.open(&path)?;
                }
                QueueItem::Idle => {
                    self.closed.reap();
                    self.end_due_piece()?;
                }
                QueueItem::End => return self.end_data(),
            }
        }
    }

    /// Subtracts packets that were written to a pipe but not read.
    fn count_unread(&mut self) {
        let (format, compressed) = (self.format, self.codec.is_some());
        let whole = |bytes: &[u8], at_start| match format {
            // An incomplete piece cannot be decompressed.
            _ if compressed => 0,
            FileFormat::Pcapng => pcapng::whole(bytes).1,
            FileFormat::Pcap { .. } => pcap::whole(bytes, at_start).1,
        };
        let unread = self.sink.as_ref().map_or(0, |sink| sink.unread(whole));
        self.queue.report(|progress| progress.written -= unread.min(progress.written));
    }

    fn write(&mut self, batch: BlockBatch) -> Result<(), SinkError> {
        let result = match &mut self.codec {
            None => {
                let format = self.format;
                let at_start = self.sink.as_ref().is_some_and(|sink| sink.written() == 0);
                let whole = |bytes: &[u8]| match format {
                    FileFormat::Pcapng => pcapng::whole(bytes),
                    FileFormat::Pcap { .. } => pcap::whole(bytes, at_start),
                };
                match self.put_shared(&batch) {
                    Ok(()) if batch.is_shared() => Ok(()),
                    Ok(()) => self.put(batch.bytes(), 0, batch.packets, whole),
                    Err(done) => return self.put_copy(batch, done, whole),
                }
            }
            Some(codec) => {
                codec
                    .feed(batch.bytes(), batch.packets)
                    .map_err(|source| failed(self.sink.as_ref(), source))?;
                if self.packet_buffered { self.end_piece() } else { self.end_due_piece() }
            }
        };
        self.queue.recycle(batch);
        result
    }

    /// Writes a batch that has bytes in shared memory. On an error, returns how many of its bytes were
    /// written.
    fn put_shared(&mut self, batch: &BlockBatch) -> Result<(), usize> {
        let Some(sink) = self.sink.as_mut().filter(|_| batch.is_shared()) else { return Ok(()) };
        let size = batch.len() as u64;
        self.closed.make_room(sink.written() + size);
        let mut done = 0;
        sink.write_slices(&mut batch.slices(), &mut done).map_err(|_| done)?;
        self.queue.report(|progress| {
            progress.written += batch.packets;
            progress.bytes += size;
        });
        Ok(())
    }

    /// Writes the rest of a batch after `done` bytes from a copy, and returns the shared memory to the
    /// app.
    fn put_copy(
        &mut self,
        batch: BlockBatch,
        done: usize,
        whole: impl Fn(&[u8]) -> (usize, u64),
    ) -> Result<(), SinkError> {
        let copy = batch.copied();
        self.queue.recycle(batch);
        self.queue.set_shares(false);
        let result = self.put(copy.bytes(), done, copy.packets, whole);
        self.queue.set_shares(self.takes_shared());
        result
    }

    fn takes_shared(&self) -> bool {
        let whole_batches = self.codec.is_none() && !self.packet_buffered;
        whole_batches && self.sink.as_ref().is_some_and(FileSink::never_waits)
    }

    fn end_due_piece(&mut self) -> Result<(), SinkError> {
        if self.codec.as_ref().is_some_and(Compressor::is_due) { self.end_piece() } else { Ok(()) }
    }

    fn end_piece(&mut self) -> Result<(), SinkError> {
        let Some(codec) = &mut self.codec else { return Ok(()) };
        match codec.end() {
            Ok(None) => Ok(()),
            Ok(Some((piece, packets))) => self.put(&piece, 0, packets, |_| (0, 0)),
            Err(source) => Err(failed(self.sink.as_ref(), source)),
        }
    }

    /// Writes all remaining data of the current file.
    fn end_data(&mut self) -> Result<(), SinkError> {
        self.end_piece()?;
        let Some(codec) = &mut self.codec else { return Ok(()) };
        let end = codec.close().map_err(|source| failed(self.sink.as_ref(), source))?;
        if end.is_empty() { Ok(()) } else { self.put(&end, 0, 0, |_| (0, 0)) }
    }

    /// Writes bytes from `done` on to the current file, and waits while the disk is full. `whole`
    /// returns how many of the bytes, and of the packets in them, are usable without the rest.
    fn put(
        &mut self,
        bytes: &[u8],
        mut done: usize,
        packets: u64,
        whole: impl Fn(&[u8]) -> (usize, u64),
    ) -> Result<(), SinkError> {
        let Some(mut sink) = self.sink.take() else { return Ok(()) };
        let before = sink.written() - done as u64;
        self.closed.make_room(before + bytes.len() as u64);
        let name = sink.name().to_owned();
        let result = self.patiently(&name, || sink.write(bytes, &mut done, |bytes| whole(bytes).0));
        let written = if result.is_ok() { packets } else { whole(&bytes[..done]).1 };
        let grown = sink.written() - before;
        sink.wrote(&bytes[..done], written);
        self.queue.report(|progress| {
            progress.written += written;
            progress.bytes += grown;
        });
        self.sink = Some(sink);
        result.map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => SinkError::Closed { name },
            _ => SinkError::Write { name, source },
        })
    }

    fn open(&mut self, path: &Path) -> Result<(), SinkError> {
        self.closed.make_way(path);
        let options = self.options.clone();
        let opened = self.patiently(&path.display().to_string(), || FileSink::open(path, &options));
        let sink = opened.map_err(|source| SinkError::Open { path: path.to_owned(), source })?;
        self.take(sink);
        Ok(())
    }

    fn take(&mut self, sink: FileSink) {
        let file = sink.path().map(Path::to_owned);
        self.queue.report(|progress| {
            progress.files += 1;
            progress.file = file;
        });
        self.sink = Some(sink);
        self.queue.set_shares(self.takes_shared());
    }

    /// Completes the current file.
    fn close(&mut self) -> Result<(), SinkError> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let size = sink.written();
        if let Some(path) = sink.close()? {
            self.closed.add(path, size);
        }
        Ok(())
    }

    /// Repeats an operation while the disk is full; once more when the capture ends.
    fn patiently<T>(
        &mut self,
        name: &str,
        mut what: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut result = what();
        let mut waited = false;
        let mut last = false;
        while let Err(error) = &result
            && is_full(error)
            && !last
        {
            let text = format!("cannot write to {name}: {error}");
            self.queue.report(|progress| progress.waiting = Some(text));
            waited = true;
            last = !self.queue.pause(RETRY);
            self.closed.reap();
            result = what();
        }
        if waited {
            self.queue.report(|progress| progress.waiting = None);
        }
        result
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

fn failed(sink: Option<&FileSink>, source: io::Error) -> SinkError {
    SinkError::Write { name: sink.map_or("", FileSink::name).to_owned(), source }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
