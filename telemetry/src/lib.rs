//! Finds DPDK apps, queries their telemetry sockets, derives rates and findings.
//!
//! The data flows one way: [`discover`] finds apps, [`TelemetryClient`] queries one,
//! [`SampleCollector`] converts its replies into a [`sample::Sample`], [`model::Model`] derives rates
//! from two samples, and [`finding`] evaluates the model. A [`fleet::Fleet`] does so for all apps,
//! and keeps their latest state in a [`FleetState`].
//!
//! ```no_run
//! use std::{thread::sleep, time::Duration};
//!
//! use pmdscope_telemetry::discover::{self, DiscoverOptions};
//! use pmdscope_telemetry::{LintRules, ModelTracker, SampleCollector, finding};
//!
//! let app = discover::find(None, &DiscoverOptions::default())?;
//! let mut collector = SampleCollector::new(app);
//! let mut tracker = ModelTracker::default();
//! loop {
//!     let sample = collector.collect(Duration::from_secs(1))?;
//!     let model = tracker.update(sample);
//!     for finding in finding::evaluate(&model, &LintRules::default()) {
//!         println!("{}: {}; {}", finding.lint, finding.evidence, finding.advice);
//!     }
//!     sleep(Duration::from_secs(1));
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Only the binary prints text, where it is made harmless.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod arguments;
mod client;
mod clock;
mod collect;
mod columns;
mod commands;
mod counter_updates;
mod deadline;
pub mod discover;
pub mod drivers;
mod error;
pub mod finding;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod flaps;
pub mod fleet;
mod fleet_state;
pub mod host;
pub mod interface;
mod interface_state;
mod inventory;
mod lcore_gaps;
mod lock;
mod loss;
mod memzones;
pub mod missed;
pub mod model;
mod names;
mod occupancy;
pub mod parallel;
pub mod printable;
mod queue_histograms;
mod rate;
mod raw_replies;
mod reply;
mod rx_flat;
pub mod sample;
mod scans;
mod sending;
mod stall;
mod starts;
mod suspected_pool;
mod tracer;
mod trend;
mod wait;

pub use account::{CounterClass, PortAccount, PortBalance};
pub use client::{SocketPeer, TelemetryClient};
pub use clock::{monotonic_ns, realtime_ns};
pub use collect::SampleCollector;
pub use commands::{
    ArmTime, HeapId, LcoreId, LibraryTable, MemzoneId, PoolName, PortId, RingName, TelemetryCommand,
};
pub use deadline::Deadline;
pub use error::{ErrorClass, TelemetryError};
pub use finding::{LintRules, Thresholds};
pub use flaps::PortFlaps;
pub use fleet::{Fleet, FleetSettings};
pub use fleet_state::{AppState, AppStatus, FleetEvent, FleetState, TotalsBaseline};
pub use interface_state::{InterfaceEvaluator, InterfaceState, InterfacesState};
pub use inventory::{AppInventory, ExpectationSource, ExpectedApp, PortExpectation};
pub use lock::{AppLock, AppLockGuard};
pub use memzones::{MemzoneEntry, MemzoneTable};
pub use model::ModelTracker;
pub use names::{AppNames, AppNamesError};
pub use occupancy::OccupancyReader;
pub use queue_histograms::QueueHistograms;
pub use rate::rate;
pub use raw_replies::{RawReplies, RawReply, RepliesByApp};
pub use reply::{ArmReply, SocketBanner};
pub use rx_flat::RxFlat;
pub use scans::ScanResults;
pub use sending::{SilentApp, UnsentPackets};
pub use stall::{LcoreStalls, RecordedStall, StallCause, StallShares, ThreadTime};
pub use starts::{AppRestarts, ExitReason};
pub use tracer::LcoreTracer;
