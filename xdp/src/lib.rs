//! The XDP filter: attaches it to interfaces, finds it there again, reads its counters, and changes its
//! limits and prefixes while it runs.
//!
//! The kernel keeps program and maps as long as the interface has them; nothing is pinned. Any process with the
//! rights finds them by the interface: its program's id leads to the ids of the maps.

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
