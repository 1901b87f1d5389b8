//! Classic pcap: one interface, times in micro- or nanoseconds.

use pcap_parser::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

use super::{ByteOrder, SECOND};
use crate::packet::{CaptureInterface, MAX_SNAPLEN, Packet};

pub(super) const HEADER_SIZE: usize = 24;
pub(super) const RECORD_SIZE: usize = 16;
/// Offset of the captured length in a record.
const CAPLEN: usize = 8;

/// What the header of a file says.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcapHeader {
    order: ByteOrder,
    /// Nanoseconds per unit of the fraction of a second.
    unit: u64,
    linktype: u16,
    snaplen: u32,
}

impl PcapHeader {
    /// Reads a header; the reason why it is none for people.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (_, header) = parse_pcap_header(bytes).map_err(|_| "its header is broken")?;
        let linktype = u16::try_from(header.network.0 & 0x03ff_ffff)
            .map_err(|_| format!("there is no link type {}", header.network.0))?;
        if header.is_modified_format() {
            return Err("it is of a variant of pcap that nobody writes any more".to_owned());
        }
        let snaplen = if header.snaplen == 0 { MAX_SNAPLEN } else { header.snaplen };
        Ok(Self {
            order: if header.is_bigendian() { ByteOrder::Big } else { ByteOrder::Little },
            unit: if header.is_nanosecond_precision() { 1 } else { 1000 },
            linktype,
            snaplen: snaplen.min(MAX_SNAPLEN),
        })
    }

    pub(super) fn interface(&self) -> CaptureInterface {
        CaptureInterface {
            name: String::new(),
            description: String::new(),
            filter: String::new(),
            comment: String::new(),
            snaplen: self.snaplen,
            linktype: self.linktype,
        }
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes of the packet behind the header of a record.
    pub(super) fn caplen(&self, record: &[u8]) -> u32 {
        self.order.u32_at(record, CAPLEN)
    }

    /// The packet of a whole record.
    pub(super) fn packet<'a>(&self, record: &'a [u8], id: u64) -> Result<Packet<'a>, &'static str> {
        let frame = match self.order {
            ByteOrder::Little => parse_pcap_frame(record),
            ByteOrder::Big => parse_pcap_frame_be(record),
        };
        let (_, frame) = frame.map_err(|_| "a packet has no sense")?;
        Ok(Packet {
            interface: 0,
            ns: u64::from(frame.ts_sec) * SECOND + u64::from(frame.ts_usec) * self.unit,
            data: frame.data,
            len: frame.origlen.max(frame.caplen),
            dir: 0,
            queue: None,
            lcore: None,
            weight: 1,
            dropped: 0,
            id,
            comment: "",
        })
    }
}
