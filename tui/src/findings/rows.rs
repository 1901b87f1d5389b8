//! The rows of tables: that of a finding, and those that it is about.

use pmdscope_render::Subject;
use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, balance};
use pmdscope_telemetry::model::{Model, QueueRates};
use pmdscope_telemetry::sample::QueueDirection;
use pmdscope_telemetry::{FleetState, Thresholds};

use super::ranking::{port_of, site_of};

/// The row of a finding.
pub(crate) fn subject(finding: &Finding) -> Subject {
    Subject::Finding {
        app: finding.app.clone(),
        lint: finding.lint,
        about: finding.subject.clone(),
    }
}

/// The rows that a finding is about, the best first.
pub(crate) fn targets(
    finding: &Finding,
    thresholds: &Thresholds,
    fleet: &FleetState,
) -> Vec<Subject> {
    let app = finding.app.clone();
    let model = fleet.find(&app).and_then(|app| app.model.as_deref());
    match (&finding.subject, model) {
        (FindingSubject::Interface(interface), _) => {
            vec![Subject::Interface { interface: interface.clone(), queue: None }]
        }
        (FindingSubject::Lcore(lcore), _) => vec![Subject::Lcore { app, lcore: *lcore }],
        (FindingSubject::Pool(pool), _) => vec![Subject::Pool { app, pool: pool.clone() }],
        (FindingSubject::Site { pool, .. }, model) => {
            let site = model.and_then(|model| site_of(model, finding));
            let site = site.map(|(site, _)| Subject::Site {
                app: app.clone(),
                pool: pool.clone(),
                id: site.id,
                kind: site.kind,
                site: site.site.clone(),
            });
            site.into_iter().chain([Subject::Pool { app, pool: pool.clone() }]).collect()
        }
        (FindingSubject::Port(_), Some(model)) => {
            let Some((port, _)) = port_of(model, finding) else { return Vec::new() };
            let queue = queue_of(model, finding.lint, port, thresholds);
            let queue = queue.map(|(queue, direction)| Subject::Queue {
                app: app.clone(),
                port,
                queue,
                direction,
            });
            queue.into_iter().chain([Subject::Port { app, port }]).collect()
        }
        _ => Vec::new(),
    }
}

/// The queue that is to blame, where one is.
fn queue_of(
    model: &Model,
    lint: Lint,
    port: u16,
    thresholds: &Thresholds,
) -> Option<(u16, QueueDirection)> {
    let most = |of: fn(&QueueRates) -> Option<f64>| {
        let queues = model.queues.iter().filter(|queue| queue.port == port);
        let rates = queues.filter_map(|queue| Some((queue, of(queue).filter(|rate| *rate > 0.0)?)));
        let (queue, _) = rates.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some((queue.queue, queue.direction))
    };
    match lint {
        Lint::QueueImbalance => {
            let hot = balance::hottest(model, thresholds);
            let hot = hot.iter().find(|hot| hot.port == port)?;
            Some((hot.queue, QueueDirection::Rx))
        }
        Lint::RxMissed => most(|queue| queue.missed_ps),
        Lint::TxRefused | Lint::TxStuck => most(|queue| queue.refused_ps),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_queue_that_misses_or_refuses_is_found() {
        let mut model = fixture::leaking();
        model.queues[1].missed_ps = Some(7.0);
        model.queues[3].refused_ps = Some(3.0);
        let thresholds = Thresholds::default();
        let queue = |lint| queue_of(&model, lint, 0, &thresholds);
        assert_eq!(queue(Lint::RxMissed), Some((1, QueueDirection::Rx)));
        assert_eq!(queue(Lint::TxRefused), Some((1, QueueDirection::Tx)));
        assert_eq!(queue(Lint::LinkDown), None);
    }
}
