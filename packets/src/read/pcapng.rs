//! Blocks of pcapng.

use std::borrow::Cow;

use pcap_parser::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, InterfaceStatisticsBlock, PcapNGOption,
    SectionHeaderBlock, SimplePacketBlock, parse_block_be, parse_block_le,
};

use super::item::FileItem;
use super::{ByteOrder, SECOND};
use crate::options::{self, COMMENT};
use crate::packet::{
    CaptureInterface, DIR_RX, DIR_TX, InterfaceStatistics, MAX_SNAPLEN, Packet, SectionOrigin,
};

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// Length of type and length, which begin every block.
pub(super) const HEAD_SIZE: usize = 8;
/// Minimum length of a block.
pub(super) const BLOCK_MIN: u32 = 12;
/// Longest block that is accepted: packets are far smaller.
pub(super) const BLOCK_MAX: u32 = 16 << 20;
/// Bytes before the packet in an obsolete packet block.
const OLD_HEAD: usize = 28;

const NONSENSE: &str = "a block has no sense";

/// The options of a kind of block, by their codes.
struct BlockOptions {
    /// Those that are fields of ours, besides a comment; times of interfaces are converted.
    fields: &'static [u16],
    /// The first comment is a field as well.
    has_comment: bool,
    /// Numbers, which depend on the byte order.
    numbers: &'static [u16],
    /// Texts, addresses and the like, which do not.
    bytes: &'static [u16],
}

const SECTION_BLOCK: BlockOptions =
    BlockOptions { fields: &[2, 3, 4], has_comment: false, numbers: &[], bytes: &[] };
/// Numbers are speeds and the time zone.
const INTERFACE_BLOCK: BlockOptions = BlockOptions {
    fields: &[2, 3, 9, 11, 14],
    has_comment: true,
    numbers: &[8, 10, 16, 17],
    bytes: &[4, 5, 6, 7, 12, 13, 15, 18],
};
/// Bytes are hashes and verdicts.
const PACKET_BLOCK: BlockOptions =
    BlockOptions { fields: &[2, 4, 5, 6], has_comment: true, numbers: &[], bytes: &[3, 7] };

const END: u16 = 0;
/// Custom options, which begin with the number of a vendor; and those that must not be copied.
const CUSTOM_TEXT: u16 = 2988;
const CUSTOM: u16 = 2989;
const NOT_COPIED_TEXT: u16 = 19372;
const NOT_COPIED: u16 = 19373;

/// The comment of a packet, and further options.
#[derive(Debug, Default)]
pub(super) struct PacketTexts {
    comment: String,
    options: Vec<u8>,
}

impl PacketTexts {
    fn clear(&mut self) {
        self.comment.clear();
        self.options.clear();
    }
}

/// Time format and snap length of an interface.
#[derive(Clone, Copy, Debug)]
struct InterfaceFormat {
    /// `if_tsresol`: a negative power of 10, or of 2 if the top bit is set.
    resolution: u8,
    /// Seconds to add to time stamps.
    offset: i64,
    snaplen: u32,
}

impl InterfaceFormat {
    /// Converts a time stamp to nanoseconds since 1970.
    fn ns(&self, high: u32, low: u32) -> u64 {
        let units = u128::from(high) << 32 | u128::from(low);
        let digits = u32::from(self.resolution & 0x7f);
        let ns = match (self.resolution & 0x80, digits) {
            (0, 0..=9) => units * 10_u128.pow(9 - digits),
            (0, _) => 10_u128.checked_pow(digits - 9).map_or(0, |unit| units / unit),
            _ => (units * u128::from(SECOND)) >> digits,
        };
        let ns = ns.cast_signed() + i128::from(self.offset) * i128::from(SECOND);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// The section being read.
#[derive(Debug, Default)]
pub(super) struct SectionReader {
    order: ByteOrder,
    interfaces: Vec<InterfaceFormat>,
}

impl SectionReader {
    /// Returns the type and length of a block. A section header may change the byte order, so `magic`
    /// is its next four bytes.
    pub(super) fn head(&mut self, head: &[u8], magic: &[u8]) -> (u32, u32) {
        if self.order.u32_at(head, 0) == SECTION_HEADER {
            let big = magic == BYTE_ORDER_MAGIC;
            self.order = if big { ByteOrder::Big } else { ByteOrder::Little };
        }
        (self.order.u32_at(head, 0), self.order.u32_at(head, 4))
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the length of the block that begins with these bytes.
    pub(super) fn size(&self, head: &[u8]) -> usize {
        self.order.u32_at(head, 4) as usize
    }

    /// Returns whether blocks of this type are parsed; others are skipped.
    pub(super) fn knows(kind: u32) -> bool {
        matches!(
            kind,
            SECTION_HEADER | INTERFACE | OLD_PACKET | SIMPLE_PACKET | STATISTICS | PACKET
        )
    }

    /// Processes a new block, before [`SectionReader::item`] is called for it.
    pub(super) fn note(&mut self, block: &[u8]) -> Result<(), &'static str> {
        match self.order.u32_at(block, 0) {
            SECTION_HEADER => self.interfaces.clear(),
            INTERFACE => {
                let Block::InterfaceDescription(interface) = self.parse(block)? else {
                    return Err(NONSENSE);
                };
                let known = self.known(&interface);
                self.interfaces.push(known);
            }
            _ => {}
        }
        Ok(())
    }

    /// Parses a complete block. Comments and other options of a packet are written into `texts`.
    pub(super) fn item<'a>(
        &self,
        block: &'a [u8],
        id: u64,
        texts: &'a mut PacketTexts,
    ) -> Result<FileItem<'a>, &'static str> {
        texts.clear();
        if self.order.u32_at(block, 0) == OLD_PACKET {
            return self.old_packet(block, id).map(FileItem::Packet);
        }
        match self.parse(block)? {
            Block::SectionHeader(section) => Ok(FileItem::Section(self.origin(&section))),
            Block::InterfaceDescription(found) => Ok(FileItem::Interface(self.interface(&found))),
            Block::EnhancedPacket(found) => self.packet(&found, id, texts).map(FileItem::Packet),
            Block::SimplePacket(found) => self.simple_packet(&found, id).map(FileItem::Packet),
            // Statistics of an interface that is not there say nothing about the others.
            Block::InterfaceStatistics(found) => {
                Ok(self.statistics(&found).map_or(FileItem::Other, FileItem::Statistics))
            }
            _ => Ok(FileItem::Other),
        }
    }

    fn parse<'a>(&self, block: &'a [u8]) -> Result<Block<'a>, &'static str> {
        let parsed = match self.order {
            ByteOrder::Little => parse_block_le(block),
            ByteOrder::Big => parse_block_be(block),
        };
        parsed.map(|(_, block)| block).map_err(|_| NONSENSE)
    }

    fn known(&self, interface: &InterfaceDescriptionBlock<'_>) -> InterfaceFormat {
        let number = |code| option(&interface.options, code).map(|value| self.order.number(value));
        let snaplen = if interface.snaplen == 0 { MAX_SNAPLEN } else { interface.snaplen };
        InterfaceFormat {
            resolution: number(9).map_or(6, |resolution| (resolution & 0xff) as u8),
            offset: number(14).map_or(0, u64::cast_signed),
            snaplen: snaplen.min(MAX_SNAPLEN),
        }
    }

    fn interface(&self, interface: &InterfaceDescriptionBlock<'_>) -> CaptureInterface {
        let options = &interface.options;
        // The option is an expression for libpcap; other kinds of filters have no text.
        let filter = option(options, 11).and_then(|value| value.strip_prefix(&[0]));
        CaptureInterface {
            name: text(options, 2),
            description: text(options, 3),
            filter: filter.map_or(String::new(), |text| clean(text).into_owned()),
            comment: text(options, COMMENT),
            options: self.passed_on(options, &INTERFACE_BLOCK),
            snaplen: self.known(interface).snaplen,
            linktype: u16::try_from(interface.linktype.0).unwrap_or_default(),
        }
    }

    fn packet<'a>(
        &self,
        packet: &EnhancedPacketBlock<'a>,
        id: u64,
        texts: &'a mut PacketTexts,
    ) -> Result<Packet<'a>, &'static str> {
        let number = |code| Some(self.order.number(option(&packet.options, code)?));
        if let Some(text) = option(&packet.options, COMMENT) {
            texts.comment.push_str(&clean(text));
        }
        self.pass_on(&packet.options, &PACKET_BLOCK, &mut texts.options);
        let (interface, known) = self.find(packet.if_id)?;
        Ok(Packet {
            interface,
            ns: known.ns(packet.ts_high, packet.ts_low),
            data: kept(packet.data, packet.caplen)?,
            len: packet.origlen.max(packet.caplen),
            dir: match number(2).unwrap_or(0) & 3 {
                1 => DIR_RX,
                2 => DIR_TX,
                _ => 0,
            },
            queue: number(6).and_then(|queue| queue.try_into().ok()),
            lcore: None,
            weight: 1,
            dropped: number(4).unwrap_or(0),
            id: number(5).unwrap_or(id),
            comment: &texts.comment,
            options: &texts.options,
        })
    }

    /// Parses a simple packet block, which has only the bytes of the packet.
    fn simple_packet<'a>(
        &self,
        packet: &SimplePacketBlock<'a>,
        id: u64,
    ) -> Result<Packet<'a>, &'static str> {
        let (interface, known) = self.find(0)?;
        let caplen = packet.origlen.min(known.snaplen);
        let data = kept(packet.data, caplen)?;
        let len = packet.origlen;
        Ok(Packet {
            interface,
            ns: 0,
            data,
            len,
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

    /// Parses an obsolete packet block, the predecessor of the enhanced one.
    fn old_packet<'a>(&self, block: &'a [u8], id: u64) -> Result<Packet<'a>, &'static str> {
        let word = |at| self.order.u32_at(block, at);
        let half = |at: usize| self.order.number(block.get(at..at + 2).unwrap_or_default());
        let (interface, known) = self.find((half(8) & 0xffff) as u32)?;
        let dropped = Some(half(10)).filter(|dropped| *dropped != 0xffff).unwrap_or(0);
        let body = block.get(OLD_HEAD..block.len().saturating_sub(4)).ok_or(NONSENSE)?;
        Ok(Packet {
            interface,
            ns: known.ns(word(12), word(16)),
            data: kept(body, word(20))?,
            len: word(24).max(word(20)),
            dir: 0,
            queue: None,
            lcore: None,
            weight: 1,
            dropped,
            id,
            comment: "",
            options: &[],
        })
    }

    fn statistics(&self, found: &InterfaceStatisticsBlock<'_>) -> Option<InterfaceStatistics> {
        let (interface, known) = self.find(found.if_id).ok()?;
        let number = |code| Some(self.order.number(option(&found.options, code)?));
        let end_ns = known.ns(found.ts_high, found.ts_low);
        let time = |code| {
            let value = option(&found.options, code).filter(|value| value.len() == 8)?;
            Some(known.ns(self.order.u32_at(value, 0), self.order.u32_at(value, 4)))
        };
        Some(InterfaceStatistics {
            interface,
            start_ns: time(2).unwrap_or(end_ns),
            end_ns: time(3).unwrap_or(end_ns),
            received: number(4),
            dropped: number(5),
            accepted: number(6),
            delivered: number(8).unwrap_or(0),
        })
    }

    fn origin(&self, section: &SectionHeaderBlock<'_>) -> SectionOrigin {
        let text = |code| text(&section.options, code);
        SectionOrigin {
            hardware: text(2),
            os: text(3),
            application: text(4),
            options: self.passed_on(&section.options, &SECTION_BLOCK),
        }
    }

    /// Returns the options of a block that are passed on, see [`Self::pass_on`].
    fn passed_on(&self, found: &[PcapNGOption<'_>], block: &BlockOptions) -> Vec<u8> {
        let mut options = Vec::new();
        self.pass_on(found, block, &mut options);
        options
    }

    /// Appends the options of a block, except those that are fields of ours, in the byte order of this
    /// machine. Options that must not be copied are left out, as are those of unknown form in a file of
    /// another byte order.
    fn pass_on(&self, found: &[PcapNGOption<'_>], block: &BlockOptions, out: &mut Vec<u8>) {
        let mut is_field = block.has_comment;
        for option in found {
            let code = option.code.0;
            let Some(value) = option.value.get(..option.len.into()) else { continue };
            match (code, value.split_first_chunk::<4>()) {
                (COMMENT, _) if std::mem::take(&mut is_field) => {}
                (COMMENT, _) => options::append(out, code, clean(value).as_bytes()),
                (END | NOT_COPIED_TEXT | NOT_COPIED, _) => {}
                _ if block.fields.contains(&code) => {}
                (CUSTOM_TEXT | CUSTOM, Some((vendor, rest))) => {
                    let vendor = self.order.u32_at(vendor, 0).to_ne_bytes();
                    options::append(out, code, &[&vendor, rest].concat());
                }
                _ if block.numbers.contains(&code) && self.order != ByteOrder::HOST => {
                    let swapped = value.iter().rev().copied().collect::<Vec<_>>();
                    options::append(out, code, &swapped);
                }
                _ if self.order == ByteOrder::HOST || block.bytes.contains(&code) => {
                    options::append(out, code, value);
                }
                _ => {}
            }
        }
    }

    fn find(&self, interface: u32) -> Result<(u32, &InterfaceFormat), &'static str> {
        let known = self.interfaces.get(interface as usize);
        known.map(|known| (interface, known)).ok_or("a block is of an interface that is not there")
    }
}

/// Returns the captured bytes of a packet, without padding.
fn kept(data: &[u8], caplen: u32) -> Result<&[u8], &'static str> {
    let data = data.get(..caplen as usize).ok_or(NONSENSE)?;
    if caplen > MAX_SNAPLEN { Err("a packet is too long") } else { Ok(data) }
}

fn option<'o>(options: &'o [PcapNGOption<'_>], code: u16) -> Option<&'o [u8]> {
    let found = options.iter().find(|option| option.code.0 == code)?;
    found.value.get(..found.len.into())
}

fn text(options: &[PcapNGOption<'_>], code: u16) -> String {
    option(options, code).map_or(String::new(), |text| clean(text).into_owned())
}

/// Returns text without control characters, up to a NUL byte.
fn clean(bytes: &[u8]) -> Cow<'_, str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(harmful) { text.replace(harmful, " ").into() } else { text }
}
