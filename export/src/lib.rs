//! Exports the telemetry model to Prometheus, to OTLP receivers and to probes.
//!
//! A [`pmdscope_telemetry::FleetState`] is converted to [`family::MetricFamily`]s, and these to text or
//! OTLP. Apps are queried only when a client or a push requests their values.

// Only the binary prints text, after it has replaced control characters.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod address;
#[cfg(test)]
mod cardinality_tests;
pub mod catalogue;
#[cfg(test)]
mod fake;
pub mod family;
#[cfg(test)]
mod fixture;
mod health;
mod journal;
mod listen;
mod metrics;
mod negotiate;
mod options;
mod otlp;
mod routes;
mod scrape;
mod series_limits;
mod server;
mod service;
mod snapshot;
pub mod text;
mod web;

pub use options::ExportOptions;
pub use series_limits::SeriesLimits;
pub use service::{ServeError, ThresholdReader, once, serve};
