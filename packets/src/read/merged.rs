//! Merges several files, as those of a directory, such as those of a capture with several threads, by time.
//!
//! Each file is sorted by time, so only the next packet of each has to be in memory. The result is one
//! section. An interface that is the same in several files is one interface with the sum of their
//! counts.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::ByteOrder;
use super::item::FileItem;
use super::reader::{CaptureFile, FileReader, ReadError};
use crate::control::RunControl;
use crate::open_files::allow_many_files;
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// Returns the capture files of a directory, sorted by name. Files of a capture that was killed still
/// end in `.part`.
///
/// # Errors
/// Fails if the directory cannot be read, or if it has no capture files.
pub fn files_of(directory: &Path) -> Result<Vec<CaptureFile>, ReadError> {
    let name = || directory.display().to_string();
    let failed = |source| ReadError::Io { name: name(), source };
    let mut paths = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>())
        .map_err(failed)?;
    paths.retain(|path| is_named_as_capture(path) && path.is_file());
    paths.sort();
    if paths.is_empty() {
        return Err(ReadError::NoFiles(name()));
    }
    Ok(paths.into_iter().map(CaptureFile::from).collect())
}

impl CaptureFile {
    /// Returns the size of the file, or of all files of a directory, with those merged with it, in bytes on the
    /// disk; `None` if that is unknown, as for a pipe.
    pub fn disk_bytes(&self) -> Option<u64> {
        let sum = |files: &[Self]| files.iter().map(Self::disk_bytes).sum::<Option<u64>>();
        let found = self.path.metadata().ok()?;
        let own = if found.is_dir() {
            sum(&files_of(&self.path).ok()?)
        } else {
            found.is_file().then_some(found.len())
        };
        Some(own?.saturating_add(sum(&self.merged)?))
    }
}

/// Returns whether a path is named like `x.pcapng`, `x.pcap.gz` or `x.pcapng.zst.part`.
pub fn is_named_as_capture(path: &Path) -> bool {
    let mut name = PathBuf::from(path.file_name().unwrap_or_default());
    for ending in [&["part"][..], &["gz", "zst", "lz4"]] {
        if name.extension().is_some_and(|found| ending.iter().any(|ending| found == *ending)) {
            name.set_extension("");
        }
    }
    name.extension().is_some_and(|extension| extension == "pcapng" || extension == "pcap")
}

/// An item before a packet or after the last one.
#[derive(Debug)]
enum MergedHead {
    Section(SectionOrigin),
    Interface(CaptureInterface, ByteOrder),
    Statistics(InterfaceStatistics),
}

/// The current item.
#[derive(Debug)]
enum MergedItem {
    None,
    Head(MergedHead),
    /// The next packet of this file.
    Packet(usize),
}

/// One of the merged files.
#[derive(Debug)]
struct MergeInput {
    reader: FileReader,
    /// The interfaces of its section: their numbers in the merged section, and their counts.
    interfaces: Vec<(u32, Option<InterfaceStatistics>)>,
}

/// An interface of the merged section.
#[derive(Debug)]
struct MergedInterface {
    interface: CaptureInterface,
    order: ByteOrder,
    /// Counts of the sections that have ended.
    counted: Option<InterfaceStatistics>,
    /// Some section has no statistics, for example that of a capture that was killed.
    uncounted: bool,
}

/// The files of a directory, read as one.
#[derive(Debug)]
pub(super) struct MergedReader {
    inputs: Vec<MergeInput>,
    /// Time of the next packet of each file.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    heads: VecDeque<MergedHead>,
    item: MergedItem,
    interfaces: Vec<MergedInterface>,
    begun: bool,
    ended: bool,
    packets: u64,
    /// Some file could not be opened, so its counts are unknown.
    unopened: bool,
    /// Errors of files that were not read to their end.
    failures: Vec<ReadError>,
}

impl MergedReader {
    /// Opens files, all at the same time, which appear to end when told to stop.
    fn open<'a>(
        files: impl IntoIterator<Item = &'a CaptureFile>,
        control: &RunControl,
    ) -> Result<Self, ReadError> {
        let (mut readers, mut failures) = (Vec::new(), Vec::new());
        allow_many_files();
        for file in files {
            match FileReader::open_until(file, control) {
                Ok(reader) => readers.push(reader),
                Err(error) if is_too_many(&error) => return Err(error),
                Err(error) => failures.push(error),
            }
        }
        if readers.is_empty()
            && let Some(failure) = failure_of(&mut failures)
        {
            return Err(failure);
        }
        // A file that is not a capture has no counts.
        let unopened = failures.iter().any(|error| !matches!(error, ReadError::Unknown(_)));
        Ok(Self { unopened, failures, ..Self::new(readers) })
    }

    pub(super) fn new(readers: impl IntoIterator<Item = FileReader>) -> Self {
        let input = |reader| MergeInput { reader, interfaces: Vec::new() };
        Self {
            inputs: readers.into_iter().map(input).collect(),
            next: BinaryHeap::new(),
            heads: VecDeque::new(),
            item: MergedItem::None,
            interfaces: Vec::new(),
            begun: false,
            ended: false,
            packets: 0,
            unopened: false,
            failures: Vec::new(),
        }
    }

    fn byte_order(&self) -> ByteOrder {
        match &self.item {
            MergedItem::Head(MergedHead::Interface(_, order)) => *order,
            _ => ByteOrder::default(),
        }
    }

    fn may_wait(&self) -> bool {
        match self.item {
            MergedItem::Packet(index) => self.inputs[index].reader.may_wait(),
            _ => false,
        }
    }

    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        if !std::mem::replace(&mut self.begun, true) {
            (0..self.inputs.len()).for_each(|index| self.seek(index));
        } else if let MergedItem::Packet(index) = self.item {
            self.seek(index);
        }
        self.item = MergedItem::None;
        if self.heads.is_empty() && self.next.is_empty() && !self.ended {
            self.ended = true;
            self.end();
        }
        if let Some(head) = self.heads.pop_front() {
            self.item = MergedItem::Head(head);
        } else if let Some(Reverse((_, index))) = self.next.pop() {
            self.item = MergedItem::Packet(index);
            self.packets += 1;
        } else {
            return failure_of(&mut self.failures).map_or(Ok(false), Err);
        }
        Ok(true)
    }

    pub(super) fn item(&mut self) -> Result<FileItem<'_>, ReadError> {
        Ok(match &mut self.item {
            MergedItem::None => FileItem::Other,
            MergedItem::Head(MergedHead::Section(origin)) => FileItem::Section(origin.clone()),
            MergedItem::Head(MergedHead::Interface(interface, _)) => {
                FileItem::Interface(interface.clone())
            }
            MergedItem::Head(MergedHead::Statistics(counted)) => FileItem::Statistics(*counted),
            MergedItem::Packet(index) => {
                let MergeInput { reader, interfaces } = &mut self.inputs[*index];
                match reader.item()? {
                    FileItem::Packet(packet) => {
                        let interface = number_of(interfaces, packet.interface);
                        FileItem::Packet(Packet { interface, id: self.packets - 1, ..packet })
                    }
                    _ => FileItem::Other,
                }
            }
        })
    }

    /// Advances to the next packet of a file.
    fn seek(&mut self, index: usize) {
        match self.next_packet(index) {
            Ok(Some(ns)) => self.next.push(Reverse((ns, index))),
            Ok(None) => self.end_section(index),
            Err(error) => {
                self.end_section(index);
                self.failures.push(error);
            }
        }
    }

    /// Returns the time of the next packet of a file, if there is one.
    fn next_packet(&mut self, index: usize) -> Result<Option<u64>, ReadError> {
        while self.inputs[index].reader.advance()? {
            let input = &mut self.inputs[index];
            let order = input.reader.byte_order();
            match input.reader.item()? {
                FileItem::Packet(packet) => return Ok(Some(packet.ns)),
                FileItem::Section(origin) => {
                    self.end_section(index);
                    if self.interfaces.is_empty() && self.heads.is_empty() {
                        self.heads.push_back(MergedHead::Section(origin));
                    }
                }
                FileItem::Interface(interface) => {
                    let number = self.number(interface, order);
                    self.inputs[index].interfaces.push((number, None));
                }
                FileItem::Statistics(counted) => {
                    if let Some((_, known)) = input.interfaces.get_mut(counted.interface as usize) {
                        *known = Some(counted);
                    }
                }
                FileItem::Other => {}
            }
        }
        Ok(None)
    }

    /// Returns the number of an interface in the merged section.
    fn number(&mut self, interface: CaptureInterface, order: ByteOrder) -> u32 {
        let same = |known: &MergedInterface| known.interface == interface && known.order == order;
        let number = self.interfaces.iter().position(same).unwrap_or(self.interfaces.len());
        if number == self.interfaces.len() {
            self.heads.push_back(MergedHead::Interface(interface.clone(), order));
            self.interfaces.push(MergedInterface {
                interface,
                order,
                counted: None,
                uncounted: false,
            });
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Adds the counts of a section of a file.
    fn end_section(&mut self, index: usize) {
        for (number, counted) in self.inputs[index].interfaces.drain(..) {
            let known = &mut self.interfaces[number as usize];
            match counted {
                Some(counted) => known.counted = Some(sum(known.counted, &counted)),
                None => known.uncounted = true,
            }
        }
    }

    fn end(&mut self) {
        for (number, known) in self.interfaces.iter().enumerate() {
            let interface = u32::try_from(number).unwrap_or(u32::MAX);
            if let Some(counted) = known.counted {
                let unknown = known.uncounted || self.unopened;
                let known = |count: Option<u64>| count.filter(|_| !unknown);
                self.heads.push_back(MergedHead::Statistics(InterfaceStatistics {
                    interface,
                    received: known(counted.received),
                    dropped: known(counted.dropped),
                    accepted: known(counted.accepted),
                    ..counted
                }));
            }
        }
    }
}

/// Returns whether a file could not be opened because too many others are open.
fn is_too_many(error: &ReadError) -> bool {
    let ReadError::Io { source, .. } = error else { return false };
    let number = source.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| number == Some(errno.raw_os_error()))
}

/// Combines the errors of all files into one.
fn failure_of(failures: &mut Vec<ReadError>) -> Option<ReadError> {
    match failures.len() {
        0 | 1 => failures.pop(),
        _ => Some(ReadError::Several(std::mem::take(failures))),
    }
}

fn number_of(interfaces: &[(u32, Option<InterfaceStatistics>)], local: u32) -> u32 {
    interfaces.get(local as usize).map_or(u32::MAX, |(number, _)| *number)
}

/// Returns the sum of two counts; unknown if either is.
fn sum(before: Option<InterfaceStatistics>, more: &InterfaceStatistics) -> InterfaceStatistics {
    let Some(before) = before else { return *more };
    let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
    InterfaceStatistics {
        interface: before.interface,
        start_ns: before.start_ns.min(more.start_ns),
        end_ns: before.end_ns.max(more.end_ns),
        received: add(before.received, more.received),
        dropped: add(before.dropped, more.dropped),
        accepted: add(before.accepted, more.accepted),
        delivered: before.delivered.saturating_add(more.delivered),
    }
}

/// A file, or the merged files of a directory.
#[derive(Debug)]
pub(super) enum ReplayInput {
    File(Box<FileReader>),
    Merged(Box<MergedReader>),
}

impl From<FileReader> for ReplayInput {
    fn from(reader: FileReader) -> Self {
        Self::File(Box::new(reader))
    }
}

impl ReplayInput {
    /// Opens a file as [`FileReader::open_until`]; a directory is read as its files, merged.
    pub(super) fn open(file: &CaptureFile, control: &RunControl) -> Result<Self, ReadError> {
        let merged = if file.path.is_dir() {
            MergedReader::open(&files_of(&file.path)?, control)
        } else if file.merged.is_empty() {
            return FileReader::open_until(file, control).map(Self::from);
        } else {
            MergedReader::open([file].into_iter().chain(&file.merged), control)
        };
        merged.map(Box::new).map(Self::Merged)
    }

    /// Returns the byte order, as [`FileReader::byte_order`].
    pub(super) fn byte_order(&self) -> ByteOrder {
        match self {
            Self::File(reader) => reader.byte_order(),
            Self::Merged(reader) => reader.byte_order(),
        }
    }

    /// Returns whether the next item may have to be waited for, as [`FileReader::may_wait`].
    pub(super) fn may_wait(&self) -> bool {
        match self {
            Self::File(reader) => reader.may_wait(),
            Self::Merged(reader) => reader.may_wait(),
        }
    }

    /// Advances to the next item, as [`FileReader::advance`].
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        match self {
            Self::File(reader) => reader.advance(),
            Self::Merged(reader) => reader.advance(),
        }
    }

    /// Returns the current item, as [`FileReader::item`].
    pub(super) fn item(&mut self) -> Result<FileItem<'_>, ReadError> {
        match self {
            Self::File(reader) => reader.item(),
            Self::Merged(reader) => reader.item(),
        }
    }
}
