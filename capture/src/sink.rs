//! Where blocks go: a file, standard output, or nowhere.
//!
//! Blocks are collected and written whole, so a file is readable whenever this process dies. When a
//! disk fills up, the file is cut back to its last whole block.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};

use crate::pcapng::{self, whole_blocks};
use crate::target::TargetError;

/// Bytes collected before they are written.
const BATCH: usize = 256 * 1024;

/// A buffered target of blocks.
#[derive(Debug)]
pub struct Sink {
    target: Option<File>,
    name: String,
    /// The target is a file of our own, which may be cut back.
    owned: bool,
    /// Bytes of whole blocks in the target.
    written: u64,
    /// Packets that were collected and then not written.
    lost: u64,
    buffer: Vec<u8>,
}

impl Sink {
    /// Creates or overwrites a file, or opens a pipe or device.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn create(path: &Path) -> Result<Self, TargetError> {
        let open = |source| TargetError::Open { path: path.to_owned(), source };
        let file = File::create(path).map_err(open)?;
        let owned = file.metadata().map_err(open)?.is_file();
        Ok(Self::new(Some(file), path.display().to_string(), owned))
    }

    /// Standard output.
    ///
    /// # Errors
    /// When it is closed.
    pub fn stdout() -> Result<Self, TargetError> {
        let stdout = io::stdout();
        let open = |source| TargetError::Open { path: "-".into(), source };
        let file = stdout.as_fd().try_clone_to_owned().map_err(open)?;
        Ok(Self::new(Some(file.into()), "standard output".to_owned(), false))
    }

    /// Throws everything away, for counting.
    pub fn discard() -> Self {
        Self::new(None, String::new(), false)
    }

    fn new(target: Option<File>, name: String, owned: bool) -> Self {
        Self { target, name, owned, written: 0, lost: 0, buffer: Vec::with_capacity(2 * BATCH) }
    }

    /// Where to append whole blocks.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes what was collected if that is much.
    ///
    /// # Errors
    /// As [`Sink::flush`].
    pub fn settle(&mut self) -> Result<(), TargetError> {
        if self.buffer.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Writes all that was collected.
    ///
    /// # Errors
    /// When the reader has gone or the system refuses; the target is of no more use then.
    pub fn flush(&mut self) -> Result<(), TargetError> {
        let Some(target) = self.target.as_mut() else {
            self.buffer.clear();
            return Ok(());
        };
        let (done, result) = write_out(target, &self.buffer);
        let error = result.err().map(|source| self.cut_back(done, source));
        self.written += done as u64;
        self.buffer.clear();
        error.map_or(Ok(()), Err)
    }

    /// Packets that were collected and then not written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of whole blocks written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// True when nobody will read what is written any more.
    pub fn reader_gone(&self) -> bool {
        let Some(target) = self.target.as_ref().filter(|_| !self.owned) else { return false };
        let mut fds = [PollFd::new(target, PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
    }

    /// The error of a failed write, after cutting the file back to its last whole block.
    fn cut_back(&mut self, done: usize, source: io::Error) -> TargetError {
        let whole = whole_blocks(&self.buffer[..done]).map(|(_, size)| size).sum::<usize>();
        let lost = whole_blocks(&self.buffer[whole..]).filter(|(kind, _)| *kind == pcapng::PACKET);
        self.lost += lost.count() as u64;
        let name = self.name.clone();
        if source.kind() == io::ErrorKind::BrokenPipe {
            return TargetError::Closed { name };
        }
        if let Some(file) = self.target.as_ref().filter(|_| self.owned) {
            // A file that cannot even be cut is still readable up to its last whole block.
            let _ = file.set_len(self.written + whole as u64);
        }
        TargetError::Write { name, source }
    }
}

fn write_out(target: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match target.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::pcapng::write_packet;

    fn put(sink: &mut Sink, packets: u64) -> usize {
        for id in 0..packets {
            let packet = Packet {
                interface: 0,
                ns: 0,
                data: &[7; 60],
                len: 60,
                dir: 1,
                queue: Some(0),
                dropped: 0,
                id,
                comment: "",
            };
            write_packet(sink.buffer(), &packet);
        }
        sink.buffer().len() / packets as usize
    }

    #[test]
    fn an_old_longer_file_leaves_no_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.pcapng");
        std::fs::write(&path, [1; 10_000]).unwrap();
        let mut sink = Sink::create(&path).unwrap();
        let size = put(&mut sink, 1);
        sink.flush().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size as u64);
    }

    #[test]
    fn a_full_device_is_an_error_with_the_packets_lost() {
        let Ok(mut sink) = Sink::create(Path::new("/dev/full")) else {
            eprintln!("SKIP: no /dev/full");
            return;
        };
        put(&mut sink, 3);
        let error = sink.flush().unwrap_err();
        assert_eq!(sink.lost, 3);
        assert!(
            matches!(error, TargetError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
    }

    #[test]
    fn a_partial_block_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.pcapng");
        let mut sink = Sink::create(&path).unwrap();
        let size = put(&mut sink, 1);
        sink.flush().unwrap();
        put(&mut sink, 3);
        let partial = size + size / 2;
        sink.target.as_mut().unwrap().write_all(&sink.buffer[..partial]).unwrap();
        let _ = sink.cut_back(partial, io::ErrorKind::StorageFull.into());
        assert_eq!(sink.lost, 2);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * size as u64);
    }

    #[test]
    fn a_reader_that_goes_is_noticed_before_and_at_a_write() {
        let (reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let mut sink = Sink::new(Some(file), "pipe".to_owned(), false);
        assert!(!sink.reader_gone());
        drop(reader);
        assert!(sink.reader_gone());
        put(&mut sink, 2);
        assert!(matches!(sink.flush(), Err(TargetError::Closed { .. })));
    }

    #[test]
    fn a_path_that_cannot_be_made_is_named() {
        let error = Sink::create(Path::new("/nowhere/at/all.pcapng")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all.pcapng"), "{error}");
    }
}
