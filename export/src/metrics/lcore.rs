//! Metrics of lcores, of time stolen from them, and of the captures that run on them.

use std::collections::{BTreeMap, BTreeSet};

use pmdscope_telemetry::sample::{LcoreSample, Sample, TeeSample, ThreadSample, UsageSample};

use super::LiveApp;
use super::app::{info, seconds};
use super::row::{
    FamilyList, LabelledRow, SuppressReason, SuppressedSeries, histogram, labels, rows,
};
use super::stolen;
use crate::catalogue as metric;
use crate::family::MetricSample;
use crate::series_limits::SeriesLimits;

/// The values of one lcore from libpmdscope, the kernel, and the app itself.
#[derive(Clone, Copy, Default)]
struct LcoreValues<'a> {
    library: Option<&'a LcoreSample>,
    thread: Option<&'a ThreadSample>,
    usage: Option<&'a UsageSample>,
    role: Option<&'a str>,
    /// Wall clock time of the sample.
    now_ns: u64,
}

pub(super) fn families<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) {
    let lcores = rows(live, suppressed, |app| {
        let lcores = lcores(&app.model.sample).into_iter();
        lcores.map(|(number, lcore)| ([number.to_string()], lcore))
    });
    families.add(&metric::LCORE_INFO, lcores.iter().map(identity));
    families.per(&metric::LCORE_BUSY_CYCLES, &lcores, |lcore| Some(lcore.usage?.busy));
    families.per(&metric::LCORE_CYCLES, &lcores, |lcore| Some(lcore.usage?.total));
    polls(families, &lcores);
    families.per(&metric::LCORE_VOLUNTARY_CONTEXT_SWITCHES, &lcores, |lcore| {
        Some(lcore.thread?.voluntary_switches)
    });
    families.per(&metric::LCORE_INVOLUNTARY_CONTEXT_SWITCHES, &lcores, |lcore| {
        Some(lcore.thread?.involuntary_switches)
    });
    stolen::families(families, suppressed, live);
    captures(families, suppressed, live, limits);
}

fn lcores(sample: &Sample) -> BTreeMap<u32, LcoreValues<'_>> {
    let mut lcores: BTreeMap<u32, LcoreValues<'_>> = BTreeMap::new();
    for library in &sample.lcores {
        let lcore = lcores.entry(library.lcore).or_default();
        (lcore.library, lcore.now_ns) = (Some(library), sample.realtime_ns);
    }
    for thread in &sample.threads {
        lcores.entry(thread.lcore).or_default().thread = Some(thread);
    }
    for usage in &sample.usage {
        lcores.entry(usage.lcore).or_default().usage = Some(usage);
    }
    for own in &sample.roles {
        lcores.entry(own.lcore).or_default();
    }
    for (number, lcore) in &mut lcores {
        lcore.role = sample.role_of(*number);
    }
    lcores
}

/// Prefers the thread id of the kernel, which is valid on this machine, to that of the library, which
/// is valid in the app's namespace.
fn identity(row: &LabelledRow<LcoreValues<'_>>) -> MetricSample {
    let LcoreValues { library, thread, role, .. } = row.of;
    let tid = thread.map(|thread| thread.tid.into()).or(library.map(|library| library.tid));
    let values = [
        role.unwrap_or_default().to_owned(),
        thread.map(|thread| thread.cpus.clone()).unwrap_or_default(),
        tid.map(|tid| tid.to_string()).unwrap_or_default(),
    ];
    info(row.labels.iter().cloned().chain(values).collect())
}

fn polls(families: &mut FamilyList, lcores: &[LabelledRow<LcoreValues<'_>>]) {
    families.per(&metric::LCORE_POLLS, lcores, |lcore| Some(lcore.library?.polls));
    families.per(&metric::LCORE_BUSY_POLLS, lcores, |lcore| Some(lcore.library?.busy_polls));
    families.per(&metric::LCORE_PACKETS, lcores, |lcore| Some(lcore.library?.packets));
    families.per(&metric::LCORE_POLL_GAP, lcores, |lcore| {
        histogram(&lcore.library?.gaps, |i| 2_f64.powi(i) / 1e6, None)
    });
    families.per(&metric::LCORE_POLL_GAP_WINDOW_MAX, lcores, |lcore| {
        Some(lcore.library?.gap_window_max_us as f64 / 1e6)
    });
    families.per(&metric::LCORE_STALLS, lcores, |lcore| Some(lcore.library?.stalls));
    families.per(&metric::LCORE_LAST_POLL, lcores, |lcore| {
        let idle_ns = lcore.library?.idle_us.saturating_mul(1000);
        Some(seconds(lcore.now_ns.saturating_sub(idle_ns)))
    });
}

fn captures<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) {
    let linked: Vec<_> = live
        .iter()
        .filter(|app| app.model.sample.library.is_some())
        .map(|app| LabelledRow { labels: labels(app.name, []), of: &app.model.sample })
        .collect();
    families.per(&metric::CAPTURE_SESSIONS, &linked, |sample| {
        let armed: BTreeSet<_> = sample.tee.iter().filter(|t| t.armed).map(|t| t.session).collect();
        (!sample.failed("/pmdscope/tee")).then_some(armed.len())
    });
    let kept: BTreeMap<_, _> =
        live.iter().map(|app| (app.name, kept(app, suppressed, limits))).collect();
    let rings = rows(live, suppressed, |app| {
        let tee = app.model.sample.tee.iter();
        let of_kept =
            tee.filter(|tee| kept.get(app.name).is_some_and(|k| k.contains(&tee.session)));
        of_kept.map(|tee| ([tee.session.to_string(), tee.lcore.to_string()], tee))
    });
    counters(families, &rings);
    families.per(&metric::CAPTURE_ABANDONED_BYTES, &linked, |sample| {
        sample.library.as_ref().map(|library| library.abandoned_bytes)
    });
}

/// Returns the captures to export: the oldest, because their series already exist.
fn kept<'a>(
    app: &LiveApp<'a>,
    suppressed: &mut SuppressedSeries<'a>,
    limits: &SeriesLimits,
) -> BTreeSet<u64> {
    let sessions: BTreeSet<_> = app.model.sample.tee.iter().map(|tee| tee.session).collect();
    let keep = suppressed.keep(app.name, SuppressReason::Captures, sessions.len(), limits.captures);
    sessions.into_iter().take(keep).collect()
}

fn counters(families: &mut FamilyList, rings: &[LabelledRow<&TeeSample>]) {
    families.per(&metric::CAPTURE_PACKETS, rings, |tee| Some(tee.records));
    families.per(&metric::CAPTURE_DROPPED_PACKETS, rings, |tee| Some(tee.dropped));
    families.per(&metric::CAPTURE_FILTERED_PACKETS, rings, |tee| Some(tee.filtered));
    families.per(&metric::CAPTURE_RING_BYTES, rings, |tee| Some(tee.ring_bytes));
    families.per(&metric::CAPTURE_RING_USED_BYTES, rings, |tee| Some(tee.used_bytes));
}
