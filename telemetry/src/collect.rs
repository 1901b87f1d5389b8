//! Collects samples from the replies of one app.

mod cached;
pub(crate) mod descriptors;
mod foreign_captures;
mod host;
mod lcore_roles;
mod linked;
mod netdevs;
mod ports;
mod round;
mod stock;
mod threads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{SocketPeer, TelemetryClient};
use crate::clock::{monotonic_ns, realtime_ns};
use crate::commands::{ArmTime, PortId, TelemetryCommand};
use crate::deadline::Deadline;
use crate::discover::DiscoveredApp;
use crate::error::TelemetryError;
use crate::host::handle::ProcessHandle;
use crate::host::process;
use crate::lock::RoundLock;
use crate::occupancy::OccupancyReader;
use crate::queue_histograms::QueueHistograms;
use crate::raw_replies::RawReplies;
use crate::reply::ArmReply;
use crate::sample::{
    AppIdentity, EndedProcess, LOCK_PART, PortEventsSample, PortSample, SAMPLE_SCHEMA, Sample,
};
use crate::scans::ScanResults;
use crate::tracer::LcoreTracer;
use cached::Cached;
use host::HostReader;
use round::RequestRound;

/// Maximum age of facts that change now and then: lists of objects, links of ports, ledgers of leaks,
/// captures. A little less than a second, so that samples at one-second intervals always have new
/// values.
const FACTS_AGE: Duration = Duration::from_millis(900);

/// Maximum age of facts that hardly change, or are expensive for the app.
const SLOW: Duration = Duration::from_secs(10);

/// An app that runs for longer has initialised libpmdscope, or probably never will.
const YOUTH: Duration = Duration::from_secs(60);

/// Collects samples of one app over a persistent connection; reconnects when the app restarts.
#[derive(Debug)]
pub struct SampleCollector {
    app: DiscoveredApp,
    lock: RoundLock,
    cache: ConnectionCache,
    tracer: Option<Arc<dyn LcoreTracer>>,
    occupancy: Option<Arc<dyn OccupancyReader>>,
    scans: Option<Arc<ScanResults>>,
    replies: Option<Arc<RawReplies>>,
    histograms: Arc<QueueHistograms>,
}

/// The connection of the previous round, and the process behind it.
#[derive(Debug, Default)]
struct ConnectionCache {
    connection: Option<Connection>,
    /// The process that answered last, and its start time: the time that the kernel reports may
    /// change by a second now and then.
    started: Option<(SocketPeer, u64)>,
    /// The process that answered last.
    process: Option<ProcessHandle>,
    /// The process before it, until its exit status is known.
    ended: Option<ProcessHandle>,
    predecessor: Option<EndedProcess>,
}

/// A connection, and the state of the app behind it.
#[derive(Debug)]
struct Connection {
    client: TelemetryClient,
    facts: CollectorState,
    host: HostReader,
}

/// Data of a running app that do not change, or rarely do.
#[derive(Debug)]
struct CollectorState {
    identity: AppIdentity,
    connected: Instant,
    commands: Cached<BTreeSet<String>>,
    ports: ports::PortReader,
    descriptors: descriptors::DescriptorReader,
    pools: stock::StockPoolReader,
    rings: stock::StockRingReader,
    heaps: stock::HeapReader,
    usage: stock::LcoreUsageReader,
    roles: lcore_roles::LcoreRoleReader,
    linked: linked::LibraryReader,
    /// Events of ports, as libpmdscope reported them last.
    port_events: Vec<PortEventsSample>,
}

impl SampleCollector {
    /// Returns a collector for `app`; it connects in the first round.
    pub fn new(app: DiscoveredApp) -> Self {
        let (lock, cache) = (RoundLock::default(), ConnectionCache::default());
        Self {
            app,
            lock,
            cache,
            tracer: None,
            occupancy: None,
            scans: None,
            replies: None,
            histograms: Arc::default(),
        }
    }

    /// Sets a tracer, which adds to the samples.
    #[must_use]
    pub fn with_tracer(self, tracer: Option<Arc<dyn LcoreTracer>>) -> Self {
        Self { tracer, ..self }
    }

    /// Sets a reader that counts pools and rings of an app without libpmdscope.
    #[must_use]
    pub fn with_occupancy(self, occupancy: Option<Arc<dyn OccupancyReader>>) -> Self {
        Self { occupancy, ..self }
    }

    /// Sets the results of scans, which are added to the samples.
    #[must_use]
    pub fn with_scans(self, scans: Option<Arc<ScanResults>>) -> Self {
        Self { scans, ..self }
    }

    /// Sets a store for the raw replies of the app.
    #[must_use]
    pub fn with_replies(self, replies: Option<Arc<RawReplies>>) -> Self {
        Self { replies, ..self }
    }

    /// Requests histograms of queues while `histograms` wants them.
    #[must_use]
    pub fn with_histograms(self, histograms: Arc<QueueHistograms>) -> Self {
        Self { histograms, ..self }
    }

    /// Returns the app as it was discovered, with the process that answered last.
    pub fn app(&self) -> &DiscoveredApp {
        &self.app
    }

    /// Whether the connection of the last round is still open.
    pub(crate) fn is_connected(&self) -> bool {
        self.cache.connection.as_ref().is_some_and(|connection| connection.client.is_usable())
    }

    /// Discards all that is known of the app.
    pub(crate) fn reset(&mut self) {
        self.lock = RoundLock::default();
        self.cache = ConnectionCache::default();
    }

    /// Changes the name of the app.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.app.name);
        if let Some(connection) = &mut self.cache.connection {
            name.clone_into(&mut connection.facts.identity.name);
        }
    }

    /// Makes all requests of a round, within `timeout`. Parts that fail are named in
    /// [`Sample::partial`].
    ///
    /// # Errors
    /// When nothing was answered: the app is gone, stopped or out of connections. The next call
    /// starts afresh.
    pub fn collect(&mut self, timeout: Duration) -> Result<Sample, TelemetryError> {
        let began = Instant::now();
        let deadline = Deadline::after(timeout);
        self.refresh_lock();
        let (guard, unlocked) = self.lock.hold(&self.app.dir, deadline);
        let mut connection = self.cache.resume(&self.app, deadline)?;
        self.app.pid = Some(connection.client.peer().pid).filter(|pid| *pid > 0).or(self.app.pid);
        let keeper = self.replies.as_ref().and_then(|replies| replies.keeper(&self.app.name));
        connection.client.keep_replies(keeper);
        let mut round = RequestRound::new(&mut connection.client, deadline);
        if let Some(error) = unlocked {
            round.note(LOCK_PART, &error);
        }
        let mut sample = connection.facts.sample(&mut round, self.histograms.wanted());
        sample.requests = round.requests();
        sample.partial = round.finish(sample.tells_anything())?;
        drop(guard);
        sample.predecessor = self.cache.predecessor();
        connection.host.complete(&mut sample);
        if let Some(tracer) = &self.tracer {
            tracer.complete(&mut sample);
        }
        if let Some(occupancy) = self.occupancy.as_ref().filter(|_| sample.library.is_none()) {
            occupancy.complete(&self.app, &mut sample, deadline);
        }
        if let Some(scans) = &self.scans {
            scans.complete(&mut sample);
        }
        sample.duration_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.cache.connection = Some(connection);
        Ok(sample)
    }

    /// Arms or disarms the stamps of the app's leak ledger, within `timeout`.
    ///
    /// # Errors
    /// [`TelemetryError::Null`] when the app has no ledger; else as [`SampleCollector::collect`].
    pub fn arm(&mut self, time: ArmTime, timeout: Duration) -> Result<ArmReply, TelemetryError> {
        let deadline = Deadline::after(timeout);
        // Without the lock another tool may disturb this request; it would fail, but not do something else.
        self.refresh_lock();
        let _guard = self.lock.hold(&self.app.dir, deadline);
        let mut connection = self.cache.resume(&self.app, deadline)?;
        let answer = connection.client.request(&TelemetryCommand::Arm(time), deadline);
        self.cache.connection = Some(connection);
        answer
    }

    fn refresh_lock(&mut self) {
        if !self.is_connected() {
            self.lock.reset();
        }
    }
}

impl ConnectionCache {
    /// Returns the connection of the last round if it is usable, otherwise a new one.
    fn resume(
        &mut self,
        app: &DiscoveredApp,
        deadline: Deadline,
    ) -> Result<Connection, TelemetryError> {
        if let Some(kept) = self.connection.take().filter(|kept| kept.client.is_usable()) {
            return Ok(kept);
        }
        let client = TelemetryClient::connect(&app.socket, deadline)?;
        let peer = client.peer();
        let known = self.started.filter(|(known, _)| *known == peer).map(|(_, start)| start);
        let start = known.unwrap_or_else(|| {
            let ticks = Some(peer.start_ticks).filter(|ticks| *ticks > 0);
            ticks.and_then(process::realtime_ns).unwrap_or(0)
        });
        if known.is_none() {
            self.follow(peer);
        }
        self.started = Some((peer, start));
        let facts = CollectorState::new(app, &client, start);
        let host = HostReader::new(&app.dir, peer.pid);
        Ok(Connection { client, facts, host })
    }
}

impl ConnectionCache {
    /// Notes that another process answers from now on.
    fn follow(&mut self, peer: SocketPeer) {
        self.predecessor = None;
        self.ended = std::mem::replace(&mut self.process, ProcessHandle::open(peer));
    }

    /// Returns how the previous process ended, if that is known by now.
    fn predecessor(&mut self) -> Option<EndedProcess> {
        if let Some(ended) = &self.ended
            && let Some(wait_status) = ended.wait_status()
        {
            let SocketPeer { pid, start_ticks } = ended.process();
            self.predecessor = Some(EndedProcess { pid, start_ticks, wait_status });
            self.ended = None;
        }
        self.predecessor
    }
}

impl CollectorState {
    fn new(app: &DiscoveredApp, client: &TelemetryClient, start_realtime_ns: u64) -> Self {
        let peer = client.peer();
        let exe = process::exe(peer.pid);
        Self {
            identity: AppIdentity {
                name: app.name.clone(),
                pid: peer.pid,
                start_ticks: peer.start_ticks,
                start_realtime_ns,
                dpdk_version: client.banner().version.clone(),
                exe: exe.map(|path| path.to_string_lossy().into_owned()),
                eal_args: Vec::new(),
                container: app.container.clone(),
            },
            connected: Instant::now(),
            commands: Cached::default(),
            ports: ports::PortReader::default(),
            descriptors: descriptors::DescriptorReader::default(),
            pools: stock::StockPoolReader::default(),
            rings: stock::StockRingReader::default(),
            heaps: stock::HeapReader::default(),
            usage: stock::LcoreUsageReader::default(),
            roles: lcore_roles::LcoreRoleReader::default(),
            linked: linked::LibraryReader::default(),
            port_events: Vec::new(),
        }
    }

    fn sample(&mut self, round: &mut RequestRound<'_>, histograms: bool) -> Sample {
        self.refresh(round);
        let due = self.ports.list(round);
        let linked = self.knows(&TelemetryCommand::Library);
        self.announce(round, due.as_ref(), linked.then_some(histograms));
        let tables = linked.then(|| self.linked.read(round, histograms)).flatten();
        let mut ports = due.map(|due| self.ports.read(round, &due)).unwrap_or_default();
        let tables = tables.unwrap_or_else(|| self.stock_objects(round, &mut ports));
        if tables.rare.port_events != self.port_events {
            self.port_events.clone_from(&tables.rare.port_events);
            self.ports.forget_configuration();
        }
        let heaps = self.knows(&TelemetryCommand::HeapList).then(|| self.heaps.read(round));
        let usage = self.knows(&TelemetryCommand::LcoreUsage).then(|| self.usage.read(round));
        let roles = self.knows(&TelemetryCommand::LcoreList).then(|| self.roles.read(round));
        Sample {
            schema: SAMPLE_SCHEMA,
            realtime_ns: realtime_ns(),
            monotonic_ns: monotonic_ns(),
            app: self.identity.clone(),
            ports,
            pools: tables.pools,
            queues: tables.queues,
            rings: tables.rings,
            lcores: tables.lcores,
            tee: tables.rare.tee,
            ledger: tables.rare.ledger,
            sites: tables.rare.sites,
            stages: tables.rare.stages,
            port_events: tables.rare.port_events,
            heaps: heaps.unwrap_or_default(),
            usage: usage.unwrap_or_default(),
            roles: roles.unwrap_or_default(),
            library: tables.library,
            ..Sample::default()
        }
    }

    /// Announces the next requests: the tables of libpmdscope first, since the app needs longest for
    /// them, then those for the ports.
    fn announce(
        &self,
        round: &mut RequestRound<'_>,
        due: Option<&ports::DueFacts>,
        histograms: Option<bool>,
    ) {
        let tables = histograms.map(|histograms| self.linked.requests(histograms));
        // Before the first round of an app with libpmdscope, its tables are unknown.
        let Some(mut requests) = tables.unwrap_or(Some(Vec::new())) else { return };
        if histograms.is_none() || !self.linked.is_paged() {
            requests.extend(due.into_iter().flat_map(|due| self.ports.requests(due)));
        }
        round.announce(requests);
    }

    /// Requests once what does not change in a running app. An app may initialise libpmdscope long
    /// after its telemetry socket appeared, so the commands of a stock app are requested again
    /// periodically.
    fn refresh(&mut self, round: &mut RequestRound<'_>) {
        let now = Instant::now();
        let age = if self.is_young(now) { FACTS_AGE } else { SLOW };
        let unlinked = !self.knows(&TelemetryCommand::Library);
        let due = unlinked && self.commands.is_older(now, age);
        if let Some(commands) = due.then(|| round.ask(&TelemetryCommand::Commands)).flatten() {
            self.commands.set(now, commands);
        }
        if self.identity.eal_args.is_empty() && self.knows(&TelemetryCommand::EalParams) {
            self.identity.eal_args = round.ask(&TelemetryCommand::EalParams).unwrap_or_default();
        }
    }

    /// If `/proc` does not report its start, an app is as old as this connection.
    fn is_young(&self, now: Instant) -> bool {
        let age = match self.identity.start_realtime_ns {
            0 => now.saturating_duration_since(self.connected),
            start => Duration::from_nanos(realtime_ns().saturating_sub(start)),
        };
        age < YOUTH
    }

    fn knows(&self, endpoint: &TelemetryCommand) -> bool {
        self.commands.value().contains(endpoint.command())
    }

    fn stock_objects(
        &mut self,
        round: &mut RequestRound<'_>,
        ports: &mut [PortSample],
    ) -> linked::LibraryTables {
        if self.knows(&TelemetryCommand::EthdevRxQueue(PortId(0), 0)) {
            self.descriptors.complete(round, ports);
        }
        let mut pools = self.pools.read(round);
        self.descriptors.note_feeds(&mut pools);
        let rings = self.knows(&TelemetryCommand::RingList).then(|| self.rings.read(round, &pools));
        let rings = rings.unwrap_or_default();
        linked::LibraryTables { pools, rings, ..linked::LibraryTables::default() }
    }
}
