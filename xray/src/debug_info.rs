//! Debug information of the executables and libraries of an app: in the files themselves, or in separate
//! ones.

pub(crate) mod offsets;
pub(crate) mod places;

#[cfg(test)]
mod separate_files_tests;

use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::time::{Duration, Instant};

use flate2::read::ZlibDecoder;
use gimli::{DebuggingInformationEntry, EndianRcSlice, Reader, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection};
use pmdscope_profile::{FileData, SeparateFiles};

/// Longer names are left out.
const MOST_NAME_BYTES: usize = 4096;

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
            let data = FileData::new(file);
            dwarf(&object::File::parse(&data).ok()?, most_bytes)
        })
    }
}

/// Ends work that a broken file would prolong without end.
#[derive(Debug)]
pub(crate) struct WorkDeadline(Option<Instant>);

impl WorkDeadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// A name of usual length: many entries may refer to one text as long as the file.
fn name_of(text: &Data) -> Option<String> {
    let name = (text.len() <= MOST_NAME_BYTES).then(|| text.to_string_lossy().ok())??;
    Some(name.into_owned())
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
    use std::path::{Path, PathBuf};
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
