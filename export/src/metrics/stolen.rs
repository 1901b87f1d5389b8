//! Time stolen from lcores, by cause: by thief, a machine with many interrupts would have too many series.

use std::collections::BTreeMap;

use pmdscope_telemetry::sample::{StolenSample, TracingSample};

use super::LiveApp;
use super::app::{info, seconds};
use super::row::{FamilyList, LabelledRow, SuppressedSeries, labels, rows};
use crate::catalogue as metric;
use crate::family::MetricSample;

/// What all thieves of one cause took from one lcore. Times are `None` if they are not known.
#[derive(Clone, Copy, Default)]
struct CauseTotals {
    events: u64,
    stolen_ns: Option<u64>,
    longest_ns: Option<u64>,
}

impl CauseTotals {
    fn add(&mut self, row: &StolenSample) {
        let sum = |one: u64, other: Option<u64>| one.saturating_add(other.unwrap_or(0));
        self.events = self.events.saturating_add(row.count);
        self.stolen_ns = self.stolen_ns.map(|ns| sum(ns, row.stolen_ns)).or(row.stolen_ns);
        self.longest_ns = self.longest_ns.max(row.longest_ns);
    }
}

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

/// By lcore and cause.
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
