//! The flows that bypass the kernel.

use std::fmt;
use std::str::FromStr;

use crate::error::BypassError;

/// Most flows of one bypass.
pub const MAX_FLOWS: usize = 16;

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlowProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl FlowProtocol {
    const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the protocol number in IP headers.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// Packets to one port of a transport protocol, over IPv4 and IPv6: `udp:53`. Fragments are excluded,
/// because only the first one contains the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BypassFlow {
    pub(crate) protocol: FlowProtocol,
    pub(crate) port: u16,
}

impl FromStr for BypassFlow {
    type Err = BypassError;

    fn from_str(text: &str) -> Result<Self, BypassError> {
        let parse = || {
            let (protocol, port) = text.split_once(':')?;
            let protocol = FlowProtocol::ALL.into_iter().find(|known| known.name() == protocol)?;
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| digits && *port != 0)?;
            Some(Self { protocol, port })
        };
        parse().ok_or_else(|| BypassError::BadFlow(text.to_owned()))
    }
}

impl fmt::Display for BypassFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol.name(), self.port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flow_is_a_protocol_and_a_port() {
        let flow: BypassFlow = "udp:53".parse().unwrap();
        assert_eq!(flow, BypassFlow { protocol: FlowProtocol::Udp, port: 53 });
        for wrong in [
            "",
            "udp",
            "udp:",
            "udp:0",
            "udp:65536",
            "icmp:1",
            "UDP:53",
            "udp:+5",
            "udp:5 ",
            "udp:5:6",
        ] {
            assert!(wrong.parse::<BypassFlow>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_printed_as_it_was_meant(text in "(tcp|udp|sctp|x)?[:0-9 +]{0,7}|\\PC{0,20}") {
            if let Ok(flow) = text.parse::<BypassFlow>() {
                prop_assert_eq!(flow.to_string().parse::<BypassFlow>().unwrap(), flow);
            }
        }
    }
}
