//! Debug information of the executables and libraries of an app: in the files themselves, or in separate
//! ones.

pub(crate) mod offsets;
pub(crate) mod places;
pub(crate) mod separate_files;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use gimli::{DebuggingInformationEntry, EndianRcSlice, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection, ReadCache};
use rustix::fs::OFlags;

use self::separate_files::SeparateFiles;

type Data = EndianRcSlice<RunTimeEndian>;
type Dwarf = gimli::Dwarf<Data>;
type Entry = DebuggingInformationEntry<Data>;

/// An executable or a library, and its separate debug file.
#[derive(Debug)]
pub(crate) struct DebugFiles {
    pub(crate) file: File,
    pub(crate) separate: Option<File>,
}

impl DebugFiles {
    /// Searches the separate debug file of `file`, whose path in the app is `path`.
    pub(crate) fn find(file: File, path: &str, separate: &SeparateFiles) -> Self {
        let separate = separate.find(&file, path);
        Self { file, separate }
    }

    /// The debug information of the file itself, or else that of the separate file; `None` if neither has
    /// any. Sections with more than `most_bytes` are left out.
    fn dwarf(&self, most_bytes: u64) -> Option<Dwarf> {
        [Some(&self.file), self.separate.as_ref()].into_iter().flatten().find_map(|file| {
            let cache = ReadCache::new(file);
            dwarf(&object::File::parse(&cache).ok()?, most_bytes)
        })
    }
}

/// Opens a file that an app or a core file names, if it is a regular one: opening a named pipe waits, and
/// opening a device may do anything.
pub(crate) fn open_regular_file(path: &Path) -> Option<File> {
    let is_regular = |metadata: std::fs::Metadata| metadata.is_file();
    if !std::fs::metadata(path).is_ok_and(is_regular) {
        return None;
    }
    // The file may have been replaced meanwhile.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(is_regular).then_some(file)
}

fn dwarf<'data>(elf: &impl Object<'data>, most_bytes: u64) -> Option<Dwarf> {
    elf.section_by_name(".debug_info")?;
    let section = |id: gimli::SectionId| {
        let section = elf.section_by_name(id.name());
        let data = section.and_then(|section| bytes(&section, most_bytes));
        let data: Rc<[u8]> = data.unwrap_or_default().into();
        Ok::<_, gimli::Error>(EndianRcSlice::new(data, RunTimeEndian::default()))
    };
    gimli::Dwarf::load(section).ok()
}

/// The data of a section, which may be compressed.
fn bytes<'data>(section: &impl ObjectSection<'data>, most_bytes: u64) -> Option<Vec<u8>> {
    let compressed = section.compressed_data().ok()?;
    if compressed.uncompressed_size > most_bytes {
        return None;
    }
    match compressed.format {
        CompressionFormat::None => Some(compressed.data.to_vec()),
        CompressionFormat::Zlib => {
            let (mut bytes, most) = (Vec::new(), compressed.uncompressed_size);
            ZlibDecoder::new(compressed.data).take(most).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;

    /// A library that was compiled in a temporary directory.
    pub(crate) struct Compiled {
        dir: TempDir,
    }

    impl Compiled {
        /// Compiles this source as `source.c`.
        pub(crate) fn new(source: &str, options: &[&str]) -> Self {
            let compiled = Self { dir: tempfile::tempdir().unwrap() };
            std::fs::write(compiled.path("source.c"), source).unwrap();
            let common = ["-shared", "-fPIC", "-Wl,--build-id", "-o", "library.so", "source.c"];
            compiled.run("cc", &[&common[..], options].concat());
            compiled
        }

        /// Runs a program in the directory.
        pub(crate) fn run(&self, program: &str, args: &[&str]) {
            let status = Command::new(program).args(args).current_dir(&self.dir).status();
            assert!(status.unwrap().success(), "{program} {args:?}");
        }

        /// A file in the directory.
        pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
            self.dir.path().join(name)
        }

        pub(crate) fn library(&self) -> File {
            File::open(self.path("library.so")).unwrap()
        }

        /// The library alone.
        pub(crate) fn files(&self) -> DebugFiles {
            DebugFiles { file: self.library(), separate: None }
        }
    }
}
