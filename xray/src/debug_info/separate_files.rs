//! Separate debug files, searched in the same places as by gdb: by build id, else by
//! `.gnu_debuglink`.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::Crc;
use object::{Object, ReadCache};

use super::open_regular_file;

/// Below a root directory.
const DEBUG_DIRECTORY: &str = "usr/lib/debug";

/// Larger files are not compared with the checksum of a link.
const MOST_BYTES: u64 = 4 << 30;

/// Bytes that are read at a time to compute a checksum.
const BUFFER_BYTES: usize = 1 << 18;

/// Directories in which separate debug files are searched.
#[derive(Debug)]
pub(crate) struct SeparateFiles {
    /// Root directories, the preferred one first.
    roots: Vec<PathBuf>,
}

impl SeparateFiles {
    /// Those of the file system of the process, if there is one, then of pmdscope's.
    pub(crate) fn of_process(pid: Option<u32>) -> Self {
        let root = pid.map(|pid| PathBuf::from(format!("/proc/{pid}/root")));
        Self::below(root.into_iter().chain([PathBuf::from("/")]).collect())
    }

    /// Those below these root directories.
    pub(crate) fn below(roots: Vec<PathBuf>) -> Self {
        Self { roots }
    }

    /// The separate debug file of an ELF file that has this path below the root directory.
    pub(super) fn find(&self, file: &File, path: &str) -> Option<File> {
        let cache = ReadCache::new(file);
        let elf = object::File::parse(&cache).ok()?;
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
        let mut files = self.roots.iter().filter_map(|root| open_regular_file(&root.join(&path)));
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
        let paths = self.roots.iter().flat_map(|root| beside.iter().map(|it| root.join(it)));
        let mut files = paths.filter_map(|directory| open_regular_file(&directory.join(name)));
        files.find(|file| matches!(crc32(file), Ok(Some(sum)) if sum == checksum))
    }
}

fn has_build_id(file: &File, id: &[u8]) -> bool {
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache);
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::debug_info::DebugFiles;
    use crate::debug_info::offsets::offsets_of_files;
    use crate::debug_info::places::Places;
    use crate::debug_info::tests::Compiled;
    use crate::layout::Offsets;

    const SOURCE: &str = "
        struct rte_memzone {
            char moved[8], name[32]; unsigned long phys_addr, addr, len;
            unsigned long hugepage_sz; int socket_id; unsigned flags;
        };
        struct rte_tailq_entry { void *next, *previous, *data; } entry;
    ";

    /// A library without debug information, and `library.debug` with it.
    fn split() -> Compiled {
        let compiled = Compiled::new(SOURCE, &["-g"]);
        compiled.run("objcopy", &["--only-keep-debug", "library.so", "library.debug"]);
        compiled.run("objcopy", &["--strip-all", "library.so"]);
        compiled
    }

    /// The same, with a link in the library to its debug file.
    fn linked() -> Compiled {
        let compiled = split();
        compiled.run("objcopy", &["--add-gnu-debuglink=library.debug", "library.so"]);
        compiled.run("objcopy", &["--remove-section=.note.gnu.build-id", "library.so"]);
        compiled
    }

    /// Finds offsets and places in an app whose root directory is that of the library, which is in
    /// `/opt/app`.
    fn found(compiled: &Compiled) -> (Offsets, Places) {
        let separate = SeparateFiles::below(vec![compiled.path("none"), compiled.path("")]);
        let path = "/opt/app/library.so";
        let files = DebugFiles::find(compiled.library(), path, &separate);
        let mut offsets = Offsets::new();
        offsets_of_files(&files, &mut offsets);
        (offsets, crate::debug_info::places::read(&files))
    }

    fn assert_found(compiled: &Compiled) {
        let (offsets, places) = found(compiled);
        assert_eq!(offsets.get(&("rte_tailq_entry", "data")), Some(&16));
        assert_eq!(places.into_values().collect::<Vec<_>>(), ["source.c:6"]);
    }

    fn assert_not_found(compiled: &Compiled) {
        assert_eq!(found(compiled), (Offsets::new(), Places::new()));
    }

    /// Moves the debug file into a directory below the root.
    fn put(compiled: &Compiled, directory: &str, name: &str) {
        fs::create_dir_all(compiled.path(directory)).unwrap();
        let to = compiled.path(directory).join(name);
        fs::rename(compiled.path("library.debug"), to).unwrap();
    }

    /// Directory and name of the debug file by build id, below the root.
    fn by_build_id(compiled: &Compiled) -> (String, String) {
        let file = compiled.library();
        let cache = ReadCache::new(&file);
        let elf = object::File::parse(&cache).unwrap();
        let id = elf.build_id().unwrap().unwrap();
        let id = id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        (format!("usr/lib/debug/.build-id/{}", &id[..2]), format!("{}.debug", &id[2..]))
    }

    #[test]
    fn a_separate_file_is_found_by_build_id() {
        let compiled = split();
        assert_not_found(&compiled);
        let (directory, name) = by_build_id(&compiled);
        put(&compiled, &directory, &name);
        assert_found(&compiled);
    }

    #[test]
    fn a_file_of_another_build_is_not_used() {
        let compiled = split();
        let (directory, name) = by_build_id(&compiled);
        let other = Compiled::new("int other;", &["-g"]);
        fs::create_dir_all(compiled.path(&directory)).unwrap();
        fs::copy(other.path("library.so"), compiled.path(&directory).join(name)).unwrap();
        assert_not_found(&compiled);

        let compiled = linked();
        fs::create_dir_all(compiled.path("opt/app")).unwrap();
        fs::copy(other.path("library.so"), compiled.path("opt/app/library.debug")).unwrap();
        assert_not_found(&compiled);
        // A right file in another place is found nevertheless.
        put(&compiled, "opt/app/.debug", "library.debug");
        assert_found(&compiled);
    }

    #[test]
    fn a_separate_file_is_found_by_its_link() {
        for directory in ["opt/app", "opt/app/.debug", "usr/lib/debug/opt/app"] {
            let compiled = linked();
            assert_not_found(&compiled);
            put(&compiled, directory, "library.debug");
            assert_found(&compiled);
        }
    }

    #[test]
    fn a_named_pipe_in_its_place_keeps_nobody_waiting() {
        let compiled = linked();
        fs::create_dir_all(compiled.path("opt/app")).unwrap();
        compiled.run("mkfifo", &["opt/app/library.debug"]);
        assert_not_found(&compiled);
    }
}
