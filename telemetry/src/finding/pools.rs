//! Lint for mempools that are nearly empty, or will be.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, Thresholds, buffers, finding, loss};
use crate::account::{CounterClass, PortAccount};
use crate::inventory::PortExpectation;
use crate::model::{Model, PoolTrend, PortRates};
use crate::sample::{CountSource, PoolSample, PortSample};

/// Returns the pools that are nearly empty, or will be.
pub(super) fn exhausting<'a>(
    model: &'a Model,
    expected: &'a PortExpectation,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let pools = model.sample.pools.iter().zip(&model.pools);
    pools.filter_map(|(pool, trend)| {
        of_pool(model, pool, trend, expected.may_be_full(&pool.name), thresholds)
    })
}

/// Whether a pool seems to be held by design: its use has not changed while it was sampled, another one
/// has room, nothing is known to be lost, and no port that it may feed lacks buffers or packets.
fn is_held_by_design(
    model: &Model,
    pool: &PoolSample,
    trend: &PoolTrend,
    thresholds: &Thresholds,
) -> bool {
    let sample = &model.sample;
    let steady = trend.history.windows(2).all(|pair| pair[0] == pair[1]);
    let ledger = sample.ledger.iter().find(|ledger| ledger.name == pool.name);
    let lacks = |(port, rates): (&PortSample, &PortRates)| {
        let account = PortAccount::of(rates);
        let is_fed_by_others =
            || sample.feeding_pools(port).is_some_and(|pools| !pools.contains(&pool));
        let lacks = rates.rx_flat.is_some()
            || [CounterClass::NoMbuf, CounterClass::Missed]
                .into_iter()
                .any(|class| account.sum(class) > 0.0);
        lacks && !is_fed_by_others()
    };
    let has_room =
        |other: &PoolTrend| other.used_ratio.is_some_and(|used| used < thresholds.pool_used);
    steady
        && model.pools.iter().any(has_room)
        && !ledger.is_some_and(|ledger| ledger.loses() || ledger.queued_up())
        && loss::queued_up(model, &pool.name).is_none()
        && !sample.ports.iter().zip(&model.ports).any(lacks)
}

fn of_pool(
    model: &Model,
    pool: &PoolSample,
    trend: &PoolTrend,
    may_be_full: bool,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let (occupancy, used) = (pool.occupancy?, trend.used_ratio?);
    let left = trend.exhausted_in_s;
    let below = |limit: f64| left.is_some_and(|left| left < limit);
    if used < thresholds.pool_used && !below(thresholds.pool_left_s) {
        return None;
    }
    let by_design = is_held_by_design(model, pool, trend, thresholds);
    if by_design && may_be_full {
        return None;
    }
    let critical = used >= thresholds.pool_used_critical || below(thresholds.pool_left_critical_s);
    let mut evidence =
        format!("{} of {} objects ({:.1} %) in use", occupancy.in_use, pool.size, used * 100.0);
    if pool.source == Some(CountSource::Xray) {
        evidence += " (counted via xray)";
    }
    if let (Some(left), Some(slope)) = (left, trend.slope_ps) {
        let _ = write!(evidence, ", growing by {slope:.1}/s, exhausted in {left:.0} s");
    }
    if by_design {
        evidence += "; it does not grow, and no allocation failed meanwhile";
    }
    let demand = buffers::MbufDemand::of(&model.sample, pool);
    if demand.cannot_fit(pool) {
        let _ = write!(evidence, "; too small for {}", demand.arithmetic());
    }
    let top_site = loss::top_site(model, &pool.name);
    let queued_up = loss::queued_up(model, &pool.name);
    for what in top_site.iter().chain(&queued_up) {
        let _ = write!(evidence, "; {what}");
    }
    let threshold = format!(
        "{:.0} % in use, or exhausted within {:.0} s",
        thresholds.pool_used * 100.0,
        thresholds.pool_left_s
    );
    let advice = match left {
        _ if by_design => {
            "if the app holds these objects by design, as templates or packets in a cache, add the pool to \
             may_be_full in the configuration; it is then reported only if it grows or an allocation fails"
        }
        _ if queued_up.is_some() => {
            "find the full rings and check their consumers: they are too slow or have stopped"
        }
        _ if loss::has_proven_site(model, &pool.name) => {
            "stop the leak first: see its finding, and pmdscope leaks"
        }
        Some(_) => {
            "pmdscope leaks shows mbufs that are lost and their packets, --explain who holds the others; a \
             queue that grows has the same effect"
        }
        None => {
            "if it does not recover, its buffers are lost: see pmdscope leaks; otherwise enlarge the \
             pool, or shorten the queues and descriptor rings that hold its objects"
        }
    };
    let severity = match critical {
        _ if by_design => Severity::Info,
        true => Severity::Critical,
        false => Severity::Warning,
    };
    Some(finding(
        model,
        Lint::PoolExhausting,
        severity,
        FindingSubject::Pool(pool.name.clone()),
        evidence,
        &threshold,
        advice,
    ))
}

#[cfg(test)]
mod tests {
    use crate::finding::{LintRules, Severity, evaluate};
    use crate::inventory::{AppInventory, ExpectedApp};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, pool, port};

    /// Returns the findings about a pool of templates after a second in which its use went from one value
    /// to another, and allocations failed.
    fn severities(used: [u64; 2], failed: u64, may_be_full: &[&str]) -> Vec<(String, Severity)> {
        let app = ExpectedApp {
            name: "app".into(),
            may_be_full: may_be_full.iter().map(|pool| (*pool).to_owned()).collect(),
            ..ExpectedApp::default()
        };
        let expected = AppInventory { apps: vec![app] };
        let rules = LintRules { expected, ..LintRules::default() };
        let mut tracker = ModelTracker::default();
        let mut at = |second: u64| {
            let mut sample = empty_sample();
            sample.monotonic_ns += second * 1_000_000_000;
            sample.ports = vec![port(0, second * 1000)];
            sample.ports[0].stats.rx_nombuf = failed * second;
            let used = used[usize::try_from(second).unwrap()];
            sample.pools = vec![pool("mb", 8191, 100), pool("templates", 1000, used)];
            evaluate(&tracker.update(sample), &rules)
        };
        at(0);
        let found = at(1).into_iter().filter(|finding| finding.lint.name() == "pool_exhausting");
        found.map(|finding| (finding.subject.to_string(), finding.severity)).collect()
    }

    #[test]
    fn a_pool_that_is_held_in_full_by_design_is_a_note_until_something_lacks() {
        let of = |severity| vec![("templates".to_owned(), severity)];
        assert_eq!(severities([1000, 1000], 0, &[]), of(Severity::Info));
        assert_eq!(severities([990, 1000], 0, &[]), of(Severity::Critical), "it grows");
        assert_eq!(severities([1000, 1000], 5, &[]), of(Severity::Critical), "allocations fail");
    }

    #[test]
    fn the_configuration_says_which_pools_may_be_full() {
        assert_eq!(severities([1000, 1000], 0, &["templates"]), []);
        assert_eq!(severities([1000, 1000], 0, &["*"]), []);
        assert_eq!(severities([1000, 1000], 0, &["mb"]).len(), 1);
        assert_eq!(severities([1000, 1000], 5, &["templates"]).len(), 1, "allocations fail");
    }
}
