//! The state of TCP connections, by the flags of both ends; packets may be missing, duplicated or
//! sampled.

use crate::dissect::{TCP, TcpFields};
use crate::{FlowEnd, TcpState};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

/// Both ends of a connection, local first. For other protocols, only the opener is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpConnection {
    /// Initial sequence number of each end, from its first packet.
    first: [u32; 2],
    /// Bitwise OR of the flags seen.
    pub(super) flags: [u8; 2],
    /// Flags seen since the last report to the listener.
    pub(super) new_flags: [u8; 2],
    pub(super) state: TcpState,
    opener: Option<FlowEnd>,
    /// The end has sent a packet.
    heard: [bool; 2],
}

impl TcpConnection {
    /// Returns whether the packet is a SYN that begins the next connection between the same ports: as
    /// in Wireshark, one with a new sequence number. With the same number it is a retransmission, also
    /// after a reset.
    #[inline]
    pub(super) fn is_another(&self, sender: FlowEnd, tcp: TcpFields) -> bool {
        let at = sender as usize;
        tcp.flags & (SYN | ACK | RST) == SYN && self.heard[at] && self.first[at] != tcp.sequence
    }

    /// Returns the state of a new conversation. Without a handshake, the sender of the first packet is
    /// the opener, unless earlier packets may have been left out by sampling.
    pub(super) fn of(protocol: u8, first_sender: FlowEnd, sampled: bool) -> Self {
        let opener = (protocol != TCP && !sampled).then_some(first_sender);
        Self { opener, ..Self::default() }
    }

    /// Returns whether no more packets are expected.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, TcpState::Closed | TcpState::Reset)
    }

    pub(super) fn opener(&self) -> Option<FlowEnd> {
        self.opener
    }

    #[inline]
    pub(super) fn note(&mut self, sender: FlowEnd, tcp: TcpFields) {
        let at = sender as usize;
        if !self.heard[at] {
            self.heard[at] = true;
            self.first[at] = tcp.sequence.wrapping_sub(u32::from(tcp.flags & SYN == 0));
        }
        self.flags[at] |= tcp.flags;
        self.new_flags[at] |= tcp.flags;
        if tcp.flags & (SYN | RST) == SYN {
            let opener = if tcp.flags & ACK == 0 { sender } else { sender.other() };
            self.opener = self.opener.or(Some(opener));
        }
        self.state = self.next(tcp.flags);
    }

    #[inline]
    fn next(&self, flags: u8) -> TcpState {
        use TcpState::{Closed, Established, FinWait, None, Reset, SynReceived, SynSent};
        let [local, remote] = self.flags;
        match (self.state, flags & (SYN | ACK)) {
            (Reset | Closed, _) => self.state,
            _ if flags & RST != 0 => Reset,
            _ if local & remote & FIN != 0 => Closed,
            _ if (local | remote) & FIN != 0 => FinWait,
            (None, SYN) => SynSent,
            (None | SynSent, SYN_ACK) => SynReceived,
            (None | SynSent | SynReceived, ACK) => Established,
            (state, _) => state,
        }
    }
}

const SYN_ACK: u8 = SYN | ACK;

impl FlowEnd {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Local => Self::Remote,
            Self::Remote => Self::Local,
        }
    }
}
