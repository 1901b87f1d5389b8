//! The XDP filter: attaches it to interfaces, finds attached filters, reads their counters, and changes
//! their limits and prefixes while they run.
//!
//! The kernel keeps program and maps while they are attached; nothing is pinned. Any process with the
//! privileges finds them through the interface: the id of its program leads to the ids of the maps.

mod attach;
mod error;
mod filter;
mod prefix;
mod program;
mod settings;
mod tables;
mod verdict;

pub use attach::{AttachMode, Attachment, attach};
pub use error::XdpError;
pub use filter::{Filter, detach, filter_of, filters, interfaces};
pub use prefix::{Prefix, PrefixAction, PrefixError};
pub use settings::{MAX_LIMIT, Settings};
