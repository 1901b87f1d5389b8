//! The pool that had no mbuf for a port: only one that feeds it, as far as that is known.

use crate::missed::EMPTY_POOL;
use crate::model::Model;
use crate::sample::{PoolSample, PortSample};

/// The pool that had no mbuf for a port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SuspectedPool<'a> {
    /// A pool that feeds the port; it has few free mbufs, or their number is unknown.
    Feeds(&'a PoolSample),
    /// A pool that feeds the port, and has free mbufs now.
    Refilled(&'a PoolSample),
    /// The only empty pool; which pool feeds the port is unknown.
    Probable(&'a PoolSample),
    /// Which pool feeds the port is unknown, and several are empty.
    Several(Vec<&'a PoolSample>),
    /// Which pool feeds the port is unknown, and none is known to be empty.
    Unknown,
}

impl<'a> SuspectedPool<'a> {
    /// Returns the pool that a port lacks mbufs of.
    pub(crate) fn of(model: &'a Model, port: &PortSample) -> Self {
        let sample = &model.sample;
        let Some(feeding) = sample.feeding_pools(port) else {
            let empty = || sample.pools.iter().filter(|pool| is_empty(pool));
            let mut first = empty();
            return match (first.next(), first.next()) {
                (None, _) => Self::Unknown,
                (Some(only), None) => Self::Probable(only),
                _ => Self::Several(empty().collect()),
            };
        };
        let used = |pool: &PoolSample| {
            pool.occupancy.map_or(1.0, |it| it.in_use as f64 / pool.size.max(1) as f64)
        };
        let fullest = feeding.into_iter().max_by(|a, b| used(a).total_cmp(&used(b)));
        // Free mbufs in the caches of other lcores are of no use.
        let has_free = |pool: &PoolSample| {
            !is_empty(pool) && pool.occupancy.is_some_and(|occupancy| occupancy.common > 0)
        };
        match fullest {
            Some(pool) if has_free(pool) => Self::Refilled(pool),
            Some(pool) => Self::Feeds(pool),
            None => Self::Unknown,
        }
    }

    /// Returns the pool that is named, if one is.
    pub(crate) fn pool(&self) -> Option<&'a PoolSample> {
        match self {
            Self::Feeds(pool) | Self::Refilled(pool) | Self::Probable(pool) => Some(pool),
            Self::Several(_) | Self::Unknown => None,
        }
    }

    /// Whether a pool that may feed the port is known to be empty now.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Feeds(pool) => is_empty(pool),
            Self::Probable(_) | Self::Several(_) => true,
            Self::Refilled(_) | Self::Unknown => false,
        }
    }
}

fn is_empty(pool: &PoolSample) -> bool {
    let used = pool.occupancy.map(|occupancy| occupancy.in_use as f64);
    used.is_some_and(|used| pool.size > 0 && used >= EMPTY_POOL * pool.size as f64)
}
