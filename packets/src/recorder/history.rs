//! The last packets, in a fixed number of blocks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::block::PacketBlock;
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// Most blocks; with many blocks, old packets are dropped in small steps.
const BLOCKS: usize = 1024;
/// Smallest block: any packet fits.
const BLOCK_MIN: usize = 512 << 10;
/// One in this many blocks is kept free, for packets that arrive while old ones are being written.
const RESERVE: usize = 16;

/// A section with stored packets.
#[derive(Clone, Debug)]
pub(super) struct HistorySection {
    /// Number of the section, from 0.
    pub(super) number: u64,
    pub(super) origin: SectionOrigin,
    pub(super) interfaces: Vec<CaptureInterface>,
    /// The newest statistics.
    pub(super) statistics: Vec<InterfaceStatistics>,
}

/// Why less history is stored than was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortHistory {
    /// Memory is too small for the packets of that time.
    Memory,
    /// The capture did not run for that long.
    Start,
    /// The trigger arrived long after its event.
    LateTrigger,
}

/// The history before an event.
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

/// A full block, and its section.
#[derive(Debug)]
pub(super) struct HeldBlock {
    pub(super) section: u64,
    pub(super) block: Arc<PacketBlock>,
}

/// The stored packets. Blocks that the writer still reads keep their memory until it drops them.
#[derive(Debug)]
pub(super) struct PacketHistory {
    keep_ns: u64,
    /// Packets younger than this were requested; evicting one is counted.
    before_ns: u64,
    free: Vec<PacketBlock>,
    held: VecDeque<HeldBlock>,
    sections: VecDeque<HistorySection>,
    current: Option<PacketBlock>,
    nb_blocks: usize,
    block_size: usize,
    held_bytes: u64,
    /// All packets after this time are stored.
    complete_since_ns: u64,
    started_ns: u64,
    evicted: u64,
    /// Time of the last packet that was evicted too early, 0 without one.
    evicted_early_ns: u64,
    /// Shortest history after such an eviction.
    least_held_ns: Option<u64>,
}

impl PacketHistory {
    /// Returns a history for packets of the last `keep_ns` in `memory` bytes; those of the last
    /// `before_ns` are requested. `None` if memory cannot be allocated.
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

    /// Begins a section, and seals the block of the previous one.
    pub(super) fn begin(&mut self, origin: &SectionOrigin) {
        self.seal();
        let number = self.sections.back().map_or(0, |section| section.number + 1);
        let origin = origin.clone();
        let (interfaces, statistics) = (Vec::new(), Vec::new());
        self.sections.push_back(HistorySection { number, origin, interfaces, statistics });
        self.forget_sections();
    }

    /// Returns the current section; `None` before the first.
    pub(super) fn section(&mut self) -> Option<&mut HistorySection> {
        self.sections.back_mut()
    }

    /// Returns the sections of stored packets, oldest first; the last is the current one.
    pub(super) fn sections(&self) -> impl Iterator<Item = &HistorySection> {
        self.sections.iter()
    }

    /// Returns the full blocks, oldest first.
    pub(super) fn held(&self) -> impl Iterator<Item = &HeldBlock> {
        self.held.iter()
    }

    /// Returns the block that is being filled.
    pub(super) fn current(&self) -> Option<&PacketBlock> {
        self.current.as_ref()
    }

    /// Adds a packet to the current block; returns false if it is full, or if there is none.
    pub(super) fn push(&mut self, packet: &Packet<'_>) -> bool {
        self.current.as_mut().is_some_and(|block| block.push(packet))
    }

    /// Seals the current block: it takes no more packets. Returns it, unless it was empty.
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

    /// Begins a new block, and evicts the oldest ones if necessary; returns false if the writer holds
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

    /// Returns the number of blocks that are kept free.
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

    /// Removes sections without packets, except the current one.
    fn forget_sections(&mut self) {
        let oldest = self.held.front().map_or(u64::MAX, |held| held.section);
        while self.sections.len() > 1 && self.sections[0].number < oldest {
            self.sections.pop_front();
        }
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> u64 {
        self.held_bytes + self.current.as_ref().map_or(0, |block| block.bytes().len() as u64)
    }

    /// Returns the time after which all packets are stored, nanoseconds since 1970.
    pub(super) fn complete_since_ns(&self) -> u64 {
        self.complete_since_ns
    }

    /// Returns the number of packets that were evicted too early.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the memory that history can use, bytes.
    pub(super) fn capacity(&self) -> u64 {
        ((self.nb_blocks - self.reserve()) * self.block_size) as u64
    }

    /// Returns the shortest history so far, nanoseconds, if memory was too small for what was
    /// requested.
    pub(super) fn least_held_ns(&self) -> Option<u64> {
        self.least_held_ns
    }

    /// Returns the history before an event, up to what was requested; and why it is shorter, if it is.
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
