//! What the kernel reports about apps: processes with their threads and mappings, containers, CPUs,
//! PCI devices, and secondary processes.

mod container;
mod cpu_list;
pub mod device;
pub mod foreign;
pub(crate) mod frequency;
pub(crate) mod handle;
pub(crate) mod hugepages;
pub mod maps;
pub(crate) mod netdev;
mod polling;
pub(crate) mod process;
mod ready;
mod secondary;

pub use self::container::Container;
pub use self::cpu_list::{cpu_list, cpu_mask, cpu_ranges};
pub use self::polling::polled_cpus;
pub use self::process::{cpu_time, since_start, start_ticks};
pub use self::ready::ReadyThreads;
pub use self::secondary::{process_here, secondaries};
