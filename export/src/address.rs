//! Listen addresses of the exporter.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Default listen address: only this machine can connect.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:9177";

/// A listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp {
        /// Name or address without brackets; empty for every address of the machine.
        host: String,
        /// Port; 0: the system chooses one.
        port: u16,
    },
    /// A unix socket, by its path.
    Unix(PathBuf),
    /// The sockets that systemd opened for this service.
    Systemd,
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid listen address {0:?}; examples: 127.0.0.1:9177, [::1]:9177, :9177 for every \
     address of this machine, unix:/run/pmdscope.sock, systemd for socket activation"
)]
pub struct ListenAddressError(String);

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        parse(text).ok_or_else(|| ListenAddressError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<ListenAddress> {
    if text == "systemd" {
        return Some(ListenAddress::Systemd);
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/').then(|| ListenAddress::Unix(path.into()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok())??;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').filter(|v6| v6.contains(':'))?,
        None => host,
    };
    let bare_v6 = host.contains(':') && !text.starts_with('[');
    let odd = host.chars().any(|c| c.is_whitespace() || c == '/');
    (!bare_v6 && !odd).then(|| ListenAddress::Tcp { host: host.to_owned(), port })
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read_and_written_alike() {
        for text in
            ["127.0.0.1:9177", "[::1]:9177", ":9177", "localhost:0", "unix:/run/p.sock", "systemd"]
        {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn an_invalid_address_error_shows_the_format() {
        for text in ["", "9177", "host", "::1:9177", "[x]:1", "a:65536", "a:+1", "unix:x", "a b:1"]
        {
            let error = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:9177"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parsed_addresses_survive_formatting(text: String) {
            if let Ok(address) = text.parse::<ListenAddress>() {
                prop_assert_eq!(address.to_string().parse::<ListenAddress>().unwrap(), address);
            }
        }
    }
}
