//! One RX queue of a kernel interface for a DPDK app, by `AF_XDP`: selected flows on that queue go to
//! the app, all other packets to the kernel as before.
//!
//! [`up`] prepares an interface, [`status`] compares it with the current state, and [`down`] restores
//! it, even if a command or the app was killed: each change is written to a [`StateDirectory`] before
//! it is made. The app's driver, `net_af_xdp`, loads the XDP program from a file that [`up`] wrote.
//! [`interfaces`] reads the kernel's counters of such interfaces. All functions apply to the network
//! namespace of the calling process.

// Only the binary prints text, after removing control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod app;
mod bypass;
mod error;
mod ethtool;
mod ethtool_ioctl;
mod flow;
mod name;
mod program;
mod queue_statistics;
mod reader;
mod redirect_object;
mod state;
mod steering;

pub use self::app::BypassApp;
pub use self::bypass::{
    BypassDownResult, BypassPhase, BypassRequest, BypassStatus, bypassed_interfaces, down, status,
    up,
};
pub use self::error::BypassError;
pub use self::flow::{BypassFlow, MAX_FLOWS};
pub use self::name::InterfaceName;
pub use self::program::BypassCounts;
pub use self::reader::{BypassReader, interfaces, kernel_sample};
pub use self::state::{DEFAULT_STATE_DIRECTORY, StateDirectory};
