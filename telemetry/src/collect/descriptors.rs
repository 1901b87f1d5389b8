//! Descriptors of the receive queues of stock apps, and the pools that feed them.
//!
//! DPDK 23.07 and later report them, but read the name of the queue's pool without a check: the
//! request crashes an app with a driver that names none, as with virtio of DPDK 25.07 and later. So
//! an app is queried only if all of its ports are on NICs for which every driver was reviewed, since
//! DPDK may mix up ports while other programs query the app. Transmit queues are never requested: if
//! the driver fails to report the burst mode, DPDK frees memory twice.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::commands::{PortId, TelemetryCommand};
use crate::error::TelemetryError;
use crate::host::device::PciDevices;
use crate::reply::RxQueueInfo;
use crate::sample::{FedQueue, PoolSample, PortSample};

use super::round::RequestRound;

/// PCI vendors of the reviewed NICs: for Intel, all drivers of DPDK 23.07 to 26.07 name the pool of
/// any queue that was set up.
const REVIEWED_VENDORS: [&str; 1] = ["0x8086"];

/// Limit of queues that are requested in one round; a port with more queues is still requested as a whole.
const QUEUES_PER_ROUND: usize = 256;

/// The descriptors of the receive queues of one app, cached.
#[derive(Debug, Default)]
pub(super) struct DescriptorReader {
    pci: PciDevices,
    known: BTreeMap<u16, ConfiguredPort>,
}

/// A port as in the previous round.
#[derive(Debug)]
struct ConfiguredPort {
    device: String,
    started: bool,
    rx_queues: u16,
    mtu: u64,
    received: u64,
    is_reviewed: bool,
    /// By queue; `None` until they were requested.
    queues: Option<Vec<ToldQueue>>,
}

/// What DPDK reported of a receive queue; nothing for one that was not set up.
#[derive(Clone, Debug, Default, PartialEq)]
struct ToldQueue {
    descriptors: Option<u64>,
    pool: Option<String>,
}

impl DescriptorReader {
    /// Adds descriptors to `ports`, which are all ports of the app. They are requested in the second
    /// round in which a port runs with the same configuration, and not again until that changes.
    pub(super) fn complete(&mut self, round: &mut RequestRound<'_>, ports: &mut [PortSample]) {
        self.known.retain(|id, _| ports.iter().any(|port| port.id == *id));
        let mut due = Vec::new();
        for port in ports.iter() {
            let known = self.known.get_mut(&port.id).filter(|known| known.is_still(port));
            if let Some(known) = known {
                known.received = port.stats.rx_packets;
                let is_due = port.started && known.queues.is_none();
                due.extend(is_due.then_some((port.id, port.rx_queues)));
            } else {
                self.known.insert(port.id, ConfiguredPort::new(port, &self.pci));
            }
        }
        let reviewed =
            |port: &PortSample| self.known.get(&port.id).is_some_and(|known| known.is_reviewed);
        if round.is_without_failure() && ports.iter().all(reviewed) {
            let mut asked = 0;
            for (port, queues) in due {
                if asked > 0 && asked + usize::from(queues) > QUEUES_PER_ROUND {
                    break;
                }
                asked += usize::from(queues);
                let told = told_queues(round, port, queues);
                if let Some(known) = self.known.get_mut(&port) {
                    known.queues = told;
                }
            }
        }
        for port in ports {
            let known = self.known.get(&port.id).and_then(|known| known.queues.as_ref());
            let descriptors = known.map(|known| known.iter().map(|queue| queue.descriptors));
            port.rx_descriptors = descriptors.map(Iterator::collect).unwrap_or_default();
        }
    }

    /// Notes which queues each pool feeds, as far as they were requested.
    pub(super) fn note_feeds(&self, pools: &mut [PoolSample]) {
        let told =
            self.known.iter().filter_map(|(port, known)| Some((*port, known.queues.as_ref()?)));
        let queues = told.flat_map(|(port, queues)| {
            (0_u16..).zip(queues).map(move |(queue, told)| (FedQueue { port, queue }, told))
        });
        let mut feeds: BTreeMap<&str, Vec<FedQueue>> = BTreeMap::new();
        for (fed, told) in queues {
            if let Some(pool) = &told.pool {
                feeds.entry(pool).or_default().push(fed);
            }
        }
        for pool in pools {
            pool.feeds = feeds.remove(pool.name.as_str()).unwrap_or_default();
        }
    }
}

impl ConfiguredPort {
    fn new(port: &PortSample, pci: &PciDevices) -> Self {
        let vendor = pci.vendor(&port.device);
        Self {
            device: port.device.clone(),
            started: port.started,
            rx_queues: port.rx_queues,
            mtu: port.mtu,
            received: port.stats.rx_packets,
            is_reviewed: vendor.is_some_and(|id| REVIEWED_VENDORS.contains(&id.as_str())),
            queues: None,
        }
    }

    /// Whether nothing indicates another configuration; counters that went back do.
    fn is_still(&self, port: &PortSample) -> bool {
        let now = (port.started, port.rx_queues, port.mtu);
        self.device == port.device
            && (self.started, self.rx_queues, self.mtu) == now
            && port.stats.rx_packets >= self.received
    }
}

/// Requests the facts of the receive queues of a port; `None` if the connection was lost. DPDK answers
/// null for a queue that was not set up, and for all queues of drivers that do not report them.
fn told_queues(round: &mut RequestRound<'_>, port: u16, queues: u16) -> Option<Vec<ToldQueue>> {
    let request = |queue| (TelemetryCommand::EthdevRxQueue(PortId(port), queue), PhantomData);
    let requests: Vec<(TelemetryCommand, PhantomData<RxQueueInfo>)> =
        (0..queues).map(request).collect();
    let replies = round.request_each(&requests);
    let mut told = Vec::with_capacity(replies.len());
    for ((command, _), reply) in requests.iter().zip(replies) {
        let info = match reply {
            Ok(info) => Some(info),
            Err(TelemetryError::Null) => None,
            Err(error) => round.keep(command, Err(error)),
        };
        told.push(info.map(ToldQueue::from).unwrap_or_default());
    }
    (!round.is_over()).then_some(told)
}

impl From<RxQueueInfo> for ToldQueue {
    fn from(info: RxQueueInfo) -> Self {
        Self {
            descriptors: Some(info.nb_desc.0).filter(|descriptors| *descriptors > 0),
            pool: info.mempool_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use pmdscope_testing::FakeApp;

    use super::*;
    use crate::client::TelemetryClient;
    use crate::deadline::Deadline;
    use crate::fixture;

    const NIC: &str = "0000:03:00.0";

    /// An app that gives the same answers for each port.
    struct App {
        _dir: tempfile::TempDir,
        _server: FakeApp,
        client: TelemetryClient,
        asked: Arc<Mutex<Vec<String>>>,
        reader: DescriptorReader,
    }

    impl App {
        /// Starts an app that answers a request for a queue with the reply of that index, or else null.
        fn new(replies: &'static [&'static str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("dpdk/fake/dpdk_telemetry.v2");
            let asked = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&asked);
            let app = FakeApp::start(&socket, move |connection| {
                connection.send(r#"{"version":"DPDK 24.11.2","pid":1,"max_output_len":16384}"#);
                while let Some(request) = connection.receive() {
                    let queue = request.rsplit(',').next().and_then(|queue| queue.parse().ok());
                    let reply = queue.and_then(|queue: usize| replies.get(queue));
                    let reply = reply.unwrap_or(&"null");
                    log.lock().unwrap().push(request);
                    connection.send(format!(r#"{{"/ethdev/rx_queue":{reply}}}"#));
                }
            });
            let deadline = Deadline::after(Duration::from_secs(10));
            let client = TelemetryClient::connect(&socket, deadline).unwrap();
            let pci = dir.path().join("pci");
            plug(&pci, NIC, "0x8086");
            plug(&pci, "0000:04:00.0", "0x1af4");
            let reader = DescriptorReader { pci: PciDevices::at(&pci), known: BTreeMap::new() };
            Self { _dir: dir, _server: app.unwrap(), client, asked, reader }
        }

        /// Runs a round; returns the known descriptors of these ports, and the number of requests.
        fn round(&mut self, ports: &[PortSample]) -> (Vec<Vec<Option<u64>>>, usize) {
            self.asked.lock().unwrap().clear();
            let mut ports = ports.to_vec();
            let deadline = Deadline::after(Duration::from_secs(10));
            self.reader.complete(&mut RequestRound::new(&mut self.client, deadline), &mut ports);
            let known = ports.into_iter().map(|port| port.rx_descriptors).collect();
            (known, self.asked.lock().unwrap().len())
        }
    }

    fn plug(pci: &Path, address: &str, vendor: &str) {
        fs::create_dir_all(pci.join(address)).unwrap();
        fs::write(pci.join(address).join("vendor"), format!("{vendor}\n")).unwrap();
    }

    fn nic(id: u16, device: &str) -> PortSample {
        let port = fixture::port(id, 1_000);
        PortSample { device: device.into(), rx_queues: 2, mtu: 1500, ..port }
    }

    /// A reply of DPDK 24.11.
    const TOLD: &str = r#"{"mempool_name":"mb_pool_0","socket_id":0,"host_threshold":8,
        "prefetch_threshold":8,"writeback_threshold":0,"free_threshold":32,"rx_drop_en":"off",
        "deferred_start":"off","rx_nseg":0,"share_group":0,"share_qid":0,"offloads":["RSS_HASH"],
        "rx_nmempool":0,"scattered_rx":"off","queue_state":1,"nb_desc":1024,"rx_buf_size":0,
        "avail_thresh":0,"burst_flags":0,"burst_mode":"Vector AVX2"}"#;

    #[test]
    fn descriptors_are_asked_for_once_per_configuration() {
        let mut app = App::new(&[TOLD, TOLD]);
        let mut port = nic(0, NIC);
        assert_eq!(app.round(&[port.clone()]), (vec![Vec::new()], 0), "it may be starting");
        let known = vec![vec![Some(1024), Some(1024)]];
        assert_eq!(app.round(&[port.clone()]), (known.clone(), 2));
        assert_eq!(*app.asked.lock().unwrap(), ["/ethdev/rx_queue,0,0", "/ethdev/rx_queue,0,1"]);
        port.stats.rx_packets += 500;
        assert_eq!(app.round(&[port.clone()]), (known.clone(), 0));
        let changes: [fn(&mut PortSample); 3] =
            [|port| port.started = false, |port| port.mtu = 9000, |port| port.stats.rx_packets = 3];
        for change in changes {
            change(&mut port);
            assert_eq!(app.round(&[port.clone()]), (vec![Vec::new()], 0));
            let started = std::mem::replace(&mut port.started, true);
            if !started {
                assert_eq!(app.round(&[port.clone()]).1, 0);
            }
            assert_eq!(app.round(&[port.clone()]), (known.clone(), 2));
        }
    }

    #[test]
    fn the_pool_of_a_queue_is_noted_until_the_queue_changes() {
        let mut app = App::new(&[TOLD, "null"]);
        let port = nic(3, NIC);
        let mut pools = ["mb_pool_0", "other"].map(|name| fixture::pool(name, 10, 0));
        let mut feeds = |app: &mut App, port: &PortSample| {
            app.round(std::slice::from_ref(port));
            app.reader.note_feeds(&mut pools);
            pools.iter().map(|pool| pool.feeds.clone()).collect::<Vec<_>>()
        };
        let unknown = vec![Vec::new(), Vec::new()];
        assert_eq!(feeds(&mut app, &port), unknown);
        let known = vec![vec![FedQueue { port: 3, queue: 0 }], Vec::new()];
        assert_eq!(feeds(&mut app, &port), known);
        let changed = PortSample { started: false, ..port };
        assert_eq!(feeds(&mut app, &changed), unknown);
    }

    #[test]
    fn an_app_with_a_port_that_was_not_reviewed_is_not_asked() {
        for other in ["0000:04:00.0", "0000:05:00.0", "net_virtio_user0", "0000:03:00.0_rep0"] {
            let mut app = App::new(&[TOLD, TOLD]);
            for _ in 0..3 {
                let (known, asked) = app.round(&[nic(0, NIC), nic(1, other)]);
                assert_eq!((known, asked), (vec![Vec::new(); 2], 0), "{other}");
            }
        }
    }

    #[test]
    fn a_stopped_port_is_not_asked_nor_in_the_way() {
        let mut app = App::new(&[TOLD, TOLD]);
        let ports = [nic(0, NIC), PortSample { started: false, ..nic(1, NIC) }];
        app.round(&ports);
        let known = vec![vec![Some(1024), Some(1024)], Vec::new()];
        assert_eq!(app.round(&ports), (known, 2));
    }

    #[test]
    fn queues_that_are_not_told_stay_unknown() {
        let mut app = App::new(&["null", TOLD]);
        app.round(&[nic(0, NIC)]);
        assert_eq!(app.round(&[nic(0, NIC)]), (vec![vec![None, Some(1024)]], 2));
        assert_eq!(app.round(&[nic(0, NIC)]).1, 0);
        let mut app = App::new(&["7"]);
        app.round(&[nic(0, NIC)]);
        assert_eq!(app.round(&[nic(0, NIC)]), (vec![vec![None, None]], 2), "of another kind");
    }
}
