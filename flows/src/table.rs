//! Counts packets by conversation.

use std::sync::Arc;
use std::time::Duration;

use pmdscope_packets::{
    CaptureInterface, InterfaceStatistics, Packet, PacketSink, SectionOrigin, SinkError,
    SinkProgress,
};

use crate::counters::{QueueTable, count_unknown_link};
use crate::dissect::{NetworkLayer, dissect};
use crate::entry::{FlowDetails, FlowEntry, PackedPlace, ReportedCounts, SeenPacket};
use crate::ether_types::EtherTypeTable;
use crate::key::FlowKey;
use crate::latest_snapshot::LatestSnapshot;
use crate::listener::{FlowEndReason, FlowListener};
use crate::ports::PortTable;
use crate::rate_windows::SlotClock;
use crate::snapshot_builder::SnapshotBuilder;
use crate::store::{BATCH, FlowStore, FreeSlot};
use crate::{FlowSnapshot, PacketCounts, ProtocolCounts, UnknownLink, UnlistedPackets};

/// Default number of conversations that are kept.
pub const CAPACITY: usize = 65_536;

/// Settings of a [`FlowTable`].
#[derive(Debug)]
pub struct FlowTableSettings {
    /// Most conversations to keep. Beyond, those with few packets are evicted.
    pub capacity: usize,
    /// Idle timeout: conversations without a packet for this time, by the times of packets, are
    /// removed; `None` keeps them.
    pub idle: Option<Duration>,
    /// Active timeout: conversations that last longer are reported to `listener` at this interval.
    pub active: Option<Duration>,
    /// Count the packets in tunnels instead of the tunnels.
    pub inner: bool,
    /// Keep rates over [`crate::RATE_WINDOWS`], which takes 88 more bytes for each conversation.
    pub windows: bool,
    /// Receives reports about conversations.
    pub listener: Option<Box<dyn FlowListener>>,
}

impl Default for FlowTableSettings {
    fn default() -> Self {
        Self {
            capacity: CAPACITY,
            idle: None,
            active: None,
            inner: true,
            windows: false,
            listener: None,
        }
    }
}

/// Time between two sweeps of all conversations, nanoseconds.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;
/// A packet starts a sweep only if the table has at most this many entries for each packet since the
/// last sweep: in a file, packets may be a second apart.
const SWEEP_SHARE: usize = 8;
/// Conversations that are copied for a snapshot at once, with each flush, and with each batch of
/// packets: a few milliseconds at most, and a million within about a second at any packet rate.
const COPY_LIMITS: CopyLimits = CopyLimits { at_once: CAPACITY, by_flush: 16_384, by_batch: BATCH };
/// Delay before the end of a TCP connection is reported, because packets may still arrive; nanoseconds.
const CLOSED_FLOW_DELAY_NS: u64 = SWEEP_INTERVAL_NS;

/// Most conversations to copy in each case.
#[derive(Clone, Copy, Debug)]
struct CopyLimits {
    at_once: usize,
    by_flush: usize,
    by_batch: usize,
}

/// The table of conversations, a sink of captures and files.
#[derive(Debug)]
pub struct FlowTable {
    listener: Option<Box<dyn FlowListener>>,
    idle_ns: u64,
    active_ns: u64,
    inner: bool,
    store: FlowStore,
    /// Packets that are still to be counted.
    batch: Vec<SeenPacket>,
    ports: PortTable,
    queues: QueueTable,
    unknown_links: Vec<UnknownLink>,
    other_ether_types: EtherTypeTable,
    protocols: ProtocolCounts,
    other: UnlistedPackets,
    total: PacketCounts,
    variance: u64,
    looked_at: u64,
    sample: u32,
    /// Time of the earliest packet, or of the start of the capture.
    begin_ns: Option<u64>,
    now_ns: u64,
    swept_ns: u64,
    /// Packets since the last sweep.
    unswept: usize,
    /// Start of the interval of the next snapshot, and of the one after it.
    marks_ns: Option<[u64; 2]>,
    /// Slots of the rates over windows.
    slots: Option<SlotClock>,
    latest: LatestSnapshot,
    /// A snapshot that is being built.
    builder: Option<SnapshotBuilder>,
    copied: CopyLimits,
    /// Value of `looked_at` in the newest snapshot, or in the one that is being built.
    published: Option<u64>,
    /// The previous snapshot, kept to reuse its memory.
    spare: Option<Arc<FlowSnapshot>>,
}

impl FlowTable {
    /// Returns an empty table, and a reference to its snapshots. Once all clones of the reference are
    /// dropped, no snapshots are made.
    pub fn new(settings: FlowTableSettings) -> (Self, LatestSnapshot) {
        let latest = LatestSnapshot::default();
        let nanos = |time: Option<Duration>| {
            time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let store =
            FlowStore::new(settings.capacity, settings.listener.is_some(), settings.windows);
        let (sample, capacity) = (1, store.capacity());
        latest.set(FlowSnapshot { sample, capacity, ..FlowSnapshot::default() });
        let table = Self {
            idle_ns: nanos(settings.idle),
            active_ns: nanos(settings.active),
            listener: settings.listener,
            inner: settings.inner,
            store,
            batch: Vec::with_capacity(BATCH),
            ports: PortTable::default(),
            queues: QueueTable::default(),
            unknown_links: Vec::new(),
            other_ether_types: EtherTypeTable::default(),
            protocols: ProtocolCounts::default(),
            other: UnlistedPackets::default(),
            total: PacketCounts::default(),
            variance: 0,
            looked_at: 0,
            sample,
            begin_ns: None,
            now_ns: 0,
            swept_ns: 0,
            unswept: 0,
            marks_ns: None,
            slots: settings.windows.then(SlotClock::default),
            latest: latest.clone(),
            builder: None,
            copied: COPY_LIMITS,
            published: None,
            spare: None,
        };
        (table, latest)
    }

    /// Sets the start to the earliest time: times of packets may go back.
    #[inline]
    fn begin_at(&mut self, ns: u64) {
        self.begin_ns = Some(self.begin_ns.map_or(ns, |begin_ns| begin_ns.min(ns)));
    }

    /// Counts the packets of the batch.
    fn settle(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        self.store.fetch(&batch);
        for seen in batch.drain(..) {
            self.count_flow(&seen);
        }
        self.batch = batch;
        self.draw(self.copied.by_batch);
    }

    #[inline]
    fn count_flow(&mut self, seen: &SeenPacket) {
        let at = match self.store.find(&seen.key, seen.hash) {
            Some(at) if !self.has_ended(at, seen) => {
                self.keep(at);
                at
            }
            _ if self.make_room(seen) => self.add(seen),
            _ => return self.turn_away(seen),
        };
        if self.listener.is_some() {
            self.store.told[at].note(&self.store.entries[at], seen);
        }
        self.store.entries[at].count(&mut self.store.sides[at], seen);
    }

    fn add(&mut self, seen: &SeenPacket) -> usize {
        let at = self.store.add(FlowEntry::new(seen), seen.hash, seen.ns);
        if let Some(builder) = &mut self.builder {
            builder.pass_over(at);
        }
        at
    }

    /// Copies a conversation that is about to change, if a snapshot is being built.
    #[inline]
    fn keep(&mut self, at: usize) {
        if let Some(builder) = &mut self.builder {
            builder.copy(&mut self.store, at);
        }
    }

    /// Returns whether a packet begins another conversation with the same key. The earlier one is removed
    /// if its idle timeout has expired, and kept if another TCP connection begins.
    #[inline]
    fn has_ended(&mut self, at: usize, seen: &SeenPacket) -> bool {
        let entry = &self.store.entries[at];
        if seen.ns.saturating_sub(entry.last_ns) >= self.idle_ns {
            self.expire(at);
            return true;
        }
        let sender = entry.sender(seen);
        let another = seen.tcp.is_some_and(|tcp| entry.connection.is_another(sender, tcp));
        if another {
            self.tell(at, FlowEndReason::End);
            self.store.unlink(at);
        }
        another
    }

    /// Makes room for a new conversation; false if none can be evicted.
    fn make_room(&mut self, seen: &SeenPacket) -> bool {
        match self.store.room(seen.hash, seen.ns) {
            FreeSlot::Free => true,
            FreeSlot::None => false,
            FreeSlot::InPlaceOf(weakest) => {
                self.tell(weakest, FlowEndReason::Resources);
                let (entry, side) = (&self.store.entries[weakest], &self.store.sides[weakest]);
                self.other.evict(entry.total(), side.variance);
                self.keep(weakest);
                self.store.remove(weakest);
                true
            }
        }
    }

    /// Counts a packet without an entry as a conversation that is evicted at once.
    fn turn_away(&mut self, seen: &SeenPacket) {
        let (mut entry, mut side) = (FlowEntry::new(seen), FlowDetails::since(seen.ns));
        entry.count(&mut side, seen);
        self.other.evict(seen.counts, seen.variance);
        if let Some(listener) = &mut self.listener {
            let mut told = ReportedCounts::since(seen.ns);
            told.note(&entry, seen);
            let flow = entry.tell(&side, &mut told);
            listener.flow(&flow, self.ports.apps(), FlowEndReason::Resources);
        }
    }

    fn expire(&mut self, at: usize) {
        let over = self.store.entries[at].is_over();
        self.tell(at, if over { FlowEndReason::End } else { FlowEndReason::Idle });
        self.other.expire(self.store.entries[at].total(), self.store.sides[at].variance);
        self.keep(at);
        self.store.remove(at);
    }

    /// Reports a conversation to the listener, unless nothing is new.
    fn tell(&mut self, at: usize, reason: FlowEndReason) {
        let Some(listener) = &mut self.listener else { return };
        let (entry, told) = (&mut self.store.entries[at], &mut self.store.told[at]);
        if !entry.told {
            let flow = entry.tell(&self.store.sides[at], told);
            listener.flow(&flow, self.ports.apps(), reason);
        }
    }

    /// Removes expired conversations, and reports those that are due.
    fn sweep(&mut self) {
        self.settle();
        (self.swept_ns, self.unswept) = (self.now_ns, 0);
        if self.idle_ns == u64::MAX && self.listener.is_none() {
            return;
        }
        for at in 0..self.store.entries.len() {
            self.look_at(at);
        }
        if let Some(listener) = &mut self.listener {
            listener.tick(self.now_ns, self.sample);
        }
    }

    fn look_at(&mut self, at: usize) {
        let entry = &self.store.entries[at];
        let silent = self.now_ns.saturating_sub(entry.last_ns);
        if !entry.live {
            return;
        }
        if silent >= self.idle_ns {
            self.expire(at);
        } else if self.listener.is_some() && !entry.told {
            let first_ns = self.store.told[at].first_ns;
            if silent >= CLOSED_FLOW_DELAY_NS && entry.is_over() {
                self.tell(at, FlowEndReason::End);
            } else if self.now_ns.saturating_sub(first_ns) >= self.active_ns {
                self.tell(at, FlowEndReason::Active);
            }
        }
    }

    /// Starts a snapshot if a reader exists and none is being built.
    fn publish(&mut self, roll: bool) {
        if self.builder.is_some() || !self.latest.is_watched() {
            return;
        }
        let marks = if roll { self.roll() } else { 0 };
        (0..marks).for_each(|_| self.queues.mark());
        let (now_ns, begin_ns) = (self.now_ns, self.begin_ns.unwrap_or(self.now_ns));
        let slot = self.slots.as_mut().filter(|_| roll);
        let slot = slot.and_then(|slots| slots.advance(begin_ns, now_ns));
        let windows = self.slots.as_ref().and_then(SlotClock::windows);
        let spare = self.spare.take().and_then(Arc::into_inner);
        let mut flows = spare.map(|snapshot| snapshot.flows).unwrap_or_default();
        flows.clear();
        let older_ns = self.marks_ns.map_or(self.now_ns, |[older, _]| older);
        let snapshot = FlowSnapshot {
            apps: self.ports.apps().to_vec(),
            begin_ns: self.begin_ns.unwrap_or_default(),
            now_ns: self.now_ns,
            interval_s: (self.now_ns - older_ns) as f64 / 1e9,
            windows_s: windows.map(|windows| windows.seconds),
            flows,
            other: self.other,
            total: self.total,
            variance: self.variance,
            protocols: self.protocols,
            queues: self.queues.snapshot(),
            unknown_links: self.unknown_links.clone(),
            other_ether_types: self.other_ether_types.snapshot(),
            looked_at: self.looked_at,
            lost: self.ports.lost(),
            sample: self.sample,
            capacity: self.store.capacity(),
        };
        self.published = Some(self.looked_at);
        self.builder = Some(SnapshotBuilder::new(snapshot, marks, (slot, windows), &self.store));
        self.draw(self.copied.at_once);
    }

    /// Starts a new interval if the current one is long enough. Returns the number of intervals to
    /// start: two at the first snapshot, which has no recent counts.
    fn roll(&mut self) -> usize {
        let (marks, newer) = match self.marks_ns {
            None => (2, self.now_ns),
            Some([_, newer]) if self.now_ns - newer >= SWEEP_INTERVAL_NS / 2 => (1, newer),
            Some(_) => return 0,
        };
        self.marks_ns = Some([newer, self.now_ns]);
        marks
    }

    /// Continues the snapshot that is being built, and publishes it when it is complete.
    #[inline]
    fn draw(&mut self, most: usize) {
        let Some(builder) = &mut self.builder else { return };
        if builder.go_on(&mut self.store, most) {
            let builder = self.builder.take();
            self.spare = builder.map(|builder| self.latest.set(builder.snapshot));
        }
    }
}

impl UnlistedPackets {
    fn evict(&mut self, counts: PacketCounts, variance: u64) {
        self.evicted = self.evicted.plus(counts);
        self.evicted_variance = self.evicted_variance.saturating_add(variance);
        self.evictions += 1;
    }

    fn expire(&mut self, counts: PacketCounts, variance: u64) {
        self.expired = self.expired.plus(counts);
        self.expired_variance = self.expired_variance.saturating_add(variance);
        self.expirations += 1;
    }
}

impl PacketSink for FlowTable {
    fn section(&mut self, _origin: &SectionOrigin) -> Result<(), SinkError> {
        self.ports.begin();
        Ok(())
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        self.ports.add(interface);
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        self.looked_at += 1;
        self.sample = packet.weight.max(1);
        let weight = u64::from(self.sample);
        let counts =
            PacketCounts { packets: weight, bytes: weight.saturating_mul(packet.len.into()) };
        let variance = weight.saturating_mul(weight - 1);
        self.total = self.total.plus(counts);
        self.variance = self.variance.saturating_add(variance);
        if self.begin_ns.is_none() {
            self.swept_ns = packet.ns;
        }
        self.begin_at(packet.ns);
        self.now_ns = self.now_ns.max(packet.ns);
        let Some(port) = self.ports.of(packet) else {
            self.other.unreadable = self.other.unreadable.plus(counts);
            return Ok(());
        };
        self.queues.count(port.app, port.id, packet, counts);
        let length = usize::try_from(packet.len).unwrap_or(usize::MAX);
        let layers = dissect(port.linktype, packet.data, length, self.inner);
        self.protocols.count(&layers, counts);
        match &layers.net {
            NetworkLayer::Ip(ip) => {
                // An ICMP error belongs to the conversation that it is about.
                let about = layers.quoted.as_ref().unwrap_or(ip);
                let (key, from_first) = FlowKey::new(port.app, &layers, about);
                self.batch.push(SeenPacket {
                    key,
                    hash: self.store.hash(&key),
                    from_first,
                    dir: packet.dir,
                    ns: packet.ns,
                    counts,
                    variance,
                    tcp: about.tcp,
                    spot: PackedPlace::new(port.id, packet),
                    outer: layers.outer,
                    is_error: layers.quoted.is_some(),
                });
                if self.batch.len() == BATCH {
                    self.settle();
                }
            }
            NetworkLayer::Other(ether_type) => {
                self.other.not_ip = self.other.not_ip.plus(counts);
                self.other_ether_types.count(*ether_type, counts);
            }
            NetworkLayer::Unreadable => self.other.unreadable = self.other.unreadable.plus(counts),
            NetworkLayer::UnknownLink => {
                self.other.unknown_link = self.other.unknown_link.plus(counts);
                count_unknown_link(&mut self.unknown_links, port.linktype, counts);
            }
        }
        self.unswept += 1;
        if packet.ns.saturating_sub(self.swept_ns) >= SWEEP_INTERVAL_NS
            && self.unswept * SWEEP_SHARE >= self.store.entries.len()
        {
            self.sweep();
        }
        Ok(())
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        for told in statistics {
            self.ports.tell(told);
            self.now_ns = self.now_ns.max(told.end_ns);
            if told.start_ns > 0 {
                self.begin_at(told.start_ns);
            }
        }
        self.settle();
        if self.now_ns - self.swept_ns >= SWEEP_INTERVAL_NS / 2 {
            self.sweep();
        }
        self.publish(true);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.draw(self.copied.by_flush);
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> SinkProgress {
        SinkProgress { written: self.looked_at, ..SinkProgress::default() }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.settle();
        for at in 0..self.store.entries.len() {
            let entry = &self.store.entries[at];
            if entry.live {
                let reason =
                    if entry.is_over() { FlowEndReason::End } else { FlowEndReason::Forced };
                self.tell(at, reason);
            }
        }
        if let Some(listener) = &mut self.listener {
            listener.finish();
        }
        self.draw(usize::MAX);
        if self.published != Some(self.looked_at) {
            self.publish(false);
            self.draw(usize::MAX);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
