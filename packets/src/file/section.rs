//! The interfaces of a section, the counts of their packets, and the blocks of both.

use crate::packet::{CaptureInterface, InterfaceStatistics, PacketWith, SectionOrigin};
use crate::pcapng::{self, FileCounts};

/// An interface of the section.
#[derive(Debug)]
struct KnownInterface {
    interface: CaptureInterface,
    /// Its number among the interfaces of its kind.
    number: u32,
    /// Packets since the interface block was written, that is, in the current part of the file.
    delivered: u64,
    counts: FileCounts,
    /// Packets lost since the last one that was written.
    gap: u64,
    /// Newest counters, and those at the start of the current part.
    now: Option<InterfaceStatistics>,
    base: Option<InterfaceStatistics>,
}

/// Link type and snap length. A pcapng section has only one kind, because some readers require that.
type InterfaceKind = (u16, u32);

/// The section that is being captured. In a file it consists of several parts, if it has interfaces of
/// different kinds.
#[derive(Debug, Default)]
pub(super) struct FileSection {
    origin: SectionOrigin,
    known: Vec<KnownInterface>,
    /// Kind of the interfaces in the current part.
    kind: Option<InterfaceKind>,
    /// Last counters of the interfaces of the previous section.
    before: Vec<(String, InterfaceStatistics)>,
    /// Times of the first and last packet of the current part.
    times: Option<(u64, u64)>,
}

impl FileSection {
    /// Begins a new section, and returns the blocks for it.
    pub(super) fn begin(&mut self, origin: &SectionOrigin) -> Vec<u8> {
        let mut out = self.leave();
        self.origin = origin.clone();
        let last = |known: KnownInterface| known.now.map(|now| (known.interface.name, now));
        self.before = std::mem::take(&mut self.known).into_iter().filter_map(last).collect();
        self.kind = None;
        out.extend(self.enter());
        out
    }

    /// Adds an interface, and returns the blocks that the file needs for it.
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

    /// Returns the link type of the interface of a packet.
    pub(super) fn linktype_of<D>(&self, packet: &PacketWith<'_, D>) -> Option<u16> {
        self.known.get(packet.interface as usize).map(|known| known.interface.linktype)
    }

    /// Returns a link type, or that of the first interface, and the largest snap length of its
    /// interfaces.
    pub(super) fn widest(&self, linktype: Option<u16>) -> Option<InterfaceKind> {
        let linktype = linktype.or(Some(self.known.first()?.interface.linktype))?;
        let same = self.known.iter().filter(|known| known.interface.linktype == linktype);
        Some((linktype, same.map(|known| known.interface.snaplen).max()?))
    }

    /// Returns the number of a packet's interface among those of its kind, and the packets lost before
    /// it; `None` if the interface was not announced.
    pub(super) fn place_of<D>(&self, packet: &PacketWith<'_, D>) -> Option<(u32, u64)> {
        self.known.get(packet.interface as usize).map(|known| (known.number, known.gap))
    }

    /// Returns whether the packet's interface is of another kind than the current part.
    pub(super) fn must_turn_for<D>(&self, packet: &PacketWith<'_, D>) -> bool {
        let known = self.known.get(packet.interface as usize);
        known.is_some_and(|known| self.kind != Some(kind_of(&known.interface)))
    }

    /// Returns the blocks that the file needs before such a packet.
    #[cold]
    pub(super) fn turn_for<D>(&mut self, packet: &PacketWith<'_, D>) -> Vec<u8> {
        let known = self.known.get(packet.interface as usize);
        known.map(|known| kind_of(&known.interface)).map_or(Vec::new(), |kind| self.turn_to(kind))
    }

    /// Counts a packet that was passed to the writer.
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

    /// Counts a lost packet; the next packet will report it, and the earlier losses that this one
    /// reports.
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
                // The counters of an app that was not restarted continue in a new section.
                let same = |(name, before): &&(String, InterfaceStatistics)| {
                    *name == known.interface.name && before.start_ns == one.start_ns
                };
                known.base = self.before.iter().find(same).map(|(_, before)| *before);
            }
            known.now = Some(*one);
        }
    }

    /// Returns the maximum size of the blocks of [`Self::leave`].
    pub(super) fn statistics_size(&self) -> usize {
        self.known.len() * pcapng::STATISTICS_SIZE
    }

    /// Returns the blocks that begin a part of the file, with the interfaces of the current kind.
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

    /// Returns the blocks that end the current part: the statistics of the interfaces since its start.
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
    /// Returns the statistics since the start of the part. Without new counters, these are only the
    /// packets and their times.
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
