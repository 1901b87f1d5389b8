//! What every DPDK app tells: ports, pools, and rings where its version has them.

use crate::client::Client;
use crate::endpoint::{Endpoint, PoolName, PortId, RingName};
use crate::reply::{Counters, Link, LinkStatus, PoolInfo, PortInfo, RingInfo, Xstats};
use crate::sample::{Occupancy, PoolSample, PortSample, PortStats, RingSample};

use super::round::Round;

/// DPDK drops the entries of a dict beyond this number.
const DICT_LIMIT: usize = 256;

/// What the driver gives as speed when it does not know.
const SPEED_UNKNOWN: u64 = u32::MAX as u64;

/// The ports that could be read: one without counters is left out, since zeros would be a lie.
pub(super) fn ports(round: &mut Round<'_>) -> Vec<PortSample> {
    let ids = round.list(&Endpoint::EthdevList, Client::ports).unwrap_or_default();
    ids.into_iter().filter_map(|id| port(round, id)).collect()
}

fn port(round: &mut Round<'_>, id: PortId) -> Option<PortSample> {
    let info: PortInfo = round
        .ask_about(&Endpoint::EthdevInfo(id), |i: &PortInfo| i.port_id.0 == u64::from(id.0))?;
    let (stats, xstats, cut) = counters(round, id)?;
    let link = round.ask_about(&Endpoint::EthdevLinkStatus(id), |_: &Link| true);
    let link_up = link.as_ref().map(|link| link.status == LinkStatus::Up);
    let speed = link.and_then(|link| link.speed).map(|speed| speed.0);
    Some(PortSample {
        id: id.0,
        device: info.name,
        started: info.dev_started.0 != 0,
        link_up,
        link_mbps: speed.filter(|mbps| ![0, SPEED_UNKNOWN].contains(mbps)),
        mtu: info.mtu.0,
        rx_queues: info.nb_rx_queues,
        tx_queues: info.nb_tx_queues,
        numa_node: info.numa_node,
        promiscuous: info.promiscuous.map(|promiscuous| promiscuous.0 != 0),
        mac: info.mac_addr,
        stats,
        xstats: xstats.map(|xstats| xstats.counters).unwrap_or_default(),
        xstats_truncated: cut,
    })
}

/// Basic and extended counters. Neither reply names its port; but the extended ones, asked later,
/// repeat the basic ones and cannot be below them. If they are, one of the two is about another port,
/// or the counters were reset: both are asked again, and that answer stands.
fn counters(round: &mut Round<'_>, id: PortId) -> Option<(PortStats, Option<Xstats>, bool)> {
    let first = counters_once(round, id)?;
    match &first {
        (stats, Some(xstats), _) if !agree(stats, xstats) => counters_once(round, id),
        _ => Some(first),
    }
}

fn counters_once(round: &mut Round<'_>, id: PortId) -> Option<(PortStats, Option<Xstats>, bool)> {
    let counters: Counters = round.ask_about(&Endpoint::EthdevStats(id), |_| true)?;
    let xstats: Option<Xstats> = round.ask_about(&Endpoint::EthdevXstats(id), |_| true);
    let cut = xstats.as_ref().is_some_and(|xstats| xstats.entries >= DICT_LIMIT)
        || (xstats.is_some() && round.reply_nearly_full());
    Some((port_stats(&counters), xstats, cut))
}

fn port_stats(counters: &Counters) -> PortStats {
    PortStats {
        rx_packets: counters.ipackets.0,
        tx_packets: counters.opackets.0,
        rx_bytes: counters.ibytes.0,
        tx_bytes: counters.obytes.0,
        rx_missed: counters.imissed.0,
        rx_errors: counters.ierrors.0,
        tx_errors: counters.oerrors.0,
        rx_nombuf: counters.rx_nombuf.0,
    }
}

fn agree(stats: &PortStats, xstats: &Xstats) -> bool {
    let repeats = [("rx_good_packets", stats.rx_packets), ("tx_good_packets", stats.tx_packets)];
    repeats
        .iter()
        .all(|(name, basic)| xstats.counters.get(*name).is_none_or(|extended| extended >= basic))
}

/// The mempools. Before DPDK 23.03 their replies hold nothing that changes, so `fixed` remembers them
/// until the list changes.
pub(super) fn pools(round: &mut Round<'_>, fixed: &mut Vec<PoolSample>) -> Vec<PoolSample> {
    let names = round.list(&Endpoint::MempoolList, Client::pools).unwrap_or_default();
    if !names.is_empty() && names.iter().map(|name| &name.0).eq(fixed.iter().map(|p| &p.name)) {
        return fixed.clone();
    }
    let listed = names.len();
    let pools: Vec<_> = names.iter().filter_map(|name| pool(round, name)).collect();
    let complete = pools.len() == listed && pools.iter().all(|pool| pool.occupancy.is_none());
    *fixed = if complete { pools.clone() } else { Vec::new() };
    pools
}

fn pool(round: &mut Round<'_>, name: &PoolName) -> Option<PoolSample> {
    let endpoint = Endpoint::MempoolInfo(name.clone());
    let info: PoolInfo = round.ask_about(&endpoint, |info: &PoolInfo| info.name == name.0)?;
    let parts = [info.elt_size, info.header_size, info.trailer_size];
    Some(PoolSample {
        occupancy: occupancy(&info),
        name: info.name,
        size: info.size.0,
        element_bytes: parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.0)),
        cache_size: info.cache_size.0,
        socket: info.socket_id,
        ..PoolSample::default()
    })
}

/// The app counts common ring and caches one after the other while it works, so that their sum may
/// exceed the size for a moment; nothing is in use then.
fn occupancy(info: &PoolInfo) -> Option<Occupancy> {
    let (common, cached) = (info.common_pool_count?.0, info.total_cache_count?.0);
    let in_use = info.size.0.saturating_sub(common.saturating_add(cached));
    Some(Occupancy { common, cached, in_use })
}

/// The software rings, without those in which the pools keep their free objects.
pub(super) fn rings(round: &mut Round<'_>, pools: &[PoolSample]) -> Vec<RingSample> {
    let names = round.list(&Endpoint::RingList, Client::rings).unwrap_or_default();
    let of_pool = |ring: &RingName| {
        ring.0.strip_prefix("MP_").is_some_and(|name| pools.iter().any(|pool| pool.name == name))
    };
    let names = names.into_iter().filter(|name| !of_pool(name));
    names.filter_map(|name| ring(round, &name)).collect()
}

fn ring(round: &mut Round<'_>, name: &RingName) -> Option<RingSample> {
    let endpoint = Endpoint::RingInfo(name.clone());
    let info: RingInfo = round.ask_about(&endpoint, |info: &RingInfo| info.name == name.0)?;
    Some(RingSample {
        name: info.name,
        capacity: info.capacity.0,
        used: info.used_count.0,
        high_water: None,
    })
}
