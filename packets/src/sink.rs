//! Where packets go: files, a decoder, a recorder in memory, or several of them.

// Every method that fails does so with the same few errors, described at `SinkError`.
#![allow(clippy::missing_errors_doc)]

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::path::PathBuf;

use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, PacketWith, SectionOrigin};
use crate::shared::{PacketData, SharedBytes};

/// Why a sink takes no more packets.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// It could not be opened.
    #[error("cannot write to {}", path.display())]
    Open {
        /// As given.
        path: PathBuf,
        /// Of the system.
        source: io::Error,
    },
    /// Whoever read it has gone: the orderly end of a pipe.
    #[error("the reader of {name} has gone")]
    Closed {
        /// What was written to.
        name: String,
    },
    /// It cannot take this, whatever the system says.
    #[error("cannot write to {name}: {reason}")]
    Refused {
        /// What was to be written to.
        name: String,
        /// What does not go together, and what does.
        reason: String,
    },
    /// Everything was written but packets of link types that the format has no room for.
    #[error(
        "{name} is without the packets of other link types than {linktype} ({packets}): a pcap file has one; \
         write pcapng (--pcapng)"
    )]
    OtherLinkTypes {
        /// What was written to.
        name: String,
        /// Link type of the file.
        linktype: u16,
        /// Packets of others.
        packets: u64,
    },
    /// The system refused a write.
    #[error("cannot write to {name}")]
    Write {
        /// What was written to.
        name: String,
        /// Of the system.
        source: io::Error,
    },
}

/// How far a sink has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkProgress {
    /// Packets that arrived where they should.
    pub written: u64,
    /// Packets that were handed over and could not be written, or were dropped for others.
    pub lost: u64,
    /// Packets that came after the last file was complete, and are in none.
    pub after_end: u64,
    /// Bytes in all files so far, as on disk.
    pub bytes: u64,
    /// Files begun, 0 where there are none.
    pub files: u64,
    /// The file being written.
    pub file: Option<PathBuf>,
    /// Why nothing is written at the moment, for instance a full disk.
    pub waiting: Option<String>,
}

/// Takes packets. The calls come in this order: `section`, `interface` once or more, then packets
/// and further interfaces; perhaps another `section`, and so on; at last `finish`. `counters` and
/// `flush` may come any time after the first `section`.
///
/// No call may wait for long: rings overflow meanwhile. A sink that cannot keep up loses packets,
/// counts them, and goes on.
pub trait PacketSink: Debug + Send {
    /// Begins a section: interfaces are numbered from 0 again. An app that was restarted begins one.
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError>;

    /// Adds the next interface of the section.
    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError>;

    /// Takes a packet of an interface of the section. Times may go back where the clock was set. One
    /// that is refused with an error counts as lost.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError>;

    /// It has [`Self::shared_packet`] of its own, which is faster than a copy of the bytes.
    fn takes_shared(&self) -> bool {
        false
    }

    /// As [`Self::packet`], of bytes that another process may change meanwhile.
    fn shared_packet(&mut self, packet: &PacketWith<'_, SharedBytes<'_>>) -> Result<(), SinkError> {
        let mut data = vec![0; packet.data.size()];
        packet.data.copy_to(&mut data);
        self.packet(&packet.with_data(data.as_slice()))
    }

    /// What is known of the interfaces of the section by now; once a second, before a new section
    /// and before the end.
    fn counters(&mut self, statistics: &[InterfaceStatistics]);

    /// Brings out what was collected: nothing more is waiting right now.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// True when more packets are of no use: the reader has gone, or the last file is full.
    fn done(&mut self) -> bool;

    /// False while a packet would be lost for want of room. Rings cannot wait for room; a source
    /// that can, such as a file, does.
    fn ready(&mut self) -> bool {
        true
    }

    /// How far it has come.
    fn progress(&self) -> SinkProgress;

    /// Ends it: everything is brought out, files are complete. Only `progress` may follow. It may
    /// wait for a disk, but not for one that stays full.
    fn finish(&mut self) -> Result<(), SinkError>;
}

/// What a [`CallbackSink`] is told.
#[derive(Debug)]
pub enum SinkEvent<'a, 'b> {
    /// A packet has come.
    Packet(&'a Packet<'b>),
    /// No more will come.
    Finish,
}

/// Tells a function of the packets, and nothing of the rest; counts those that it accepts.
pub struct CallbackSink<F> {
    callback: F,
    packets: u64,
}

impl<F> CallbackSink<F>
where
    F: FnMut(SinkEvent<'_, '_>) -> Result<(), SinkError> + Send,
{
    /// Tells `callback`.
    pub fn new(callback: F) -> Self {
        Self { callback, packets: 0 }
    }
}

impl<F> Debug for CallbackSink<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSink").field("packets", &self.packets).finish_non_exhaustive()
    }
}

/// Counts packets and keeps none.
pub type NullSink = CallbackSink<fn(SinkEvent<'_, '_>) -> Result<(), SinkError>>;

impl Default for NullSink {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl<F> PacketSink for CallbackSink<F>
where
    F: FnMut(SinkEvent<'_, '_>) -> Result<(), SinkError> + Send,
{
    fn section(&mut self, _origin: &SectionOrigin) -> Result<(), SinkError> {
        Ok(())
    }

    fn interface(&mut self, _interface: &CaptureInterface) -> Result<(), SinkError> {
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        (self.callback)(SinkEvent::Packet(packet))?;
        self.packets += 1;
        Ok(())
    }

    fn counters(&mut self, _statistics: &[InterfaceStatistics]) {}

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> SinkProgress {
        SinkProgress { written: self.packets, ..SinkProgress::default() }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        (self.callback)(SinkEvent::Finish)
    }
}
