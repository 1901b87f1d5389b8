//! Converts records to packets of interfaces, and passes them to a sink.

use pmdscope_packets::{
    CaptureInterface, ETHERNET, InterfaceStatistics, PacketSink, PacketWith, SectionOrigin,
    SinkError, SinkProgress,
};
use pmdscope_telemetry::realtime_ns;

use crate::clock::{MonotonicTime, TscClock};
use crate::layout::{ANY, RingRecord};
use crate::records::RecordData;
use crate::ring::{Ring, RingCounters};
use crate::source::{CaptureSettings, CaptureSource};
use crate::transport::Transport;

/// Interface number of a port that has no interface yet.
const NONE: u32 = u32::MAX;
/// Rings with this lcore id, which `pmdscope-pdump` and peek use, or a higher one belong to no
/// lcore.
const NO_LCORE: u16 = 0xfffe;

const TX_COMMENT: &str = "Outgoing packets are shown as the app offers them to the NIC, unless it \
    sends with pmdscope_tx_burst(): one that the NIC refuses and the app offers again is there twice.";

const TX_PDUMP_COMMENT: &str = "Outgoing packets are shown as the app offers them to the NIC: one that \
    the NIC refuses and the app offers again is there twice.";

const PEEK_COMMENT: &str = "Packets are a sample, read from the memory of the app: most are missing. Each is \
    as the app let go of it, whether sent or dropped; its direction and queue are not known, its port is \
    the one that received it, and its time is that of reading.";

/// Returns the comment of an interface for readers of its packets.
fn comment(outgoing: bool, via: Option<&str>) -> String {
    let Some(via) = via else {
        return if outgoing { TX_COMMENT.to_owned() } else { String::new() };
    };
    if via == Transport::PEEK {
        return PEEK_COMMENT.to_owned();
    }
    let outgoing = if outgoing { TX_PDUMP_COMMENT } else { "" };
    let comment = format!(
        "Packets come via {via}: a process beside the app collects the copies that the app makes, and \
         their times are those of collection, shortly after the app had them. {outgoing}"
    );
    comment.trim_end().to_owned()
}

/// Returns the comment of a packet that stands for more or fewer than the one before.
#[cold]
fn sampling_comment(weight: u32) -> String {
    match weight {
        1 => "Sampling has ended: from here on all packets are kept.".to_owned(),
        _ => format!("Sampled: from here on one packet in {weight} is kept, at random."),
    }
}

#[derive(Debug)]
struct InterfaceCounts {
    source: usize,
    port: u16,
    name: String,
    start_ns: u64,
    packets: u64,
    /// Packets that the last packet stood for.
    weight: u32,
    /// Packets are read from memory: missing ones are not counted.
    peeked: bool,
}

/// A packet read from a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPacket<'a> {
    pub(crate) record: &'a RingRecord,
    pub(crate) data: RecordData<'a>,
    /// The lcore of its ring.
    pub(crate) lcore: u16,
    /// Packets that it stands for.
    pub(crate) weight: u32,
}

/// Writes the packets of a capture to a sink.
#[derive(Debug)]
pub(crate) struct PacketOutput {
    target: Box<dyn PacketSink>,
    skip: u64,
    limit: u64,
    snaplen: u32,
    filter: String,
    outgoing: bool,
    packets: u64,
    /// Packets that were passed by, as `skip` asked for.
    skipped: u64,
    interfaces: Vec<InterfaceCounts>,
    /// Interface numbers by source and port.
    by_port: Vec<Vec<u32>>,
    /// Source, TSC and time of the previous packet: packets of one burst share them.
    burst: Option<(usize, u64, u64)>,
    monotone: MonotonicTime,
}

impl PacketOutput {
    pub(crate) fn new(target: Box<dyn PacketSink>, settings: &CaptureSettings) -> Self {
        Self {
            target,
            skip: settings.skip,
            limit: settings.count.unwrap_or(u64::MAX),
            snaplen: settings.effective_snaplen(),
            filter: settings.filter.clone(),
            outgoing: settings.outgoing,
            packets: 0,
            skipped: 0,
            interfaces: Vec::new(),
            by_port: Vec::new(),
            burst: None,
            monotone: MonotonicTime::default(),
        }
    }

    /// Begins a section with the requested interfaces. `restarted` is the source whose counts begin
    /// again.
    pub(crate) fn begin<'a>(
        &mut self,
        sources: impl Iterator<Item = &'a CaptureSource>,
        restarted: Option<usize>,
    ) -> Result<(), SinkError> {
        self.target.section(&origin())?;
        let mut before = std::mem::take(&mut self.interfaces);
        before.retain(|interface| Some(interface.source) != restarted);
        self.by_port.clear();
        self.burst = None;
        for (index, source) in sources.enumerate() {
            for port in source.ports.iter().filter(|port| port.selected) {
                self.add_interface(index, source, port.id)?;
            }
        }
        for old in before {
            let same =
                |new: &&mut InterfaceCounts| (new.source, new.port) == (old.source, old.port);
            if let Some(new) = self.interfaces.iter_mut().find(same) {
                (new.start_ns, new.packets, new.weight) = (old.start_ns, old.packets, old.weight);
            }
        }
        self.target.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        self.target.flush()
    }

    pub(crate) fn finish(&mut self) -> Result<(), SinkError> {
        self.target.finish()
    }

    /// Returns whether the sink accepts packets that are still in a ring.
    pub(crate) fn takes_shared(&self) -> bool {
        self.target.takes_shared()
    }

    pub(crate) fn progress(&self) -> SinkProgress {
        self.target.progress()
    }

    /// Returns the number of packets passed to the sink so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of packets that were skipped so far.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns whether the requested number of packets is reached.
    pub(crate) fn full(&self) -> bool {
        self.packets >= self.limit
    }

    /// Returns whether the sink accepts no more packets.
    pub(crate) fn done(&mut self) -> bool {
        self.target.done()
    }

    fn add_interface(
        &mut self,
        source: usize,
        app: &CaptureSource,
        port: u16,
    ) -> Result<u32, SinkError> {
        let number = u32::try_from(self.interfaces.len()).unwrap_or(NONE);
        // Packets that the app created itself were received by no port.
        let name = match port {
            ANY => format!("{}:none", app.app),
            port => format!("{}:{port}", app.app),
        };
        let device = app.ports.iter().find(|known| known.id == port);
        self.target.interface(&CaptureInterface {
            name: name.clone(),
            description: device.map_or(String::new(), |known| known.device.clone()),
            filter: self.filter.clone(),
            comment: comment(self.outgoing, app.via),
            options: Vec::new(),
            snaplen: self.snaplen,
            linktype: ETHERNET,
        })?;
        self.interfaces.push(InterfaceCounts {
            source,
            port,
            name,
            start_ns: realtime_ns(),
            packets: 0,
            weight: 1,
            peeked: app.via == Some(Transport::PEEK),
        });
        let (sources, ports) = (self.by_port.len().max(source + 1), usize::from(port) + 1);
        self.by_port.resize_with(sources, Vec::new);
        let numbers = &mut self.by_port[source];
        numbers.resize(numbers.len().max(ports), NONE);
        numbers[ports - 1] = number;
        Ok(number)
    }

    /// Passes one packet to the sink.
    pub(crate) fn packet(
        &mut self,
        source: usize,
        app: &CaptureSource,
        clock: &TscClock,
        arrival: &RingPacket<'_>,
    ) -> Result<(), SinkError> {
        let RingPacket { record, data, lcore, weight } = *arrival;
        if self.skipped < self.skip {
            self.skipped += 1;
            return Ok(());
        }
        let interface = self.interface_of(source, app, record.port)?;
        let counts = &mut self.interfaces[interface as usize];
        counts.packets += 1;
        let changed = std::mem::replace(&mut counts.weight, weight) != weight;
        let sampling = if changed { sampling_comment(weight) } else { String::new() };
        let packet = PacketWith {
            interface,
            ns: self.time_of(source, clock, record.tsc),
            data: (),
            len: record.len,
            dir: record.dir,
            queue: Some(record.queue).filter(|queue| *queue != ANY),
            lcore: lcore_of(lcore),
            weight,
            dropped: record.gap.into(),
            id: self.packets,
            comment: &sampling,
            options: &[],
        };
        self.packets += 1;
        match data {
            RecordData::Copied(bytes) => self.target.packet(&packet.with_data(bytes)),
            RecordData::Shared(bytes) => self.target.shared_packet(&packet.with_data(bytes)),
        }
    }

    /// Passes the counters of the rings to the sink, for every interface.
    pub(crate) fn report_counters(&mut self, rings: &[(usize, &Ring)]) {
        let end_ns = realtime_ns();
        let statistics = |(number, interface): (usize, &InterfaceCounts)| {
            let seen = self.seen_by(interface, rings);
            InterfaceStatistics {
                interface: u32::try_from(number).unwrap_or(NONE),
                start_ns: interface.start_ns,
                end_ns,
                received: seen.map(|seen| seen.seen()),
                dropped: dropped_of(interface, rings),
                accepted: seen.map(|seen| seen.passed_filter()),
                delivered: interface.packets,
            }
        };
        let all = self.interfaces.iter().enumerate().map(statistics).collect::<Vec<_>>();
        self.target.counters(&all);
    }

    /// Returns the drops of each interface that has any.
    pub(crate) fn dropped(&self, rings: &[(usize, &Ring)]) -> Vec<(String, u64)> {
        let dropped = |interface: &InterfaceCounts| {
            let count = dropped_of(interface, rings).filter(|count| *count > 0)?;
            Some((interface.name.clone(), count))
        };
        self.interfaces.iter().filter_map(dropped).collect()
    }

    fn interface_of(
        &mut self,
        source: usize,
        app: &CaptureSource,
        port: u16,
    ) -> Result<u32, SinkError> {
        let known = self.by_port.get(source).and_then(|ports| ports.get(usize::from(port)));
        match known {
            Some(number) if *number != NONE => Ok(*number),
            _ => self.add_interface(source, app, port),
        }
    }

    fn time_of(&mut self, source: usize, clock: &TscClock, tsc: u64) -> u64 {
        match self.burst {
            Some((last_source, last_tsc, ns)) if (last_source, last_tsc) == (source, tsc) => ns,
            _ => {
                let ns = self.monotone.settle(clock.realtime_ns(tsc));
                self.burst = Some((source, tsc, ns));
                ns
            }
        }
    }

    /// Returns the counters of an interface. They are known only if the rings of the app serve no
    /// other, because filtered and sampled-out packets are not counted by port.
    fn seen_by(
        &self,
        interface: &InterfaceCounts,
        rings: &[(usize, &Ring)],
    ) -> Option<RingCounters> {
        // Stops at the second: an app may name tens of thousands of ports.
        let mut same = self.interfaces.iter().filter(|i| i.source == interface.source);
        let alone = same.next().is_some() && same.next().is_none();
        (alone && !interface.peeked)
            .then(|| of_source(interface.source, rings).map(Ring::counters).sum())
    }
}

fn of_source<'a>(source: usize, rings: &'a [(usize, &Ring)]) -> impl Iterator<Item = &'a Ring> {
    rings.iter().filter(move |(owner, _)| *owner == source).map(|(_, ring)| *ring)
}

fn dropped_of(interface: &InterfaceCounts, rings: &[(usize, &Ring)]) -> Option<u64> {
    of_source(interface.source, rings)
        .map(|ring| ring.port_dropped(interface.port))
        .try_fold(0, |sum: u64, dropped| Some(sum.saturating_add(dropped?)))
}

pub(crate) fn origin() -> SectionOrigin {
    let proc = |file| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = proc("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    SectionOrigin {
        hardware: model.unwrap_or(std::env::consts::ARCH).trim().to_owned(),
        os: format!("Linux {}", proc("/proc/sys/kernel/osrelease").trim()).trim().to_owned(),
        application: concat!("pmdscope ", env!("CARGO_PKG_VERSION")).to_owned(),
        options: Vec::new(),
    }
}

/// Returns the lcore of a ring; `None` if it belongs to no lcore.
pub(crate) fn lcore_of(ring: u16) -> Option<u16> {
    (ring < NO_LCORE).then_some(ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_helpers_have_no_lcore() {
        let lcores = [0, 127, NO_LCORE, u16::MAX].map(lcore_of);
        assert_eq!(lcores, [Some(0), Some(127), None, None]);
    }

    #[test]
    fn interfaces_say_what_times_and_outgoing_packets_are() {
        assert_eq!(comment(false, None), "");
        assert_eq!(comment(true, None), TX_COMMENT);
        let received = comment(false, Some("pdump"));
        assert!(received.starts_with("Packets come via pdump:") && received.ends_with("had them."));
        assert_eq!(comment(true, Some("pdump")), format!("{received} {TX_PDUMP_COMMENT}"));
        assert!(
            comment(true, Some("peek")).starts_with("Packets are a sample, read from the memory")
        );
    }
}
