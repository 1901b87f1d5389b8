//! Leaked packets: requests the mbufs that an app lost, and writes them to a file.

use std::time::{Duration, Instant};

use pmdscope_packets::{
    CaptureInterface, ETHERNET, InterfaceStatistics, MAX_SNAPLEN, Packet, PacketSink, SinkError,
};
use pmdscope_telemetry::realtime_ns;

use crate::clock::TscClock;
use crate::layout::{ANY, LEAK_SIZE, LeakInfo, RingRecord};
use crate::output::origin;
use crate::records::{RecordStream, RingRecordError};
use crate::ring::{Ring, RingError};
use crate::session::{CaptureSession, SessionError, SessionEvent};

/// Pause between reads of the ring.
const PAUSE: Duration = Duration::from_millis(2);

/// Most bytes that are accepted, more than any app sends: limits the memory that a broken app can
/// cost.
const MAX_BYTES: usize = 256 << 20;

/// Why the leaked packets could not be received.
#[derive(Debug, thiserror::Error)]
pub enum LeakError {
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The app ended the session with an error.
    #[error("the app ended the dump: {0}")]
    Ended(String),
    /// The ring is inconsistent.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A record is invalid.
    #[error("the ring of leaked packets is broken")]
    Record(#[from] RingRecordError),
    /// The app did not finish in time.
    #[error("the app did not send all leaked packets within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The app sent too many bytes.
    #[error("the app sent more than {} MiB of leaked packets", MAX_BYTES >> 20)]
    TooMuch,
}

/// One lost mbuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedMbuf {
    /// Information from the app.
    pub leak: LeakInfo,
    /// Port of its last stamp.
    pub port: Option<u16>,
    /// Queue of its last stamp.
    pub queue: Option<u16>,
    /// Direction of its last stamp: `DIR_RX`, `DIR_TX`, or neither of them.
    pub dir: u8,
    /// Wall clock of its last stamp, nanoseconds.
    pub ns: u64,
    /// Bytes of the packet on the wire.
    pub len: u32,
    /// Bytes of the packet that could be read.
    pub data: Vec<u8>,
}

/// All lost mbufs that an app sent.
#[derive(Debug, Default)]
pub struct LeakDump {
    /// Lost mbufs, sorted by time.
    pub mbufs: Vec<DumpedMbuf>,
    /// Mbufs that did not fit into the ring.
    pub dropped: u64,
}

/// Reads the reply to a request for leaked packets up to its end.
///
/// # Errors
/// When the app violates the protocol, ends with an error, or does not end within `timeout`.
pub fn receive(mut session: CaptureSession, timeout: Duration) -> Result<LeakDump, LeakError> {
    let deadline = Instant::now() + timeout;
    let mut rings: Vec<LeakRing> = Vec::new();
    let mut gone = false;
    while !gone {
        gone = listen(&mut session, &mut rings)?;
        for one in &mut rings {
            one.read()?;
        }
        if !gone && Instant::now() >= deadline {
            return Err(LeakError::Timeout(timeout));
        }
        if !gone {
            std::thread::sleep(PAUSE);
        }
    }
    let mut dump = LeakDump::default();
    for one in &mut rings {
        dump.dropped += one.ring.counters().dropped;
        one.parse(&mut dump.mbufs)?;
    }
    dump.mbufs.sort_by_key(|mbuf| mbuf.ns);
    Ok(dump)
}

/// Processes messages of the app; returns true after the last one.
fn listen(session: &mut CaptureSession, rings: &mut Vec<LeakRing>) -> Result<bool, LeakError> {
    loop {
        match session.next_event()? {
            None => return Ok(false),
            Some(SessionEvent::Ring(ring)) => rings.push(LeakRing::new(ring)),
            Some(SessionEvent::Note(_)) => {}
            Some(SessionEvent::Gone) => return Ok(true),
            Some(SessionEvent::Ended(reason)) => return Err(LeakError::Ended(reason)),
        }
    }
}

/// One ring and its records.
struct LeakRing {
    ring: Ring,
    records: RecordStream,
}

impl LeakRing {
    fn new(ring: Ring) -> Self {
        let records = RecordStream::of_leaks(ring.consumed(), ring.data_size(), MAX_SNAPLEN);
        Self { ring, records }
    }

    fn read(&mut self) -> Result<(), LeakError> {
        self.ring.read(usize::MAX, &mut self.records)?;
        if self.records.pending() > MAX_BYTES { Err(LeakError::TooMuch) } else { Ok(()) }
    }

    fn parse(&mut self, mbufs: &mut Vec<DumpedMbuf>) -> Result<(), LeakError> {
        let clock = self.ring.anchors().and_then(|(first, last)| TscClock::new(first, last));
        let now_ns = realtime_ns();
        while let Some(record) = self.records.peek()? {
            if let Some(leak) = self.records.leak() {
                let ns = time_of(&record, &leak, clock.as_ref(), now_ns);
                mbufs.push(lost(&record, leak, ns, self.records.payload(&record)));
            }
            self.records.skip(record.size);
        }
        Ok(())
    }
}

/// Returns the time of the last stamp. If the app has not measured its clock yet, it is derived
/// from the age.
fn time_of(record: &RingRecord, leak: &LeakInfo, clock: Option<&TscClock>, now_ns: u64) -> u64 {
    match clock {
        Some(clock) if record.tsc > 0 => clock.realtime_ns(record.tsc),
        _ => now_ns.saturating_sub(leak.age_ms.saturating_mul(1_000_000)),
    }
}

fn lost(record: &RingRecord, leak: LeakInfo, ns: u64, data: &[u8]) -> DumpedMbuf {
    let known = |id: u16| (id != ANY).then_some(id);
    DumpedMbuf {
        leak,
        port: known(record.port),
        queue: known(record.queue),
        dir: record.dir,
        ns,
        len: record.len,
        data: data.to_vec(),
    }
}

/// Writes a section with one interface per pool, with the comment `about`, and all mbufs, each with
/// a comment, and finishes the sink.
///
/// # Errors
/// When the sink fails.
pub fn write(
    target: &mut dyn PacketSink,
    app: &str,
    mbufs: &[DumpedMbuf],
    about: &str,
    comment: impl Fn(&DumpedMbuf) -> String,
) -> Result<(), SinkError> {
    target.section(&origin())?;
    let mut pools: Vec<&str> = mbufs.iter().map(|mbuf| mbuf.leak.pool.as_str()).collect();
    pools.sort_unstable();
    pools.dedup();
    for pool in &pools {
        target.interface(&interface_of(app, pool, about))?;
    }
    let mut written = vec![0; pools.len()];
    for (id, mbuf) in mbufs.iter().enumerate() {
        let Ok(interface) = pools.binary_search(&mbuf.leak.pool.as_str()) else { continue };
        written[interface] += 1;
        target.packet(&Packet {
            interface: u32::try_from(interface).unwrap_or(u32::MAX),
            ns: mbuf.ns,
            data: &mbuf.data,
            len: mbuf.len,
            dir: mbuf.dir,
            queue: mbuf.queue,
            lcore: None,
            weight: 1,
            dropped: 0,
            id: id as u64,
            comment: &comment(mbuf),
            options: &[],
        })?;
    }
    let times = || mbufs.iter().map(|mbuf| mbuf.ns);
    let statistics = |(interface, delivered)| InterfaceStatistics {
        interface: u32::try_from(interface).unwrap_or(u32::MAX),
        start_ns: times().min().unwrap_or(0),
        end_ns: times().max().unwrap_or(0),
        delivered,
        ..InterfaceStatistics::default()
    };
    target.counters(&written.into_iter().enumerate().map(statistics).collect::<Vec<_>>());
    target.finish()
}

fn interface_of(app: &str, pool: &str, about: &str) -> CaptureInterface {
    CaptureInterface {
        name: format!("{app}:{pool}"),
        description: format!("mbuf pool {pool} of {app}"),
        filter: String::new(),
        comment: about.to_owned(),
        options: Vec::new(),
        snaplen: MAX_SNAPLEN,
        linktype: ETHERNET,
    }
}

const _: () = assert!(LEAK_SIZE.is_multiple_of(16), "packet bytes stay aligned");

#[cfg(test)]
#[path = "leak_tests.rs"]
mod tests;
