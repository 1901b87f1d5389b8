//! What is asked of one conversation.

use std::fmt;

use super::address::EndPattern;
use super::ports::Comparison;
use super::states::StateSet;
use crate::dissect::{SCTP, TCP, UDP};
use crate::protocols::protocol_name;
use crate::{Flow, FlowEndpoint, FlowPlace, Tunnel};

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the words of the test.
pub enum FlowTest {
    /// An end with such an address, and perhaps such a port.
    Address { ends: Ends, equal: bool, pattern: EndPattern },
    /// An end with such a port.
    Port { ends: Ends, comparison: Comparison, port: u16 },
    /// One of these states of TCP.
    State(StateSet),
    /// An IP protocol.
    Protocol { equal: bool, number: u8 },
    /// IPv4 or IPv6.
    Version { v6: bool },
    /// The app, or the interface of a file.
    App { equal: bool, name: String },
    /// Packets were last received or sent here.
    Place { equal: bool, pattern: PlacePattern },
    /// A VLAN, outside of a tunnel or inside.
    Vlan { comparison: Comparison, id: u16 },
    /// In a VLAN.
    AnyVlan,
    /// The network of VXLAN or GENEVE.
    Vni { comparison: Comparison, id: u32 },
    /// A kind of tunnels.
    Tunnel { equal: bool, kind: &'static str },
    /// In a tunnel.
    AnyTunnel,
}

/// Which ends are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The end on the side of the app.
    Local,
    /// The other end.
    Remote,
    /// One of both.
    Either,
}

/// A port of an app, or a queue of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacePattern {
    app: Option<String>,
    port: Option<u16>,
    queue: Option<u16>,
}

impl FlowTest {
    /// Returns whether it holds for a conversation of this app.
    pub fn holds(&self, app: &str, flow: &Flow) -> bool {
        let has_port = matches!(flow.proto, TCP | UDP | SCTP);
        match self {
            Self::Address { ends, equal, pattern } => {
                let found = ends.of(flow).any(|end| pattern.holds(end, has_port));
                found == *equal
            }
            Self::Port { ends, comparison, port } => {
                comparison.holds(ends.of(flow).filter(|_| has_port).map(|end| end.port), port)
            }
            Self::State(states) => states.has(flow.state),
            Self::Protocol { equal, number } => (flow.proto == *number) == *equal,
            Self::Version { v6 } => flow.local.addr.is_ipv6() == *v6,
            Self::App { equal, name } => (app == name) == *equal,
            Self::Place { equal, pattern } => pattern.holds(app, flow) == *equal,
            Self::Vlan { comparison, id } => comparison.holds(vlans(flow), id),
            Self::AnyVlan => vlans(flow).next().is_some(),
            Self::Vni { comparison, id } => comparison.holds(flow.tunnel.and_then(vni), id),
            Self::Tunnel { equal, kind } => {
                flow.tunnel.is_some_and(|tunnel| tunnel.kind() == *kind) == *equal
            }
            Self::AnyTunnel => flow.tunnel.is_some(),
        }
    }
}

impl Ends {
    fn of(self, flow: &Flow) -> impl Iterator<Item = FlowEndpoint> + use<> {
        let local = (self != Self::Remote).then_some(flow.local);
        let remote = (self != Self::Local).then_some(flow.remote);
        local.into_iter().chain(remote)
    }

    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Local => ["src", "sport"],
            Self::Remote => ["dst", "dport"],
            Self::Either => ["host", "port"],
        }
    }
}

fn vlans(flow: &Flow) -> impl Iterator<Item = u16> + use<> {
    flow.vlans.into_iter().chain(flow.inner_vlans).filter(|id| *id > 0)
}

fn vni(tunnel: Tunnel) -> Option<u32> {
    match tunnel {
        Tunnel::Vxlan(id) | Tunnel::VxlanGpe(id) | Tunnel::Geneve(id) => Some(id),
        _ => None,
    }
}

impl PlacePattern {
    /// `fwd`, `fwd:0`, `fwd:0:3`, `0` or `0:3`; the numbers are those at the end.
    pub(super) fn of(word: &str) -> Option<Self> {
        let mut app = word;
        let mut numbers = Vec::new();
        while numbers.len() < 2 {
            let (before, last) = match app.rsplit_once(':') {
                Some((before, last)) => (Some(before), last),
                None => (None, app),
            };
            if last.is_empty() || !last.bytes().all(|byte| byte.is_ascii_digit()) {
                break;
            }
            numbers.push(last.parse().ok()?);
            app = before.unwrap_or_default();
        }
        let queue = (numbers.len() == 2).then(|| numbers[0]);
        let app = (!app.is_empty()).then(|| app.to_owned());
        Some(Self { app, port: numbers.last().copied(), queue })
    }

    fn holds(&self, app: &str, flow: &Flow) -> bool {
        let here = |place: FlowPlace| {
            self.port.is_none_or(|port| port == place.port)
                && self.queue.is_none_or(|queue| place.queue == Some(queue))
        };
        self.app.as_ref().is_none_or(|name| name == app)
            && [flow.rx_place, flow.tx_place].into_iter().flatten().any(here)
    }
}

impl fmt::Display for PlacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [self.port, self.queue].into_iter().flatten();
        let parts = self.app.iter().cloned().chain(numbers.map(|number| number.to_string()));
        f.write_str(&parts.collect::<Vec<_>>().join(":"))
    }
}

impl fmt::Display for FlowTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |equal: &bool| if *equal { Comparison::Equal } else { Comparison::NotEqual };
        match self {
            Self::Address { ends, equal, pattern } => {
                write!(f, "{} {} {pattern}", ends.words()[0], sign(equal))
            }
            Self::Port { ends, comparison, port } => {
                write!(f, "{} {comparison} :{port}", ends.words()[1])
            }
            Self::State(states) => states.fmt(f),
            Self::Protocol { equal, number } => match protocol_name(*number) {
                Some(name) => write!(f, "proto {} {name}", sign(equal)),
                None => write!(f, "proto {} {number}", sign(equal)),
            },
            Self::Version { v6 } => f.write_str(if *v6 { "ip6" } else { "ip" }),
            Self::App { equal, name } => write!(f, "app {} {name}", sign(equal)),
            Self::Place { equal, pattern } => write!(f, "dev {} {pattern}", sign(equal)),
            Self::Vlan { comparison, id } => write!(f, "vlan {comparison} {id}"),
            Self::AnyVlan => f.write_str("vlan"),
            Self::Vni { comparison, id } => write!(f, "vni {comparison} {id}"),
            Self::Tunnel { equal, kind } => write!(f, "tunnel {} {kind}", sign(equal)),
            Self::AnyTunnel => f.write_str("tunnel"),
        }
    }
}
