//! Findings in the order in which to look at them: what they cost, and since when they are there.

use std::cmp::Reverse;

use pmdscope_render::number::{percent, si};
use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, balance};
use pmdscope_telemetry::model::{Model, PortRates};
use pmdscope_telemetry::sample::{BEFORE_ARMING, NOT_PROVEN, SiteSample, UNTRACED_CODE};
use pmdscope_telemetry::{AppState, FleetState, Thresholds};

use crate::timeline::trends::{FindingAge, Trends};

/// A finding with what orders it.
#[derive(Debug)]
pub(crate) struct RankedFinding<'a> {
    /// `None` for a finding about the host.
    pub app: Option<&'a AppState>,
    /// The finding.
    pub finding: &'a Finding,
    /// Losses of the same pool with less detail, which have no row of their own.
    pub folded: Vec<&'a Finding>,
    /// Its rate or share.
    pub rate: Option<FindingRate>,
    /// Seconds until its pool is empty.
    pub left_s: Option<f64>,
}

/// A rate or a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FindingRate {
    /// Packets, mbufs or events per second.
    PerSecond(f64),
    /// A share of 1.
    Share(f64),
}

impl FindingRate {
    fn value(self) -> f64 {
        match self {
            Self::PerSecond(value) | Self::Share(value) => value,
        }
    }

    /// In words.
    pub(crate) fn text(self) -> String {
        match self {
            Self::PerSecond(rate) => format!("{}/s", si(rate)),
            Self::Share(share) => percent(share),
        }
    }
}

/// All findings: worst first, then those that name a line of code, those that name a cause, the
/// fastest, and those with the least time left.
pub(crate) fn ranked<'a>(fleet: &'a FleetState, thresholds: &Thresholds) -> Vec<RankedFinding<'a>> {
    let mut ranked: Vec<RankedFinding> = Vec::new();
    let mut to_fold = Vec::new();
    for (app, finding) in fleet.findings() {
        if is_before_arming(finding) {
            to_fold.push((app, finding));
        } else {
            ranked.push(RankedFinding::of(fleet, app, finding, thresholds));
        }
    }
    for (app, finding) in to_fold {
        match ranked
            .iter_mut()
            .filter(|other| is_about_same_pool(other, finding))
            .min_by_key(fold_order)
        {
            Some(other) => other.folded.push(finding),
            None => ranked.push(RankedFinding::of(fleet, app, finding, thresholds)),
        }
    }
    ranked.sort_by(|a, b| {
        let key = |found: &RankedFinding| (Reverse(found.finding.severity), named(found.finding));
        let left = |found: &RankedFinding| found.left_s.unwrap_or(f64::INFINITY);
        let by_left = left(a).total_cmp(&left(b));
        key(a).cmp(&key(b)).then(magnitude(b).cmp(&magnitude(a))).then(by_left)
    });
    ranked
}

impl<'a> RankedFinding<'a> {
    fn of(
        fleet: &FleetState,
        app: Option<&'a AppState>,
        finding: &'a Finding,
        thresholds: &Thresholds,
    ) -> Self {
        let model = app.and_then(|app| app.model.as_deref());
        let rate = match (&finding.subject, model) {
            _ if finding.is_over() => None,
            (FindingSubject::Interface(name), _) => {
                let interface = fleet.interfaces.find(name);
                let rate = interface.and_then(|interface| interface.rates.filtered_pps);
                rate.map(FindingRate::PerSecond)
            }
            (_, Some(model)) => rate_of(model, finding, thresholds),
            (_, None) => None,
        };
        let drains = matches!(finding.lint, Lint::Leak | Lint::PoolExhausting);
        let pool = finding.subject.pool().filter(|_| drains);
        let left_s = model.zip(pool).and_then(|(model, pool)| model.pool_left_s(pool));
        Self { app, finding, folded: Vec::new(), rate, left_s }
    }

    /// How long it has been there: as the app itself reports, or else since it was seen.
    pub(crate) fn age(&self, trends: Option<&Trends>) -> Option<FindingAge> {
        self.first_lost_s()
            .map(|seconds| FindingAge { seconds, at_least: false })
            .or_else(|| trends?.age(self.finding))
    }

    /// Seconds since the site lost its first mbuf.
    fn first_lost_s(&self) -> Option<f64> {
        let model = self.app?.model.as_deref()?;
        let (site, _) = site_of(model, self.finding)?;
        let first_ns = Some(site.first_realtime_ns).filter(|&first| first > 0)?;
        Some(model.sample.realtime_ns.checked_sub(first_ns)? as f64 / 1e9)
    }
}

/// Mbufs without a site, that were lost before places were recorded.
fn is_before_arming(finding: &Finding) -> bool {
    matches!(&finding.subject, FindingSubject::Site { site, .. } if site == BEFORE_ARMING)
}

fn is_about_same_pool(other: &RankedFinding, finding: &Finding) -> bool {
    let pools = (other.finding.subject.pool(), finding.subject.pool());
    other.finding.app == finding.app && pools.0.is_some() && pools.0 == pools.1
}

/// The finding about the pool itself comes before those about its sites.
fn fold_order(found: &&mut RankedFinding) -> bool {
    !matches!(found.finding.subject, FindingSubject::Pool(_))
}

/// 0 with a line of code, 1 with a cause, 2 with neither.
fn named(finding: &Finding) -> u8 {
    match &finding.subject {
        FindingSubject::Site { site, .. }
            if site != BEFORE_ARMING && site != UNTRACED_CODE && !site.starts_with(NOT_PROVEN) =>
        {
            0
        }
        _ if finding.is_explained() => 1,
        _ => 2,
    }
}

/// Powers of two, so that rows do not change places with every sample.
#[allow(clippy::cast_possible_truncation)] // a logarithm
fn magnitude(found: &RankedFinding) -> i32 {
    let rate = found.rate.map_or(0.0, FindingRate::value);
    if rate > 0.0 { rate.log2().floor() as i32 } else { i32::MIN }
}

fn rate_of(model: &Model, finding: &Finding, thresholds: &Thresholds) -> Option<FindingRate> {
    let per_second = match finding.lint {
        Lint::Leak | Lint::DoubleFree | Lint::UseAfterFree => lost_ps(model, finding),
        Lint::PoolExhausting => {
            let pool = finding.subject.pool()?;
            model
                .pools
                .iter()
                .find(|trend| trend.name == pool)?
                .slope_ps
                .filter(|slope| *slope > 0.0)
        }
        Lint::RxMissed => port_of(model, finding)?.1.rx_missed_ps,
        Lint::RxNombuf => port_of(model, finding)?.1.rx_nombuf_ps,
        Lint::TxRefused | Lint::TxStuck => {
            port_of(model, finding)?.1.unsent.map(|unsent| unsent.refused_pps)
        }
        Lint::Stall => {
            let id = lcore_of(finding)?;
            model.lcores.iter().find(|lcore| lcore.lcore == id)?.stalls_ps
        }
        Lint::LcoreStolen => {
            let id = lcore_of(finding)?;
            let stolen = model.stolen.iter().find(|stolen| stolen.lcore == id)?;
            return stolen.ratio.map(FindingRate::Share);
        }
        Lint::QueueImbalance => {
            let (port, _) = port_of(model, finding)?;
            let hot = balance::hottest(model, thresholds);
            return Some(FindingRate::Share(hot.iter().find(|hot| hot.port == port)?.share));
        }
        _ => None,
    };
    per_second.map(FindingRate::PerSecond)
}

fn lost_ps(model: &Model, finding: &Finding) -> Option<f64> {
    if let Some((_, rate)) = site_of(model, finding) {
        return rate;
    }
    let FindingSubject::Pool(pool) = &finding.subject else { return None };
    let ledger = model.ledger.iter().find(|ledger| ledger.pool == *pool);
    let scan = model.sample.scanned_pools().find(|scan| scan.name == *pool);
    ledger.and_then(|ledger| ledger.leaked_ps).or_else(|| scan?.lost_ps)
}

/// The site that a finding is about, and its rate.
pub(crate) fn site_of<'a>(
    model: &'a Model,
    finding: &Finding,
) -> Option<(&'a SiteSample, Option<f64>)> {
    let FindingSubject::Site { pool, site } = &finding.subject else { return None };
    let mut sites = model.sample.sites.iter().zip(&model.sites);
    let found = sites.find(|(found, _)| {
        let lint = Lint::of_site(found.kind);
        found.pool == *pool && found.brief_site() == site && lint == finding.lint
    });
    found.map(|(site, rates)| (site, rates.rate_ps))
}

/// The port that a finding is about, and its rates.
pub(crate) fn port_of<'a>(model: &'a Model, finding: &Finding) -> Option<(u16, &'a PortRates)> {
    let FindingSubject::Port(device) = &finding.subject else { return None };
    let mut ports = model.sample.ports.iter().zip(&model.ports);
    ports.find(|(port, _)| port.device == *device).map(|(port, rates)| (port.id, rates))
}

fn lcore_of(finding: &Finding) -> Option<u32> {
    match finding.subject {
        FindingSubject::Lcore(id) => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
