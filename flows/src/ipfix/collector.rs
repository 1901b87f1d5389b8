//! Addresses of collectors.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Registered port of IPFIX over UDP.
const PORT: u16 = 4739;

/// A collector: a host, by name or address, and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpfixCollector {
    host: String,
    port: u16,
}

impl IpfixCollector {
    /// Resolves the collector: its current addresses, the preferred one first. This may wait for name
    /// servers.
    pub(super) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }

    /// Returns whether the host is a name, so that its addresses may change.
    pub(super) fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }
}

impl fmt::Display for IpfixCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The error for a text that is not a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid collector {0:?}: expected HOST:PORT, such as flows.example.com:4739 or [2001:db8::1]:4739"
)]
pub struct CollectorError(String);

impl FromStr for IpfixCollector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        parse(text).ok_or_else(|| CollectorError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<IpfixCollector> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        // An IPv6 address without brackets cannot be followed by a port.
        None if text.parse::<IpAddr>().is_ok() => (text, ""),
        None => text.rsplit_once(':').unwrap_or((text, "")),
    };
    let letters = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let port = if port.is_empty() && !text.ends_with(':') { PORT } else { port.parse().ok()? };
    let plain = !host.is_empty() && host.chars().all(letters);
    let known = plain && port != 0 && (!host.contains(':') || host.parse::<IpAddr>().is_ok());
    known.then(|| IpfixCollector { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_and_a_port() {
        for (text, shown) in [
            ("127.0.0.1:9995", "127.0.0.1:9995"),
            ("[::1]:9995", "[::1]:9995"),
            ("[2001:db8::1]", "[2001:db8::1]:4739"),
            ("2001:db8::1", "[2001:db8::1]:4739"),
            ("flows.example.com:2055", "flows.example.com:2055"),
            ("collector-1", "collector-1:4739"),
        ] {
            assert_eq!(text.parse::<IpfixCollector>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            ":",
            ":4739",
            "host:",
            "host:0",
            "host:65536",
            "host:x",
            "[::1",
            "[host]:1",
            "[]:1",
            "udp://host:1",
            "a b:1",
            "a:b:1",
            "host:-1",
            "[::1]x",
        ] {
            assert!(text.parse::<IpfixCollector>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_shown_is_read(text in "[\\[\\]a-f0-9:.]{0,20}") {
            if let Ok(collector) = text.parse::<IpfixCollector>() {
                prop_assert_eq!(collector.to_string().parse::<IpfixCollector>(), Ok(collector));
            }
        }
    }
}
