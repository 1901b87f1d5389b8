//! What takes the CPU from the polling threads of DPDK apps: interrupts, softirqs, other threads, handlers of
//! signals, their own sleep.
//!
//! A [`Tracer`] runs bpftrace with a script of `integration/interrupts` for the threads of the samples that
//! it completes, reads what it prints, and adds it up by lcore, cause and thief. Where bpftrace cannot run,
//! it counts what `/proc` tells, and says why.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod account;
mod bpftrace;
mod irq_names;
mod kernel_counters;
mod manager;
mod options;
mod poll_threads;
mod record;
mod script;
mod state;
mod thief;
mod tracer;
mod unexplained;

pub use self::account::{HISTOGRAM_BUCKETS, StolenEvent};
pub use self::options::{TracerOptions, TracingUnavailable};
pub use self::tracer::{StolenHistogram, Tracer};
