//! Turns the replies of one app into a sample.

mod linked;
mod round;
mod stock;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::client::{Client, exe};
use crate::deadline::Deadline;
use crate::discover::App;
use crate::endpoint::{ArmTime, Endpoint};
use crate::error::Error;
use crate::lock::AppLock;
use crate::reply::Armed;
use crate::sample::{AppIdentity, PoolSample, RingSample, SAMPLE_SCHEMA, Sample};
use round::Round;

/// How often a stock app is asked again whether it has initialised libpmdscope by now.
const COMMANDS_AGE: Duration = Duration::from_millis(900);

/// Gathers samples of one app over a kept connection, and connects again when the app restarts.
#[derive(Debug)]
pub struct Collector {
    app: App,
    lock: Option<AppLock>,
    session: Option<Session>,
}

/// One connection, and what is known of the app behind it.
#[derive(Debug)]
struct Session {
    client: Client,
    facts: Facts,
}

/// What does not change, or hardly, while an app runs.
#[derive(Debug)]
struct Facts {
    identity: AppIdentity,
    commands: BTreeSet<String>,
    commands_read: Option<Instant>,
    /// Pools of a DPDK that tells no counts: nothing in them changes.
    fixed_pools: Vec<PoolSample>,
}

impl Collector {
    /// A collector for `app`; connects at the first round.
    pub fn new(app: App) -> Self {
        Self { app, lock: None, session: None }
    }

    /// The app, as it was discovered.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Asks the app everything once, within `timeout`. Parts that fail are named in
    /// [`Sample::partial`].
    ///
    /// # Errors
    /// When nothing could be learned: the app is gone, stopped or out of connections, or another tool
    /// kept it busy. The next call starts afresh.
    pub fn collect(&mut self, timeout: Duration) -> Result<Sample, Error> {
        let began = Instant::now();
        let deadline = Deadline::after(timeout);
        let unlocked = self.open_lock().err();
        let guard = self.lock.as_ref().map(|lock| lock.hold(deadline)).transpose()?;
        let mut session = Session::resume(self.session.take(), &self.app, deadline)?;
        let mut round = Round::new(&mut session.client, deadline);
        if let Some(error) = unlocked {
            round.note("lock", &error);
        }
        let mut sample = session.facts.sample(&mut round);
        sample.requests = round.requests();
        sample.partial = round.finish(sample.tells_anything())?;
        drop(guard);
        sample.duration_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.session = Some(session);
        Ok(sample)
    }

    /// Arms or disarms the stamps of the app's leak ledger, within `timeout`.
    ///
    /// # Errors
    /// [`Error::Null`] when the app has no ledger; else as [`Collector::collect`].
    pub fn arm(&mut self, time: ArmTime, timeout: Duration) -> Result<Armed, Error> {
        let deadline = Deadline::after(timeout);
        // Without the lock another tool may disturb this request; it would fail, not go astray.
        let _ = self.open_lock();
        let _guard = self.lock.as_ref().map(|lock| lock.hold(deadline)).transpose()?;
        let mut session = Session::resume(self.session.take(), &self.app, deadline)?;
        let answer = session.client.request(&Endpoint::Arm(time), deadline);
        self.session = Some(session);
        answer
    }

    fn open_lock(&mut self) -> Result<(), Error> {
        if self.lock.is_none() {
            self.lock = Some(AppLock::open(&self.app.dir)?);
        }
        Ok(())
    }
}

impl Session {
    /// The connection of the last round where it is still good, else a new one.
    fn resume(kept: Option<Self>, app: &App, deadline: Deadline) -> Result<Self, Error> {
        match kept.filter(|kept| kept.client.is_usable()) {
            Some(kept) => Ok(kept),
            None => Self::start(app, deadline),
        }
    }

    fn start(app: &App, deadline: Deadline) -> Result<Self, Error> {
        let client = Client::connect(&app.socket, deadline)?;
        let peer = client.peer();
        let identity = AppIdentity {
            name: app.name.clone(),
            pid: peer.pid,
            start_ticks: peer.start_ticks,
            start_realtime_ns: 0,
            dpdk_version: client.banner().version.clone(),
            exe: exe(peer.pid).map(|path| path.to_string_lossy().into_owned()),
            eal_args: Vec::new(),
        };
        let facts = Facts {
            identity,
            commands: BTreeSet::new(),
            commands_read: None,
            fixed_pools: Vec::new(),
        };
        Ok(Self { client, facts })
    }
}

impl Facts {
    fn sample(&mut self, round: &mut Round<'_>) -> Sample {
        self.refresh(round);
        let ports = stock::ports(round);
        let tables = if self.knows(&Endpoint::Library) { linked::read(round) } else { None };
        let (pools, rings) = match &tables {
            Some(_) => (Vec::new(), Vec::new()),
            None => self.stock_objects(round),
        };
        let tables =
            tables.unwrap_or_else(|| linked::Tables { pools, rings, ..Default::default() });
        Sample {
            schema: SAMPLE_SCHEMA,
            realtime_ns: now_ns(ClockId::Realtime),
            monotonic_ns: now_ns(ClockId::Monotonic),
            duration_ns: 0,
            requests: 0,
            app: self.identity.clone(),
            ports,
            pools: tables.pools,
            queues: tables.queues,
            rings: tables.rings,
            lcores: tables.lcores,
            tee: tables.tee,
            ledger: tables.ledger,
            sites: tables.sites,
            stages: tables.stages,
            devices: Vec::new(),
            threads: Vec::new(),
            heaps: Vec::new(),
            usage: Vec::new(),
            secondaries: 0,
            control_shares_poll_cpu: None,
            library: tables.library,
            partial: Vec::new(),
        }
    }

    /// Asks once for what a running app does not change. An app may initialise libpmdscope long after
    /// its telemetry socket appeared, so a stock app is asked for its commands again now and then.
    fn refresh(&mut self, round: &mut Round<'_>) {
        let first = self.commands_read.is_none();
        let stale = self.commands_read.is_none_or(|read| read.elapsed() >= COMMANDS_AGE);
        let due = first || (stale && !self.knows(&Endpoint::Library));
        if let Some(commands) = due.then(|| round.ask(&Endpoint::Commands)).flatten() {
            self.commands = commands;
            self.commands_read = Some(Instant::now());
        }
        if first && self.knows(&Endpoint::EalParams) {
            self.identity.eal_args = round.ask(&Endpoint::EalParams).unwrap_or_default();
        }
    }

    fn knows(&self, endpoint: &Endpoint) -> bool {
        self.commands.contains(endpoint.command())
    }

    fn stock_objects(&mut self, round: &mut Round<'_>) -> (Vec<PoolSample>, Vec<RingSample>) {
        let pools = stock::pools(round, &mut self.fixed_pools);
        let rings =
            if self.knows(&Endpoint::RingList) { stock::rings(round, &pools) } else { Vec::new() };
        (pools, rings)
    }
}

/// A clock in nanoseconds; neither clock is ever negative.
pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
