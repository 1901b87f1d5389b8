//! Profiles of poll loops: samples the stacks of threads of an app, and reports their activities.
//! The app needs no change, is never stopped and never written to.
//!
//! The kernel takes the samples
//! ([`perf_event_open(2)`](https://man7.org/linux/man-pages/man2/perf_event_open.2.html)); it stops
//! when this process ends for any reason. `docs/lcores.md` has the cost of a sample for the thread.

mod app_files;
mod error;
mod function;
mod limited_file;
mod module;
mod ports;
mod profile;
mod profiler;
mod sampler;
mod separate_files;
mod stay;
mod symbols;
mod unwind;

pub use app_files::{AppFiles, FileRights, open_below};
pub use error::ProfileError;
pub use function::Activity;
pub use limited_file::FileData;
pub use module::{file_name, load_bias};
pub use profile::{
    ActivityShare, AppProfile, FunctionShare, LcoreProfile, LongestStay, StackSamples,
};
pub use profiler::{AppProfiler, ProfiledApp, READ_INTERVAL};
pub use separate_files::SeparateFiles;
