//! A conversation as the table keeps it: what every packet touches, and what is looked at once a second.

use super::dissect::Tcp;
use super::key::Key;
use super::tcp::Connection;
use super::{Counts, End, Flow, Place, Ways};
use crate::layout::{DIR_RX, DIR_TX};
use crate::packet::Packet;

/// Counts of an entry by direction and sender. Those that most packets are counted in stand side by
/// side: received from the remote end, and sent by the local one.
pub(super) type Six = [Counts; 6];

const RX_LOCAL: usize = 0;
const TX_REMOTE: usize = 1;
const UNKNOWN_LOCAL: usize = 2;
const UNKNOWN_REMOTE: usize = 3;
const RX_REMOTE: usize = 4;
const TX_LOCAL: usize = 5;

/// Queue or lcore that is not known.
const NONE: u16 = u16::MAX;

/// A [`Place`] in eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spot {
    port: u16,
    queue: u16,
    lcore: u16,
    known: bool,
    several: bool,
}

impl Spot {
    #[inline]
    fn note(&mut self, port: u16, packet: &Packet<'_>) {
        let (queue, lcore) = (packet.queue.unwrap_or(NONE), packet.lcore.unwrap_or(NONE));
        let several = self.several || (self.known && (self.port, self.queue) != (port, queue));
        *self = Self { port, queue, lcore, known: true, several };
    }

    fn place(self) -> Option<Place> {
        let known = |number| (number != NONE).then_some(number);
        let Self { port, queue, lcore, several, .. } = self;
        self.known.then(|| Place { port, queue: known(queue), lcore: known(lcore), several })
    }
}

/// What every packet of a conversation touches: the first line to find it, mostly the third to count.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Time of the last packet, nanoseconds.
    pub(super) last_ns: u64,
    pub(super) hash: u32,
    /// Packets that were looked at, which is what conversations vie with.
    pub(super) votes: u32,
    counts: Six,
    rx: Spot,
    tx: Spot,
    pub(super) connection: Connection,
    /// The local end is the first of the key.
    local_first: bool,
    /// Nothing was counted since it was told of.
    pub(super) told: bool,
    /// It is in use.
    pub(super) live: bool,
    /// Packets of its key are its own: no other connection has begun between the same ports.
    pub(super) linked: bool,
}

/// What only the first packet, sampled ones and snapshots touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// Time of the first packet, nanoseconds.
    pub(super) first_ns: u64,
    pub(super) variance: u64,
    /// Counts of before, and of the snapshot before that: received, and sent or unknown.
    marks: [[Counts; 2]; 2],
}

/// How much of a conversation a listener was told of already.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    counts: Six,
    variance: u64,
    /// Time of the first packet that it was not told of.
    pub(super) first_ns: u64,
}

impl Entry {
    /// A conversation that begins with a packet, which is not counted yet.
    #[inline]
    pub(super) fn new(key: Key, hash: u32, from_first: bool, packet: &Packet<'_>) -> Self {
        Self {
            key,
            last_ns: packet.ns,
            hash,
            votes: 0,
            counts: Six::default(),
            rx: Spot::default(),
            tx: Spot::default(),
            connection: Connection::default(),
            local_first: from_first == (packet.dir != DIR_RX),
            told: false,
            live: true,
            linked: true,
        }
    }

    /// Who sends, if it comes from the first end of the key.
    #[inline]
    pub(super) fn sender(&self, from_first: bool) -> End {
        if from_first == self.local_first { End::Local } else { End::Remote }
    }

    #[inline]
    pub(super) fn count(
        &mut self,
        port: u16,
        sender: End,
        counts: Counts,
        packet: &Packet<'_>,
        tcp: Option<Tcp>,
    ) {
        self.last_ns = self.last_ns.max(packet.ns);
        self.votes = self.votes.saturating_add(1);
        self.told = false;
        let local = sender == End::Local;
        let which = match packet.dir {
            DIR_RX => {
                self.rx.note(port, packet);
                if local { RX_LOCAL } else { RX_REMOTE }
            }
            DIR_TX => {
                self.tx.note(port, packet);
                if local { TX_LOCAL } else { TX_REMOTE }
            }
            _ if local => UNKNOWN_LOCAL,
            _ => UNKNOWN_REMOTE,
        };
        self.counts[which] = self.counts[which].plus(counts);
        match tcp {
            Some(tcp) => self.connection.note(sender, tcp),
            None => self.connection.note_other(sender, self.key.protocol()),
        }
    }

    pub(super) fn total(&self) -> Counts {
        self.counts.into_iter().fold(Counts::default(), Counts::plus)
    }

    /// How much it takes to make it give way: packets, half as many after each minute of silence, and few
    /// once TCP is over.
    #[inline]
    pub(super) fn strength(&self, now_ns: u64) -> u32 {
        let silent = now_ns.saturating_sub(self.last_ns) >> MINUTE_SHIFT;
        let shift = silent + if self.is_over() { OVER_SHIFT } else { 0 };
        self.votes.checked_shr(shift.min(32) as u32).unwrap_or_default()
    }

    /// TCP has ended it, or begun another in its place.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_over() || !self.linked
    }

    /// Received, and sent or unknown.
    fn halves(&self) -> [Counts; 2] {
        let sum = |some: [usize; 2]| self.counts[some[0]].plus(self.counts[some[1]]);
        let unknown = sum([UNKNOWN_LOCAL, UNKNOWN_REMOTE]);
        [sum([RX_LOCAL, RX_REMOTE]), sum([TX_LOCAL, TX_REMOTE]).plus(unknown)]
    }

    /// For a snapshot.
    pub(super) fn flow(&self, side: &Side) -> Flow {
        let [older, _] = side.marks;
        let [recent_rx, recent_tx] = minus(self.halves(), older);
        let (first_ns, variance) = (side.first_ns, side.variance);
        Flow {
            recent_rx,
            recent_tx,
            ..self.made_of(&self.counts, first_ns, variance, self.connection.flags)
        }
    }

    /// What was counted since a listener was told of it last, which makes it told.
    pub(super) fn tell(&mut self, side: &Side, told: &mut Told) -> Flow {
        let counts = minus(self.counts, told.counts);
        let variance = side.variance.saturating_sub(told.variance);
        let flags = std::mem::take(&mut self.connection.new_flags);
        let flow = self.made_of(&counts, told.first_ns, variance, flags);
        *told = Told { counts: self.counts, variance: side.variance, first_ns: told.first_ns };
        self.told = true;
        flow
    }

    fn made_of(&self, counts: &Six, first_ns: u64, variance: u64, tcp_flags: [u8; 2]) -> Flow {
        let [first, second] = self.key.ends();
        let (local, remote) = if self.local_first { (first, second) } else { (second, first) };
        let ways = |local, remote| Ways { from_local: counts[local], from_remote: counts[remote] };
        Flow {
            app: self.key.app(),
            proto: self.key.protocol(),
            vlans: self.key.vlans(),
            tunnel: self.key.tunnel(),
            local,
            remote,
            rx: ways(RX_LOCAL, RX_REMOTE),
            tx: ways(TX_LOCAL, TX_REMOTE),
            unknown: ways(UNKNOWN_LOCAL, UNKNOWN_REMOTE),
            recent_rx: Counts::default(),
            recent_tx: Counts::default(),
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

impl Told {
    pub(super) fn since(first_ns: u64) -> Self {
        Self { first_ns, ..Self::default() }
    }
}

impl Side {
    pub(super) fn since(first_ns: u64) -> Self {
        Self { first_ns, ..Self::default() }
    }

    /// Begins another interval with what was counted by now.
    pub(super) fn mark(&mut self, entry: &Entry) {
        self.marks = [self.marks[1], entry.halves()];
    }
}

/// A power of two nanoseconds: 69 seconds.
const MINUTE_SHIFT: u32 = 36;
/// As if it had been silent for so many minutes.
const OVER_SHIFT: u64 = 4;

fn minus<const N: usize>(all: [Counts; N], before: [Counts; N]) -> [Counts; N] {
    std::array::from_fn(|at| all[at].minus(before[at]))
}
