//! The thread that sends messages, with a rate limit that collectors can keep up with.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::collector::IpfixCollector;
use super::counters::ExportCounters;
use super::encoder::Datagram;
use super::name::{LookupFn, ResolvedName};
use super::{IpfixError, IpfixSettings};

/// Messages per burst, and the duration of a burst: 5000 messages a second. A socket with the default
/// receive buffer of Linux holds about ninety of them while its collector does not run.
const BURST: u32 = 16;
const BURST_TIME: Duration = Duration::from_micros(3200);

/// Pause after templates and options: a collector with several threads might read the next message
/// first.
const TEMPLATE_DELAY: Duration = Duration::from_millis(5);

/// Longest wait for space in the send buffer of a socket.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Longest wait for the remaining messages at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest sleep: addresses of names may change while there is nothing to send.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Time between two notices about a collector.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// State that the thread and its owner share.
#[derive(Debug, Default)]
struct SenderState {
    /// A collector may have missed templates or options.
    announce: AtomicBool,
    /// The remaining messages must not be sent.
    abandoned: AtomicBool,
    /// Records in the queue.
    queued: AtomicU64,
}

/// The queue of messages to the thread.
#[derive(Debug)]
pub(super) struct SendQueue {
    messages: Option<SyncSender<Datagram>>,
    /// Disconnected when the thread ends.
    done: Receiver<Infallible>,
    patient: bool,
    shared: Arc<SenderState>,
    counters: Arc<ExportCounters>,
}

impl SendQueue {
    /// Opens sockets, and starts the thread. The queue holds `room` messages.
    pub(super) fn start(
        settings: &IpfixSettings,
        room: usize,
        counters: &Arc<ExportCounters>,
    ) -> Result<Self, IpfixError> {
        let open = |collector: &IpfixCollector| {
            CollectorSocket::open(collector.clone(), IpfixCollector::addresses)
        };
        let links = settings.collectors.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Self::with(links, room, settings.patient, counters)
    }

    fn with(
        links: Vec<CollectorSocket>,
        room: usize,
        patient: bool,
        counters: &Arc<ExportCounters>,
    ) -> Result<Self, IpfixError> {
        let (messages, queue) = sync_channel(room);
        let (ending, done) = channel::<Infallible>();
        let shared = Arc::new(SenderState::default());
        let (theirs, counts) = (Arc::clone(&shared), Arc::clone(counters));
        let sender = SenderThread { links, shared: theirs, counters: counts };
        let run = move || {
            let _ending = ending;
            sender.run(&queue);
        };
        thread::Builder::new().name("ipfix".to_owned()).spawn(run).map_err(IpfixError::Thread)?;
        Ok(Self { messages: Some(messages), done, patient, shared, counters: Arc::clone(counters) })
    }

    /// Queues a message. If the queue is full, it waits if `patient`, otherwise the message is dropped
    /// and counted.
    pub(super) fn put(&self, datagram: Datagram) {
        let Some(messages) = &self.messages else { return };
        let records = u64::from(datagram.records);
        self.shared.queued.fetch_add(records, Ordering::Relaxed);
        let put = if self.patient {
            messages.send(datagram).is_ok()
        } else {
            messages.try_send(datagram).is_ok()
        };
        if !put {
            self.shared.queued.fetch_sub(records, Ordering::Relaxed);
            self.shared.announce.store(true, Ordering::Relaxed);
            ExportCounters::add(&self.counters.dropped, records);
        }
    }

    /// Returns whether a collector may have missed templates or options, and resets this.
    pub(super) fn is_announcement_wanted(&self) -> bool {
        self.shared.announce.swap(false, Ordering::Relaxed)
    }

    /// Waits until all messages are sent, for at most [`FINISH_TIMEOUT`].
    pub(super) fn finish(&mut self) {
        drop(self.messages.take());
        if let Err(RecvTimeoutError::Timeout) = self.done.recv_timeout(FINISH_TIMEOUT) {
            self.shared.abandoned.store(true, Ordering::Relaxed);
            let left = self.shared.queued.swap(0, Ordering::Relaxed);
            ExportCounters::add(&self.counters.dropped, left);
        }
    }
}

/// A collector, and a socket to it.
#[derive(Debug)]
struct CollectorSocket {
    name: ResolvedName,
    /// All known addresses, and the one in use.
    addresses: Vec<SocketAddr>,
    address: SocketAddr,
    socket: UdpSocket,
    /// Time of the last notice about a failure.
    told: Option<Instant>,
    /// Messages that failed since then.
    failed: u64,
}

impl CollectorSocket {
    fn open(collector: IpfixCollector, look: LookupFn) -> Result<Self, IpfixError> {
        let addresses = match look(&collector) {
            Ok(addresses) => addresses,
            Err(source) => return Err(IpfixError::Unknown { collector, source }),
        };
        match connect(&addresses) {
            Err(source) => Err(IpfixError::Socket { collector, source }),
            Ok((socket, address)) => {
                let name = ResolvedName::new(collector, look);
                Ok(Self { name, addresses, address, socket, told: None, failed: 0 })
            }
        }
    }

    /// Connects to the current address of the name; returns true if the address has changed.
    fn follow(&mut self) -> bool {
        let Some(addresses) = self.name.new_addresses() else { return false };
        if !addresses.contains(&self.address) {
            let Ok((socket, address)) = connect(&addresses) else { return false };
            (self.addresses, self.socket, self.address) = (addresses, socket, address);
            return true;
        }
        self.addresses = addresses;
        false
    }

    /// Connects to the next address of the name: a collector may listen on one address family only.
    fn turn(&mut self) {
        let mut addresses = self.addresses.clone();
        let at = addresses.iter().position(|address| *address == self.address).unwrap_or(0);
        let next = (at + 1) % addresses.len().max(1);
        addresses.rotate_left(next);
        if addresses.len() > 1
            && let Ok((socket, address)) = connect(&addresses)
        {
            (self.socket, self.address) = (socket, address);
        }
    }

    /// Returns the notice about a failure, unless there was one in the last minute.
    fn complain(&mut self, error: &io::Error) -> Option<String> {
        self.failed += 1;
        if self.told.is_some_and(|told| told.elapsed() < WARNING_INTERVAL) {
            return None;
        }
        self.told = Some(Instant::now());
        let failed = std::mem::take(&mut self.failed);
        let Self { name: ResolvedName { collector, .. }, address, .. } = &*self;
        let at = if collector.is_name() { format!(" at {address}") } else { String::new() };
        let hint = match error.kind() {
            ErrorKind::ConnectionRefused => "; is it listening there?",
            _ if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                "; messages must be smaller"
            }
            _ => "",
        };
        Some(format!(
            "cannot send to the collector {collector}{at}: {error}{hint} ({failed} messages)"
        ))
    }
}

/// Connects a socket to the first address that works.
fn connect(addresses: &[SocketAddr]) -> io::Result<(UdpSocket, SocketAddr)> {
    let open = |address: &SocketAddr| {
        let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok((socket, *address))
    };
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match open(address) {
            Ok(opened) => return Ok(opened),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// State of the thread.
#[derive(Debug)]
struct SenderThread {
    links: Vec<CollectorSocket>,
    shared: Arc<SenderState>,
    counters: Arc<ExportCounters>,
}

impl SenderThread {
    fn run(mut self, queue: &Receiver<Datagram>) {
        loop {
            let begin = Instant::now();
            for _ in 0..BURST {
                match queue.recv_timeout(MAX_SLEEP) {
                    Ok(_) if self.shared.abandoned.load(Ordering::Relaxed) => return,
                    Ok(datagram) => self.pass(&datagram),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                self.follow();
            }
            thread::sleep(BURST_TIME.saturating_sub(begin.elapsed()));
        }
    }

    /// Sends a message from the queue.
    fn pass(&mut self, datagram: &Datagram) {
        self.send(&datagram.bytes);
        if datagram.records == 0 {
            thread::sleep(TEMPLATE_DELAY);
        }
        self.shared.queued.fetch_sub(u64::from(datagram.records), Ordering::Relaxed);
    }

    /// Sends a message to all collectors.
    fn send(&mut self, bytes: &[u8]) {
        for link in &mut self.links {
            let mut sent = link.socket.send(bytes);
            if let Err(error) = &sent
                && error.kind() == ErrorKind::ConnectionRefused
            {
                // The error was the response to the previous message; this one has not been sent yet.
                failed(&self.counters, &self.shared, link, error);
                link.turn();
                sent = link.socket.send(bytes);
            }
            match sent {
                Ok(_) => {
                    ExportCounters::add(&self.counters.messages, 1);
                    ExportCounters::add(&self.counters.bytes, bytes.len() as u64);
                }
                Err(error) => failed(&self.counters, &self.shared, link, &error),
            }
        }
    }

    /// Updates the addresses of all collectors.
    fn follow(&mut self) {
        for link in &mut self.links {
            if link.follow() {
                let CollectorSocket { name: ResolvedName { collector, .. }, address, .. } = link;
                self.counters.tell(format!("the collector {collector} is at {address} now"));
                self.shared.announce.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn failed(
    counters: &ExportCounters,
    shared: &SenderState,
    link: &mut CollectorSocket,
    error: &io::Error,
) {
    ExportCounters::add(&counters.failed, 1);
    shared.announce.store(true, Ordering::Relaxed);
    if let Some(complaint) = link.complain(error) {
        counters.tell(complaint);
    }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;
    use crate::ipfix::ExportStatus;

    const SOON: Duration = Duration::from_secs(10);

    /// Returns a collector with a name, and the socket where it listens.
    fn named() -> (UdpSocket, IpfixCollector) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let port = socket.local_addr().unwrap().port();
        (socket, format!("collector.example:{port}").parse().unwrap())
    }

    fn at(host: &str, collector: &IpfixCollector) -> io::Result<Vec<SocketAddr>> {
        let text = collector.to_string();
        let (_, port) = text.rsplit_once(':').unwrap();
        Ok(format!("{host}:{port}").to_socket_addrs()?.collect())
    }

    fn here(collector: &IpfixCollector) -> io::Result<Vec<SocketAddr>> {
        at("127.0.0.1", collector)
    }

    fn elsewhere(collector: &IpfixCollector) -> io::Result<Vec<SocketAddr>> {
        at("127.0.0.2", collector)
    }

    fn nowhere_yet(_: &IpfixCollector) -> io::Result<Vec<SocketAddr>> {
        loop {
            thread::park();
        }
    }

    /// Starts a thread that sends to a collector with a name that is due for a lookup.
    fn queue(collector: IpfixCollector, look: LookupFn) -> (SendQueue, Arc<ExportCounters>) {
        let mut link = CollectorSocket::open(collector, here).unwrap();
        link.name.age(look);
        let counters = Arc::new(ExportCounters::default());
        (SendQueue::with(vec![link], 4, false, &counters).unwrap(), counters)
    }

    #[test]
    fn a_name_is_followed_while_there_is_nothing_to_send() {
        let (_left, collector) = named();
        let address = elsewhere(&collector).unwrap()[0];
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let (mut queue, counters) = queue(collector, elsewhere);
        let begin = Instant::now();
        while !queue.is_announcement_wanted() {
            assert!(begin.elapsed() < SOON, "it stays where it was");
            thread::sleep(Duration::from_millis(10));
        }
        queue.put(Datagram { bytes: vec![7], records: 1 });
        assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 1);
        queue.finish();
        let notices = ExportStatus(counters).notices();
        assert!(notices.len() == 1 && notices[0].contains(&address.to_string()), "{notices:?}");
    }

    #[test]
    fn a_name_server_that_does_not_answer_delays_nothing() {
        let (socket, collector) = named();
        let (mut queue, counters) = queue(collector, nowhere_yet);
        for sent in 1..=2 {
            queue.put(Datagram { bytes: vec![7; sent], records: 1 });
            assert_eq!(socket.recv(&mut [0; 9]).unwrap(), sent);
            thread::sleep(MAX_SLEEP + MAX_SLEEP / 2);
        }
        queue.finish();
        let counts = ExportStatus(counters).counts();
        assert_eq!((counts.messages, counts.dropped), (2, 0), "the thread has ended by itself");
    }

    #[test]
    fn a_name_is_tried_at_each_of_its_addresses() {
        let addresses: Vec<SocketAddr> =
            [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port))).to_vec();
        let (_socket, collector) = named();
        let mut link = CollectorSocket::open(collector, here).unwrap();
        (link.addresses, link.address) = (addresses.clone(), addresses[0]);
        let mut turn = || {
            link.turn();
            assert_eq!(link.socket.peer_addr().unwrap(), link.address);
            link.address
        };
        assert_eq!([turn(), turn(), turn()], [addresses[1], addresses[2], addresses[0]]);
    }
}
