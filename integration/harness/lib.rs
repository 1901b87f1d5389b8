//! Starts, watches and always ends real DPDK processes: shared by the demo and the tests.
//!
//! [`scratch::Scratch`] owns what DPDK leaves on disk, [`process::Process`] owns one child, and
//! [`pair::Pair`] is a reflector with a generator linked to it. Dropping any of them cleans up.

// Every error here is a failed demo or test, and its text states what failed.
#![allow(clippy::missing_errors_doc)]

pub mod baseline;
pub mod bpf;
pub mod cache_line;
pub mod callbacks;
pub mod capture_app;
pub mod command;
pub mod container;
pub mod disk;
pub mod exporter;
pub mod fake;
pub mod frames;
pub mod host;
pub mod http;
pub mod kernel_twin;
pub mod machine;
pub mod namespaces;
pub mod openvswitch;
pub mod oracle;
pub mod pair;
pub mod pdump;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod pty;
pub mod scratch;
pub mod site;
pub mod spin;
pub mod spread;
pub mod stock_pipeline;
pub mod telemetry;
pub mod testpmd;
pub mod tracefs;
pub mod veth;
pub mod wire;
