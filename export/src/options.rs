//! Options of the exporter.

use std::path::PathBuf;
use std::time::Duration;

use pmdscope_telemetry::finding::Lint;
use serde::{Deserialize, Serialize};

use crate::address::{DEFAULT_LISTEN, ListenAddress};
use crate::series_limits::SeriesLimits;

/// Settings of the exporter: section `[export]` of the configuration.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Listen addresses.
    pub listen: Vec<ListenAddress>,
    /// Web configuration with TLS and passwords, in the format of Prometheus exporters; `None`:
    /// neither.
    pub web_config: Option<PathBuf>,
    /// Longest time for one scrape; a shorter scrape timeout of Prometheus has priority.
    pub timeout: Duration,
    /// Limits on the number of series.
    pub series_limits: SeriesLimits,
    /// Lints that do not make an app unready or unhealthy.
    pub tolerate: Vec<Lint>,
    /// URL of the dashboards, which the landing page links to.
    pub dashboards: Option<String>,
    /// URL of an OTLP receiver to push to, `http://` or `https://`; `None`: no push.
    pub otlp: Option<String>,
    /// Time between two pushes.
    pub otlp_interval: Duration,
    /// Limits that protect clients from each other.
    pub connections: ConnectionLimits,
}

/// Limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionLimits {
    /// Most connections, 1 or more.
    pub total: usize,
    /// Most connections of one client: an IPv4 address, an IPv6 network of 64 bits, or a user of a unix
    /// socket; 1 or more.
    pub per_client: usize,
    /// Time for the header of a request: of the first one from the connect on, with the TLS handshake, and of
    /// others from their first byte on.
    pub header_timeout: Duration,
    /// Time for which a connection is kept after a response, without another request.
    pub idle_timeout: Duration,
    /// Time for a client to read a response.
    pub response_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: 512,
            per_client: 128,
            header_timeout: Duration::from_secs(10),
            // Longer than common scrape intervals, so that connections are reused.
            idle_timeout: Duration::from_secs(150),
            response_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN.parse().into_iter().collect(),
            web_config: None,
            timeout: Duration::from_secs(5),
            series_limits: SeriesLimits::default(),
            tolerate: vec![Lint::QueueImbalance, Lint::Stall],
            dashboards: None,
            otlp: None,
            otlp_interval: Duration::from_secs(15),
            connections: ConnectionLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_only_this_machine_may_connect() {
        let listen: Vec<String> =
            ExportOptions::default().listen.iter().map(ListenAddress::to_string).collect();
        assert_eq!(listen, [DEFAULT_LISTEN]);
    }
}
