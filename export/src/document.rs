//! Answers that two processes share: the collector writes one into memory once, and the network process
//! reads it in parts, however many clients it has.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Bytes that are read for a client at a time.
const PART: usize = 256 << 10;

/// Bytes in memory that no process can change.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    file: Arc<File>,
    length: u64,
}

impl Document {
    /// Writes a document.
    ///
    /// # Errors
    /// Fails if the process has too many open files or too little memory.
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"pmdscope-answer", flags)?);
        file.write_all(bytes)?;
        let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, all)?;
        Ok(Self { file: Arc::new(file), length: bytes.len() as u64 })
    }

    /// Takes a document of the other process.
    ///
    /// # Errors
    /// Fails if this is no file.
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let file = File::from(descriptor);
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    /// Returns the file, to pass it to the other process.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Fails if the system does not read memory.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or_default()];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Returns a reader for one client.
    pub(crate) fn body(self) -> DocumentBody {
        DocumentBody { document: self, sent: 0 }
    }
}

/// A document on its way to a client.
#[derive(Debug)]
pub(crate) struct DocumentBody {
    document: Document,
    sent: u64,
}

impl DocumentBody {
    fn left(&self) -> u64 {
        self.document.length.saturating_sub(self.sent)
    }

    fn part(&mut self) -> io::Result<Bytes> {
        let mut part = vec![0; PART.min(usize::try_from(self.left()).unwrap_or(PART))];
        self.document.file.read_exact_at(&mut part, self.sent)?;
        self.sent += part.len() as u64;
        Ok(part.into())
    }
}

impl Body for DocumentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let part = (self.left() > 0).then(|| self.part().map(Frame::data));
        Poll::Ready(part)
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn clients_read_all_of_it_independently() {
        for length in [0, 1, PART, 3 * PART + 7] {
            let bytes: Vec<u8> = (0..length).map(|at| (at / 3).to_le_bytes()[0]).collect();
            let document = Document::new(&bytes).unwrap();
            let passed = document.descriptor().try_clone_to_owned().unwrap();
            let received = Document::of(passed).unwrap();
            let mut first = received.clone().body();
            assert_eq!(first.size_hint().exact(), Some(length as u64));
            let begun = first.frame().await;
            assert_eq!(begun.is_some(), length > 0);
            let second = received.clone().body().collect().await.unwrap().to_bytes();
            assert!(second == bytes && received.read().unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn nobody_changes_it() {
        let document = Document::new(b"numbers").unwrap();
        assert!(document.file.write_at(b"x", 0).is_err() && document.file.set_len(0).is_err());
    }
}
