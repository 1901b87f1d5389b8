//! Exports the telemetry model to Prometheus, to OTLP receivers and to probes.
//!
//! A [`pmdscope_telemetry::FleetState`] becomes metric [`family::MetricFamily`]s, which become text or
//! OTLP. Between two scrapes, only the number of failed requests to apps is kept.

// Text leaves where it is made harmless: in the binary.
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
