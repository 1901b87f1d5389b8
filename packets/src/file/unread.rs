//! Packets in a pipe: those that its reader has not read when it closes are lost.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;

/// Bytes that were written to the pipe at once.
#[derive(Debug)]
struct PipeWrite {
    /// Position in the stream after these bytes.
    end: u64,
    bytes: Vec<u8>,
    packets: u64,
}

/// Writes that may still be in the pipe.
#[derive(Debug, Default)]
pub(super) struct UnreadPackets {
    writes: VecDeque<PipeWrite>,
}

impl UnreadPackets {
    /// Returns a record of writes if the file is a pipe: others do not tell what was read.
    pub(super) fn of(file: impl AsFd) -> Option<Self> {
        let status = rustix::fs::fstat(file).ok()?;
        (FileType::from_raw_mode(status.st_mode) == FileType::Fifo).then(Self::default)
    }

    /// Adds bytes that were written, with their packets; after them the stream has `end` bytes. Writes
    /// that were read are removed.
    pub(super) fn written(&mut self, pipe: impl AsFd, bytes: &[u8], packets: u64, end: u64) {
        self.writes.push_back(PipeWrite { end, bytes: bytes.to_vec(), packets });
        let taken = end.saturating_sub(unread_bytes(pipe));
        while self.writes.front().is_some_and(|write| write.end <= taken) {
            self.writes.pop_front();
        }
    }

    /// Returns the number of packets that nobody will read, if the reader has closed the pipe. `whole`
    /// returns how many packets are complete at the start of a write; its second argument tells whether
    /// the write begins the stream.
    pub(super) fn lost(&self, pipe: impl AsFd, whole: impl Fn(&[u8], bool) -> u64) -> u64 {
        if !has_no_reader(&pipe) {
            return 0;
        }
        let written = self.writes.back().map_or(0, |write| write.end);
        let taken = written.saturating_sub(unread_bytes(pipe));
        let lost_of = |write: &PipeWrite| {
            let start = write.end - write.bytes.len() as u64;
            let read = usize::try_from(taken.saturating_sub(start)).unwrap_or(usize::MAX);
            let read = &write.bytes[..read.min(write.bytes.len())];
            write.packets.saturating_sub(whole(read, start == 0))
        };
        self.writes.iter().filter(|write| write.end > taken).map(lost_of).sum()
    }
}

/// Returns the number of unread bytes in a pipe.
fn unread_bytes(pipe: impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or(0)
}

/// Returns whether the other end of a pipe or socket is closed.
pub(super) fn has_no_reader(stream: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok()
        && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::*;

    /// Returns the number of complete packets of 10 bytes.
    fn tens(bytes: &[u8], _: bool) -> u64 {
        bytes.len() as u64 / 10
    }

    #[test]
    fn only_a_pipe_tells_what_was_taken() {
        let (_reader, writer) = io::pipe().unwrap();
        assert!(UnreadPackets::of(&writer).is_some());
        assert!(UnreadPackets::of(tempfile::tempfile().unwrap()).is_none());
    }

    #[test]
    fn a_packet_that_was_taken_in_part_is_lost() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut unread = UnreadPackets::default();
        for end in [30, 60] {
            writer.write_all(&[7; 30]).unwrap();
            unread.written(&writer, &[7; 30], 3, end);
        }
        reader.read_exact(&mut [0; 15]).unwrap();
        assert_eq!(unread.lost(&writer, tens), 0, "it may still read them");
        drop(reader);
        assert_eq!(unread.lost(&writer, tens), 5);
    }

    #[test]
    fn what_was_taken_is_forgotten() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut unread = UnreadPackets::default();
        for end in 1..=1000 {
            writer.write_all(&[7; 10]).unwrap();
            reader.read_exact(&mut [0; 10]).unwrap();
            unread.written(&writer, &[7; 10], 1, end * 10);
        }
        assert!(unread.writes.is_empty());
        drop(reader);
        assert_eq!(unread.lost(&writer, tens), 0);
    }
}
