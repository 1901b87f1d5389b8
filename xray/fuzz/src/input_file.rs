//! Bytes of the input as a file.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// A file that is removed with this object.
#[derive(Debug)]
pub(crate) struct InputFile(NamedTempFile);

impl InputFile {
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let mut file =
            if memory.is_dir() { NamedTempFile::new_in(memory)? } else { NamedTempFile::new()? };
        file.write_all(bytes)?;
        Ok(Self(file))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
