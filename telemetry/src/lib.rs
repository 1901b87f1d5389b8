//! Finds DPDK apps, asks their telemetry sockets, derives rates and findings.
//!
//! The data flows one way: [`discover`] finds apps, [`client`] talks to one,
//! [`collect`] turns its replies into a [`sample::Sample`], [`model::Model`]
//! derives rates from two samples, and [`finding`] judges the model.

pub mod client;
pub mod collect;
pub mod discover;
pub mod finding;
pub mod model;
pub mod sample;
