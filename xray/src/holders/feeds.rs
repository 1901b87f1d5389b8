//! Which receive queues each mempool feeds, read again only when ports or pools change.

use std::collections::BTreeMap;

use pmdscope_telemetry::sample::FedQueue;

use super::queues::{PortQueues, feeding_pools, ports};
use crate::target::XrayTarget;

/// The receive queues that the pools of an app feed.
#[derive(Debug, Default)]
pub(crate) struct PoolFeeds {
    /// Ports and addresses of pools that `feeds` was read for.
    ports: Vec<PortQueues>,
    pools: Vec<u64>,
    /// By name of the pool.
    feeds: BTreeMap<String, Vec<FedQueue>>,
}

impl PoolFeeds {
    /// Reads the tables of ports and, if they or the pools have changed, the structures of queues.
    pub(crate) fn refresh(&mut self, target: &XrayTarget) {
        let pools: Vec<_> = target.pools().into_iter().flatten().collect();
        let addresses: Vec<u64> = pools.iter().map(|pool| pool.address).collect();
        let ports = ports(target);
        if (&ports, &addresses) == (&self.ports, &self.pools) {
            return;
        }
        let mut feeds: BTreeMap<String, Vec<FedQueue>> = BTreeMap::new();
        for ((port, queue), address) in feeding_pools(target, &ports, &addresses) {
            if let Some(pool) = pools.iter().find(|pool| pool.address == address) {
                feeds.entry(pool.name.clone()).or_default().push(FedQueue { port, queue });
            }
        }
        *self = Self { ports, pools: addresses, feeds };
    }

    /// The queues that each pool feeds, by name of the pool.
    pub(crate) fn feeds(&self) -> &BTreeMap<String, Vec<FedQueue>> {
        &self.feeds
    }
}
