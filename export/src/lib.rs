//! Serves what the telemetry model knows: to Prometheus, to OTLP receivers, and to probes.
//!
//! One direction: a [`pmdscope_telemetry::world::World`] becomes metric [`family::Family`]s, and these
//! become text or OTLP. Nothing is kept between two scrapes but what cannot be asked again: how often
//! an app could not be asked.

pub mod address;
pub mod caps;
pub mod catalogue;
pub mod family;
#[cfg(test)]
mod fixture;
pub mod health;
pub mod metrics;
pub mod options;
pub mod text;

pub use caps::Caps;
pub use options::Options;
