//! What the machine tells of apps: their processes and threads, CPUs, PCI devices, and secondaries.

pub mod device;
pub(crate) mod frequency;
mod polling;
pub(crate) mod process;
mod secondary;

pub use self::polling::polled_cpus;
pub use self::secondary::secondaries;
pub use crate::arguments::{cpu_list, cpu_mask, cpu_ranges};
