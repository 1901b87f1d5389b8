//! States of TCP in filters, by the names of ss(8).

use std::fmt;

use crate::TcpState;

/// A set of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSet(u8);

/// Each state by the name that is printed.
const STATES: [(&str, TcpState); 7] = [
    ("syn-sent", TcpState::SynSent),
    ("syn-recv", TcpState::SynReceived),
    ("established", TcpState::Established),
    ("fin-wait", TcpState::FinWait),
    ("closed", TcpState::Closed),
    ("reset", TcpState::Reset),
    ("none", TcpState::None),
];

/// Other names, of one or several of these.
const OTHERS: [(&str, &[TcpState]); 5] = [
    ("estab", &[TcpState::Established]),
    ("syn-received", &[TcpState::SynReceived]),
    ("synchronized", &[TcpState::SynReceived, TcpState::Established, TcpState::FinWait]),
    (
        "connected",
        &[TcpState::SynSent, TcpState::SynReceived, TcpState::Established, TcpState::FinWait],
    ),
    (
        "all",
        &[
            TcpState::SynSent,
            TcpState::SynReceived,
            TcpState::Established,
            TcpState::FinWait,
            TcpState::Closed,
            TcpState::Reset,
            TcpState::None,
        ],
    ),
];

/// What is expected in place of an unknown name.
pub(super) const NAMES: &str =
    "established, syn-sent, syn-recv, fin-wait, closed, reset, none, connected, synchronized, all";

impl StateSet {
    fn of(states: &[TcpState]) -> Self {
        Self(states.iter().fold(0, |bits, state| bits | 1 << *state as u8))
    }

    /// The states of a name, in upper or lower case, also as in reports and in JSON.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let one = STATES.iter().find(|(state, _)| *state == name);
        let others = OTHERS.iter().find(|(states, _)| *states == name);
        one.map(|(_, state)| Self::of(&[*state]))
            .or_else(|| others.map(|(_, states)| Self::of(states)))
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All states but these.
    pub(super) fn others(self) -> Self {
        let all = STATES.map(|(_, state)| state);
        Self(Self::of(&all).0 & !self.0)
    }

    pub(super) fn has(self, state: TcpState) -> bool {
        self.0 & Self::of(&[state]).0 != 0
    }
}

impl fmt::Display for StateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = STATES.iter().filter(|(_, state)| self.has(*state));
        let words = states.map(|(name, _)| format!("state {name}")).collect::<Vec<_>>();
        if words.is_empty() { f.write_str("exclude all") } else { f.write_str(&words.join(" ")) }
    }
}
