//! The memory of an app after its death: an ELF core file that the kernel or gdb wrote.
//!
//! Only the requested parts are read. Memory that the core file does not contain counts as not
//! mapped, and is never read as zeros; [`CoreMemory::missing`] names the bits of
//! `/proc/PID/coredump_filter` that were missing.

mod notes;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf::{ET_CORE, FileHeader64, PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadRef};
use pmdscope_profile::{AppFiles, FileData, FileRights};

use self::notes::CoreNotes;
pub use self::notes::CoreThread;
use crate::address::AddressRange;
use crate::error::XrayError;
use crate::memory::Memory;
use crate::presence::Presence;
use crate::shared_files;
use crate::thread::AppThread;
use pmdscope_telemetry::host::maps::Mapping;

/// Mappings of device registers and the like: they contain no references of the app.
const DEVICES: [&str; 4] = ["/dev/vfio", "/dev/uio", "/dev/infiniband", "/sys/"];

/// The bit of `coredump_filter` for anonymous memory.
const ANONYMOUS: u32 = 0;

/// Most bytes of headers and notes: those of a million mappings, or of 65,536 threads.
const MOST_HEADER_BYTES: u64 = 256 << 20;

/// Most pieces of memory; the limit of Linux is 65,530 unless it is raised.
const MOST_SEGMENTS: usize = 1 << 20;

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
    range: AddressRange,
    /// The offsets in the file of its first bytes, those that it contains.
    in_file: AddressRange,
    flags: u32,
}

impl Segment {
    /// The addresses that the file contains.
    fn contained(&self) -> AddressRange {
        AddressRange::up_to_length(self.range.start(), self.in_file.bytes())
    }
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
    /// [`XrayError::Io`] if it cannot be opened, [`XrayError::NotACore`] if it is something else, or has more
    /// headers than any app.
    pub fn open(path: &Path) -> Result<Self, XrayError> {
        let io = |source| XrayError::Io { what: path.display().to_string(), source };
        let wrong = |why: &str| XrayError::NotACore { path: path.to_owned(), why: why.to_owned() };
        // Opening a pipe would wait.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(wrong("it is not a regular file"));
        }
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let data = FileData::with_limit(&file, MOST_HEADER_BYTES);
        let headers = headers(&data);
        if data.is_exceeded() {
            return Err(wrong("it has more than 256 MiB of headers and notes, or is broken"));
        }
        let (segments, notes) = headers.map_err(|why| wrong(&why))?;
        if segments.is_empty() {
            return Err(wrong("it has no memory"));
        }
        let maps = segments.iter().map(|segment| notes.mapping(segment)).collect::<Vec<_>>();
        let end = segments.iter().map(|segment| segment.in_file.end()).max().unwrap_or(0);
        let truncated = end.saturating_sub(length);
        drop(data);
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
            let bytes = segment.range.bytes().saturating_sub(segment.in_file.bytes());
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
                Some(known) => known.bytes = known.bytes.saturating_add(bytes),
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
            anonymous && mapping.writable && !segment.in_file.is_empty()
        })
    }

    /// The segment that contains an address.
    fn segment(&self, address: u64) -> Option<&Segment> {
        let index = self.segments.partition_point(|segment| segment.range.end() <= address);
        self.segments.get(index).filter(|segment| segment.range.contains(address))
    }
}

impl Memory for CoreMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let bytes = buffer.len();
        let not_mapped = || XrayError::NotMapped { address, bytes };
        let mut wanted = AddressRange::of_length(address, bytes as u64).ok_or_else(not_mapped)?;
        let mut rest = buffer;
        while !rest.is_empty() {
            let segment = self.segment(wanted.start()).ok_or_else(not_mapped)?;
            let (available, behind) = wanted.split_at(segment.contained().end());
            let length = usize::try_from(available.bytes()).map_err(|_| not_mapped())?;
            let place = available.moved(segment.range.start(), segment.in_file.start());
            let (true, Some(place)) = (length > 0, place) else { return Err(not_mapped()) };
            let (piece, others) = rest.split_at_mut(length);
            self.file.read_exact_at(piece, place.start()).map_err(|source| XrayError::Io {
                what: format!("{}, which was cut", self.path.display()),
                source,
            })?;
            (wanted, rest) = (behind, others);
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

    /// Holes of the file are memory that the app never touched.
    fn present(&self, range: AddressRange) -> Result<Presence, XrayError> {
        let first = self.segments.partition_point(|segment| segment.range.end() <= range.start());
        let mut parts = Vec::new();
        for segment in self.segments[first..].iter().take_while(|it| it.range.overlaps(&range)) {
            let (start, in_file) = (segment.range.start(), segment.in_file.start());
            let wanted = segment.contained().intersection(&range).moved(start, in_file);
            let data = shared_files::data(&self.file, &wanted.unwrap_or_default());
            let data = data.map_err(|source| XrayError::Io {
                what: self.path.display().to_string(),
                source,
            })?;
            parts.extend(data.iter().filter_map(|data| data.moved(in_file, start)));
        }
        Ok(Presence { parts, unknown_bytes: 0 })
    }

    fn files(&self) -> Option<(FileRights, AppFiles)> {
        Some((FileRights::of_owner(&self.file.metadata().ok()?), AppFiles::new(None)))
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
    let programs = header.program_headers(endian, data).map_err(broken)?;
    if programs.len() > MOST_SEGMENTS {
        let found = programs.len();
        return Err(format!("it has {found} segments, and no more than {MOST_SEGMENTS} are read"));
    }
    let mut note_bytes = 0_u64;
    for program in programs {
        match program.p_type(endian) {
            PT_NOTE => {
                note_bytes = note_bytes.saturating_add(program.p_filesz(endian));
                if note_bytes > MOST_HEADER_BYTES {
                    return Err(format!("it has more than {MOST_HEADER_BYTES} bytes of notes"));
                }
                if let Some(mut found) = program.notes(endian, data).map_err(broken)? {
                    while let Some(note) = found.next().map_err(broken)? {
                        notes.add(header.e_machine(endian), note.n_type(endian), note.desc());
                    }
                }
            }
            PT_LOAD => segments.extend(segment(program)?),
            _ => {}
        }
    }
    notes.sort();
    segments.sort_by_key(|segment: &Segment| segment.range);
    if segments.windows(2).any(|pair| pair[0].range.overlaps(&pair[1].range)) {
        return Err("its segments overlap".to_owned());
    }
    // Otherwise a short file has any amount of memory.
    let in_file = segments.iter().map(|segment| segment.in_file);
    let mut in_file: Vec<AddressRange> = in_file.filter(|part| !part.is_empty()).collect();
    in_file.sort_unstable();
    if in_file.windows(2).any(|pair| pair[0].overlaps(&pair[1])) {
        return Err("two of its segments share bytes of the file".to_owned());
    }
    Ok((segments, notes))
}

/// `None` for an empty one, and for one beyond the address space.
fn segment(
    program: &object::elf::ProgramHeader64<LittleEndian>,
) -> Result<Option<Segment>, String> {
    let endian = LittleEndian;
    let bytes = program.p_memsz(endian);
    let range = AddressRange::of_length(program.p_vaddr(endian), bytes);
    let in_file = program.p_filesz(endian).min(bytes);
    let in_file = AddressRange::of_length(program.p_offset(endian), in_file)
        .ok_or("a segment is beyond the end of the longest file")?;
    let flags = program.p_flags(endian);
    let range = range.filter(|range| !range.is_empty());
    Ok(range.map(|range| Segment { range, in_file, flags }))
}

impl CoreNotes {
    /// A name as in `/proc/PID/maps`, if the segment contains the stack of a thread.
    fn stack_in(&self, segment: &Segment) -> Option<String> {
        let thread = self.thread_in(&segment.range)?;
        let main = self.pid == Some(thread.id);
        Some(if main { "[stack]".to_owned() } else { format!("[stack:{}]", thread.id) })
    }

    /// A mapping as in `/proc/PID/maps`. Its file shows whether it was shared.
    fn mapping(&self, segment: &Segment) -> Mapping {
        let start = segment.range.start();
        let file = self.file_at(start);
        let path = match file {
            Some(file) => file.path.clone(),
            None => self.stack_in(segment).unwrap_or_default(),
        };
        Mapping {
            start,
            end: segment.range.end(),
            readable: segment.flags & PF_R != 0,
            writable: segment.flags & PF_W != 0,
            executable: segment.flags & PF_X != 0,
            shared: is_shared(&path),
            offset: file.and_then(|file| file.offset_of(start)).unwrap_or_default(),
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
