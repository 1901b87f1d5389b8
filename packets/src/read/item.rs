//! What stands in a capture file.

use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// What stands in a file.
#[derive(Debug)]
pub enum FileItem<'a> {
    /// A section begins: interfaces are numbered from 0 again.
    Section(SectionOrigin),
    /// The next interface of the section.
    Interface(CaptureInterface),
    /// A packet.
    Packet(Packet<'a>),
    /// What was counted on an interface.
    Statistics(InterfaceStatistics),
    /// Something else, passed over.
    Other,
}
