//! Conversations for collectors.

use std::time::Duration;

use anyhow::Result;
use pmdscope_flows::ipfix::{
    ExportStatus, IpfixCollector, IpfixSettings, LARGEST, MESSAGE, SMALLEST,
};
use pmdscope_flows::{FlowListener, ipfix};

use crate::duration;
use crate::number::whole;

/// What is sent to collectors.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Export")]
pub(super) struct IpfixArgs {
    /// Export flows to this IPFIX collector
    ///
    /// Sends IPFIX over UDP until interrupted. The default port is 4739. May be repeated.
    #[arg(long = "ipfix", value_name = "HOST:PORT", hide_short_help = true)]
    collectors: Vec<IpfixCollector>,

    /// Active timeout: export an active flow every TIME
    #[arg(hide_short_help = true, long = "ipfix-active", value_name = "TIME", default_value = "60s", value_parser = time)]
    #[arg(requires = "collectors")]
    active: Duration,

    /// Idle timeout: export a flow and remove it after TIME without packets
    #[arg(hide_short_help = true, long = "ipfix-idle", value_name = "TIME", default_value = "15s", value_parser = time)]
    #[arg(requires = "collectors")]
    idle: Duration,

    /// Observation domain ID
    ///
    /// Must differ between pmdscope processes of one host that export to the same collector.
    #[arg(long = "ipfix-domain", value_name = "ID", default_value_t = 1)]
    #[arg(value_parser = whole::<u32>(0..=u32::MAX.into()), hide_short_help = true, requires = "collectors")]
    domain: u32,

    /// Resend templates, interface names and the sampling rate every TIME
    #[arg(
        hide_short_help = true,
        long = "ipfix-template-refresh",
        value_name = "TIME",
        default_value = "60s"
    )]
    #[arg(value_parser = time, requires = "collectors")]
    refresh: Duration,

    /// Maximum message size
    ///
    /// IP and UDP headers not included. Must fit the MTU of the path to the collector.
    #[arg(hide_short_help = true, long = "ipfix-message-size", value_name = "BYTES", default_value_t = MESSAGE)]
    #[arg(value_parser = whole::<usize>(SMALLEST as u64..=LARGEST as u64), requires = "collectors")]
    message: usize,
}

impl IpfixArgs {
    /// It was asked for.
    pub(super) fn is_given(&self) -> bool {
        !self.collectors.is_empty()
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
    duration::within(text, range, "60s or 15m")
}

/// What the table of conversations needs, and the status of the export.
pub(super) struct IpfixExport {
    /// For [`pmdscope_flows::FlowTableSettings`].
    pub(super) listener: Box<dyn FlowListener>,
    /// Likewise.
    pub(super) idle: Duration,
    /// Likewise.
    pub(super) active: Duration,
    /// For [`line()`], and for `notices`, which are shown on standard error once a second.
    pub(super) status: ExportStatus,
}

/// Begins to export, if asked to. `sample` is N where one packet in N is counted from first to last, and 1
/// where all are or the rate changes. `file`: packets are read from files, which can wait.
///
/// # Errors
/// When a collector has no address, or there is no route to it.
pub(super) fn listener(ipfix: &IpfixArgs, sample: u32, file: bool) -> Result<Option<IpfixExport>> {
    if !ipfix.is_given() {
        return Ok(None);
    }
    let (exporter, status) = ipfix::start(&IpfixSettings {
        collectors: ipfix.collectors.clone(),
        domain: ipfix.domain,
        refresh: ipfix.refresh,
        message: ipfix.message,
        sample,
        patient: file,
    })?;
    let (idle, active) = (ipfix.idle, ipfix.active);
    Ok(Some(IpfixExport { listener: Box::new(exporter), idle, active, status }))
}

/// All that was to be exported was sent, as far as the system reports.
pub(super) fn is_complete(status: &ExportStatus) -> bool {
    let counts = status.counts();
    counts.dropped == 0 && counts.failed == 0
}

/// The status of the export, in a line.
pub(super) fn line(status: &ExportStatus) -> String {
    let counts = status.counts();
    let trouble = [
        (counts.dropped, "records dropped"),
        (counts.failed, "messages failed"),
        (counts.rounded, "records rounded"),
    ];
    let trouble = trouble.into_iter().filter(|(count, _)| *count > 0);
    let trouble = trouble.map(|(count, what)| format!(", {count} {what}"));
    format!(
        "ipfix: {} flows, {} records in {} messages, {} bytes{}",
        counts.flows,
        counts.records,
        counts.messages,
        counts.bytes,
        trouble.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::netstat::fixture::parse as parse_netstat;

    fn parse(words: &str) -> Result<IpfixArgs, ErrorKind> {
        parse_netstat(words).map(|args| args.ipfix).map_err(|error| error.kind())
    }

    #[test]
    fn nothing_is_sent_without_a_collector() {
        assert!(listener(&parse("").unwrap(), 1, false).unwrap().is_none());
    }

    #[test]
    fn what_is_asked_for_is_what_the_table_is_told() {
        let ipfix = parse("--ipfix 127.0.0.1:9 --ipfix [::1] --ipfix-idle 2s").unwrap();
        assert_eq!(ipfix.collectors.len(), 2);
        let one = IpfixArgs { collectors: ipfix.collectors[..1].to_vec(), ..ipfix };
        let export = listener(&one, 1, false).unwrap().unwrap();
        let times = (export.idle, export.active);
        assert_eq!(times, (Duration::from_secs(2), Duration::from_secs(60)));
        let nothing = "ipfix: 0 flows, 0 records in 0 messages, 0 bytes";
        assert_eq!(line(&export.status), nothing);
    }

    #[test]
    fn what_makes_no_sense_is_wrong_usage() {
        use ErrorKind::{MissingRequiredArgument, ValueValidation};
        let wrong = [
            ("--ipfix host:port", ValueValidation),
            ("--ipfix a:1 --ipfix-idle 0s", ValueValidation),
            ("--ipfix a:1 --ipfix-active 2d", ValueValidation),
            ("--ipfix a:1 --ipfix-message-size 511", ValueValidation),
            ("--ipfix a:1 --ipfix-domain -1", ErrorKind::UnknownArgument),
            ("--ipfix-template-refresh 5s", MissingRequiredArgument),
        ];
        for (words, kind) in wrong {
            assert_eq!(parse(words).unwrap_err(), kind, "{words}");
        }
    }
}
