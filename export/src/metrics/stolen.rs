//! Time stolen from lcores, by cause: labels of thieves would make too many series on machines with
//! many interrupts.

use std::collections::BTreeMap;

use pmdscope_telemetry::sample::{CauseTotals, TracingSample};

use super::LiveApp;
use super::app::{info, seconds};
use super::row::{FamilyList, LabelledRow, SuppressedSeries, labels, rows};
use crate::catalogue as metric;
use crate::family::MetricSample;

pub(super) fn families<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
) {
    let causes = rows(live, suppressed, |app| app.model.sample.tracing.iter().flat_map(totals));
    families.per(&metric::LCORE_STOLEN_TIME, &causes, |of| of.stolen_ns.map(seconds));
    families.per(&metric::LCORE_STOLEN_EVENTS, &causes, |of| Some(of.events));
    families.per(&metric::LCORE_STOLEN_LONGEST, &causes, |of| of.longest_ns.map(seconds));
    let traced: Vec<LabelledRow<&TracingSample>> =
        rows(live, suppressed, |app| app.model.sample.tracing.iter().map(|tracing| ([], tracing)));
    families.per(&metric::LCORE_TRACING_LOST_EVENTS, &traced, |of| Some(of.lost_events));
    families.per(&metric::LCORE_TRACING_OVERHEAD, &traced, |of| Some(seconds(of.overhead_ns)));
    families.add(&metric::LCORE_TRACING_INFO, live.iter().filter_map(method));
}

/// Sums up stolen time by lcore and cause.
fn totals(tracing: &TracingSample) -> Vec<([String; 2], CauseTotals)> {
    let mut totals = BTreeMap::<_, CauseTotals>::new();
    for row in &tracing.stolen {
        totals.entry((row.lcore, row.cause)).or_default().add(row);
    }
    let row = |((lcore, cause), of): ((u32, _), _)| ([lcore.to_string(), format!("{cause}")], of);
    totals.into_iter().map(row).collect()
}

fn method(app: &LiveApp<'_>) -> Option<MetricSample> {
    let tracing = app.model.sample.tracing.as_ref()?;
    let values = [tracing.method.name().to_owned(), tracing.missing.join("; ")];
    Some(info(labels(app.name, values)))
}
