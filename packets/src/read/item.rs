//! The items of a capture file.

use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// An item of a file.
#[derive(Debug)]
pub enum FileItem<'a> {
    /// The start of a section: interfaces are numbered from 0 again.
    Section(SectionOrigin),
    /// The next interface of the section.
    Interface(CaptureInterface),
    /// A packet.
    Packet(Packet<'a>),
    /// Statistics of an interface.
    Statistics(InterfaceStatistics),
    /// Another item, which is skipped.
    Other,
}
