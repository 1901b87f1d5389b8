//! What stands in a capture file.

use crate::packet::{Interface, Origin, Packet, Statistics};

/// What stands in a file.
#[derive(Debug)]
pub enum Item<'a> {
    /// A section begins: interfaces are numbered from 0 again.
    Section(Origin),
    /// The next interface of the section.
    Interface(Interface),
    /// A packet.
    Packet(Packet<'a>),
    /// What was counted on an interface.
    Statistics(Statistics),
    /// Something else, passed over.
    Other,
}
