//! Loss rates of pools and sites, derived from successive samples.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{LedgerSample, Sample, SiteKind, SiteSample};
use crate::trend::{TrendOptions, ValueTrend};

/// Loss rate of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerRates {
    /// Name of the pool.
    pub pool: String,
    /// Mbufs lost per second over the trend window; `None` until there are two samples.
    pub leaked_ps: Option<f64>,
    /// Number of lost mbufs at each sample of the trend window, oldest first, for sparklines.
    pub history: Vec<u64>,
}

/// Rate of losses or misuses of mbufs at one site.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteRates {
    /// Name of the pool.
    pub pool: String,
    /// Id of the site.
    pub id: u32,
    /// What happened to the mbufs.
    pub kind: SiteKind,
    /// Mbufs lost or misused per second over the trend window; `None` until the site was sampled twice.
    pub rate_ps: Option<f64>,
}

/// The counts of a sliding window.
#[derive(Debug, Default)]
pub(crate) struct LossTrends {
    pools: BTreeMap<String, ValueTrend>,
    sites: BTreeMap<(String, u32, SiteKind), ValueTrend>,
}

impl LossTrends {
    /// Discards everything, as after a restart.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds a sample; returns the rates of its pools and sites, in their order.
    pub(crate) fn update(
        &mut self,
        sample: &Sample,
        options: TrendOptions,
    ) -> (Vec<LedgerRates>, Vec<SiteRates>) {
        // Tables that could not be read this time keep their history.
        if !sample.failed("/pmdscope") {
            self.pools.retain(|name, _| sample.ledger.iter().any(|row| row.name == *name));
            self.sites.retain(|known, _| sample.sites.iter().any(|site| key(site) == *known));
        }
        let now_ns = sample.monotonic_ns;
        let pools = sample.ledger.iter().map(|row| self.pool(row, now_ns, options)).collect();
        let sites = sample.sites.iter().map(|site| self.site(site, now_ns, options)).collect();
        (pools, sites)
    }

    fn pool(&mut self, row: &LedgerSample, now_ns: u64, options: TrendOptions) -> LedgerRates {
        let trend = self.pools.entry(row.name.clone()).or_default();
        count(trend, now_ns, row.leaked, options);
        LedgerRates {
            pool: row.name.clone(),
            leaked_ps: trend.rate(),
            history: trend.values().collect(),
        }
    }

    fn site(&mut self, site: &SiteSample, now_ns: u64, options: TrendOptions) -> SiteRates {
        let trend = self.sites.entry(key(site)).or_default();
        count(trend, now_ns, site.events, options);
        SiteRates { pool: site.pool.clone(), id: site.id, kind: site.kind, rate_ps: trend.rate() }
    }
}

fn key(site: &SiteSample) -> (String, u32, SiteKind) {
    (site.pool.clone(), site.id, site.kind)
}

/// Adds a count; one that went back starts a new history.
fn count(trend: &mut ValueTrend, now_ns: u64, value: u64, options: TrendOptions) {
    if trend.values().last().is_some_and(|last| value < last) {
        *trend = ValueTrend::default();
    }
    trend.push(now_ns, value, options.window, options.points);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::ModelTracker;
    use crate::sample::ledger::tests::{ledger, site};
    use crate::sample::tests::{empty_sample, pool};

    fn at(seconds: u64, leaked: u64) -> Sample {
        let mut sample = empty_sample();
        sample.monotonic_ns = seconds * 1_000_000_000;
        sample.ledger = vec![ledger("mb", leaked)];
        sample.sites = vec![site("mb", 18, SiteKind::Leak, leaked)];
        sample
    }

    #[test]
    fn rates_are_per_second_of_the_window() {
        let mut tracker = ModelTracker::default();
        let first = tracker.update(at(1, 10));
        assert_eq!((first.ledger[0].leaked_ps, first.sites[0].rate_ps), (None, None));
        tracker.update(at(2, 30));
        let third = tracker.update(at(3, 50));
        assert_eq!((third.ledger[0].leaked_ps, third.sites[0].rate_ps), (Some(20.0), Some(20.0)));
        assert_eq!(third.ledger[0].history, [10, 30, 50]);
    }

    #[test]
    fn a_count_that_goes_back_begins_anew() {
        let mut tracker = ModelTracker::default();
        tracker.update(at(1, 100));
        let back = tracker.update(at(2, 40));
        assert_eq!((back.ledger[0].leaked_ps, back.sites[0].rate_ps), (None, None));
        assert_eq!(tracker.update(at(3, 45)).sites[0].rate_ps, Some(5.0));
    }

    #[test]
    fn a_restart_forgets_and_a_failed_read_does_not() {
        let mut tracker = ModelTracker::default();
        tracker.update(at(1, 10));
        let mut unread = at(2, 0);
        (unread.ledger, unread.sites) = (Vec::new(), Vec::new());
        unread.partial = vec!["/pmdscope/sites: timed out".into()];
        tracker.update(unread);
        assert_eq!(tracker.update(at(3, 30)).sites[0].rate_ps, Some(10.0));
        let mut restarted = at(4, 50);
        restarted.app.start_ticks += 1;
        assert_eq!(tracker.update(restarted).sites[0].rate_ps, None);
    }

    #[test]
    fn sites_of_the_same_line_are_told_apart_by_pool_and_kind() {
        let mut tracker = ModelTracker::default();
        let sites = |lost: [u64; 3]| {
            vec![
                site("mb", 18, SiteKind::Leak, lost[0]),
                site("mb", 18, SiteKind::Pinned, lost[1]),
                site("clones", 18, SiteKind::Leak, lost[2]),
            ]
        };
        tracker.update(Sample { sites: sites([1, 2, 3]), ..at(1, 0) });
        let model = tracker.update(Sample { sites: sites([2, 4, 6]), ..at(2, 0) });
        let rates: Vec<_> = model.sites.iter().map(|site| site.rate_ps).collect();
        assert_eq!(rates, [Some(1.0), Some(2.0), Some(3.0)]);
    }

    #[test]
    fn the_trend_of_the_library_is_preferred() {
        let mut tracker = ModelTracker::default();
        let mut sample = at(1, 10);
        sample.pools = vec![pool("mb", 1000, 400), pool("plain", 1000, 1)];
        sample.ledger[0].slope_milli = 2_500;
        sample.ledger[0].exhausted_in_ms = Some(240_000);
        let mut burst = sample.clone();
        let model = tracker.update(sample);
        assert_eq!(model.pools[0].slope_ps, Some(2.5));
        assert_eq!(model.pools[0].exhausted_in_s, Some(240.0));
        burst.ledger[0].leaked = 0;
        assert_eq!(ModelTracker::default().update(burst).pools[0].exhausted_in_s, None);
        assert_eq!((model.pools[1].slope_ps, model.pools[1].exhausted_in_s), (None, None));
    }

    proptest! {
        #[test]
        fn rates_are_never_negative(series in prop::collection::vec((1_u64..9, 0_u64..400), 1..20)) {
            let (mut tracker, mut now) = (ModelTracker::default(), 0);
            for (step, leaked) in series {
                now += step;
                let model = tracker.update(at(now, leaked));
                let rates = [model.ledger[0].leaked_ps, model.sites[0].rate_ps];
                prop_assert!(rates.iter().flatten().all(|rate| *rate >= 0.0 && rate.is_finite()));
            }
        }
    }
}
