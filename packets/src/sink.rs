//! The interface of sinks: files, a decoder, a recorder in memory, or several of these.

// All methods fail with the errors of `SinkError`, which are described there.
#![allow(clippy::missing_errors_doc)]

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::path::PathBuf;

use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, PacketWith, SectionOrigin};
use crate::shared::{PacketData, SharedBytes};

/// Why a sink accepts no more packets.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file could not be opened.
    #[error("cannot write to {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The reader has closed the pipe, which is a regular end.
    #[error("the reader of {name} has gone")]
    Closed {
        /// Name of the file or stream.
        name: String,
    },
    /// The sink does not support this packet or these settings.
    #[error("cannot write to {name}: {reason}")]
    Refused {
        /// Name of the file or stream.
        name: String,
        /// What is not supported, and what to do instead.
        reason: String,
    },
    /// Everything was written except packets of link types that the format does not support.
    #[error(
        "{name} is without the packets of other link types than {linktype} ({packets}): a pcap file has one; \
         write pcapng (--pcapng)"
    )]
    OtherLinkTypes {
        /// Name of the file.
        name: String,
        /// Link type of the file.
        linktype: u16,
        /// Number of packets of other link types.
        packets: u64,
    },
    /// Everything was written except packets with times that the format does not have.
    #[error(
        "{name} is without the packets after the year 2106 ({packets}): pcap has no such times; write pcapng \
         (--pcapng)"
    )]
    TooLate {
        /// Name of the file.
        name: String,
        /// Number of packets with such times.
        packets: u64,
    },
    /// The system refused a write.
    #[error("cannot write to {name}")]
    Write {
        /// Name of the file or stream.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// The progress of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkProgress {
    /// Packets that were written.
    pub written: u64,
    /// Packets that were passed to the sink and not written, or dropped in favour of others.
    pub lost: u64,
    /// Packets after the last file was complete, which are in no file.
    pub after_end: u64,
    /// Bytes in all files so far, as on disk.
    pub bytes: u64,
    /// Files begun; 0 if the sink has no files.
    pub files: u64,
    /// The file being written.
    pub file: Option<PathBuf>,
    /// Why nothing is written at the moment, for example a full disk.
    pub waiting: Option<String>,
}

/// A destination of packets. Methods are called in this order: `section`, `interface` once or more,
/// then packets and further interfaces; then perhaps another `section`, and so on; `finish` is the
/// last. `counters` and `flush` may be called any time after the first `section`.
///
/// No method may block for long, because rings overflow meanwhile. A sink that cannot keep up drops
/// packets, counts them, and continues.
pub trait PacketSink: Debug + Send {
    /// Begins a section: interfaces are numbered from 0 again. Each restart of an app begins one.
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError>;

    /// Adds the next interface of the section.
    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError>;

    /// Takes a packet of an interface of the section. Times may go back if the clock was set. If an
    /// error is returned, the packet counts as lost.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError>;

    /// Returns whether the sink implements [`Self::shared_packet`] without a copy of the bytes.
    fn takes_shared(&self) -> bool {
        false
    }

    /// Takes a packet as [`Self::packet`], whose bytes another process may change meanwhile.
    fn shared_packet(&mut self, packet: &PacketWith<'_, SharedBytes<'_>>) -> Result<(), SinkError> {
        let mut data = vec![0; packet.data.size()];
        packet.data.copy_to(&mut data);
        self.packet(&packet.with_data(data.as_slice()))
    }

    /// Updates the statistics of the interfaces of the section; called once a second, before a new
    /// section and before the end.
    fn counters(&mut self, statistics: &[InterfaceStatistics]);

    /// Flushes buffered packets; called when no packets are waiting.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Returns whether more packets are of no use: the reader has closed the pipe, or the last file is
    /// full.
    fn done(&mut self) -> bool;

    /// Returns whether there is space for a packet, which would otherwise be lost. Live captures cannot
    /// wait for space; a source that can, such as a file, does.
    fn ready(&mut self) -> bool {
        true
    }

    /// Returns the progress.
    fn progress(&self) -> SinkProgress;

    /// Completes the sink: flushes everything, and completes files. Only `progress` may be called after
    /// it. It may wait for a slow disk, but not for one that stays full.
    fn finish(&mut self) -> Result<(), SinkError>;
}

/// An event for the callback of a [`CallbackSink`].
#[derive(Debug)]
pub enum SinkEvent<'a, 'b> {
    /// A packet.
    Packet(&'a Packet<'b>),
    /// No more packets follow.
    Finish,
}

/// A sink that calls a function for each packet and at the end, and counts the packets that it accepts.
pub struct CallbackSink<F> {
    callback: F,
    packets: u64,
}

impl<F> CallbackSink<F>
where
    F: FnMut(SinkEvent<'_, '_>) -> Result<(), SinkError> + Send,
{
    /// Creates a sink that calls `callback`.
    pub fn new(callback: F) -> Self {
        Self { callback, packets: 0 }
    }
}

impl<F> Debug for CallbackSink<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSink").field("packets", &self.packets).finish_non_exhaustive()
    }
}

/// A sink that only counts packets.
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
