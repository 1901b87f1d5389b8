//! Metrics of the exporter itself, and of apps as a whole.

use std::time::Duration;

use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::sample::{AppIdentity, Sample};
use pmdscope_telemetry::{AppState, AppStatus, ErrorClass, FleetState};

use super::row::{FamilyList, LabelledRow, labels};
use super::{LiveApp, MetricsContext, PushCounts};
use crate::catalogue::{self as metric};
use crate::connections::ConnectionCounts;
use crate::family::{LabelValues, MetricFamily, MetricSample, SampleValue};
use crate::health::AppHealth;

/// Returns all families, those of the exporter first, and the number of series, which includes its own.
pub(super) fn exporter(
    suppressed: FamilyList,
    others: FamilyList,
    fleet: &FleetState,
    context: &MetricsContext<'_>,
) -> Vec<MetricFamily> {
    let mut first = FamilyList::default();
    let itself = context.only.is_none_or(str::is_empty);
    if itself {
        own(&mut first, fleet, context);
    }
    let mut all = first.into_vec();
    all.extend(suppressed.into_vec());
    all.extend(others.into_vec());
    if itself {
        let series = 1 + all.iter().map(MetricFamily::series).sum::<usize>();
        let sample = MetricSample { labels: [].into(), value: series.into() };
        all.insert(1, MetricFamily { metric: &metric::EXPORTER_SERIES, samples: vec![sample] });
    }
    all
}

fn own(families: &mut FamilyList, fleet: &FleetState, context: &MetricsContext<'_>) {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    families.add(&metric::EXPORTER_BUILD_INFO, [info([version].into())]);
    let found = fleet.apps.iter().filter(|app| !never_ran(app)).count();
    let one = |value: u64| [MetricSample { labels: [].into(), value: value.into() }];
    families.add(&metric::EXPORTER_COLLECTIONS, one(context.counters.collections));
    families.add(&metric::EXPORTER_SHARED_SCRAPES, one(context.counters.shared_scrapes));
    let connections = context.counters.connections;
    families.add(&metric::EXPORTER_CONNECTIONS, connections.iter().flat_map(|of| one(of.open)));
    families.add(&metric::EXPORTER_CONNECTIONS_REJECTED, connections.iter().flat_map(rejected));
    families
        .add(&metric::EXPORTER_OTLP_PUSHES, context.counters.pushes.into_iter().flat_map(pushes));
    families.add(&metric::APPS_DISCOVERED, one(found as u64));
    families.add(&metric::EXPORTER_UNREADABLE_DIRECTORIES, one(fleet.unreadable.len() as u64));
    families.add(&metric::APPS_EXPECTED, one(context.expected.apps.len() as u64));
}

fn rejected(connections: &ConnectionCounts) -> impl Iterator<Item = MetricSample> {
    by_word([
        ("client_limit", connections.client_limit),
        ("total_limit", connections.total_limit),
        ("displaced", connections.displaced),
        ("header_timeout", connections.header_timeout),
        ("response_timeout", connections.response_timeout),
    ])
}

fn pushes(pushes: PushCounts) -> impl Iterator<Item = MetricSample> {
    by_word([
        ("accepted", pushes.accepted),
        ("partial", pushes.partial),
        ("rejected", pushes.rejected),
        ("failed", pushes.failed),
        ("dropped", pushes.dropped),
    ])
}

fn by_word<const N: usize>(counts: [(&str, u64); N]) -> impl Iterator<Item = MetricSample> {
    counts
        .map(|(word, count)| MetricSample { labels: [word.to_owned()].into(), value: count.into() })
        .into_iter()
}

/// Returns whether an expected app was never found; an app that has ended is missing too, but was
/// found.
fn never_ran(app: &AppState) -> bool {
    app.model.is_none() && app.findings.iter().any(|finding| finding.lint == Lint::AppMissing)
}

pub(super) fn families(
    families: &mut FamilyList,
    apps: &[&AppState],
    live: &[LiveApp<'_>],
    context: &MetricsContext<'_>,
) {
    let members: Vec<LabelledRow<&AppState>> =
        apps.iter().map(|app| LabelledRow { labels: labels(&app.name, []), of: *app }).collect();
    let answers = |app: &AppState| app.status == AppStatus::Live;
    families.per(&metric::UP, &members, |app| asked(app).then(|| answers(app)));
    families.add(&metric::COLLECT_ERRORS, apps.iter().flat_map(|app| errors(app)));
    round(families, live);
    families.add(&metric::APP_INFO, apps.iter().filter_map(|app| identity(app)));
    families.add(&metric::APP_CONTAINER_INFO, apps.iter().filter_map(|app| container(app)));
    families.per(&metric::APP_START, &members, |app| {
        let started = app.model.as_ref()?.sample.app.start_realtime_ns;
        (started > 0).then(|| seconds(started))
    });
    families.per(&metric::APP_START_SINCE_BOOT, &members, |app| {
        let app = &app.model.as_ref()?.sample.app;
        (app.start_ticks > 0).then(|| app.start_since_boot_s())
    });
    families.per(&metric::APP_LAST_SEEN, &members, |app| {
        Some(seconds(app.model.as_ref()?.sample.realtime_ns))
    });
    families.per(&metric::APP_TELEMETRY_ENABLED, &members, |app| {
        let off = app.findings.iter().any(|finding| finding.lint == Lint::TelemetryOff);
        (off || answers(app)).then_some(!off)
    });
    state(families, live);
    families.per(&metric::APP_EXPECTED_PORTS, &members, |app| expected_ports(app, context));
    let judged: Vec<LabelledRow<AppHealth<'_>>> = members
        .iter()
        .filter(|row| asked(row.of))
        .map(|row| LabelledRow {
            labels: row.labels.clone(),
            of: AppHealth::of(row.of, context.tolerate),
        })
        .collect();
    families.per(&metric::APP_HEALTHY, &judged, |health| Some(health.ready));
    families.add(&metric::APP_UNHEALTHY_REASON, judged.iter().flat_map(|row| reasons(&row.of)));
}

/// Returns the expected number of ports of an app: by its last sample, or by the configuration if it
/// never answered.
fn expected_ports(app: &AppState, context: &MetricsContext<'_>) -> Option<usize> {
    if let Some(model) = &app.model {
        return Some(context.expected.expectation(&model.sample).min_ports);
    }
    let name = context.expected.app(&app.name)?.name.clone();
    let app = AppIdentity { name, ..AppIdentity::default() };
    let never_heard_of = Sample { app, ..Sample::default() };
    Some(context.expected.expectation(&never_heard_of).min_ports)
}

/// Returns whether the app was queried: of an app that was just found nothing is known, not even that
/// it is down.
fn asked(app: &AppState) -> bool {
    app.status != AppStatus::Waiting
}

fn errors(app: &AppState) -> impl Iterator<Item = MetricSample> {
    ErrorClass::ALL.into_iter().map(|class| MetricSample {
        labels: labels(&app.name, [class.name().to_owned()]),
        value: app.errors.get(&class).copied().unwrap_or(0).into(),
    })
}

fn reasons(health: &AppHealth<'_>) -> impl Iterator<Item = MetricSample> {
    Lint::ALL.iter().filter(|lint| !lint.is_about_host()).map(|lint| MetricSample {
        labels: labels(health.app, [lint.to_string()]),
        value: health.reasons.iter().any(|reason| reason.reason == *lint).into(),
    })
}

/// Adds the families about the queries of apps.
fn round(families: &mut FamilyList, live: &[LiveApp<'_>]) {
    let samples = samples(live);
    families.per(&metric::COLLECT_DURATION, &samples, |sample| Some(seconds(sample.duration_ns)));
    families.per(&metric::COLLECT_REQUESTS, &samples, |sample| Some(u64::from(sample.requests)));
    families.per(&metric::COLLECT_PARTIAL, &samples, |sample| Some(sample.partial.len()));
}

fn state(families: &mut FamilyList, live: &[LiveApp<'_>]) {
    let samples = samples(live);
    families.per(&metric::APP_SECONDARIES, &samples, |sample| Some(u64::from(sample.secondaries)));
    families.per(&metric::APP_CONTROL_THREADS_SHARE_LCORE_CPU, &samples, |sample| {
        let library = sample.library.as_ref().map(|library| library.control_shares_poll_cpu);
        sample.control_shares_poll_cpu.or(library)
    });
    families.per(&metric::APP_TSC_HERTZ, &samples, |sample| {
        sample.library.as_ref().map(|library| library.tsc_hz).filter(|hertz| *hertz > 0)
    });
    families.per(&metric::APP_PORTS, &samples, |sample| {
        ports_known(sample).then_some(sample.ports.len())
    });
    families.per(&metric::APP_PORTS_STARTED, &samples, |sample| {
        let started = sample.ports.iter().filter(|port| port.started).count();
        ports_known(sample).then_some(started)
    });
}

fn samples<'a>(live: &[LiveApp<'a>]) -> Vec<LabelledRow<&'a Sample>> {
    live.iter()
        .map(|app| LabelledRow { labels: labels(app.name, []), of: &app.model.sample })
        .collect()
}

/// Returns whether the list of ports is complete: a port that could not be read is missing from the
/// sample.
fn ports_known(sample: &Sample) -> bool {
    !sample.failed("/ethdev/")
}

fn identity(app: &AppState) -> Option<MetricSample> {
    let sample = &app.model.as_ref()?.sample;
    let AppIdentity { dpdk_version, exe, .. } = &sample.app;
    let library = sample.library.as_ref().map(|library| library.version.clone());
    let values = [
        dpdk_version.strip_prefix("DPDK ").unwrap_or(dpdk_version).to_owned(),
        exe.clone().unwrap_or_default(),
        library.unwrap_or_default(),
        app.level()?.to_string(),
    ];
    Some(info(labels(&app.name, values)))
}

fn container(app: &AppState) -> Option<MetricSample> {
    let container = app.model.as_ref()?.sample.app.container.clone()?;
    let values = [container.id, container.pod.unwrap_or_default()];
    Some(info(labels(&app.name, values)))
}

pub(super) fn info(labels: LabelValues) -> MetricSample {
    MetricSample { labels, value: SampleValue::Count(1) }
}

/// Converts nanoseconds to seconds; wall clock times are exact to a microsecond.
pub(super) fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}
