//! What the two processes of the exporter tell each other.
//!
//! The network process trusts the collector. The collector takes nothing from the network process but
//! which of these questions it has, the name of an app, a time limit and counts, and checks them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connections::ConnectionCounts;
use crate::metrics::PushCounts;
use crate::options::ConnectionLimits;
use crate::text::TextFormat;

/// Longest name of an app in a question, bytes; names of directories are shorter.
pub(crate) const MAX_NAME: usize = 1024;

/// What the network process is told before it starts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkSettings {
    /// Process id of the collector.
    pub(crate) collector: u32,
    /// Longest time of a scrape.
    pub(crate) timeout: Duration,
    pub(crate) limits: ConnectionLimits,
    /// The limits are lower than configured, because too few files can be open.
    pub(crate) lowered: bool,
    /// There is a web configuration, which may change.
    pub(crate) web_config: bool,
    /// URL of an OTLP receiver.
    pub(crate) otlp: Option<String>,
    pub(crate) otlp_interval: Duration,
}

/// From the network process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ToCollector {
    /// A question, with a number for its answer.
    Ask { id: u64, question: Question, counts: NetworkCounts },
    /// Nobody waits for this answer any more.
    Forget { id: u64 },
    /// The network process is about to end.
    Stopping,
}

/// What the network process needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Question {
    /// A page, at the latest after so long.
    Page { page: Page, within: Duration },
    /// The web configuration, if it is newer than this version.
    Web { known: u64 },
    /// Read the thresholds again.
    Reload,
    /// Nothing: whether the collector works.
    Ping,
}

/// What a page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Page {
    /// Metrics of all apps, of one, or with an empty name of the exporter.
    Metrics { app: Option<String>, format: TextFormat, gzip: bool },
    /// Whether an app is ready, or all.
    Ready { app: Option<String> },
    /// The names of apps, as JSON.
    Names,
    /// The HTML page.
    Overview,
    /// The metrics for an OTLP receiver.
    Push,
}

/// Counts of the network process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkCounts {
    pub(crate) connections: ConnectionCounts,
    pub(crate) pushes: PushCounts,
}

/// From the collector.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) content: Content,
}

/// An answer; the document of those that have one comes as a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Content {
    /// Metrics, compressed if they are long.
    Metrics { gzip: bool },
    /// Readiness as JSON.
    Readiness { ready: bool },
    /// No app has this name; a text.
    Unknown,
    /// Names of apps.
    Names,
    /// The HTML page.
    Overview,
    /// An OTLP request.
    Push,
    /// A [`crate::web::WebUpdate`].
    Web,
    /// Done, or nothing to tell.
    Done,
    /// It failed; the collector has logged why.
    Failed,
}

impl Question {
    /// Checks what is not checked by its type.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self::Page { page, .. } = self else { return Ok(()) };
        match page {
            Page::Metrics { app: Some(name), .. } | Page::Ready { app: Some(name) }
                if name.len() > MAX_NAME =>
            {
                Err(format!("a name of {} bytes", name.len()))
            }
            _ => Ok(()),
        }
    }
}
