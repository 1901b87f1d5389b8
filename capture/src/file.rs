//! Capture files: formats, compression, rotation, and the thread that writes them.

mod settings;

pub use self::settings::{Compression, FileEvent, FileSettings, Format, Rotation};

use crate::packet::{Interface, Origin, Packet, Statistics};
use crate::sink::Sink;
use crate::stream::Stream;
use crate::target::{Progress, Target, TargetError};

/// A target that writes files, one after the other.
#[derive(Debug)]
pub struct Files {
    stream: Stream,
}

impl Files {
    /// Opens the first file.
    ///
    /// # Errors
    /// When it cannot be opened, or the settings contradict each other.
    pub fn create(settings: &FileSettings) -> Result<Self, TargetError> {
        let sink =
            if settings.is_stdout() { Sink::stdout()? } else { Sink::create(&settings.path)? };
        Ok(Self { stream: Stream::new(sink, settings.packet_buffered) })
    }
}

impl Target for Files {
    fn section(&mut self, origin: &Origin) -> Result<(), TargetError> {
        self.stream.section(origin)
    }

    fn interface(&mut self, interface: &Interface) -> Result<(), TargetError> {
        self.stream.interface(interface)
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), TargetError> {
        self.stream.packet(packet)
    }

    fn counters(&mut self, statistics: &[Statistics]) {
        self.stream.counters(statistics);
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        self.stream.flush()
    }

    fn done(&mut self) -> bool {
        self.stream.done()
    }

    fn progress(&self) -> Progress {
        self.stream.progress()
    }

    fn finish(&mut self) -> Result<(), TargetError> {
        self.stream.finish()
    }
}
