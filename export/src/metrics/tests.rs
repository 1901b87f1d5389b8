//! Tests of the metrics of a state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use pmdscope_telemetry::finding::{self, LintRules};
use pmdscope_telemetry::missed::MissedCause;
use pmdscope_telemetry::sample::*;
use pmdscope_telemetry::{FleetEvent, FleetState, InterfaceEvaluator, ModelTracker};
use pmdscope_testing::{current_test, skip_without, spawn};
use proptest::prelude::*;

use super::*;
use crate::family::{MetricKind, SampleValue};
use crate::fixture;
use crate::text::{TextFormat, encode};

mod apps;
mod interfaces;
mod limits;
mod queues;
mod stolen;

/// All exported samples, by name and label values joined with `/`.
#[derive(Debug)]
struct ExportedMetrics(BTreeMap<String, BTreeMap<String, SampleValue>>);

impl ExportedMetrics {
    fn of(fleet: &FleetState, limits: &SeriesLimits) -> Self {
        Self::viewed(fleet, &fixture::context(limits, &fixture::expected()))
    }

    fn viewed(fleet: &FleetState, context: &MetricsContext<'_>) -> Self {
        let mut exported = BTreeMap::new();
        for MetricFamily { metric, samples } in families(fleet, context) {
            assert!(!samples.is_empty(), "{}", metric.name);
            let mut values = BTreeMap::new();
            for sample in samples {
                assert_eq!(sample.labels.len(), metric.labels.len(), "{}", metric.name);
                let labels = sample.labels.join("/");
                assert_eq!(values.insert(labels, sample.value), None, "{}", metric.name);
            }
            assert!(exported.insert(metric.name.to_owned(), values).is_none(), "{}", metric.name);
        }
        Self(exported)
    }

    fn of_sample(sample: Sample, limits: &SeriesLimits) -> Self {
        Self::of(&fixture::fleet_of(sample), limits)
    }

    /// Returns the metrics of an app with several samples.
    fn of_samples(samples: impl Iterator<Item = Sample>, limits: &SeriesLimits) -> Self {
        Self::of(&fixture::fleet_of_samples(samples), limits)
    }

    /// Returns a count; `None` if there is no such sample.
    fn count(&self, name: &str, labels: &str) -> Option<u64> {
        match self.0.get(name)?.get(labels)? {
            SampleValue::Count(count) => Some(*count),
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns the label values of all samples of a metric.
    fn labels(&self, name: &str) -> Vec<&str> {
        self.0.get(name).into_iter().flatten().map(|(labels, _)| labels.as_str()).collect()
    }

    fn suppressed(&self, kind: &str) -> Option<u64> {
        self.count("dpdk_series_suppressed", &format!("fwd/{kind}"))
    }
}

#[test]
fn every_metric_of_the_catalogue_is_exported_and_no_other() {
    let exported = ExportedMetrics::of(&fixture::fleet(), &fixture::limits());
    let known: BTreeSet<_> = catalogue::all().map(|metric| metric.name).collect();
    let told: BTreeSet<_> = exported.0.keys().map(String::as_str).collect();
    assert_eq!(told, known);
}

#[test]
fn families_come_in_the_order_of_the_catalogue() {
    let (limits, expected) = (fixture::limits(), fixture::expected());
    let families = families(&fixture::fleet(), &fixture::context(&limits, &expected));
    let told: Vec<_> = families.iter().map(|family| family.metric.name).collect();
    let known: Vec<_> = catalogue::all().map(|metric| metric.name).collect();
    assert_eq!(told, known);
}

#[test]
fn values_fit_the_kind_of_their_metric() {
    let (limits, expected) = (fixture::limits(), fixture::expected());
    for family in families(&fixture::fleet(), &fixture::context(&limits, &expected)) {
        for sample in family.samples {
            let fits = match (family.metric.kind, &sample.value) {
                (MetricKind::Info, value) => *value == SampleValue::Count(1),
                (MetricKind::Histogram, value) => matches!(value, SampleValue::Histogram(_)),
                (MetricKind::Counter, SampleValue::Number(number)) => {
                    family.metric.unit() == Some("seconds") && *number >= 0.0
                }
                (MetricKind::Counter, value) => matches!(value, SampleValue::Count(_)),
                (_, value) => !matches!(value, SampleValue::Histogram(_)),
            };
            assert!(fits, "{}: {:?}", family.metric.name, sample.value);
        }
    }
}

#[test]
fn a_port_that_misses_packets_has_all_causes() {
    let mut before = fixture::stock("fwd");
    before.monotonic_ns = 1_000_000_000;
    let mut now = before.clone();
    now.monotonic_ns += 1_000_000_000;
    now.ports[0].stats.rx_missed += 1000;
    now.ports[0].stats.rx_nombuf += 1000;
    let mut tracker = ModelTracker::default();
    tracker.update(before);
    let model = tracker.update(now);
    let findings = finding::evaluate(&model, &LintRules::default());
    let mut fleet = FleetState::default();
    fleet.apply(FleetEvent::Sampled { app: "fwd".into(), model: model.into(), findings });
    let exported = ExportedMetrics::of(&fleet, &SeriesLimits::default());
    let cause = |cause: MissedCause| {
        exported.count("dpdk_port_missed_cause", &format!("fwd/0000:03:00.0/{cause}"))
    };
    assert_eq!(exported.labels("dpdk_port_missed_cause").len(), MissedCause::ALL.len());
    assert_eq!(cause(MissedCause::PoolEmpty), Some(1));
    assert_eq!(cause(MissedCause::Unknown), Some(0));
    let idle = ExportedMetrics::of_sample(fixture::stock("fwd"), &SeriesLimits::default());
    assert!(idle.labels("dpdk_port_missed_cause").is_empty());
}

#[test]
fn metrics_of_one_app_leave_out_the_exporter() {
    let (limits, expected) = (SeriesLimits::default(), fixture::expected());
    let context = MetricsContext { only: Some("old"), ..fixture::context(&limits, &expected) };
    let exported = ExportedMetrics::viewed(&fixture::fleet(), &context);
    assert_eq!(exported.labels("dpdk_up"), ["old"]);
    assert!(exported.0.keys().all(|name| !name.starts_with("dpdk_exporter_")));
    let nobody = MetricsContext { only: Some("nobody"), ..context };
    assert!(ExportedMetrics::viewed(&fixture::fleet(), &nobody).0.is_empty());
}

#[test]
fn series_are_counted_and_the_counter_itself() {
    let (limits, expected) = (fixture::limits(), fixture::expected());
    let context = fixture::context(&limits, &expected);
    let all: usize = families(&fixture::fleet(), &context).iter().map(MetricFamily::series).sum();
    let exported = ExportedMetrics::viewed(&fixture::fleet(), &context);
    assert_eq!(exported.count("dpdk_exporter_series", ""), Some(all as u64));
}

/// Checks the table in docs/metrics.md.
#[test]
fn the_documented_numbers_of_series_hold() {
    let of = |mut sample: Sample, limits: &SeriesLimits| {
        sample.app.container = None;
        let expected = AppInventory::default();
        let context = MetricsContext { only: Some("fwd"), ..fixture::context(limits, &expected) };
        families(&fixture::fleet_of(sample), &context)
            .iter()
            .map(MetricFamily::series)
            .sum::<usize>()
    };
    // One of each: device, port with an xstat, queue pair, pool, ring, heap, lcore that counts cycles.
    let stock = 72 + 2 + (17 + 1) + 5 + 7 + 3 + 5 + (3 + 2);
    assert_eq!(of(fixture::stock("fwd"), &SeriesLimits::default()), stock);
    let mut old = fixture::stock("fwd");
    old.pools[0].occupancy = None;
    old.pools[0].source = None;
    assert_eq!(of(old, &SeriesLimits::default()), stock - 4);
    let mut linked = fixture::linked();
    // Without a leak and a trend; and with a capture of one lcore.
    linked.sites.clear();
    linked.ledger[0].exhausted_in_ms = None;
    linked.lcores[0].gaps = vec![0; 24];
    let pool = 8 + 1 + 14;
    // A cause with times, and one without.
    let traced = 3 + (3 + 1);
    let expected = (75 + 1) + 2 + (17 + 1) + 12 + pool + 4 + 5 + (33 + 2) + traced + 5;
    assert_eq!(of(linked.clone(), &SeriesLimits::default()), expected);
    assert_eq!(of(linked, &fixture::limits()), expected + 23);
}

#[test]
fn the_eal_tells_the_roles_of_lcores() {
    let role =
        |lcore, role: &str| LcoreRoleSample { lcore, role: role.to_owned(), cpus: Vec::new() };
    let mut sample = fixture::linked();
    sample.roles = vec![role(1, "RTE"), role(7, "SERVICE")];
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    let labels = exported.labels("dpdk_lcore_info").join("\n");
    assert!(labels.contains("worker") && !labels.contains("RTE"), "{labels}");
    assert!(labels.contains("SERVICE"), "{labels}");
}

#[test]
fn what_is_unknown_has_no_sample() {
    let mut sample = fixture::stock("fwd");
    let port = &mut sample.ports[0];
    (port.link_up, port.link_mbps, port.promiscuous) = (None, None, None);
    port.stats.rx_bytes = 0;
    sample.pools[0].occupancy = None;
    (sample.app.start_realtime_ns, sample.app.start_ticks) = (0, 0);
    sample.control_shares_poll_cpu = None;
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    for name in [
        "dpdk_app_control_threads_share_lcore_cpu",
        "dpdk_app_start_since_boot_seconds",
        "dpdk_app_start_timestamp_seconds",
        "dpdk_app_tsc_hertz",
        "dpdk_capture_sessions",
        "dpdk_lcore_polls_total",
        "dpdk_mempool_cached_objects",
        "dpdk_mempool_exhausted_in_seconds",
        "dpdk_mempool_objects_in_use",
        "dpdk_port_link_speed_bytes_per_second",
        "dpdk_port_link_up",
        "dpdk_port_promiscuous",
        "dpdk_port_receive_bytes_total",
        "dpdk_queue_polls_total",
    ] {
        assert_eq!(exported.labels(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(exported.count("dpdk_port_transmit_bytes_total", "fwd/0000:03:00.0"), Some(1280));
}

#[test]
fn counts_tell_their_source() {
    let labels = |source| {
        let mut sample = fixture::stock("fwd");
        (sample.pools[0].source, sample.rings[0].source) = (source, source);
        let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
        ["dpdk_mempool_info", "dpdk_ring_info"].map(|name| exported.labels(name).join("\n"))
    };
    assert_eq!(labels(Some(CountSource::Xray)), ["fwd/mb_pool_0/xray", "fwd/work/xray"]);
    assert_eq!(labels(Some(CountSource::Library)), ["fwd/mb_pool_0/library", "fwd/work/library"]);
    assert_eq!(labels(None), ["", ""]);
}

#[test]
fn a_nic_with_the_wrong_driver_is_exported() {
    let mismatch = |driver: &str| {
        let mut sample = fixture::stock("fwd");
        sample.ports.clear();
        sample.devices[0].driver = Some(driver.to_owned());
        let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
        let driver = exported.labels("dpdk_pci_device_info")[0].to_owned();
        (exported.count("dpdk_pci_device_driver_mismatch", "fwd/0000:03:00.0"), driver)
    };
    assert_eq!(mismatch("ixgbe"), (Some(1), "fwd/0000:03:00.0/ixgbe".to_owned()));
    assert_eq!(mismatch("vfio-pci"), (Some(0), "fwd/0000:03:00.0/vfio-pci".to_owned()));
}

#[test]
fn ports_that_could_not_be_read_are_not_counted_as_missing() {
    let mut sample = fixture::stock("fwd");
    sample.ports.clear();
    let exported = ExportedMetrics::of_sample(sample.clone(), &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_app_ports", "fwd"), Some(0));
    sample.partial = vec!["/ethdev/stats: timed out".to_owned()];
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_app_ports", "fwd"), None);
    assert_eq!(exported.count("dpdk_collect_partial", "fwd"), Some(1));
}

#[test]
fn duplicate_names_are_counted_and_only_the_first_is_exported() {
    let mut sample = fixture::linked();
    let twin = PortSample { id: 1, ..fixture::port(1, "0000:03:00.0", 1) };
    sample.ports.push(PortSample { stats: PortStats::default(), ..twin });
    sample.queues.push(fixture::queue(1, 0, QueueDirection::Rx));
    sample.pools.push(PoolSample { size: 1, ..fixture::pool("mb_pool_0") });
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    assert_eq!(exported.suppressed("duplicate"), Some(2));
    let port = "fwd/0000:03:00.0";
    assert_eq!(exported.count("dpdk_port_receive_packets_total", port), Some(u64::MAX));
    assert_eq!(exported.count("dpdk_mempool_objects", "fwd/mb_pool_0"), Some(16_383));
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", ".{0,6}", "[rt]x_q[0-9]{1,6}_?(packets|bytes|errors|drop)"]
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(name(), 0..6)
}

proptest! {
    /// Names may be repeated, empty, or contain any character: [`ExportedMetrics`] checks that no
    /// series appears twice.
    #[test]
    fn no_names_make_a_series_appear_twice(
        [ports, pools, xstats, sites] in [names(), names(), names(), names()],
        cap in 0_usize..4,
        linked: bool,
    ) {
        let mut sample = if linked { fixture::linked() } else { fixture::stock("fwd") };
        let port = |(id, device): (u16, &String)| PortSample {
            xstats: xstats.iter().map(|name| (name.clone(), 1)).collect(),
            ..fixture::port(id, device, 1)
        };
        sample.ports.extend((1..).zip(&ports).map(port));
        sample.queues.extend((0..4).map(|port| fixture::queue(port, 1, QueueDirection::Rx)));
        sample.pools.extend(pools.iter().map(|name| fixture::pool(name)));
        sample.sites.extend(sites.iter().map(|name| fixture::site(name, 1)));
        let ring = |name: &String| RingSample { name: name.clone(), ..RingSample::default() };
        sample.rings.extend(pools.iter().map(ring));
        sample.tee.extend([fixture::tee(3, 1), fixture::tee(2, 1)]);
        let limits = SeriesLimits {
            xstats_per_port: cap,
            sites_per_pool: cap,
            queues_per_port: cap,
            captures: cap,
            ..fixture::limits()
        };
        ExportedMetrics::of_sample(sample, &limits);
    }
}

/// Checks that promtool reports no problems.
#[test]
fn promtool_accepts_the_metrics() {
    // Installed by `make setup`, or in `PATH`.
    let unpacked =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../build/tools/prometheus/usr/bin/promtool");
    let unpacked = std::fs::exists(unpacked).unwrap().then(|| unpacked.to_owned());
    let promtool = std::env::var("PROMTOOL").ok().or(unpacked).unwrap_or("promtool".to_owned());
    let mut check = Command::new(&promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut check) = spawn(check.stderr(Stdio::piped())) else {
        return skip_without(&current_test(), promtool);
    };
    let (limits, expected) = (fixture::limits(), fixture::expected());
    let mut text = String::new();
    encode(
        &families(&fixture::fleet(), &fixture::context(&limits, &expected)),
        TextFormat::Text,
        &mut text,
    );
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
    assert!(output.status.success() && said == ["", ""], "{said:?}");
}
