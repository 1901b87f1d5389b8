//! Separate debug files, searched in the same places as by gdb: by build id, else by
//! `.gnu_debuglink`.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::Crc;
use object::Object;

use crate::app_files::open_below;
use crate::limited_file::FileData;

/// Below a root directory.
const DEBUG_DIRECTORY: &str = "usr/lib/debug";

/// Larger files are not compared with the checksum of a link.
const MOST_BYTES: u64 = 1 << 30;

/// Bytes that are read at a time to compute a checksum.
const BUFFER_BYTES: usize = 1 << 18;

/// Directories in which separate debug files are searched. To be used in
/// [`FileRights::run`](crate::FileRights::run).
#[derive(Debug)]
pub struct SeparateFiles {
    /// Root directories, the preferred one first.
    roots: Vec<PathBuf>,
}

impl SeparateFiles {
    /// Those of the file system of the process, if there is one, then of pmdscope's.
    pub fn of_process(pid: Option<u32>) -> Self {
        let root = pid.map(|pid| PathBuf::from(format!("/proc/{pid}/root")));
        Self::below(root.into_iter().chain([PathBuf::from("/")]).collect())
    }

    /// Those below these root directories.
    pub fn below(roots: Vec<PathBuf>) -> Self {
        Self { roots }
    }

    /// The separate debug file of an ELF file that has this path below the root directory.
    pub fn find(&self, file: &File, path: &str) -> Option<File> {
        let data = FileData::new(file);
        let elf = object::File::parse(&data).ok()?;
        let by_id = elf.build_id().ok().flatten().and_then(|id| self.by_build_id(id));
        by_id.or_else(|| {
            let (name, checksum) = elf.gnu_debuglink().ok()??;
            self.by_link(std::str::from_utf8(name).ok()?, checksum, path)
        })
    }

    fn by_build_id(&self, id: &[u8]) -> Option<File> {
        let (first, rest) = id.split_first()?;
        let mut path = format!("{DEBUG_DIRECTORY}/.build-id/{first:02x}/");
        for byte in rest {
            let _ = write!(path, "{byte:02x}");
        }
        path.push_str(".debug");
        let mut files = self.roots.iter().filter_map(|root| open_below(root, path.as_ref()));
        files.find(|file| has_build_id(file, id))
    }

    /// Next to the file, in `.debug` there, or in its directory below that of debug files.
    fn by_link(&self, name: &str, checksum: u32, path: &str) -> Option<File> {
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let directory = Path::new(path).parent()?.strip_prefix("/").ok()?;
        let beside = [
            directory.to_owned(),
            directory.join(".debug"),
            Path::new(DEBUG_DIRECTORY).join(directory),
        ];
        let paths = self.roots.iter().flat_map(|root| beside.iter().map(move |it| (root, it)));
        let mut files =
            paths.filter_map(|(root, directory)| open_below(root, &directory.join(name)));
        files.find(|file| matches!(crc32(file), Ok(Some(sum)) if sum == checksum))
    }
}

fn has_build_id(file: &File, id: &[u8]) -> bool {
    let data = FileData::new(file);
    let elf = object::File::parse(&data);
    elf.is_ok_and(|elf| matches!(elf.build_id(), Ok(Some(own)) if own == id))
}

/// The checksum of a file from its current position on; `None` if the file is too large.
fn crc32(file: &File) -> io::Result<Option<u32>> {
    if file.metadata()?.len() > MOST_BYTES {
        return Ok(None);
    }
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut crc = Crc::new();
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(Some(crc.sum()));
        }
        crc.update(bytes);
        let length = bytes.len();
        reader.consume(length);
    }
}
