//! Ports: their configuration, links and counters.
//!
//! What does not change by the millisecond is asked for less often: links once a second, and the
//! configuration of the ports in turn. The basic counters are read from the extended ones, which repeat
//! them: so a round that follows another within a second takes one request per port.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::client::TelemetryClient;
use crate::commands::{PortId, TelemetryCommand};
use crate::error::TelemetryError;
use crate::reply::{
    LinkReply, LinkState, PortCountersReply, PortInfo, PortReply, PortShape, XstatsReply,
    XstatsShape,
};
use crate::sample::{PortSample, PortStats};

use super::FACTS_AGE;
use super::cached::Cached;
use super::round::RequestRound;

/// How old the configuration of a port may be when its link is asked for.
const CONFIGURATION_AGE: Duration = Duration::from_millis(4500);

/// Of one in so many ports, those that were asked longest ago, it is asked for after half of that time: so
/// that they have their turns, and are not all asked at once.
const TURNS: usize = 4;

/// DPDK drops the entries of a dict beyond this number.
const DICT_LIMIT: usize = 256;

/// What the driver gives as speed when it does not know.
const SPEED_UNKNOWN: u64 = u32::MAX as u64;

/// The extended counters that repeat the basic ones, in the order of [`counts`].
const BASIC: [&str; 8] = [
    "rx_good_packets",
    "tx_good_packets",
    "rx_good_bytes",
    "tx_good_bytes",
    "rx_missed_errors",
    "rx_errors",
    "tx_errors",
    "rx_mbuf_allocation_errors",
];

/// A port that grows faster than this many times its last rate is asked again.
const REREAD_GROWTH: f64 = 8.0;

/// What is left of a rate from one round to the next, at least.
const RATE_DECAY: f64 = 0.9;

/// Growth, in packets, that is no surge whatever the rate was.
const SMALL_GROWTH: f64 = 10_000.0;

/// The ports of one app, as far as they are remembered.
#[derive(Debug, Default)]
pub(super) struct PortReader {
    ids: Cached<Vec<PortId>>,
    known: BTreeMap<PortId, KnownPort>,
    /// The configuration of all of them is to be read.
    is_changed: bool,
}

/// A port as it was in the round before. One of which anything failed is not remembered.
#[derive(Debug)]
struct KnownPort {
    port: PortSample,
    /// Names of the extended counters, in the order of the reply.
    names: Vec<String>,
    /// Where in the reply the basic counters are.
    basic: [usize; BASIC.len()],
    /// Where in the reply the extended counters of `port` are, by name.
    order: Vec<usize>,
    read: Instant,
    /// When its configuration was read.
    configured: Instant,
    /// Packets received and sent per second; `None` until there were two rounds.
    rates: Option<[f64; 2]>,
}

/// What is asked about ports in one round, besides their counters.
#[derive(Debug, Default)]
pub(super) struct DueFacts {
    links: bool,
    configuration: Vec<PortId>,
}

impl PortReader {
    /// Lists the ports, if that is due: what is to be asked about them in this round. `None` if the list could
    /// not be read.
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

    /// The requests that [`PortReader::read`] makes first.
    pub(super) fn requests(&self, due: &DueFacts) -> Vec<TelemetryCommand> {
        self.shaped_requests(due).into_iter().map(|(_, (command, _))| command).collect()
    }

    /// The ports that could be read: one without counters is left out, since zeros would be a lie.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>, due: &DueFacts) -> Vec<PortSample> {
        let mut counted = self.ask(round, due);
        let mut ids = self.ids.value().clone();
        let failed = counted.iter().find(|(_, told)| told.counters.is_err()).map(|(id, _)| *id);
        // The rest will only say that the connection is lost, not why.
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

    /// Reads the configuration of all ports with their links the next time.
    pub(super) fn forget_configuration(&mut self) {
        self.is_changed = true;
    }

    /// The ports whose configuration is asked for now.
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

    /// The extended counters of the ports of which it is known how fast they grow, and their facts: the links,
    /// and the configuration of those that are `due`.
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

    /// Makes these requests.
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
                // Later requests only say that the connection is lost, not why.
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
            // In doubt everything is asked for.
            Ok(false) | Err(_) => whole(round, id, known.as_ref())?,
        };
        self.known.extend(known.map(|known| (id, known)));
        Some(port)
    }
}

/// What a port told when all were asked together.
#[derive(Debug)]
struct PortReplies {
    counters: Result<XstatsReply, TelemetryError>,
    info: Fact<PortInfo>,
    link: Fact<LinkReply>,
}

/// What is not asked for each time.
#[derive(Debug)]
enum Fact<T> {
    /// What was told before stands.
    Known,
    /// It has to be asked for again.
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

/// Everything about a port; it is remembered when nothing failed.
fn whole(
    round: &mut RequestRound<'_>,
    id: PortId,
    before: Option<&KnownPort>,
) -> Option<(PortSample, Option<KnownPort>)> {
    let info = round.ask_about(&TelemetryCommand::EthdevInfo(id), |info| is_about(info, id))?;
    let (stats, xstats, cut) = counters(round, id)?;
    let link = round.ask_about(&TelemetryCommand::EthdevLinkStatus(id), |_: &LinkReply| true);
    let mut port = PortSample { id: id.0, stats, xstats_truncated: cut, ..PortSample::default() };
    configure(&mut port, info);
    let linked = link.is_some();
    connect(&mut port, link);
    let Some(xstats) = xstats else { return Some((port, None)) };
    let names = xstats.names.unwrap_or_default();
    port.xstats = names.iter().cloned().zip(xstats.values).collect();
    let known = linked.then(|| KnownPort::new(&port, names, before)).flatten();
    Some((port, known))
}

impl KnownPort {
    /// `None` for a driver whose extended counters do not repeat the basic ones.
    fn new(port: &PortSample, names: Vec<String>, before: Option<&Self>) -> Option<Self> {
        let place = |name: &str| names.iter().rposition(|known| known == name);
        let mut basic = [0; BASIC.len()];
        for (at, name) in basic.iter_mut().zip(BASIC) {
            *at = place(name)?;
        }
        let order = port.xstats.names().map(place).collect::<Option<_>>()?;
        let (read, port) = (Instant::now(), port.clone());
        let mut known = Self { port, names, basic, order, read, configured: read, rates: None };
        let before = before.filter(|before| before.port.device == known.port.device);
        known.rates = before.and_then(|before| before.rates_until(&known.port.stats, read));
        Some(known)
    }

    /// Takes over what the port told, and asks again for what failed. False when the counters may be those
    /// of another port.
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

    /// Takes over counters; false when they went back, or grew as they never did.
    fn count(&mut self, values: &[u64]) -> bool {
        let value = |at: usize| values.get(at).copied().unwrap_or(0);
        let (stats, now) = (port_stats(self.basic.map(value)), Instant::now());
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

    /// Rates since the last reading, or a little less than before, since traffic comes in bursts;
    /// `None` when a counter went back.
    fn rates_until(&self, stats: &PortStats, now: Instant) -> Option<[f64; 2]> {
        let seconds = now.saturating_duration_since(self.read).as_secs_f64().max(1e-6);
        let (new, old) = (counts(stats), counts(&self.port.stats));
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
}

fn connect(port: &mut PortSample, link: Option<LinkReply>) {
    port.link_up = link.as_ref().map(|link| link.status == LinkState::Up);
    let speed = link.and_then(|link| link.speed).map(|speed| speed.0);
    port.link_mbps = speed.filter(|mbps| ![0, SPEED_UNKNOWN].contains(mbps));
}

/// Basic and extended counters. Neither reply names its port; but the extended ones, asked later,
/// repeat the basic ones and cannot be below them. If they are, one of the two is about another port,
/// or the counters were reset: both are asked again, and that answer stands.
fn counters(
    round: &mut RequestRound<'_>,
    id: PortId,
) -> Option<(PortStats, Option<XstatsReply>, bool)> {
    let first = counters_once(round, id)?;
    match &first {
        (stats, Some(xstats), _) if !agree(stats, xstats) => counters_once(round, id),
        _ => Some(first),
    }
}

fn counters_once(
    round: &mut RequestRound<'_>,
    id: PortId,
) -> Option<(PortStats, Option<XstatsReply>, bool)> {
    let basic: PortCountersReply = round.ask_about(&TelemetryCommand::EthdevStats(id), |_| true)?;
    let stats = port_stats([
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
    Some((stats, xstats, cut))
}

/// From the counters in the order of [`BASIC`].
fn port_stats(counters: [u64; BASIC.len()]) -> PortStats {
    let [rx_packets, tx_packets, rx_bytes, tx_bytes, rx_missed, rx_errors, tx_errors, rx_nombuf] =
        counters;
    PortStats {
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_missed,
        rx_errors,
        tx_errors,
        rx_nombuf,
    }
}

/// In the order of [`BASIC`].
fn counts(stats: &PortStats) -> [u64; BASIC.len()] {
    [
        stats.rx_packets,
        stats.tx_packets,
        stats.rx_bytes,
        stats.tx_bytes,
        stats.rx_missed,
        stats.rx_errors,
        stats.tx_errors,
        stats.rx_nombuf,
    ]
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
