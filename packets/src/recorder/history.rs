//! The last packets, in a fixed number of blocks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::block::PacketBlock;
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// Most blocks, to keep the steps small in which old packets are dropped.
const BLOCKS: usize = 1024;
/// Least bytes of a block: any packet fits.
const BLOCK_MIN: usize = 512 << 10;
/// One block in so many is kept free, for packets that come while old ones are being written.
const RESERVE: usize = 16;

/// A section of which packets are held.
#[derive(Clone, Debug)]
pub(super) struct HistorySection {
    /// Counts up with every section.
    pub(super) number: u64,
    pub(super) origin: SectionOrigin,
    pub(super) interfaces: Vec<CaptureInterface>,
    /// The newest.
    pub(super) statistics: Vec<InterfaceStatistics>,
}

/// Why less history is held than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortHistory {
    /// Memory is too small for the packets of that time.
    Memory,
    /// The capture has not run for so long.
    Start,
    /// The recorder was told of the moment long after it.
    LateTrigger,
}

/// How much history there is before a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldHistory {
    asked_ns: u64,
    held_ns: u64,
    cause: Option<ShortHistory>,
}

/// `history held: 10 s`, or `history held: 0.390 s of 10 s, --memory is too small`.
impl fmt::Display for HeldHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = Duration::from_nanos(self.asked_ns).as_secs_f64();
        let Some(cause) = self.cause else { return write!(f, "history held: {asked} s") };
        let held = Duration::from_nanos(self.held_ns).as_secs_f64();
        let cause = match cause {
            ShortHistory::Memory => "--memory is too small",
            ShortHistory::Start => "the capture began later",
            ShortHistory::LateTrigger => "the trigger was late",
        };
        write!(f, "history held: {held:.3} s of {asked} s, {cause}")
    }
}

/// A full block, and the section that it belongs to.
#[derive(Debug)]
pub(super) struct HeldBlock {
    pub(super) section: u64,
    pub(super) block: Arc<PacketBlock>,
}

/// What is held. Blocks that a writer still reads keep their memory until it lets go of them.
#[derive(Debug)]
pub(super) struct PacketHistory {
    keep_ns: u64,
    /// Packets that are younger are asked for: to evict one is to break a promise.
    before_ns: u64,
    free: Vec<PacketBlock>,
    held: VecDeque<HeldBlock>,
    sections: VecDeque<HistorySection>,
    current: Option<PacketBlock>,
    nb_blocks: usize,
    block_size: usize,
    held_bytes: u64,
    /// Everything after this moment is held.
    complete_since_ns: u64,
    started_ns: u64,
    evicted: u64,
    /// Time of the last packet that was evicted too early, 0 without one.
    evicted_early_ns: u64,
    /// Shortest history after such an eviction.
    least_held_ns: Option<u64>,
}

impl PacketHistory {
    /// Room for packets of `keep_ns` in `memory` bytes, of which those of `before_ns` are asked for;
    /// `None` when there is no such memory.
    pub(super) fn new(memory: usize, [before_ns, keep_ns]: [u64; 2], now_ns: u64) -> Option<Self> {
        let size = (memory / BLOCKS).max(BLOCK_MIN);
        let nb_blocks = memory / size;
        let free = (0..nb_blocks).map(|_| PacketBlock::new(size)).collect::<Option<Vec<_>>>()?;
        Some(Self {
            keep_ns,
            before_ns,
            free,
            held: VecDeque::with_capacity(nb_blocks),
            sections: VecDeque::new(),
            current: None,
            nb_blocks,
            block_size: size,
            held_bytes: 0,
            complete_since_ns: now_ns,
            started_ns: now_ns,
            evicted: 0,
            evicted_early_ns: 0,
            least_held_ns: None,
        })
    }

    /// Begins a section; the block of the one before is full from now on.
    pub(super) fn begin(&mut self, origin: &SectionOrigin) {
        self.seal();
        let number = self.sections.back().map_or(0, |section| section.number + 1);
        let origin = origin.clone();
        let (interfaces, statistics) = (Vec::new(), Vec::new());
        self.sections.push_back(HistorySection { number, origin, interfaces, statistics });
        self.forget_sections();
    }

    /// The section that packets belong to now; `None` before the first.
    pub(super) fn section(&mut self) -> Option<&mut HistorySection> {
        self.sections.back_mut()
    }

    /// The sections of what is held, oldest first; the last is the current one.
    pub(super) fn sections(&self) -> impl Iterator<Item = &HistorySection> {
        self.sections.iter()
    }

    /// Full blocks, oldest first.
    pub(super) fn held(&self) -> impl Iterator<Item = &HeldBlock> {
        self.held.iter()
    }

    /// The block that is being filled.
    pub(super) fn current(&self) -> Option<&PacketBlock> {
        self.current.as_ref()
    }

    /// Adds a packet to the block that is being filled; false when that is full, or not there.
    pub(super) fn push(&mut self, packet: &Packet<'_>) -> bool {
        self.current.as_mut().is_some_and(|block| block.push(packet))
    }

    /// Declares the block that is being filled to be full.
    pub(super) fn seal(&mut self) -> Option<&HeldBlock> {
        let block = self.current.take()?;
        if block.packets() == 0 {
            self.free.push(block);
            return None;
        }
        self.held_bytes += block.bytes().len() as u64;
        let section = self.sections.back().map_or(0, |section| section.number);
        self.held.push_back(HeldBlock { section, block: Arc::new(block) });
        self.held.back()
    }

    /// Begins a new block, at the cost of the oldest where need be; false when the writer has them
    /// all.
    pub(super) fn renew(&mut self, now_ns: u64) -> bool {
        let horizon = now_ns.saturating_sub(self.keep_ns);
        let reserve = self.reserve();
        while let Some(oldest) = self.held.front() {
            let expired = oldest.block.newest_ns() < horizon;
            if !expired && self.free.len() > reserve {
                break;
            }
            if !self.evict(now_ns) {
                break;
            }
        }
        self.current = self.free.pop();
        self.current.is_some()
    }

    /// Blocks that are kept free.
    fn reserve(&self) -> usize {
        (self.nb_blocks / RESERVE).max(1)
    }

    fn evict(&mut self, now_ns: u64) -> bool {
        let Some(HeldBlock { section, block }) = self.held.pop_front() else { return false };
        match Arc::try_unwrap(block) {
            Ok(mut block) => {
                self.complete_since_ns = self.complete_since_ns.max(block.newest_ns());
                let held_ns = now_ns.saturating_sub(block.newest_ns());
                if held_ns < self.before_ns {
                    self.evicted += block.packets();
                    self.evicted_early_ns = self.evicted_early_ns.max(block.newest_ns());
                    self.least_held_ns =
                        Some(self.least_held_ns.map_or(held_ns, |least| least.min(held_ns)));
                }
                self.held_bytes -= block.bytes().len() as u64;
                block.clear();
                self.free.push(block);
                self.forget_sections();
                true
            }
            Err(block) => {
                self.held.push_front(HeldBlock { section, block });
                false
            }
        }
    }

    /// Forgets sections without packets, but for the current one.
    fn forget_sections(&mut self) {
        let oldest = self.held.front().map_or(u64::MAX, |held| held.section);
        while self.sections.len() > 1 && self.sections[0].number < oldest {
            self.sections.pop_front();
        }
    }

    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> u64 {
        self.held_bytes + self.current.as_ref().map_or(0, |block| block.bytes().len() as u64)
    }

    /// The moment after which every packet is held, nanoseconds since 1970.
    pub(super) fn complete_since_ns(&self) -> u64 {
        self.complete_since_ns
    }

    /// Packets that had to go before their time.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Memory that history can fill, bytes.
    pub(super) fn capacity(&self) -> u64 {
        ((self.nb_blocks - self.reserve()) * self.block_size) as u64
    }

    /// Shortest history so far, where memory was too small for what was asked; nanoseconds.
    pub(super) fn least_held_ns(&self) -> Option<u64> {
        self.least_held_ns
    }

    /// History before a moment, up to what was asked; and why it is shorter, if it is.
    pub(super) fn before(&self, moment_ns: u64) -> HeldHistory {
        let held_ns = moment_ns.saturating_sub(self.complete_since_ns).min(self.before_ns);
        let cause = if held_ns == self.before_ns {
            None
        } else if self.complete_since_ns == self.evicted_early_ns {
            Some(ShortHistory::Memory)
        } else if self.complete_since_ns == self.started_ns {
            Some(ShortHistory::Start)
        } else {
            Some(ShortHistory::LateTrigger)
        };
        HeldHistory { asked_ns: self.before_ns, held_ns, cause }
    }
}
