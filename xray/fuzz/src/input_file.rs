//! Bytes of the input as a file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory.
#[derive(Debug)]
pub(crate) struct InputFile(File);

impl InputFile {
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(Self(file))
    }

    /// Valid as long as this object exists.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}
