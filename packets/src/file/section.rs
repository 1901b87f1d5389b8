//! The interfaces of a section, what became of their packets, and the blocks that say so.

use crate::packet::{CaptureInterface, InterfaceStatistics, PacketWith, SectionOrigin};
use crate::pcapng::{self, FileCounts};

/// An interface that was announced.
#[derive(Debug)]
struct KnownInterface {
    interface: CaptureInterface,
    /// Its number among those of its kind.
    number: u32,
    /// Packets of the current stretch: since the interface block was written.
    delivered: u64,
    counts: FileCounts,
    /// Packets lost since the last one that was not.
    gap: u64,
    /// What was known last, and at the start of the current stretch.
    now: Option<InterfaceStatistics>,
    base: Option<InterfaceStatistics>,
}

/// Link type and snap length: a pcapng section has one of each, because some readers want that.
type InterfaceKind = (u16, u32);

/// The section that is being captured. In a file it may be in several parts, one after the other
/// for interfaces of different kinds.
#[derive(Debug, Default)]
pub(super) struct FileSection {
    origin: SectionOrigin,
    known: Vec<KnownInterface>,
    /// The kind whose interfaces the file is at.
    kind: Option<InterfaceKind>,
    /// What was known last of the interfaces of the section before.
    before: Vec<(String, InterfaceStatistics)>,
    /// Times of the first and last packet of the current stretch.
    times: Option<(u64, u64)>,
}

impl FileSection {
    /// Begins anew, and gives the blocks for it.
    pub(super) fn begin(&mut self, origin: &SectionOrigin) -> Vec<u8> {
        let mut out = self.leave();
        self.origin = origin.clone();
        let last = |known: KnownInterface| known.now.map(|now| (known.interface.name, now));
        self.before = std::mem::take(&mut self.known).into_iter().filter_map(last).collect();
        self.kind = None;
        out.extend(self.enter());
        out
    }

    /// Adds an interface, and gives the blocks that the file needs for it.
    pub(super) fn add(&mut self, interface: &CaptureInterface) -> Vec<u8> {
        let kind = kind_of(interface);
        let number = u32::try_from(self.of_kind(kind).count()).unwrap_or(u32::MAX);
        self.known.push(KnownInterface {
            interface: interface.clone(),
            number,
            delivered: 0,
            counts: FileCounts::default(),
            gap: 0,
            now: None,
            base: None,
        });
        if self.kind.is_some_and(|current| current != kind) {
            return self.turn_to(kind);
        }
        self.kind = Some(kind);
        let mut out = Vec::new();
        pcapng::write_interface(&mut out, interface);
        out
    }

    /// Link type of the interface of a packet.
    pub(super) fn linktype_of<D>(&self, packet: &PacketWith<'_, D>) -> Option<u16> {
        self.known.get(packet.interface as usize).map(|known| known.interface.linktype)
    }

    /// A link type, or that of the first interface, and the largest snap length of its interfaces.
    pub(super) fn widest(&self, linktype: Option<u16>) -> Option<InterfaceKind> {
        let linktype = linktype.or(Some(self.known.first()?.interface.linktype))?;
        let same = self.known.iter().filter(|known| known.interface.linktype == linktype);
        Some((linktype, same.map(|known| known.interface.snaplen).max()?))
    }

    /// What is written of a packet's interface, and of the packets lost before: its number among
    /// those of its kind, and the packets that were lost here. `None` when it was not announced.
    pub(super) fn place_of<D>(&self, packet: &PacketWith<'_, D>) -> Option<(u32, u64)> {
        self.known.get(packet.interface as usize).map(|known| (known.number, known.gap))
    }

    /// The file is at the interfaces of another kind than the packet's.
    pub(super) fn must_turn_for<D>(&self, packet: &PacketWith<'_, D>) -> bool {
        let known = self.known.get(packet.interface as usize);
        known.is_some_and(|known| self.kind != Some(kind_of(&known.interface)))
    }

    /// The blocks that the file then needs before the packet.
    #[cold]
    pub(super) fn turn_for<D>(&mut self, packet: &PacketWith<'_, D>) -> Vec<u8> {
        let known = self.known.get(packet.interface as usize);
        known.map(|known| kind_of(&known.interface)).map_or(Vec::new(), |kind| self.turn_to(kind))
    }

    /// A packet was handed over.
    pub(super) fn delivered<D>(&mut self, packet: &PacketWith<'_, D>) {
        if let Some(known) = self.known.get_mut(packet.interface as usize) {
            known.delivered += 1;
            known.counts.represented += u64::from(packet.weight);
            known.counts.weight = packet.weight;
            known.gap = 0;
        }
        let first = self.times.map_or(packet.ns, |(first, _)| first);
        self.times = Some((first, packet.ns));
    }

    /// A packet was lost, and those before it that it tells of are still to be told of.
    pub(super) fn lost<D>(&mut self, packet: &PacketWith<'_, D>) {
        if let Some(known) = self.known.get_mut(packet.interface as usize) {
            known.counts.lost += 1;
            known.gap = known.gap.saturating_add(packet.dropped).saturating_add(1);
        }
    }

    pub(super) fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        for one in statistics {
            let Some(known) = self.known.get_mut(one.interface as usize) else { continue };
            if known.now.is_none() {
                // Counts of an app that was not restarted go on in a new section.
                let same = |(name, before): &&(String, InterfaceStatistics)| {
                    *name == known.interface.name && before.start_ns == one.start_ns
                };
                known.base = self.before.iter().find(same).map(|(_, before)| *before);
            }
            known.now = Some(*one);
        }
    }

    /// Most bytes of [`Self::leave`].
    pub(super) fn statistics_size(&self) -> usize {
        self.known.len() * pcapng::STATISTICS_SIZE
    }

    /// Blocks that begin a file, or go on in it, with the interfaces of the current kind.
    pub(super) fn enter(&self) -> Vec<u8> {
        let mut out = Vec::new();
        pcapng::write_section(&mut out, &self.origin);
        for known in self.kind.into_iter().flat_map(|kind| self.of_kind(kind)) {
            pcapng::write_interface(&mut out, &known.interface);
        }
        out
    }

    fn turn_to(&mut self, kind: InterfaceKind) -> Vec<u8> {
        let mut out = self.leave();
        self.kind = Some(kind);
        out.extend(self.enter());
        out
    }

    /// Blocks that end the current stretch: what is known of the interfaces since its start.
    pub(super) fn leave(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let (times, kind) = (self.times.take(), self.kind);
        for known in self.known.iter_mut().filter(|known| kind == Some(kind_of(&known.interface))) {
            if let Some(statistics) = known.stretch(times) {
                pcapng::write_file_statistics(&mut out, &statistics, known.counts);
            }
            (known.delivered, known.counts) = (0, FileCounts::default());
            known.base = known.now.or(known.base);
        }
        out
    }

    fn of_kind(&self, kind: InterfaceKind) -> impl Iterator<Item = &KnownInterface> {
        self.known.iter().filter(move |known| kind_of(&known.interface) == kind)
    }
}

impl KnownInterface {
    /// What is known since the start of the stretch. Without new counters it is the packets and
    /// their times alone.
    fn stretch(&self, times: Option<(u64, u64)>) -> Option<InterfaceStatistics> {
        let (interface, delivered) = (self.number, self.delivered);
        let Some(now) = self.now.filter(|now| Some(now) != self.base.as_ref()) else {
            let (start_ns, end_ns) = times.filter(|_| delivered + self.counts.lost > 0)?;
            return Some(InterfaceStatistics {
                interface,
                start_ns,
                end_ns,
                delivered,
                ..InterfaceStatistics::default()
            });
        };
        let Some(base) = self.base else {
            return Some(InterfaceStatistics { interface, delivered, ..now });
        };
        let since = |now: Option<u64>, base: Option<u64>| Some(now?.saturating_sub(base?));
        Some(InterfaceStatistics {
            interface,
            start_ns: base.end_ns,
            end_ns: now.end_ns,
            received: since(now.received, base.received),
            dropped: since(now.dropped, base.dropped),
            accepted: since(now.accepted, base.accepted),
            delivered,
        })
    }
}

fn kind_of(interface: &CaptureInterface) -> InterfaceKind {
    (interface.linktype, interface.snaplen)
}
