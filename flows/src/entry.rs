//! An entry of the table of conversations: the fields that every packet uses, and those that are used
//! once a second.

use std::net::IpAddr;

use pmdscope_packets::{DIR_RX, DIR_TX, Packet};

use crate::dissect::{OuterEnds, TcpFields};
use crate::key::{FlowKey, ip_address};
use crate::tcp::TcpConnection;
use crate::{Flow, FlowEnd, FlowPlace, PacketCounts, SenderCounts};

/// The fields of an IP packet that the table needs.
#[derive(Clone, Debug)]
pub(super) struct SeenPacket {
    pub(super) key: FlowKey,
    pub(super) hash: u32,
    /// The packet comes from the first end of the key.
    pub(super) from_first: bool,
    pub(super) dir: u8,
    /// Nanoseconds.
    pub(super) ns: u64,
    pub(super) counts: PacketCounts,
    pub(super) variance: u64,
    pub(super) tcp: Option<TcpFields>,
    pub(super) spot: PackedPlace,
    /// Ends of the tunnel.
    pub(super) outer: Option<OuterEnds>,
    /// It is an ICMP error about a packet of the conversation, and counts as an answer to it.
    pub(super) is_error: bool,
}

/// Counts of an entry by direction and sender. The two that most packets are counted in are next to
/// each other: received from the remote end, and sent by the local one.
pub(super) type DirectionCounts = [PacketCounts; 6];

const RX_LOCAL: usize = 0;
const TX_REMOTE: usize = 1;
const UNKNOWN_LOCAL: usize = 2;
const UNKNOWN_REMOTE: usize = 3;
const RX_REMOTE: usize = 4;
const TX_LOCAL: usize = 5;

/// Unknown queue or lcore.
const NONE: u16 = u16::MAX;

/// A [`FlowPlace`] in eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedPlace {
    port: u16,
    queue: u16,
    lcore: u16,
    known: bool,
    several: bool,
}

impl PackedPlace {
    #[inline]
    pub(super) fn new(port: u16, packet: &Packet<'_>) -> Self {
        let (queue, lcore) = (packet.queue.unwrap_or(NONE), packet.lcore.unwrap_or(NONE));
        Self { port, queue, lcore, known: true, several: false }
    }

    #[inline]
    fn note(&mut self, spot: Self) {
        let same = (self.port, self.queue) == (spot.port, spot.queue);
        *self = Self { several: self.several || (self.known && !same), ..spot };
    }

    fn place(self) -> Option<FlowPlace> {
        let known = |number| (number != NONE).then_some(number);
        let Self { port, queue, lcore, several, .. } = self;
        self.known.then(|| FlowPlace { port, queue: known(queue), lcore: known(lcore), several })
    }
}

/// The fields that every packet of a conversation uses: a search reads the first cache line, and
/// counting mostly changes the third.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct FlowEntry {
    pub(super) key: FlowKey,
    /// Time of the last packet, nanoseconds.
    pub(super) last_ns: u64,
    /// Packets that were looked at; conversations compete for entries by this number.
    pub(super) votes: u32,
    /// The local end is the first end of the key.
    local_first: bool,
    /// Nothing was counted since the last report to the listener.
    pub(super) told: bool,
    /// The entry is in use.
    pub(super) live: bool,
    /// Packets with this key belong to this entry: no other connection between the same ports has
    /// begun.
    linked: bool,
    counts: DirectionCounts,
    rx: PackedPlace,
    tx: PackedPlace,
    pub(super) connection: TcpConnection,
}

/// The fields that only the first packet, sampled packets and snapshots use.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowDetails {
    /// Time of the first packet, nanoseconds.
    pub(super) first_ns: u64,
    pub(super) variance: u64,
    /// ICMP errors about packets of the conversation.
    icmp_errors: u64,
    /// Counts at the start of the previous interval, and of the current one: received, and sent or
    /// unknown.
    marks: [[PacketCounts; 2]; 2],
}

/// The part of a conversation that was already reported to the listener.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedCounts {
    counts: DirectionCounts,
    variance: u64,
    /// Earliest time of the packets that were not reported.
    pub(super) first_ns: u64,
    /// Ends of the tunnel of the last packet: on the side of the local end and of the remote one.
    tunnel_ends: Option<[IpAddr; 2]>,
}

impl FlowEntry {
    /// Returns an entry for the conversation of this packet, which is not counted yet.
    pub(super) fn new(seen: &SeenPacket) -> Self {
        let sender = if seen.dir == DIR_RX { FlowEnd::Remote } else { FlowEnd::Local };
        let opener = if seen.is_error { sender.other() } else { sender };
        Self {
            key: seen.key,
            last_ns: seen.ns,
            votes: 0,
            counts: DirectionCounts::default(),
            rx: PackedPlace::default(),
            tx: PackedPlace::default(),
            connection: TcpConnection::of(seen.key.protocol(), opener, seen.variance > 0),
            local_first: seen.from_first == (sender == FlowEnd::Local),
            told: false,
            live: true,
            linked: true,
        }
    }

    /// Reads a field of each cache line that counting uses.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.last_ns ^ self.counts[UNKNOWN_LOCAL].packets ^ self.counts[RX_REMOTE].packets
    }

    /// Returns the sender of a packet.
    #[inline]
    pub(super) fn sender(&self, seen: &SeenPacket) -> FlowEnd {
        if seen.from_first == self.local_first { FlowEnd::Local } else { FlowEnd::Remote }
    }

    #[inline]
    pub(super) fn count(&mut self, side: &mut FlowDetails, seen: &SeenPacket) {
        if seen.ns < self.last_ns {
            side.first_ns = side.first_ns.min(seen.ns);
        }
        if seen.variance > 0 {
            side.variance = side.variance.saturating_add(seen.variance);
        }
        if seen.is_error {
            side.icmp_errors = side.icmp_errors.saturating_add(seen.counts.packets);
        }
        self.last_ns = self.last_ns.max(seen.ns);
        self.votes = self.votes.saturating_add(1);
        self.told = false;
        let sender = self.sender(seen);
        let which = self.place_of(seen, sender == FlowEnd::Local);
        self.counts[which] = self.counts[which].plus(seen.counts);
        if let Some(tcp) = seen.tcp {
            let before = self.connection.is_over();
            self.connection.note(sender, tcp);
            if self.connection.is_over() && !before {
                self.votes >>= OVER_SHIFT;
            }
        }
    }

    #[inline]
    fn place_of(&mut self, seen: &SeenPacket, local: bool) -> usize {
        match seen.dir {
            DIR_RX => {
                self.rx.note(seen.spot);
                if local { RX_LOCAL } else { RX_REMOTE }
            }
            DIR_TX => {
                self.tx.note(seen.spot);
                if local { TX_LOCAL } else { TX_REMOTE }
            }
            _ if local => UNKNOWN_LOCAL,
            _ => UNKNOWN_REMOTE,
        }
    }

    pub(super) fn total(&self) -> PacketCounts {
        self.counts.into_iter().fold(PacketCounts::default(), PacketCounts::plus)
    }

    /// Returns the number that decides about eviction: packets, halved for each minute of silence, and
    /// a sixteenth of them after the end of a TCP connection.
    #[inline]
    pub(super) fn strength(&self, now_ns: u64) -> u32 {
        let minutes = now_ns.saturating_sub(self.last_ns) >> MINUTE_SHIFT;
        self.votes.checked_shr(minutes.min(32) as u32).unwrap_or_default()
    }

    /// Marks that packets with this key belong to another connection from now on.
    pub(super) fn unlink(&mut self) {
        self.linked = false;
        self.votes >>= OVER_SHIFT;
    }

    /// Returns whether TCP has ended the conversation, or another connection has replaced it.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_over() || !self.linked
    }

    /// Returns the received counts, and the sent or unknown ones.
    fn halves(&self) -> [PacketCounts; 2] {
        let sum = |some: [usize; 2]| self.counts[some[0]].plus(self.counts[some[1]]);
        let unknown = sum([UNKNOWN_LOCAL, UNKNOWN_REMOTE]);
        [sum([RX_LOCAL, RX_REMOTE]), sum([TX_LOCAL, TX_REMOTE]).plus(unknown)]
    }

    /// Returns the conversation for a snapshot.
    pub(super) fn flow(&self, side: &FlowDetails) -> Flow {
        let [older, _] = side.marks;
        let [recent_rx, recent_tx] = minus(self.halves(), older);
        let (first_ns, variance) = (side.first_ns, side.variance);
        Flow {
            recent_rx,
            recent_tx,
            icmp_errors: side.icmp_errors,
            ..self.made_of(&self.counts, first_ns, variance, self.connection.flags)
        }
    }

    /// Returns what was counted since the last report to the listener, and marks it as reported.
    pub(super) fn tell(&mut self, side: &FlowDetails, told: &mut ReportedCounts) -> Flow {
        let counts = minus(self.counts, told.counts);
        let variance = side.variance.saturating_sub(told.variance);
        let flags = std::mem::take(&mut self.connection.new_flags);
        let flow = self.made_of(&counts, told.first_ns, variance, flags);
        *told = ReportedCounts { counts: self.counts, variance: side.variance, ..*told };
        self.told = true;
        Flow { tunnel_ends: told.tunnel_ends, ..flow }
    }

    fn made_of(
        &self,
        counts: &DirectionCounts,
        first_ns: u64,
        variance: u64,
        tcp_flags: [u8; 2],
    ) -> Flow {
        let [first, second] = self.key.ends();
        let (local, remote) = if self.local_first { (first, second) } else { (second, first) };
        let [vlans, inner_vlans] = self.key.vlans();
        let ways =
            |local, remote| SenderCounts { from_local: counts[local], from_remote: counts[remote] };
        Flow {
            app: self.key.app(),
            proto: self.key.protocol(),
            vlans,
            inner_vlans,
            icmp: self.key.icmp(),
            icmp_errors: 0,
            tunnel_ends: None,
            tunnel: self.key.tunnel(),
            local,
            remote,
            rx: ways(RX_LOCAL, RX_REMOTE),
            tx: ways(TX_LOCAL, TX_REMOTE),
            unknown: ways(UNKNOWN_LOCAL, UNKNOWN_REMOTE),
            recent_rx: PacketCounts::default(),
            recent_tx: PacketCounts::default(),
            window_bps: [0.0; 3],
            variance,
            state: self.connection.state,
            opener: self.connection.opener(),
            tcp_flags,
            first_ns,
            last_ns: self.last_ns,
            rx_place: self.rx.place(),
            tx_place: self.tx.place(),
        }
    }
}

impl ReportedCounts {
    pub(super) fn since(first_ns: u64) -> Self {
        Self { first_ns, ..Self::default() }
    }

    /// Takes in the time of a packet that is to be reported, and its tunnel. Times may go back: a record
    /// starts with the earliest of its packets.
    pub(super) fn note(&mut self, entry: &FlowEntry, seen: &SeenPacket) {
        self.first_ns = if entry.told { seen.ns } else { self.first_ns.min(seen.ns) };
        if let Some(outer) = seen.outer {
            let ends =
                [outer.source, outer.destination].map(|address| ip_address(outer.v6, address));
            let [source, destination] = ends;
            let by_local = entry.sender(seen) == FlowEnd::Local;
            self.tunnel_ends = Some(if by_local { ends } else { [destination, source] });
        }
    }
}

impl FlowDetails {
    pub(super) fn since(first_ns: u64) -> Self {
        Self { first_ns, ..Self::default() }
    }

    /// Begins another interval with the current counts.
    pub(super) fn mark(&mut self, entry: &FlowEntry) {
        self.marks = [self.marks[1], entry.halves()];
    }
}

/// A power of two nanoseconds: 69 seconds.
const MINUTE_SHIFT: u32 = 36;
/// The end of a connection counts like this many minutes of silence.
const OVER_SHIFT: u32 = 4;

fn minus<const N: usize>(all: [PacketCounts; N], before: [PacketCounts; N]) -> [PacketCounts; N] {
    std::array::from_fn(|at| all[at].minus(before[at]))
}
