//! Addresses in filters: `10.0.0.1`, `10/8`, `10.0.0.0/8:443`, `[2001:db8::/32]:443`, `:53`, `*`.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::expression::{Parsed, mistake};
use super::{grammar, ports};
use crate::FlowEndpoint;

const EXPECTED: &str = "expected an address, such as 10.0.0.0/8 or [2001:db8::1]:443";

/// An end of conversations: a network and a port, each if it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPattern {
    network: Option<Network>,
    port: Option<u16>,
}

/// The addresses whose first bits are those of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    addr: IpAddr,
    /// Bits.
    prefix: u8,
}

impl EndPattern {
    pub(super) fn parse(input: &mut &str) -> Parsed<Self> {
        let from = *input;
        let word = grammar::value(input, EXPECTED)?;
        Self::of(word).or_else(|reason| mistake(from, reason))
    }

    fn of(word: &str) -> Result<Self, String> {
        let (network, port) = split(word);
        let network = match &*network {
            "" | "*" => None,
            network => Some(Network::of(network).ok_or_else(|| {
                format!("no address '{network}', such as 10.0.0.0/8 or [2001:db8::1]:443")
            })?),
        };
        let port = port.map(ports::by_name).transpose()?;
        Ok(Self { network, port })
    }

    /// Returns whether an end is one of these; `has_port` if its protocol has ports.
    pub(super) fn holds(&self, end: FlowEndpoint, has_port: bool) -> bool {
        let port = self.port.is_none_or(|port| has_port && port == end.port);
        port && self.network.is_none_or(|network| network.contains(end.addr))
    }
}

/// The text of an address with its prefix, and that of a port behind it.
fn split(word: &str) -> (Cow<'_, str>, Option<&str>) {
    let bracketed = word.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((inside, behind)) = bracketed {
        let (prefix, port) = match behind.split_once(':') {
            Some((prefix, port)) => (prefix, Some(port)),
            None => (behind, None),
        };
        if prefix.is_empty() {
            return (inside.into(), port);
        }
        // The prefix may be on either side of the bracket.
        let network =
            if prefix.starts_with('/') { inside.to_owned() + prefix } else { word.into() };
        return (network.into(), port);
    }
    // Without brackets, an address of IPv6 has no port.
    match word.split_once(':') {
        Some((addr, port)) if !port.contains(':') => (addr.into(), Some(port)),
        _ => (word.into(), None),
    }
}

impl Network {
    fn of(text: &str) -> Option<Self> {
        let (addr, prefix) = match text.split_once('/') {
            Some((addr, prefix)) => (addr, Some(number(prefix)?)),
            None => (text, None),
        };
        let addr = match addr.parse().ok() {
            Some(addr) => addr,
            None => IpAddr::V4(shortened(addr).filter(|_| prefix.is_some())?),
        };
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(longest);
        (prefix <= longest).then_some(Self { addr, prefix })
    }

    fn contains(self, addr: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.checked_shr(32 - prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.checked_shr(128 - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// `10.1` is 10.1.0.0, as in ss(8).
fn shortened(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut places = octets.iter_mut();
    for octet in text.split('.') {
        *places.next()? = number(octet)?;
    }
    Some(octets.into())
}

fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for EndPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.network, self.port) {
            (None, None) => f.write_str("*"),
            (None, Some(port)) => write!(f, ":{port}"),
            (Some(network), None) => network.fmt(f),
            (Some(network), Some(port)) => write!(f, "{network}:{port}"),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { addr: IpAddr::V4(addr), prefix: 32 } => addr.fmt(f),
            Self { addr: IpAddr::V4(addr), prefix } => write!(f, "{addr}/{prefix}"),
            Self { addr: IpAddr::V6(addr), prefix: 128 } => write!(f, "[{addr}]"),
            Self { addr: IpAddr::V6(addr), prefix } => write!(f, "[{addr}/{prefix}]"),
        }
    }
}
