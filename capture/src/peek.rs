//! Packets of apps that cannot be captured: a thread of this process samples them from the memory
//! of the app, and passes them on as an app would.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_packets::filter::OfflineFilter;
use pmdscope_packets::{DIR_RX, DIR_TX, MAX_SNAPLEN};
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::realtime_ns;
use pmdscope_xray::{
    PacketSampler, ReadBudget, SampledPacket, XrayError, XrayTarget, leave_polled_cpus,
};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, socketpair,
};

use crate::clock::raw_clock_ns;
use crate::layout::{
    ANY, AppMessage, CaptureRequest, ClockAnchor, RingRecord, TEE_ACCEPT, TEE_END, TEE_LEAKED,
    TEE_RING,
};
use crate::ring_writer::{LeftOut, RingWriter};
use crate::session::{CaptureSession, SessionError};

/// Lcore id of a ring that belongs to no lcore.
const NO_LCORE: u16 = 0xfffe;
/// Default size of the ring, bytes.
const RING_SIZE: u32 = 1 << 22;
/// Most bytes read from the app per second.
const MOST_BYTES_PER_SECOND: f64 = 250e6;
/// Longest pause between two passes, which limits the time until the end is noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Most time without a pass that later passes may catch up on.
const MOST_CREDIT: Duration = Duration::from_millis(5);
/// Time from the first to the second anchor of the clock, and between later ones.
const FIRST_ANCHOR: Duration = Duration::from_millis(15);
const ANCHOR_INTERVAL: Duration = Duration::from_secs(1);

/// How to sample the packets of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekOptions {
    /// The app.
    pub app: DiscoveredApp,
    /// Most percent of one CPU that reading may take, 1 to 100.
    pub cpu_percent: u8,
}

impl PeekOptions {
    /// Default share of one CPU, percent.
    pub const DEFAULT_CPU_PERCENT: u8 = 10;
}

/// Why the packets of an app cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    /// Its memory cannot be read.
    #[error("cannot read packets from the memory of {app}")]
    Memory {
        /// The app.
        app: String,
        /// Cause.
        source: XrayError,
    },
    /// The requested property is not known for packets that are read from memory.
    #[error("{0} of packets that are read from the memory of an app is not known: leave it out")]
    NotKnown(&'static str),
    /// The thread cannot be started.
    #[error("cannot start reading packets from the memory of an app")]
    Start(#[from] io::Error),
    /// The session cannot be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Starts sampling, unless `stop` is true.
pub(crate) fn open(
    options: &PeekOptions,
    request: &CaptureRequest,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<CaptureSession, PeekError> {
    check(request)?;
    let memory = |source| PeekError::Memory { app: options.app.name.clone(), source };
    // The budget is unlimited, because its pauses would fall between two reads of the same packet:
    // this module limits the rate of passes.
    let target = XrayTarget::open(&options.app, ReadBudget::UNLIMITED).map_err(memory)?;
    let snaplen = if request.snaplen == 0 { MAX_SNAPLEN } else { request.snaplen };
    let sampler = PacketSampler::new(target, snaplen).map_err(memory)?;
    let filter = OfflineFilter::of_program(&request.program);
    let filter = filter.ok_or(PeekError::NotKnown("the meaning of this filter"))?;
    let size = if request.ring_size == 0 { RING_SIZE } else { request.ring_size };
    let ring = RingWriter::new(size, snaplen, NO_LCORE)?;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .and_then(|pair| ioctl_fionbio(&pair.0, true).map(|()| pair))
            .map_err(io::Error::from)?;
    let share = f64::from(options.cpu_percent.clamp(1, 100)) / 100.0;
    let output = PeekOutput { ring, filter, request: request.clone(), kept: 0 };
    let pid = options.app.pid;
    let peek = PeekThread { socket: theirs, sampler, output, share, pid };
    thread::Builder::new().name("peek".to_owned()).spawn(move || peek.run())?;
    Ok(CaptureSession::over(ours, request, timeout, stop)?)
}

/// Checks that a sample can satisfy the request.
fn check(request: &CaptureRequest) -> Result<(), PeekError> {
    let both = u16::from(DIR_RX | DIR_TX);
    if request.selects.iter().any(|select| select.dirs & both != both) {
        return Err(PeekError::NotKnown("the direction"));
    }
    if request.selects.iter().any(|select| select.queue != ANY) {
        return Err(PeekError::NotKnown("the queue"));
    }
    if request.flags & TEE_LEAKED != 0 {
        return Err(PeekError::NotKnown("the leak"));
    }
    Ok(())
}

/// The thread that samples until the other side closes.
struct PeekThread {
    socket: OwnedFd,
    sampler: PacketSampler,
    output: PeekOutput,
    share: f64,
    /// Process id of the app.
    pid: Option<u32>,
}

/// The destination of sampled packets.
struct PeekOutput {
    ring: RingWriter,
    filter: OfflineFilter,
    request: CaptureRequest,
    /// Packets that passed the filter.
    kept: u64,
}

impl PeekThread {
    fn run(mut self) {
        if let Some(pid) = self.pid {
            leave_polled_cpus(pid);
        }
        // Errors were sent to the other side, unless it has closed.
        let _ = self.serve();
    }

    fn serve(&mut self) -> Result<(), Errno> {
        // Receives the request, which is known already.
        rustix::net::recv(&self.socket, &mut [0; 1 << 14], RecvFlags::empty())?;
        self.send(TEE_ACCEPT, 1, "")?;
        self.send_ring()?;
        match self.sample()? {
            None => Ok(()),
            Some(XrayError::Ended { .. }) => self.send(TEE_END, 0, ""),
            Some(error) => {
                self.send(TEE_END, Errno::IO.raw_os_error().cast_unsigned(), &error.to_string())
            }
        }
    }

    /// Samples until the other side has closed, which returns `None`, or the memory cannot be read.
    fn sample(&mut self) -> Result<Option<XrayError>, Errno> {
        let first = anchor();
        let mut next_anchor = Instant::now() + FIRST_ANCHOR;
        let mut free_at = Instant::now();
        while !self.is_closed()? {
            let begin = Instant::now();
            if begin >= next_anchor {
                self.output.ring.set_anchors(first, anchor());
                next_anchor = begin + ANCHOR_INTERVAL;
            }
            let before = self.sampler.counts().bytes;
            let output = &mut self.output;
            let passed = self.sampler.pass(&mut |packet| output.put(packet));
            self.output.ring.publish();
            if let Err(error) = passed {
                return Ok(Some(error));
            }
            let bytes = self.sampler.counts().bytes - before;
            let owed = begin.elapsed().div_f64(self.share);
            let owed = owed.max(Duration::from_secs_f64(bytes as f64 / MOST_BYTES_PER_SECOND));
            let now = Instant::now();
            free_at = free_at.max(now.checked_sub(MOST_CREDIT).unwrap_or(now)) + owed;
            thread::sleep(free_at.saturating_duration_since(now).min(LONGEST_PAUSE));
        }
        Ok(None)
    }

    fn is_closed(&self) -> Result<bool, Errno> {
        let received = rustix::net::recv(&self.socket, &mut [0; 64], RecvFlags::DONTWAIT);
        match received {
            Ok((0, _)) => Ok(true),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn send(&self, kind: u16, value: u32, text: &str) -> Result<(), Errno> {
        let message = AppMessage { kind, value, ring_size: 0, text: text.to_owned() }.encode();
        rustix::net::send(&self.socket, &message, SendFlags::NOSIGNAL).map(|_| ())
    }

    fn send_ring(&self) -> Result<(), Errno> {
        let message =
            AppMessage { kind: TEE_RING, value: 0, ring_size: 0, text: String::new() }.encode();
        let descriptors = self.output.ring.descriptors().map_err(|_| Errno::MFILE)?;
        let descriptors = descriptors.each_ref().map(std::os::fd::AsFd::as_fd);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::NOBUFS);
        }
        let message = [io::IoSlice::new(&message)];
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &message, &mut control, flags).map(|_| ())
    }
}

impl PeekOutput {
    fn put(&mut self, packet: SampledPacket<'_>) {
        let port = packet.port.unwrap_or(ANY);
        let wanted = |selected: u16| selected == ANY || selected == port;
        if !self.request.selects.iter().any(|select| wanted(select.port)) {
            return;
        }
        if !self.filter.matches(packet.data, packet.len) {
            return self.ring.leave_out(LeftOut::Filtered);
        }
        self.kept += 1;
        if !self.kept.is_multiple_of(self.request.sample.max(1).into()) {
            return self.ring.leave_out(LeftOut::Sampled);
        }
        let tsc = raw_clock_ns();
        let record = RingRecord { len: packet.len, port, queue: ANY, tsc, ..RingRecord::default() };
        self.ring.push(record, packet.data);
    }
}

/// Returns an anchor. Time stamps of records are times of `CLOCK_MONOTONIC_RAW`.
fn anchor() -> ClockAnchor {
    let raw_ns = raw_clock_ns();
    ClockAnchor { tsc: raw_ns, realtime_ns: realtime_ns(), raw_ns }
}

#[cfg(test)]
mod tests {
    use pmdscope_packets::filter::FilterCompiler;

    use super::*;
    use crate::layout::QueueSelect;
    use crate::ring::Ring;

    const BOTH: u16 = 3;

    fn request(selects: Vec<QueueSelect>) -> CaptureRequest {
        CaptureRequest { selects, ..CaptureRequest::default() }
    }

    fn port(port: u16) -> QueueSelect {
        QueueSelect { port, queue: ANY, dirs: BOTH }
    }

    #[test]
    fn what_a_sample_cannot_tell_is_refused() {
        assert!(check(&request(vec![port(ANY), port(1)])).is_ok());
        for (select, what) in [
            (QueueSelect { dirs: 1, ..port(0) }, "the direction"),
            (QueueSelect { queue: 0, ..port(0) }, "the queue"),
        ] {
            let error = check(&request(vec![port(1), select])).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
    }

    #[test]
    fn only_what_was_asked_for_is_put_out() {
        let program = FilterCompiler::default().compile_for_app("arp").unwrap();
        let request = CaptureRequest { program, sample: 2, ..request(vec![port(3)]) };
        let ring = RingWriter::new(1 << 16, 64, NO_LCORE).unwrap();
        let [data, tail] = ring.descriptors().unwrap();
        let filter = OfflineFilter::of_program(&request.program).unwrap();
        let mut output = PeekOutput { ring, filter, request, kept: 0 };
        let mut arp = [0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let packet = |port, data| SampledPacket { port, len: 60, data };
        output.put(packet(Some(1), &arp));
        output.put(packet(None, &arp));
        output.put(packet(Some(3), &[0; 60]));
        for _ in 0..4 {
            output.put(packet(Some(3), &arp));
        }
        output.ring.publish();
        let counters = Ring::map(data, tail).unwrap().counters();
        assert_eq!((counters.records, counters.sampled_out, counters.filtered), (2, 2, 1));
        assert_eq!(counters.seen(), 5);
    }

    #[test]
    fn a_filter_that_jumps_out_of_itself_is_refused() {
        let mut program = FilterCompiler::default().compile_for_app("arp").unwrap();
        program[1].jt = 200;
        assert!(OfflineFilter::of_program(&program).is_none());
    }
}
