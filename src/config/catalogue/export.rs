//! `[export]`: settings of the exporter.

use super::{HOUR, MILLISECOND, text};
use crate::config::Config;
use crate::config::key::{ConfigKey, ConfigTable};
use crate::config::kind::{Count, Flag, List, OptionalText, Time};

/// Bounds on the number of series.
const MOST: Count = Count(0, 65_536);

/// Bounds on the number of connections.
const MOST_CONNECTIONS: Count = Count(1, 16_384);

pub(super) fn table() -> ConfigTable {
    let mut keys = vec![
        ConfigKey::new(
            "listen",
            List(text::address()),
            |c: &mut Config| &mut c.export.listen,
            r#"["127.0.0.1:9177"]"#,
            "Addresses to listen on",
        ),
        ConfigKey::new(
            "web_config",
            OptionalText(text::file()),
            |c| &mut c.export.web_config,
            r#""/etc/pmdscope/web.yml""#,
            "TLS and passwords: a web configuration file of Prometheus exporters",
        ),
        ConfigKey::new(
            "dashboards",
            OptionalText(text::url()),
            |c| &mut c.export.dashboards,
            r#""https://grafana.example.com/dashboards""#,
            "URL of the dashboards, which the page / links to",
        ),
        ConfigKey::new(
            "timeout",
            Time(MILLISECOND, HOUR),
            |c| &mut c.export.timeout,
            r#""5s""#,
            "Timeout of a scrape; a shorter one that Prometheus announces takes precedence",
        ),
        ConfigKey::new(
            "xstats",
            text::Patterns,
            |c| &mut c.export.series_limits.xstats,
            r#"["^rx_.*errors$"]"#,
            "Names of extended counters to export",
        ),
        ConfigKey::new(
            "xstats_per_port",
            MOST,
            |c| &mut c.export.series_limits.xstats_per_port,
            "40",
            "Maximum number of extended counters per port",
        ),
        ConfigKey::new(
            "sites_per_pool",
            MOST,
            |c| &mut c.export.series_limits.sites_per_pool,
            "20",
            "Maximum number of leak sites per pool, and of stages per app",
        ),
        ConfigKey::new(
            "queues_per_port",
            MOST,
            |c| &mut c.export.series_limits.queues_per_port,
            "256",
            "Maximum number of queues per port and direction",
        ),
        ConfigKey::new(
            "captures",
            MOST,
            |c| &mut c.export.series_limits.captures,
            "16",
            "Maximum number of captures per app",
        ),
        ConfigKey::new(
            "queue_histograms",
            Flag,
            |c| &mut c.export.series_limits.queue_histograms,
            "true",
            "Export histograms of each queue, about twenty series per queue",
        ),
        ConfigKey::new(
            "interrupts",
            Flag,
            |c| &mut c.export_interrupts,
            "true",
            "Trace what takes the CPU from lcores; needs root and bpftrace",
        ),
        ConfigKey::new(
            "xray",
            Flag,
            |c| &mut c.export_xray,
            "true",
            "Count mempools and rings in the memory of apps without libpmdscope; needs root or CAP_SYS_PTRACE",
        ),
        ConfigKey::new(
            "tolerate",
            List(text::lint()),
            |c| &mut c.export.tolerate,
            r#"["queue_imbalance", "stall"]"#,
            "Findings that do not make an app unready or unhealthy",
        ),
    ];
    keys.extend(connections());
    keys.extend(otlp());
    ConfigTable { name: "export", keys, tables: &[], check: serves }
}

/// Limits that protect clients from each other.
fn connections() -> [ConfigKey<Config>; 5] {
    [
        ConfigKey::new(
            "max_connections",
            MOST_CONNECTIONS,
            |c: &mut Config| &mut c.export.connections.total,
            "512",
            "Maximum number of connections; an idle one is closed for a newer one",
        ),
        ConfigKey::new(
            "max_connections_per_client",
            MOST_CONNECTIONS,
            |c| &mut c.export.connections.per_client,
            "128",
            "Maximum number of connections of an IPv4 address, an IPv6 /64, or a user of a unix socket",
        ),
        ConfigKey::new(
            "header_timeout",
            Time(MILLISECOND, HOUR),
            |c| &mut c.export.connections.header_timeout,
            r#""10s""#,
            "Time for the header of a request, with the TLS handshake",
        ),
        ConfigKey::new(
            "idle_timeout",
            Time(MILLISECOND, HOUR),
            |c| &mut c.export.connections.idle_timeout,
            r#""150s""#,
            "Time for which a connection is kept without another request",
        ),
        ConfigKey::new(
            "response_timeout",
            Time(MILLISECOND, HOUR),
            |c| &mut c.export.connections.response_timeout,
            r#""30s""#,
            "Time for a client to read a response",
        ),
    ]
}

/// Pushes to an OTLP receiver.
fn otlp() -> [ConfigKey<Config>; 2] {
    [
        ConfigKey::new(
            "otlp",
            OptionalText(text::url()),
            |c| &mut c.export.otlp,
            r#""http://127.0.0.1:4318/v1/metrics""#,
            "URL of an OTLP receiver",
        ),
        ConfigKey::new(
            "otlp_interval",
            Time(MILLISECOND, HOUR),
            |c| &mut c.export.otlp_interval,
            r#""15s""#,
            "Interval of pushes",
        ),
    ]
}

fn serves(config: &Config) -> Result<(), String> {
    if config.export.listen.is_empty() {
        return Err(
            "listen is empty, so no client could connect; leave it out for the default".to_owned()
        );
    }
    Ok(())
}
