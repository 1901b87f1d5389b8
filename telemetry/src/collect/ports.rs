//! Ports: their configuration, links and counters.
//!
//! Data that change rarely are requested less often: links once a second, and the configuration of
//! the ports in turn. The basic counters are read from the extended ones, which repeat them: so a
//! round that follows another within a second takes one request per port.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::client::TelemetryClient;
use crate::commands::{PortId, TelemetryCommand};
use crate::error::TelemetryError;
use crate::reply::{
    LinkReply, LinkState, PortCountersReply, PortInfo, PortReply, PortShape, UnsignedNumber,
    XstatsReply, XstatsShape,
};
use crate::sample::{PortSample, PortStats, QueueDirection};

use super::FACTS_AGE;
use super::cached::Cached;
use super::round::RequestRound;

/// Maximum age of the configuration of a port when its link is requested.
const CONFIGURATION_AGE: Duration = Duration::from_millis(4500);

/// One in this many ports, those with the oldest configuration, is due after half of that time, so that
/// ports take turns and are not all requested in the same round.
const TURNS: usize = 4;

/// DPDK drops the entries of a dictionary beyond this number.
const DICT_LIMIT: usize = 256;

/// The speed that a driver reports if it is unknown.
const SPEED_UNKNOWN: u64 = u32::MAX as u64;

/// A port is read again completely if its rate exceeds this multiple of its last rate.
const REREAD_GROWTH: f64 = 8.0;

/// Factor by which a remembered rate decays from one round to the next, at most.
const RATE_DECAY: f64 = 0.9;

/// Growth in packets that never counts as a surge.
const SMALL_GROWTH: f64 = 10_000.0;

/// The ports of one app, cached.
#[derive(Debug, Default)]
pub(super) struct PortReader {
    ids: Cached<Vec<PortId>>,
    known: BTreeMap<PortId, KnownPort>,
    /// Whether the configuration of all ports must be read.
    is_changed: bool,
}

/// A port as in the previous round. A port for which any request failed is not cached.
#[derive(Debug)]
struct KnownPort {
    port: PortSample,
    /// Names of the extended counters, in the order of the reply.
    names: Vec<String>,
    /// Indexes of the basic counters in the reply.
    basic: [usize; PortStats::NAMES.len()],
    /// Indexes in the reply of the extended counters of `port`, by name.
    order: Vec<usize>,
    read: Instant,
    /// When its configuration was read.
    configured: Instant,
    /// Packets received and sent per second; `None` until the second round.
    rates: Option<[f64; 2]>,
}

/// What is requested about ports in one round, besides their counters.
#[derive(Debug, Default)]
pub(super) struct DueFacts {
    links: bool,
    configuration: Vec<PortId>,
}

impl PortReader {
    /// Lists the ports, if that is due; returns what to request about them in this round. `None` if
    /// the list could not be read.
    pub(super) fn list(&mut self, round: &mut RequestRound<'_>) -> Option<DueFacts> {
        let now = Instant::now();
        if !self.ids.is_older(now, FACTS_AGE) {
            return Some(DueFacts::default());
        }
        let Some(ids) = round.list(&TelemetryCommand::EthdevList, TelemetryClient::ports) else {
            *self = Self::default();
            return None;
        };
        self.known.retain(|id, _| ids.contains(id));
        self.ids.set(now, ids);
        Some(DueFacts { links: true, configuration: self.unconfigured(now) })
    }

    /// Returns the requests that [`PortReader::read`] makes first.
    pub(super) fn requests(&self, due: &DueFacts) -> Vec<TelemetryCommand> {
        self.shaped_requests(due).into_iter().map(|(_, (command, _))| command).collect()
    }

    /// Reads the ports. A port without counters is left out, since zeros would be wrong.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>, due: &DueFacts) -> Vec<PortSample> {
        let mut counted = self.ask(round, due);
        let mut ids = self.ids.value().clone();
        let failed = counted.iter().find(|(_, told)| told.counters.is_err()).map(|(id, _)| *id);
        // Later requests fail only because the connection is lost; this error has the reason.
        if let Some(id) = failed.filter(|_| round.is_over()) {
            self.known.remove(&id);
            ids.retain(|other| *other != id);
            let asked = counted.remove(&id).map(|told| told.counters);
            asked.map(|asked| round.keep(TelemetryCommand::EthdevXstats(id), asked));
        }
        let port = |id: &PortId| self.port(round, *id, counted.remove(id));
        let ports: Vec<_> = ids.iter().filter_map(port).collect();
        if ports.len() < self.ids.value().len() {
            self.ids.forget();
        }
        ports
    }

    /// Makes the next list request the configuration of all ports.
    pub(super) fn forget_configuration(&mut self) {
        self.is_changed = true;
    }

    /// Returns the ports that are due for their configuration.
    fn unconfigured(&mut self, now: Instant) -> Vec<PortId> {
        let all = std::mem::take(&mut self.is_changed);
        let mut ports: Vec<_> =
            self.known.iter().map(|(id, known)| (known.configured, *id)).collect();
        ports.sort_unstable();
        let turn = ports.len().div_ceil(TURNS);
        let due = |(at, (read, _)): &(usize, (Instant, PortId))| {
            let age = now.saturating_duration_since(*read);
            all || age >= CONFIGURATION_AGE || (*at < turn && age >= CONFIGURATION_AGE / 2)
        };
        ports.into_iter().enumerate().filter(due).map(|(_, (_, id))| id).collect()
    }

    /// Returns requests for the ports with known rates: for their extended counters, and for their
    /// facts, which are the links and the configuration of those that are `due`.
    fn shaped_requests(&self, due: &DueFacts) -> Vec<(PortId, (TelemetryCommand, PortShape<'_>))> {
        let known = || self.known.iter().filter(|(_, known)| known.rates.is_some());
        let counters = known().map(|(id, known)| {
            let shape = PortShape::Xstats(XstatsShape { known: &known.names });
            (*id, (TelemetryCommand::EthdevXstats(*id), shape))
        });
        let is_due = |id: &&PortId| due.configuration.contains(id);
        let infos = known().map(|(id, _)| id).filter(is_due);
        let infos = infos.map(|id| (*id, (TelemetryCommand::EthdevInfo(*id), PortShape::Info)));
        let links = known().filter(|_| due.links);
        let links =
            links.map(|(id, _)| (*id, (TelemetryCommand::EthdevLinkStatus(*id), PortShape::Link)));
        counters.chain(infos).chain(links).collect()
    }

    /// Makes the requests of `shaped_requests`.
    fn ask(&self, round: &mut RequestRound<'_>, due: &DueFacts) -> BTreeMap<PortId, PortReplies> {
        let (of, requests): (Vec<_>, Vec<_>) = self.shaped_requests(due).into_iter().unzip();
        let mut told: BTreeMap<PortId, PortReplies> =
            of.iter().map(|id| (*id, PortReplies::new(due, *id))).collect();
        let mut is_counted = true;
        for ((id, (command, _)), reply) in
            of.iter().zip(&requests).zip(round.request_each(&requests))
        {
            let Some(port) = told.get_mut(id) else { continue };
            match reply {
                Ok(PortReply::Xstats(counters)) => port.counters = Ok(counters),
                Ok(PortReply::Info(info)) => port.info = Fact::Told(info),
                Ok(PortReply::Link(link)) => port.link = Fact::Told(link),
                Err(error) if matches!(command, TelemetryCommand::EthdevXstats(_)) => {
                    (port.counters, is_counted) = (Err(error), false);
                }
                // Later requests fail only because the connection is lost; this error has the reason.
                Err(error) if is_counted && round.is_over() => {
                    round.keep::<()>(command, Err(error));
                }
                Err(_) => {}
            }
        }
        told
    }

    fn port(
        &mut self,
        round: &mut RequestRound<'_>,
        id: PortId,
        told: Option<PortReplies>,
    ) -> Option<PortSample> {
        let mut known = self.known.remove(&id);
        let again = match (&mut known, told) {
            (Some(known), Some(told)) => known.again(round, id, told),
            _ => Ok(false),
        };
        let (port, known) = match again {
            Ok(true) => (known.as_ref()?.port.clone(), known),
            Err(error) if round.is_over() => {
                return round.keep(TelemetryCommand::EthdevXstats(id), Err(error));
            }
            // If in doubt, everything is requested again.
            Ok(false) | Err(_) => whole(round, id, known.as_ref())?,
        };
        self.known.extend(known.map(|known| (id, known)));
        Some(port)
    }
}

/// The replies about a port when all ports are requested together.
#[derive(Debug)]
struct PortReplies {
    counters: Result<XstatsReply, TelemetryError>,
    info: Fact<PortInfo>,
    link: Fact<LinkReply>,
}

/// A fact that is not requested in each round.
#[derive(Debug)]
enum Fact<T> {
    /// The previous value is still valid.
    Known,
    /// It must be requested again.
    Failed,
    Told(T),
}

impl<T> Fact<T> {
    fn until_told(is_due: bool) -> Self {
        if is_due { Self::Failed } else { Self::Known }
    }
}

impl PortReplies {
    fn new(due: &DueFacts, id: PortId) -> Self {
        Self {
            counters: Err(TelemetryError::Closed),
            info: Fact::until_told(due.configuration.contains(&id)),
            link: Fact::until_told(due.links),
        }
    }
}

/// Requests everything about a port; it is cached if nothing failed.
fn whole(
    round: &mut RequestRound<'_>,
    id: PortId,
    before: Option<&KnownPort>,
) -> Option<(PortSample, Option<KnownPort>)> {
    let info = round.ask_about(&TelemetryCommand::EthdevInfo(id), |info| is_about(info, id))?;
    let Counters { stats, xstats, queues, cut } = counters(round, id)?;
    let link = round.ask_about(&TelemetryCommand::EthdevLinkStatus(id), |_: &LinkReply| true);
    let mut port = PortSample { id: id.0, stats, xstats_truncated: cut, ..PortSample::default() };
    configure(&mut port, info);
    let linked = link.is_some();
    connect(&mut port, link);
    let Some(xstats) = xstats else { return Some((port, None)) };
    let names = xstats.names.unwrap_or_default();
    port.xstats = names.iter().cloned().zip(xstats.values).collect();
    if let Some(queues) = unnamed_queues(&port, &queues) {
        port.xstats.extend(queues);
        return Some((port, None));
    }
    let known = linked.then(|| KnownPort::new(&port, names, before)).flatten();
    Some((port, known))
}

impl KnownPort {
    /// Returns `None` for a driver with extended counters that do not repeat the basic ones.
    fn new(port: &PortSample, names: Vec<String>, before: Option<&Self>) -> Option<Self> {
        let place = |name: &str| names.iter().rposition(|known| known == name);
        let mut basic = [0; PortStats::NAMES.len()];
        for (at, name) in basic.iter_mut().zip(PortStats::NAMES) {
            *at = place(name)?;
        }
        let order = port.xstats.names().map(place).collect::<Option<_>>()?;
        let (read, port) = (Instant::now(), port.clone());
        let mut known = Self { port, names, basic, order, read, configured: read, rates: None };
        let before = before.filter(|before| before.port.device == known.port.device);
        known.rates = before.and_then(|before| before.rates_until(&known.port.stats, read));
        Some(known)
    }

    /// Applies the replies to the port, and requests again what failed. False if the counters may be
    /// those of another port.
    fn again(
        &mut self,
        round: &mut RequestRound<'_>,
        id: PortId,
        told: PortReplies,
    ) -> Result<bool, TelemetryError> {
        let xstats = told.counters?;
        let about = |info: &PortInfo| is_about(info, id) && info.name == self.port.device;
        let info = match told.info {
            Fact::Known => None,
            Fact::Told(info) if about(&info) => Some(info),
            Fact::Told(_) | Fact::Failed => {
                Some(round.request_about(&TelemetryCommand::EthdevInfo(id), about)?)
            }
        };
        if let Some(info) = info {
            configure(&mut self.port, info);
            self.configured = Instant::now();
        }
        if xstats.names.is_some() || !self.count(&xstats.values) {
            return Ok(false);
        }
        let status = TelemetryCommand::EthdevLinkStatus(id);
        let link = match told.link {
            Fact::Known => return Ok(true),
            Fact::Told(link) => link,
            Fact::Failed => round.request_about(&status, |_: &LinkReply| true)?,
        };
        connect(&mut self.port, Some(link));
        Ok(true)
    }

    /// Sets the counters; false if they went back, or grew much faster than before.
    fn count(&mut self, values: &[u64]) -> bool {
        let value = |at: usize| values.get(at).copied().unwrap_or(0);
        let (stats, now) = (PortStats::from(self.basic.map(value)), Instant::now());
        let seconds = now.saturating_duration_since(self.read).as_secs_f64().max(1e-6);
        let (Some(past), Some(rates)) = (self.rates, self.rates_until(&stats, now)) else {
            return false;
        };
        let surge =
            |(rate, past): (&f64, &f64)| *rate > REREAD_GROWTH * past + SMALL_GROWTH / seconds;
        if rates.iter().zip(&past).any(surge) {
            return false;
        }
        for (counter, at) in self.port.xstats.values_mut().iter_mut().zip(&self.order) {
            *counter = value(*at);
        }
        (self.port.stats, self.read, self.rates) = (stats, now, Some(rates));
        true
    }

    /// Returns the rates since the last reading, but at least [`RATE_DECAY`] times the previous ones, since
    /// traffic is bursty; `None` if a counter went back.
    fn rates_until(&self, stats: &PortStats, now: Instant) -> Option<[f64; 2]> {
        let seconds = now.saturating_duration_since(self.read).as_secs_f64().max(1e-6);
        let (new, old) = (stats.values(), self.port.stats.values());
        if new.iter().zip(&old).any(|(new, old)| new < old) {
            return None;
        }
        let past = self.rates.unwrap_or_default().map(|rate| rate * RATE_DECAY);
        let rate = |at: usize| (new[at] - old[at]) as f64 / seconds;
        Some([rate(0).max(past[0]), rate(1).max(past[1])])
    }
}

fn is_about(info: &PortInfo, id: PortId) -> bool {
    info.port_id.0 == u64::from(id.0)
}

fn configure(port: &mut PortSample, info: PortInfo) {
    port.device = info.name;
    port.started = info.dev_started.0 != 0;
    port.mtu = info.mtu.0;
    port.rx_queues = info.nb_rx_queues;
    port.tx_queues = info.nb_tx_queues;
    port.numa_node = info.numa_node;
    port.promiscuous = info.promiscuous.map(|promiscuous| promiscuous.0 != 0);
    port.mac = info.mac_addr;
    port.rx_queues_stopped = stopped(&info.rxq_state);
}

/// Returns the queues that are stopped while others of the port are not: before DPDK 23.11, many drivers
/// report all as stopped.
fn stopped(states: &[UnsignedNumber]) -> Vec<u16> {
    let queues = (0..=u16::MAX).zip(states);
    let stopped: Vec<_> =
        queues.filter(|(_, state)| state.0 == 0).map(|(queue, _)| queue).collect();
    if stopped.len() < states.len() { stopped } else { Vec::new() }
}

fn connect(port: &mut PortSample, link: Option<LinkReply>) {
    port.link_up = link.as_ref().map(|link| link.status == LinkState::Up);
    let speed = link.and_then(|link| link.speed).map(|speed| speed.0);
    port.link_mbps = speed.filter(|mbps| ![0, SPEED_UNKNOWN].contains(mbps));
}

/// The counters of a port.
struct Counters {
    stats: PortStats,
    xstats: Option<XstatsReply>,
    /// Received packets by queue.
    queues: Vec<u64>,
    /// Whether DPDK may have truncated the extended counters.
    cut: bool,
}

/// Requests basic and extended counters. Neither reply names its port; but the extended ones,
/// requested later, repeat the basic ones and cannot be below them. If they are, one of the two is
/// about another port, or the counters were reset: both are requested again, and the second answer is
/// used.
fn counters(round: &mut RequestRound<'_>, id: PortId) -> Option<Counters> {
    let first = counters_once(round, id)?;
    match &first {
        Counters { stats, xstats: Some(xstats), .. } if !agree(stats, xstats) => {
            counters_once(round, id)
        }
        _ => Some(first),
    }
}

fn counters_once(round: &mut RequestRound<'_>, id: PortId) -> Option<Counters> {
    let basic: PortCountersReply = round.ask_about(&TelemetryCommand::EthdevStats(id), |_| true)?;
    let stats = PortStats::from([
        basic.ipackets.0,
        basic.opackets.0,
        basic.ibytes.0,
        basic.obytes.0,
        basic.imissed.0,
        basic.ierrors.0,
        basic.oerrors.0,
        basic.rx_nombuf.0,
    ]);
    let endpoint = TelemetryCommand::EthdevXstats(id);
    let asked = round.request_about_as(&endpoint, XstatsShape { known: &[] }, |_| true);
    let xstats = round.keep(&endpoint, asked);
    let cut = xstats.as_ref().is_some_and(|xstats| xstats.values.len() >= DICT_LIMIT)
        || (xstats.is_some() && round.reply_nearly_full());
    let queues = basic.q_ipackets.iter().map(|packets| packets.0).collect();
    Some(Counters { stats, xstats, queues, cut })
}

/// Returns the packets of receive queues under the names that DPDK gives them, if the driver counts them
/// and has no extended counters for them. Of one queue they are those of the port.
fn unnamed_queues(port: &PortSample, packets: &[u64]) -> Option<Vec<(String, u64)>> {
    let counts = packets.iter().any(|packets| *packets > 0);
    if port.rx_queues < 2 || !counts || !port.queue_counters(QueueDirection::Rx).is_empty() {
        return None;
    }
    let queues = packets.iter().take(usize::from(port.rx_queues)).enumerate();
    Some(queues.map(|(queue, packets)| (format!("rx_q{queue}_packets"), *packets)).collect())
}

fn agree(stats: &PortStats, xstats: &XstatsReply) -> bool {
    let names = xstats.names.as_deref().unwrap_or_default();
    let extended = |name| {
        let at = names.iter().rposition(|known| known == name)?;
        xstats.values.get(at).copied()
    };
    let repeats = [("rx_good_packets", stats.rx_packets), ("tx_good_packets", stats.tx_packets)];
    repeats.iter().all(|(name, basic)| extended(name).is_none_or(|extended| extended >= *basic))
}
