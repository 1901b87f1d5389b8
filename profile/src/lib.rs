//! Where the time of poll loops goes: samples the stacks of threads of an app, which needs no change,
//! is never stopped and never written to, and tells the work in which they were found.
//!
//! The kernel takes the samples ([`perf_event_open(2)`](https://man7.org/linux/man-pages/man2/perf_event_open.2.html));
//! when this process ends in whatever way, it stops. What a sample costs the thread is in
//! `docs/lcores.md`.

mod error;
mod function;
mod module;
mod ports;
mod profile;
mod profiler;
mod sampler;
mod stay;
mod symbols;
mod unwind;

pub use error::ProfileError;
pub use function::Activity;
pub use module::{file_name, load_bias, open_mapped_file};
pub use profile::{
    ActivityShare, AppProfile, FunctionShare, LcoreProfile, LongestStay, StackSamples,
};
pub use profiler::{AppProfiler, ProfiledApp, READ_INTERVAL};
