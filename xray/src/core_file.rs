//! The memory of an app after its death: an ELF core file that the kernel or gdb wrote.
//!
//! Only the requested parts are read. Memory that the core file does not contain counts as not
//! mapped, and is never read as zeros; [`CoreMemory::missing`] names the bits of
//! `/proc/PID/coredump_filter` that were missing.

mod notes;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf::{ET_CORE, FileHeader64, PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache, ReadRef};

use self::notes::CoreNotes;
pub use self::notes::CoreThread;
use crate::error::XrayError;
use crate::memory::Memory;
use crate::presence::Presence;
use crate::thread::AppThread;
use pmdscope_telemetry::host::maps::Mapping;

/// Mappings of device registers and the like: they contain no references of the app.
const DEVICES: [&str; 4] = ["/dev/vfio", "/dev/uio", "/dev/infiniband", "/sys/"];

/// The bit of `coredump_filter` for anonymous memory.
const ANONYMOUS: u32 = 0;

/// The memory in a core file.
#[derive(Debug)]
pub struct CoreMemory {
    path: PathBuf,
    file: File,
    /// By address, without overlaps.
    segments: Vec<Segment>,
    maps: Vec<Mapping>,
    notes: CoreNotes,
    /// Bytes at the end that the headers list but the file lacks.
    truncated: u64,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    /// Offset in the file.
    offset: u64,
    /// Bytes of it that the file contains.
    in_file: u64,
    flags: u32,
}

/// Memory that the app could write and the core file does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMemory {
    /// Its kind, such as "shared hugepages".
    pub kind: &'static str,
    /// The bit of `/proc/PID/coredump_filter` with which the kernel writes it.
    pub filter_bit: u32,
    /// Number of bytes.
    pub bytes: u64,
}

impl CoreMemory {
    /// Reads the headers and notes of a core file.
    ///
    /// # Errors
    /// [`XrayError::Io`] if it cannot be opened, [`XrayError::NotACore`] if it is something else.
    pub fn open(path: &Path) -> Result<Self, XrayError> {
        let io = |source| XrayError::Io { what: path.display().to_string(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let wrong = |why: &str| XrayError::NotACore { path: path.to_owned(), why: why.to_owned() };
        let cache = ReadCache::new(&file);
        let (segments, notes) = headers(&cache).map_err(|why| wrong(&why))?;
        if segments.is_empty() {
            return Err(wrong("it has no memory"));
        }
        let maps = segments.iter().map(|segment| notes.mapping(segment)).collect::<Vec<_>>();
        let ends = segments.iter().map(|segment| segment.offset.saturating_add(segment.in_file));
        let truncated = ends.max().unwrap_or(0).saturating_sub(length);
        drop(cache);
        Ok(Self { path: path.to_owned(), file, segments, maps, notes, truncated })
    }

    /// Process id that the app had; `None` if the core file does not report it.
    pub fn pid(&self) -> Option<u32> {
        self.notes.pid
    }

    /// Name of the process, at most 15 bytes; empty if the core file does not report it.
    pub fn command(&self) -> &str {
        &self.notes.command
    }

    /// Its threads, with their registers; the one that got the fatal signal comes first.
    pub fn threads(&self) -> &[CoreThread] {
        &self.notes.threads
    }

    /// Bytes at the end that the headers list but the file lacks, because it was cut.
    pub fn truncated_bytes(&self) -> u64 {
        self.truncated
    }

    /// Memory that the app could write and that is missing, by kind: references to mbufs from there
    /// are not known.
    pub fn missing(&self) -> Vec<MissingMemory> {
        let mut missing: Vec<MissingMemory> = Vec::new();
        let has_anonymous = self.has_anonymous();
        for (segment, mapping) in self.segments.iter().zip(&self.maps) {
            let bytes = (segment.end - segment.start).saturating_sub(segment.in_file);
            if bytes == 0 || !mapping.writable || is_device(mapping) {
                continue;
            }
            // Without a bit there are no references: the app has not written there.
            let Some((kind, filter_bit)) = filter_bit(mapping) else { continue };
            // The kernel omits memory that the app never touched.
            if filter_bit == ANONYMOUS && has_anonymous {
                continue;
            }
            match missing.iter_mut().find(|known| known.filter_bit == filter_bit) {
                Some(known) => known.bytes += bytes,
                None => missing.push(MissingMemory { kind, filter_bit, bytes }),
            }
        }
        missing.sort_by_key(|kind| kind.filter_bit);
        missing
    }

    /// Whether some anonymous memory is contained: then all of it is.
    fn has_anonymous(&self) -> bool {
        let mut segments = self.segments.iter().zip(&self.maps);
        segments.any(|(segment, mapping)| {
            let anonymous = filter_bit(mapping).is_some_and(|(_, bit)| bit == ANONYMOUS);
            anonymous && mapping.writable && segment.in_file > 0
        })
    }

    /// Index of the segment that contains an address.
    fn segment(&self, address: u64) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.end <= address);
        self.segments.get(index).filter(|segment| segment.start <= address).map(|_| index)
    }
}

impl Memory for CoreMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let bytes = buffer.len();
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let not_mapped = || XrayError::NotMapped { address, bytes };
            let index = self.segment(at).ok_or_else(not_mapped)?;
            let segment = self.segments[index];
            let offset = at - segment.start;
            let available = segment.in_file.saturating_sub(offset);
            let length = usize::try_from(available).unwrap_or(usize::MAX).min(rest.len());
            if length == 0 {
                return Err(not_mapped());
            }
            let (piece, behind) = rest.split_at_mut(length);
            let place = segment.offset.saturating_add(offset);
            self.file.read_exact_at(piece, place).map_err(|source| XrayError::Io {
                what: format!("{}, which was cut", self.path.display()),
                source,
            })?;
            at += length as u64;
            rest = behind;
        }
        Ok(())
    }

    /// The mappings at the end of the process, including those that are not in the core file.
    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        Ok(self.maps.clone())
    }

    /// Only the first one has a name, that of the process.
    fn threads(&self) -> Vec<AppThread> {
        let thread = |thread: &CoreThread| {
            let is_main = self.notes.pid == Some(thread.id);
            let name = if is_main { self.notes.command.clone() } else { String::new() };
            AppThread { id: thread.id, is_main, name }
        };
        self.notes.threads.iter().map(thread).collect()
    }

    fn present(&self, range: Range<u64>) -> Result<Presence, XrayError> {
        let there = self.segments.iter().filter_map(|segment| {
            let end = segment.start.saturating_add(segment.in_file).min(range.end);
            let start = segment.start.max(range.start);
            (start < end).then_some(start..end)
        });
        Ok(Presence { parts: there.collect(), unknown_bytes: 0 })
    }
}

fn headers<'data>(data: impl ReadRef<'data>) -> Result<(Vec<Segment>, CoreNotes), String> {
    let endian = LittleEndian;
    let not_elf = "it is not a 64-bit little-endian ELF file; a compressed core file must be unpacked \
                   first (coredumpctl dump, zstd -d, lz4 -d)";
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|_| not_elf.to_owned())?;
    if header.endian().is_err() {
        return Err(not_elf.to_owned());
    }
    if header.e_type(endian) != ET_CORE {
        return Err("it is an ELF file, but not a core file".to_owned());
    }
    let broken = |error: object::Error| error.to_string();
    let (mut segments, mut notes) = (Vec::new(), CoreNotes::default());
    for program in header.program_headers(endian, data).map_err(broken)? {
        match program.p_type(endian) {
            PT_NOTE => {
                if let Some(mut found) = program.notes(endian, data).map_err(broken)? {
                    while let Some(note) = found.next().map_err(broken)? {
                        notes.add(header.e_machine(endian), note.n_type(endian), note.desc());
                    }
                }
            }
            PT_LOAD => segments.extend(segment(program)),
            _ => {}
        }
    }
    segments.sort_by_key(|segment: &Segment| segment.start);
    if segments.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err("its segments overlap".to_owned());
    }
    Ok((segments, notes))
}

/// `None` for an empty one, and for one beyond the address space.
fn segment(program: &object::elf::ProgramHeader64<LittleEndian>) -> Option<Segment> {
    let endian = LittleEndian;
    let start = program.p_vaddr(endian);
    let bytes = program.p_memsz(endian);
    Some(Segment {
        start,
        end: start.checked_add(bytes).filter(|end| *end > start)?,
        offset: program.p_offset(endian),
        in_file: program.p_filesz(endian).min(bytes),
        flags: program.p_flags(endian),
    })
}

impl CoreNotes {
    /// A name as in `/proc/PID/maps`, if the segment contains the stack of a thread.
    fn stack_in(&self, segment: &Segment) -> Option<String> {
        let here = |pointer: u64| (segment.start..segment.end).contains(&pointer);
        let thread = self.threads.iter().find(|thread| thread.stack_pointer.is_some_and(here))?;
        let main = self.pid == Some(thread.id);
        Some(if main { "[stack]".to_owned() } else { format!("[stack:{}]", thread.id) })
    }

    /// A mapping as in `/proc/PID/maps`. Its file shows whether it was shared.
    fn mapping(&self, segment: &Segment) -> Mapping {
        let file = self.file_at(segment.start);
        let path = match file {
            Some(file) => file.path.clone(),
            None => self.stack_in(segment).unwrap_or_default(),
        };
        Mapping {
            start: segment.start,
            end: segment.end,
            readable: segment.flags & PF_R != 0,
            writable: segment.flags & PF_W != 0,
            executable: segment.flags & PF_X != 0,
            shared: is_shared(&path),
            offset: file.map_or(0, |file| file.offset.saturating_add(segment.start - file.start)),
            device: String::new(),
            inode: 0,
            path,
        }
    }
}

/// Files that are mapped as memory, and not for their content, are shared.
fn is_shared(path: &str) -> bool {
    let begins = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"];
    is_hugepage(path) || begins.iter().any(|begin| path.starts_with(begin)) || is_dpdk_file(path)
}

/// Names that the EAL gives to files on hugetlbfs, and the kernel to anonymous hugepages.
fn is_hugepage(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.contains("hugepages")
        || path.contains("hugetlb")
        || name.contains("map_")
        || name.starts_with("anon_hugepage")
        // memfd of the EAL, one per segment; that of --no-huge is "nohuge".
        || path.starts_with("/memfd:seg_")
}

/// Configuration and memory tables in the runtime directory of an app.
fn is_dpdk_file(path: &str) -> bool {
    path.contains("/dpdk/") && !path.contains(".so")
}

fn is_device(mapping: &Mapping) -> bool {
    DEVICES.iter().any(|begin| mapping.path.starts_with(begin))
}

/// The kind of the memory for the kernel, and its bit; see core(5). `None` for a private file:
/// pages that the app has written are anonymous memory.
fn filter_bit(mapping: &Mapping) -> Option<(&'static str, u32)> {
    let path = mapping.path.as_str();
    let deleted = path.ends_with("(deleted)") || path.starts_with("/memfd:");
    match () {
        () if is_hugepage(path) => Some(("hugepages", 6)),
        () if path.is_empty() || path.starts_with('[') => Some(("anonymous memory", ANONYMOUS)),
        () if mapping.shared && (deleted || path.starts_with("/SYSV")) => {
            Some(("shared anonymous memory", 1))
        }
        () if mapping.shared => Some(("shared files", 3)),
        () => None,
    }
}

#[cfg(test)]
#[path = "core_file_tests.rs"]
mod tests;
