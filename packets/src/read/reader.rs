//! Parses a capture file.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ByteOrder;
use super::input::FileInput;
use super::item::FileItem;
use super::pcap::{self, PcapHeader};
use super::pcapng::{self, PacketTexts, SectionReader};
use crate::control::RunControl;
use crate::packet::{MAX_SNAPLEN, SectionOrigin};

/// First bytes of files.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [u8; 4] = [0xa1, 0xb2, 0xc3, 0xd4];
const PCAP_NS: [u8; 4] = [0xa1, 0xb2, 0x3c, 0x4d];
/// A variant of old Linux distributions, with longer records.
const PCAP_MODIFIED: [u8; 4] = [0xa1, 0xb2, 0xcd, 0x34];

const PCAP_MAGICS: [[u8; 4]; 3] = [PCAP, PCAP_NS, PCAP_MODIFIED];

/// Why a file, or the rest of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused to read the file.
    #[error("cannot read {name}")]
    Io {
        /// The file.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The file has another format.
    #[error("{0} is not a capture file: not pcap or pcapng")]
    Unknown(String),
    /// The file is empty.
    #[error("{0} is empty: not even the header of a capture file is there")]
    Empty(String),
    /// The directory has no capture files.
    #[error("{0} is a directory without capture files: their names end in .pcapng or .pcap")]
    NoFiles(String),
    /// The file ends within a block.
    #[error(
        "{name} is cut off: it ends in the middle of a block; whole packets before that: {packets}"
    )]
    Truncated {
        /// The file.
        name: String,
        /// Number of packets before the error.
        packets: u64,
    },
    /// The file violates its format.
    #[error("{name} is broken: {reason}; packets before that: {packets}")]
    Broken {
        /// The file.
        name: String,
        /// Number of packets before the error.
        packets: u64,
        /// Explanation for users.
        reason: String,
    },
    /// Errors of several files of a directory.
    #[error("{}", joined(.0))]
    Several(Vec<ReadError>),
}

/// Returns the errors of all files as one text.
fn joined(errors: &[ReadError]) -> String {
    let text = |error: &ReadError| match error {
        ReadError::Io { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    };
    errors.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// A file to read, and its name in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureFile {
    /// Path that is opened; `-` is standard input.
    pub path: PathBuf,
    /// Name in messages.
    pub name: String,
    /// Further files, whose packets are merged with those of this one by time.
    pub merged: Vec<CaptureFile>,
}

impl From<PathBuf> for CaptureFile {
    fn from(path: PathBuf) -> Self {
        let name = match path.to_str() {
            Some("-") => "standard input".to_owned(),
            _ => path.display().to_string(),
        };
        Self { path, name, merged: Vec::new() }
    }
}

#[derive(Debug)]
enum InputFormat {
    /// The section is item 1, the interface item 2, then packets follow.
    Pcap {
        header: PcapHeader,
        begun: usize,
    },
    Pcapng(SectionReader),
}

/// A capture file. [`FileReader::advance`] advances to the next item, [`FileReader::item`] returns it.
pub struct FileReader {
    name: String,
    input: FileInput,
    format: InputFormat,
    /// The current block or record, unless it is in place.
    block: Vec<u8>,
    /// Length of the current record, if it is whole at the beginning of what was read ahead; else 0.
    in_place: usize,
    /// Number of packets before this item.
    packets: u64,
    at_packet: bool,
    texts: PacketTexts,
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FileReader {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not a capture file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_until(&CaptureFile::from(path.to_owned()), &RunControl::default())
    }

    /// Opens a file as [`FileReader::open`]; it appears to end when told to stop, even if it is a silent
    /// pipe.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    pub fn open_until(file: &CaptureFile, control: &RunControl) -> Result<Self, ReadError> {
        let name = file.name.clone();
        match FileInput::open(&file.path, control) {
            Ok(input) => Self::begin(name, input),
            Err(source) => Err(ReadError::Io { name, source }),
        }
    }

    /// Reads a file that is already open.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    pub fn new(name: &str, bytes: impl Read + 'static) -> Result<Self, ReadError> {
        let name = name.to_owned();
        match FileInput::new(bytes) {
            Ok(input) => Self::begin(name, input),
            Err(source) => Err(ReadError::Io { name, source }),
        }
    }

    fn begin(name: String, mut input: FileInput) -> Result<Self, ReadError> {
        let mut block = Vec::new();
        if let Err(source) = input.read(4, &mut block) {
            return Err(ReadError::Io { name, source });
        }
        let format = InputFormat::Pcapng(SectionReader::default());
        let (in_place, packets, at_packet, texts) = (0, 0, false, PacketTexts::default());
        let mut reader = Self { name, input, format, block, in_place, packets, at_packet, texts };
        let reversed = [3, 2, 1, 0].map(|at| reader.block.get(at).copied().unwrap_or_default());
        match reader.block.as_slice() {
            [] => Err(ReadError::Empty(reader.name)),
            magic if magic == PCAPNG => Ok(reader),
            magic if PCAP_MAGICS.iter().any(|pcap| magic == pcap || reversed == *pcap) => {
                reader.read(pcap::HEADER_SIZE - 4)?;
                let header = PcapHeader::parse(&reader.block).map_err(|why| reader.broken(why))?;
                reader.format = InputFormat::Pcap { header, begun: 0 };
                Ok(reader)
            }
            _ => Err(ReadError::Unknown(reader.name)),
        }
    }

    /// Returns the byte order of the file, or of the current section.
    pub fn byte_order(&self) -> ByteOrder {
        match &self.format {
            InputFormat::Pcap { header, .. } => header.order(),
            InputFormat::Pcapng(section) => section.order(),
        }
    }

    /// Returns whether the next item is not completely buffered, so that reading it from a pipe may
    /// block.
    pub fn may_wait(&self) -> bool {
        let next = self.input.buffered().get(self.in_place..).unwrap_or_default();
        let size = match &self.format {
            InputFormat::Pcap { begun: ..2, .. } => return false,
            InputFormat::Pcap { header, .. } if next.len() >= header.record_size() => {
                header.record_size() + header.caplen(next) as usize
            }
            // The byte order of a new section is not known yet.
            InputFormat::Pcapng(section)
                if next.len() >= pcapng::HEAD_SIZE && !next.starts_with(&PCAPNG) =>
            {
                section.size(next)
            }
            _ => return true,
        };
        next.len() < size
    }

    /// Advances to the next item; false at the end of the file.
    ///
    /// # Errors
    /// Fails if the file is truncated or malformed at this point. Nothing can be read after an error.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        self.packets += u64::from(std::mem::take(&mut self.at_packet));
        match &mut self.format {
            InputFormat::Pcap { begun, .. } if *begun < 2 => {
                *begun += 1;
                Ok(true)
            }
            InputFormat::Pcap { header, begun } => {
                *begun = 3;
                let header = *header;
                self.advance_record(header)
            }
            InputFormat::Pcapng(_) => self.advance_block(),
        }
    }

    /// Returns the current item.
    ///
    /// # Errors
    /// Fails if the item is malformed.
    pub fn item(&mut self) -> Result<FileItem<'_>, ReadError> {
        let Self { name, input, format, block, in_place, packets, at_packet, texts } = self;
        let item = match format {
            InputFormat::Pcap { begun: 1, .. } => Ok(FileItem::Section(SectionOrigin::default())),
            InputFormat::Pcap { header, begun: 2 } => Ok(FileItem::Interface(header.interface())),
            InputFormat::Pcap { header, .. } => {
                let there = input.buffered().get(..*in_place).unwrap_or_default();
                let record = if there.is_empty() { block.as_slice() } else { there };
                header.packet(record, *packets).map(FileItem::Packet)
            }
            InputFormat::Pcapng(_) if block.is_empty() => Ok(FileItem::Other),
            InputFormat::Pcapng(section) => section.item(block, *packets, texts),
        };
        *at_packet = matches!(item, Ok(FileItem::Packet(_)));
        item.map_err(|reason| ReadError::Broken {
            name: name.clone(),
            packets: *packets,
            reason: reason.to_owned(),
        })
    }

    fn advance_record(&mut self, header: PcapHeader) -> Result<bool, ReadError> {
        self.input.consume(std::mem::take(&mut self.in_place));
        let next = self.input.buffered();
        if next.len() >= header.record_size() {
            let caplen = header.caplen(next);
            let size = header.record_size() + caplen as usize;
            if caplen <= MAX_SNAPLEN && next.len() >= size {
                self.in_place = size;
                return Ok(true);
            }
        }
        self.block.clear();
        if !self.read_or_end(header.record_size())? {
            return Ok(false);
        }
        match header.caplen(&self.block) {
            caplen @ 0..=MAX_SNAPLEN => self.read(caplen as usize).map(|()| true),
            caplen => Err(self.broken(format!("a packet claims to have {caplen} bytes"))),
        }
    }

    fn advance_block(&mut self) -> Result<bool, ReadError> {
        // The first four bytes were read to recognize the file format.
        let first = self.block.len() == 4;
        if first {
            self.read(pcapng::HEAD_SIZE - 4)?;
        } else {
            self.block.clear();
            if !self.read_or_end(pcapng::HEAD_SIZE)? {
                return Ok(false);
            }
        }
        if self.block.starts_with(&PCAPNG) {
            self.read(4)?;
        }
        let InputFormat::Pcapng(section) = &mut self.format else { return Ok(false) };
        let (head, magic) = self.block.split_at(pcapng::HEAD_SIZE);
        let (kind, size) = section.head(head, magic);
        if size < pcapng::BLOCK_MIN || size % 4 != 0 {
            return Err(self.broken(format!("a block claims to have {size} bytes")));
        }
        let rest = (size as usize).saturating_sub(self.block.len());
        if !SectionReader::knows(kind) {
            self.block.clear();
            return self.skip(rest as u64).map(|()| true);
        }
        if size > pcapng::BLOCK_MAX {
            return Err(self.broken(format!("a block claims to have {size} bytes")));
        }
        self.read(rest)?;
        let InputFormat::Pcapng(section) = &mut self.format else { return Ok(false) };
        section.note(&self.block).map_err(|why| self.broken(why.to_owned()))?;
        Ok(true)
    }

    /// Appends exactly `len` bytes to the block.
    fn read(&mut self, len: usize) -> Result<(), ReadError> {
        if len > 0 && !self.read_or_end(len)? {
            return Err(self.truncated());
        }
        Ok(())
    }

    /// Appends bytes as [`FileReader::read`]; returns false at the end of the file.
    fn read_or_end(&mut self, len: usize) -> Result<bool, ReadError> {
        let before = self.block.len();
        let read = self.input.read(len, &mut self.block);
        read.map_err(|source| ReadError::Io { name: self.name.clone(), source })?;
        match self.block.len() - before {
            0 => Ok(false),
            read if read == len => Ok(true),
            _ => Err(self.truncated()),
        }
    }

    fn skip(&mut self, len: u64) -> Result<(), ReadError> {
        match self.input.skip(len) {
            Ok(skipped) if skipped == len => Ok(()),
            Ok(_) => Err(self.truncated()),
            Err(source) => Err(ReadError::Io { name: self.name.clone(), source }),
        }
    }

    fn truncated(&self) -> ReadError {
        ReadError::Truncated { name: self.name.clone(), packets: self.packets }
    }

    fn broken(&self, reason: String) -> ReadError {
        ReadError::Broken { name: self.name.clone(), packets: self.packets, reason }
    }
}
