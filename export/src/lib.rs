//! Exports the telemetry model to Prometheus, to OTLP receivers and to probes.
//!
//! A [`pmdscope_telemetry::FleetState`] is converted to [`family::MetricFamily`]s, and these to text or
//! OTLP. Apps are queried only when a client or a push requests their values.
//!
//! Two processes share the work: the collector queries apps and makes pages, and the network process, which
//! has no rights, speaks to clients.

// Only the binary prints text, after it has replaced control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
#[cfg(test)]
mod cardinality_tests;
pub mod catalogue;
mod channel;
mod collector;
mod collector_client;
mod confine;
mod connections;
mod document;
#[cfg(test)]
mod fake;
pub mod family;
#[cfg(test)]
mod fixture;
mod health;
mod journal;
mod listen;
mod message;
mod metrics;
mod negotiate;
mod options;
mod otlp;
mod pages;
mod processes;
mod routes;
mod scrape;
mod series_limits;
mod server;
mod service;
mod service_manager;
mod snapshot;
pub mod text;
mod web;

pub use options::{ConnectionLimits, ExportOptions};
pub use processes::{ExportProcess, start};
pub use series_limits::SeriesLimits;
pub use service::{ServeError, ThresholdReader, collect, once, serve};
