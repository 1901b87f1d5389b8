//! Lints over a model: what is wrong, the evidence, the threshold, and what to do next.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Will hurt if it goes on.
    Warning,
    /// Packets are lost or will be within a minute.
    Critical,
}

/// One thing that is wrong with one app.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name of the lint, for instance `no_ports`.
    pub lint: &'static str,
    /// How bad.
    pub severity: Severity,
    /// App, by file-prefix.
    pub app: String,
    /// What it is about: a port's device, a pool, an lcore; empty for the app itself.
    pub subject: String,
    /// One sentence with the numbers.
    pub evidence: String,
    /// The threshold that was crossed, in words.
    pub threshold: String,
    /// What to do next.
    pub advice: String,
}
