//! What takes the CPU from the polling threads of DPDK apps: interrupts, softirqs, other threads,
//! signal handlers, sleep.
//!
//! A [`Tracer`] runs bpftrace with the script in `integration/interrupts` for the threads of the
//! samples that it completes, reads its output, and sums it by lcore, cause and thief. If bpftrace
//! cannot run, it uses the counters in `/proc`, and says why.

// Only the binary prints text, because it replaces control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

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
mod tracefs;
mod tracer;
mod unexplained;

pub use self::account::{HISTOGRAM_BUCKETS, StolenEvent};
pub use self::options::{TracerOptions, TracingUnavailable};
pub use self::tracer::{StolenHistogram, Tracer};
