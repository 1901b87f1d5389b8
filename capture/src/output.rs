//! Turns records into packets of interfaces in a file.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::clock::{Clock, Monotone};
use crate::layout::Record;
use crate::pcapng::{self, Interface, Origin, Packet, Statistics};
use crate::pump::{Settings, Source};
use crate::ring::{Counters, Ring};
use crate::sink::{Sink, SinkError};

/// Interface of a port that has none yet.
const NONE: u32 = u32::MAX;

const TX_COMMENT: &str = "Outgoing packets are shown as the app offers them to the NIC: \
    one that the NIC refuses and the app offers again is there twice.";

#[derive(Debug)]
struct Counted {
    source: usize,
    port: u16,
    name: String,
    packets: u64,
}

/// A file in the making.
#[derive(Debug)]
pub(crate) struct Output {
    sink: Sink,
    limit: u64,
    packet_buffered: bool,
    snaplen: u32,
    filter: String,
    comment: &'static str,
    start_ns: u64,
    packets: u64,
    interfaces: Vec<Counted>,
    /// Interface by source and port.
    by_port: Vec<Vec<u32>>,
    /// Source, TSC and time of the packet before: packets of one burst share them.
    burst: Option<(usize, u64, u64)>,
    monotone: Monotone,
}

impl Output {
    pub(crate) fn new(sink: Sink, settings: &Settings) -> Self {
        Self {
            sink,
            limit: settings.count.unwrap_or(u64::MAX),
            packet_buffered: settings.packet_buffered,
            snaplen: settings.effective_snaplen(),
            filter: settings.filter.clone(),
            comment: if settings.outgoing { TX_COMMENT } else { "" },
            start_ns: wall_clock_ns(),
            packets: 0,
            interfaces: Vec::new(),
            by_port: Vec::new(),
            burst: None,
            monotone: Monotone::default(),
        }
    }

    /// Writes the head of the file.
    pub(crate) fn begin(&mut self) -> Result<(), SinkError> {
        pcapng::write_section(self.sink.buffer(), &origin());
        self.sink.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        self.sink.flush()
    }

    pub(crate) fn reader_gone(&self) -> bool {
        self.sink.reader_gone()
    }

    /// Packets put out so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// The wanted number of packets is there.
    pub(crate) fn full(&self) -> bool {
        self.packets >= self.limit
    }

    /// Gives a port an interface and returns its number.
    pub(crate) fn add_interface(&mut self, source: usize, app: &Source, port: u16) -> u32 {
        let number = self.interfaces.len() as u32;
        let name = format!("{}:{port}", app.app);
        let device = app.ports.iter().find(|known| known.id == port).map(|known| &*known.device);
        let interface = Interface {
            name: &name,
            description: device.unwrap_or_default(),
            filter: &self.filter,
            comment: self.comment,
            snaplen: self.snaplen,
        };
        pcapng::write_interface(self.sink.buffer(), &interface);
        self.interfaces.push(Counted { source, port, name, packets: 0 });
        let (sources, ports) = (self.by_port.len().max(source + 1), usize::from(port) + 1);
        self.by_port.resize_with(sources, Vec::new);
        let numbers = &mut self.by_port[source];
        numbers.resize(numbers.len().max(ports), NONE);
        numbers[ports - 1] = number;
        number
    }

    /// Puts out one packet.
    pub(crate) fn packet(
        &mut self,
        source: usize,
        app: &Source,
        clock: &Clock,
        record: &Record,
        data: &[u8],
    ) -> Result<(), SinkError> {
        let interface = self.interface_of(source, app, record.port);
        let packet = Packet {
            interface,
            ns: self.time_of(source, clock, record.tsc),
            data,
            len: record.len,
            dir: record.dir,
            queue: Some(record.queue),
            dropped: record.gap,
            id: self.packets,
            comment: "",
        };
        pcapng::write_packet(self.sink.buffer(), &packet);
        self.packets += 1;
        self.interfaces[interface as usize].packets += 1;
        if self.packet_buffered { self.sink.flush() } else { self.sink.settle() }
    }

    /// Writes what the rings have counted for every interface.
    pub(crate) fn write_statistics(&mut self, rings: &[(usize, &Ring)]) {
        let end_ns = wall_clock_ns();
        for number in 0..self.interfaces.len() {
            let interface = &self.interfaces[number];
            let seen = self.seen_by(interface, rings);
            let statistics = Statistics {
                interface: number as u32,
                start_ns: self.start_ns,
                end_ns,
                received: seen.map(|seen| seen.passed_filter().saturating_add(seen.filtered)),
                dropped: dropped_of(interface, rings),
                accepted: seen.map(|seen| seen.passed_filter()),
                delivered: interface.packets,
            };
            pcapng::write_statistics(self.sink.buffer(), &statistics);
        }
    }

    /// Drops by interface, where there were any.
    pub(crate) fn dropped(&self, rings: &[(usize, &Ring)]) -> Vec<(String, u64)> {
        let dropped = |interface: &Counted| {
            let count = dropped_of(interface, rings).filter(|count| *count > 0)?;
            Some((interface.name.clone(), count))
        };
        self.interfaces.iter().filter_map(dropped).collect()
    }

    fn interface_of(&mut self, source: usize, app: &Source, port: u16) -> u32 {
        let known = self.by_port.get(source).and_then(|ports| ports.get(usize::from(port)));
        match known {
            Some(number) if *number != NONE => *number,
            _ => self.add_interface(source, app, port),
        }
    }

    fn time_of(&mut self, source: usize, clock: &Clock, tsc: u64) -> u64 {
        match self.burst {
            Some((last_source, last_tsc, ns)) if (last_source, last_tsc) == (source, tsc) => ns,
            _ => {
                let ns = self.monotone.settle(clock.realtime_ns(tsc));
                self.burst = Some((source, tsc, ns));
                ns
            }
        }
    }

    /// What the tee counted for an interface; known only where the rings of an app serve no other,
    /// because what was filtered and sampled out is not counted by port.
    fn seen_by(&self, interface: &Counted, rings: &[(usize, &Ring)]) -> Option<Counters> {
        let alone = self.interfaces.iter().filter(|i| i.source == interface.source).count() == 1;
        alone.then(|| of_source(interface.source, rings).map(Ring::counters).sum())
    }
}

fn of_source<'a>(source: usize, rings: &'a [(usize, &Ring)]) -> impl Iterator<Item = &'a Ring> {
    rings.iter().filter(move |(owner, _)| *owner == source).map(|(_, ring)| *ring)
}

fn dropped_of(interface: &Counted, rings: &[(usize, &Ring)]) -> Option<u64> {
    of_source(interface.source, rings)
        .map(|ring| ring.port_dropped(interface.port))
        .try_fold(0, |sum: u64, dropped| Some(sum.saturating_add(dropped?)))
}

pub(crate) fn origin() -> Origin {
    let proc = |file| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = proc("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    Origin {
        hardware: model.unwrap_or(std::env::consts::ARCH).trim().to_owned(),
        os: format!("Linux {}", proc("/proc/sys/kernel/osrelease").trim()).trim().to_owned(),
        application: concat!("pmdscope ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
