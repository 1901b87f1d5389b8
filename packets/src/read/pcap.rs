//! Classic pcap: one interface, times in microseconds or nanoseconds. Also the variant by Alexey
//! Kuznetzov, which has longer records.

use pcap_parser::parse_pcap_header;

use super::{ByteOrder, SECOND};
use crate::packet::{CaptureInterface, MAX_SNAPLEN, Packet};

pub(super) const HEADER_SIZE: usize = 24;
const RECORD_SIZE: usize = 16;
/// Length of a record header with interface number, protocol and packet type.
const MODIFIED_RECORD_SIZE: usize = 24;
/// First bytes of files of the variant, and of classic files, in both byte orders; the headers are
/// equal otherwise.
const MODIFIED: [[u8; 4]; 2] = [[0xa1, 0xb2, 0xcd, 0x34], [0x34, 0xcd, 0xb2, 0xa1]];
const CLASSIC: [[u8; 4]; 2] = [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1]];
/// Offset of the two lengths in a record: that of the captured bytes comes first.
const LENGTHS: usize = 8;

/// Order of the two lengths in a record, as libpcap takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthOrder {
    CapturedFirst,
    /// Versions before 2.3, and 543 of DG/UX.
    CapturedLast,
    /// Version 2.3, in which programs wrote either: the smaller one is that of the captured bytes.
    Either,
}

/// The header of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcapHeader {
    order: ByteOrder,
    /// Nanoseconds per unit of the fraction of a second.
    unit: u64,
    linktype: u16,
    snaplen: u32,
    /// Length of a record header.
    record_size: usize,
    length_order: LengthOrder,
}

impl PcapHeader {
    /// Parses a header; the error is a reason for users.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let modified = MODIFIED.iter().position(|magic| bytes.starts_with(magic));
        let classic = modified.and_then(|at| Some([&CLASSIC[at][..], bytes.get(4..)?].concat()));
        let header = parse_pcap_header(classic.as_deref().unwrap_or(bytes));
        let (_, header) = header.map_err(|_| "its header is broken")?;
        let linktype = u16::try_from(header.network.0 & 0x03ff_ffff)
            .map_err(|_| format!("there is no link type {}", header.network.0))?;
        let snaplen = if header.snaplen == 0 { MAX_SNAPLEN } else { header.snaplen };
        Ok(Self {
            order: if header.is_bigendian() { ByteOrder::Big } else { ByteOrder::Little },
            unit: if header.is_nanosecond_precision() { 1 } else { 1000 },
            linktype,
            snaplen: snaplen.min(MAX_SNAPLEN),
            length_order: match (header.version_major, header.version_minor) {
                (2, ..3) | (543, _) => LengthOrder::CapturedLast,
                (2, 3) => LengthOrder::Either,
                _ => LengthOrder::CapturedFirst,
            },
            record_size: if modified.is_some() { MODIFIED_RECORD_SIZE } else { RECORD_SIZE },
        })
    }

    pub(super) fn interface(&self) -> CaptureInterface {
        CaptureInterface {
            name: String::new(),
            description: String::new(),
            filter: String::new(),
            comment: String::new(),
            options: Vec::new(),
            snaplen: self.snaplen,
            linktype: self.linktype,
        }
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the length of a record header.
    pub(super) fn record_size(&self) -> usize {
        self.record_size
    }

    /// Returns the length of the packet after a record header.
    pub(super) fn caplen(&self, record: &[u8]) -> u32 {
        let [captured, _] = self.lengths(record);
        captured
    }

    /// Returns the captured length, and that on the wire.
    fn lengths(&self, record: &[u8]) -> [u32; 2] {
        let [first, second] = [LENGTHS, LENGTHS + 4].map(|at| self.order.u32_at(record, at));
        match self.length_order {
            LengthOrder::CapturedLast => [second, first],
            LengthOrder::Either if first > second => [second, first],
            _ => [first, second],
        }
    }

    /// Returns the packet of a complete record.
    pub(super) fn packet<'a>(&self, record: &'a [u8], id: u64) -> Result<Packet<'a>, &'static str> {
        let word = |at| self.order.u32_at(record, at);
        let [caplen, len] = self.lengths(record);
        let data = record.get(self.record_size..).and_then(|data| data.get(..caplen as usize));
        Ok(Packet {
            interface: 0,
            ns: u64::from(word(0)) * SECOND + u64::from(word(4)) * self.unit,
            data: data.ok_or("a packet has no sense")?,
            len: len.max(caplen),
            dir: 0,
            queue: None,
            lcore: None,
            weight: 1,
            dropped: 0,
            id,
            comment: "",
            options: &[],
        })
    }
}
