//! One pcapng file, pipe or device.

use crate::packet::{Interface, Origin, Packet, Statistics};
use crate::pcapng;
use crate::sink::Sink;
use crate::target::{Progress, Target, TargetError};

/// A target that writes one stream of blocks.
#[derive(Debug)]
pub struct Stream {
    sink: Sink,
    packet_buffered: bool,
    packets: u64,
    counters: Vec<Statistics>,
}

impl Stream {
    /// A stream into a sink; `packet_buffered` writes every packet at once.
    pub fn new(sink: Sink, packet_buffered: bool) -> Self {
        Self { sink, packet_buffered, packets: 0, counters: Vec::new() }
    }

    fn write_counters(&mut self) {
        for statistics in std::mem::take(&mut self.counters) {
            pcapng::write_statistics(self.sink.buffer(), &statistics);
        }
    }
}

impl Target for Stream {
    fn section(&mut self, origin: &Origin) -> Result<(), TargetError> {
        self.write_counters();
        pcapng::write_section(self.sink.buffer(), origin);
        self.sink.flush()
    }

    fn interface(&mut self, interface: &Interface) -> Result<(), TargetError> {
        pcapng::write_interface(self.sink.buffer(), interface);
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), TargetError> {
        pcapng::write_packet(self.sink.buffer(), packet);
        self.packets += 1;
        if self.packet_buffered { self.sink.flush() } else { self.sink.settle() }
    }

    fn counters(&mut self, statistics: &[Statistics]) {
        self.counters = statistics.to_vec();
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        self.sink.flush()
    }

    fn done(&mut self) -> bool {
        self.sink.reader_gone()
    }

    fn progress(&self) -> Progress {
        Progress {
            written: self.packets - self.sink.lost(),
            lost: self.sink.lost(),
            bytes: self.sink.written(),
            ..Progress::default()
        }
    }

    fn finish(&mut self) -> Result<(), TargetError> {
        self.write_counters();
        self.sink.flush()
    }
}
