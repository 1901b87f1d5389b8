//! Conversations for collectors.

use std::time::Duration;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use pmdscope_capture::flow::ipfix::{
    self, Collector, LARGEST, MESSAGE, SMALLEST, Settings, Status,
};
use pmdscope_capture::flow::table::Listener;

use crate::duration;

/// What is sent to collectors.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Export")]
pub(super) struct Ipfix {
    /// Send conversations to this IPFIX collector, over UDP, until stopped; repeat for several
    #[arg(long = "ipfix", value_name = "HOST:PORT")]
    #[arg(conflicts_with_all = ["interface_counters", "replay"])]
    collectors: Vec<Collector>,

    /// Tell of a conversation that goes on after so long, and again after as long
    #[arg(long = "ipfix-active", value_name = "TIME", default_value = "60s", value_parser = time)]
    #[arg(requires = "collectors")]
    active: Duration,

    /// Tell of a conversation that was silent for so long, and forget it
    #[arg(long = "ipfix-idle", value_name = "TIME", default_value = "15s", value_parser = time)]
    #[arg(requires = "collectors")]
    idle: Duration,

    /// Observation domain: another for each pmdscope of a host that sends to the same collector
    #[arg(long = "ipfix-domain", value_name = "ID", default_value_t = 1)]
    #[arg(requires = "collectors")]
    domain: u32,

    /// Send templates, names of interfaces and the sampling rate again after so long
    #[arg(long = "ipfix-template-refresh", value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = time, requires = "collectors")]
    refresh: Duration,

    /// Largest message, in bytes: no more than fits the path to the collector
    #[arg(long = "ipfix-message-size", value_name = "BYTES", default_value_t = MESSAGE)]
    #[arg(value_parser = size(), requires = "collectors")]
    message: usize,
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .filter(|time| (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(time))
        .ok_or_else(|| "give a time from 1s to 1d".to_owned())
}

fn size() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(SMALLEST as u64..=LARGEST as u64)
}

/// What the table of conversations needs, and how the export does.
pub(super) struct Export {
    /// For [`pmdscope_capture::flow::table::Settings`].
    pub(super) listener: Box<dyn Listener>,
    /// Likewise.
    pub(super) idle: Duration,
    /// Likewise.
    pub(super) active: Duration,
    /// For [`line`], and for `news`, which are to be told on standard error once a second.
    pub(super) status: Status,
}

/// Begins to export, if asked to. `sample` is N where one packet in N is counted from first to last, and 1
/// where all are or the rate changes. `file`: packets are read from files, which can wait.
///
/// # Errors
/// When a collector has no address, or there is no way to it.
pub(super) fn listener(ipfix: &Ipfix, sample: u32, file: bool) -> Result<Option<Export>> {
    if ipfix.collectors.is_empty() {
        return Ok(None);
    }
    let (exporter, status) = ipfix::start(&Settings {
        collectors: ipfix.collectors.clone(),
        domain: ipfix.domain,
        refresh: ipfix.refresh,
        message: ipfix.message,
        sample,
        patient: file,
    })?;
    let (idle, active) = (ipfix.idle, ipfix.active);
    Ok(Some(Export { listener: Box::new(exporter), idle, active, status }))
}

/// How the export does, in a line.
pub(super) fn line(status: &Status) -> String {
    let counts = status.counts();
    let trouble = [(counts.dropped, "records dropped"), (counts.failed, "messages failed")]
        .into_iter()
        .chain([(counts.rounded, "records rounded")])
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!(", {count} {what}"));
    format!(
        "ipfix: {} flows, {} records in {} messages, {} bytes{}",
        counts.flows,
        counts.records,
        counts.messages,
        counts.bytes,
        trouble.collect::<String>()
    )
}
