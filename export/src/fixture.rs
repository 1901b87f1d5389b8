//! A state with one app of each kind, for tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability, UnreachableReason};
use pmdscope_telemetry::finding::{
    self, Finding, FindingCause, FindingSubject, Lint, LintRules, Severity,
};
use pmdscope_telemetry::fixture as samples;
use pmdscope_telemetry::fleet::{Evaluator, unqueried_event};
use pmdscope_telemetry::host::Container;
use pmdscope_telemetry::missed::MissedCause;
use pmdscope_telemetry::sample::*;
use pmdscope_telemetry::{
    AppInventory, ErrorClass, ExpectedApp, FleetEvent, FleetState, InterfaceEvaluator,
};

use crate::connections::ConnectionCounts;
use crate::metrics::{ExporterCounters, MetricsContext, PushCounts};
use crate::series_limits::SeriesLimits;

const REALTIME_NS: u64 = 1_700_000_000_250_000_000;

/// Returns a state with an app linked with libpmdscope, a stock app, one that has ended, one without
/// telemetry, and one that is expected and never ran.
pub(crate) fn fleet() -> FleetState {
    let mut fleet = FleetState { realtime_ns: REALTIME_NS, ..FleetState::default() };
    let rules = LintRules { expected: expected(), ..LintRules::default() };
    for sample in [linked(), bonded(stock("old")), stock("ended")] {
        fleet.apply(Evaluator::new(rules.clone()).sampled(sample));
    }
    let ended = Reachability::Unreachable(UnreachableReason::Refused);
    for app in [app("ended", ended), app("mute", Reachability::NoTelemetry)] {
        fleet.apply(unqueried_event(&app).unwrap());
    }
    fleet.apply(FleetEvent::Lost {
        app: "missing".to_owned(),
        class: ErrorClass::Missing,
        reason: "is expected, and does not run".to_owned(),
        finding: Some(finding::evaluate_missing("missing")),
    });
    let mut interfaces = InterfaceEvaluator::new(rules.thresholds);
    for second in 1..=2 {
        let read = vec![samples::filtered_interface(second), samples::split_interface(second)];
        fleet.apply(interfaces.event(Ok(read), second * 1_000_000_000));
    }
    if let Some(old) = fleet.apps.iter_mut().find(|app| app.name == "old") {
        old.findings.push(missed());
    }
    fleet
}

/// Returns a sample whose port discards packets, and is a member of another one.
fn bonded(mut sample: Sample) -> Sample {
    let port = &mut sample.ports[0];
    port.mac = Some("02:70:63:00:00:01".to_owned());
    port.xstats.extend([("rx_discards_phy".to_owned(), 31_000)]);
    let whole = PortSample { id: 9, device: "net_bonding0".to_owned(), ..port.clone() };
    sample.ports.push(PortSample { xstats: Xstats::default(), ..whole });
    sample
}

/// Returns a finding about missed packets of the stock app's port.
fn missed() -> Finding {
    Finding {
        lint: Lint::RxMissed,
        severity: Severity::Critical,
        app: "old".to_owned(),
        subject: FindingSubject::Port("0000:03:00.0".to_owned()),
        evidence: "5.0 packets/s missed by the NIC".to_owned(),
        threshold: "more than 0 missed packets/s".to_owned(),
        advice: "reserve the CPU".to_owned(),
        causes: vec![FindingCause {
            cause: MissedCause::StolenCore,
            share: Some(1.0),
            evidence: "lcore 3: the kernel ran something else on its CPU".to_owned(),
        }],
        weight: 0.0,
    }
}

pub(crate) fn expected() -> AppInventory {
    let app = |name: &str, ports: &[&str]| ExpectedApp {
        name: name.to_owned(),
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        ..ExpectedApp::default()
    };
    AppInventory { apps: vec![app("fwd", &["0000:03:00.0"]), app("missing", &["net_a", "net_b"])] }
}

/// Returns the default limits, with histograms.
pub(crate) fn limits() -> SeriesLimits {
    SeriesLimits { queue_histograms: true, ..SeriesLimits::default() }
}

pub(crate) fn context<'a>(
    limits: &'a SeriesLimits,
    expected: &'a AppInventory,
) -> MetricsContext<'a> {
    let pushes = Some(PushCounts { accepted: 5, failed: 1, ..PushCounts::default() });
    let connections = Some(ConnectionCounts { open: 3, displaced: 4, ..Default::default() });
    let counters = ExporterCounters { collections: 7, shared_scrapes: 2, connections, pushes };
    MetricsContext { limits, tolerate: &[], expected, counters, only: None }
}

fn app(name: &str, state: Reachability) -> DiscoveredApp {
    let dir = PathBuf::from("/run/dpdk").join(name);
    DiscoveredApp { pid: Some(9), ..DiscoveredApp::in_dir(dir, name, "dpdk_telemetry.v2", state) }
}

/// Returns a sample with only the mandatory fields.
pub(crate) fn sample(name: &str) -> Sample {
    Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: REALTIME_NS,
        monotonic_ns: 5_000_000_000,
        duration_ns: 123_000,
        requests: 12,
        app: AppIdentity {
            name: name.to_owned(),
            pid: 7,
            start_ticks: 70,
            start_realtime_ns: 1_699_999_000_000_000_000,
            dpdk_version: "DPDK 24.11.1".to_owned(),
            exe: Some(format!("/usr/bin/{name}")),
            eal_args: vec![name.to_owned(), "-a".to_owned(), "0000:03:00.0".to_owned()],
            container: Some(Container { id: "4f1c".repeat(16), pod: Some("0f1b6c52".to_owned()) }),
        },
        control_shares_poll_cpu: Some(true),
        ..Sample::default()
    }
}

/// Returns the state of an app with this sample.
pub(crate) fn fleet_of(sample: Sample) -> FleetState {
    fleet_of_samples([sample].into_iter())
}

/// Returns the state of an app with several samples.
pub(crate) fn fleet_of_samples(samples: impl Iterator<Item = Sample>) -> FleetState {
    let mut fleet = FleetState { realtime_ns: REALTIME_NS, ..FleetState::default() };
    let mut evaluator = Evaluator::new(LintRules::default());
    for sample in samples {
        fleet.apply(evaluator.sampled(sample));
    }
    fleet
}

/// Returns a sample with the values of the driver and the kernel.
pub(crate) fn stock(name: &str) -> Sample {
    let counters = ["rx_q0_packets", "rx_q0_bytes", "rx_q0_errors", "tx_q0_packets", "tx_q0_bytes"]
        .into_iter()
        .chain(["rx_missed_errors", "rx_size_64_packets"]);
    let xstats = counters.zip(1000..).map(|(name, value)| (name.to_owned(), value)).collect();
    Sample {
        ports: vec![PortSample { xstats, ..port(0, "0000:03:00.0", 1) }],
        pools: vec![pool("mb_pool_0")],
        rings: vec![RingSample {
            name: "work".into(),
            capacity: 1023,
            used: 5,
            source: Some(CountSource::Telemetry),
            ..RingSample::default()
        }],
        devices: vec![DeviceSample {
            address: "0000:03:00.0".to_owned(),
            present: true,
            network: true,
            driver: Some("vfio-pci".to_owned()),
        }],
        threads: vec![ThreadSample {
            lcore: 1,
            tid: 71,
            cpus: "2-3".to_owned(),
            cpu: 2,
            voluntary_switches: 3,
            involuntary_switches: 40,
            ..ThreadSample::default()
        }],
        heaps: vec![HeapSample {
            name: "socket_0".to_owned(),
            size: 64 << 20,
            allocated: 40 << 20,
            free: 24 << 20,
            greatest_free: 20 << 20,
            allocations: 321,
            ..HeapSample::default()
        }],
        usage: vec![UsageSample { lcore: 1, busy: 600, total: 1000 }],
        secondaries: 1,
        ..sample(name)
    }
}

/// Returns a sample with two thieves of one cause, and a cause without times.
fn tracing() -> TracingSample {
    TracingSample {
        lost_events: 3,
        overhead_ns: 1_500_000,
        missing: vec!["softirq: no tracepoint".to_owned()],
        ..samples::tracing(
            &[1],
            vec![
                samples::stolen(1, StolenCause::Irq, "24 eth0", 10, Some(50_000)),
                samples::stolen(1, StolenCause::Irq, "25 nvme0q1", 2, Some(16_000)),
                samples::stolen(1, StolenCause::Ipi, "reschedule", 7, None),
            ],
        )
    }
}

/// Returns a sample of an app with libpmdscope and a leak.
pub(crate) fn linked() -> Sample {
    Sample {
        queues: vec![queue(0, 0, QueueDirection::Rx), queue(0, 0, QueueDirection::Tx)],
        rings: vec![RingSample {
            name: "work".to_owned(),
            capacity: 1023,
            used: 5,
            high_water: Some(HighWater { window: 900, ever: 1023 }),
            source: Some(CountSource::Library),
            ..RingSample::default()
        }],
        pools: vec![PoolSample {
            high_water: Some(HighWater { window: 2100, ever: 3000 }),
            lcore_caches: BTreeMap::from([(1, 60)]),
            source: Some(CountSource::Library),
            ..pool("mb_pool_0")
        }],
        lcores: vec![lcore(1)],
        tracing: Some(tracing()),
        tee: vec![tee(3, 1)],
        ledger: vec![ledger()],
        sites: vec![site("src/fwd.c:120", 40), site("src/fwd.c:77", 2)],
        stages: vec![StageSample { stage: "reorder".into(), held: 12, ..StageSample::default() }],
        library: Some(LibrarySample {
            version: "1.2.3".to_owned(),
            tsc_hz: 2_100_000_000,
            abandoned_bytes: 4096,
            traced_units: Some(0),
            ..LibrarySample::default()
        }),
        ..stock("fwd")
    }
}

pub(crate) fn port(id: u16, device: &str, queues: u16) -> PortSample {
    PortSample {
        id,
        device: device.to_owned(),
        started: true,
        link_up: Some(true),
        link_mbps: Some(10_000),
        mtu: 1500,
        rx_queues: queues,
        tx_queues: queues,
        numa_node: 0,
        promiscuous: Some(true),
        mac: Some("02:00:00:00:00:01".to_owned()),
        stats: PortStats {
            rx_packets: u64::MAX,
            tx_packets: 20,
            rx_bytes: 640,
            tx_bytes: 1280,
            rx_missed: 5,
            rx_errors: 1,
            tx_errors: 2,
            rx_nombuf: 3,
        },
        ..PortSample::default()
    }
}

pub(crate) fn pool(name: &str) -> PoolSample {
    PoolSample {
        name: name.to_owned(),
        size: 16_383,
        element_bytes: 2432,
        cache_size: 256,
        socket: 0,
        occupancy: Some(PoolOccupancy { common: 14_000, cached: 383, in_use: 2000 }),
        source: Some(CountSource::Telemetry),
        ..PoolSample::default()
    }
}

pub(crate) fn queue(port: u16, queue: u16, direction: QueueDirection) -> QueueSample {
    let received = direction == QueueDirection::Rx;
    QueueSample {
        port,
        queue,
        direction,
        polls: 90,
        empty: 60,
        packets: 31,
        bytes: 1984,
        depth: received.then_some(17),
        depth_high_water: received.then_some(HighWater { window: 800, ever: 1024 }),
        descriptors: Some(1024),
        pool_row: None,
        bursts: vec![29, 1, 0, 0, 0, 0, 0, 0],
        depths: vec![60, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

fn lcore(lcore: u32) -> LcoreSample {
    LcoreSample {
        lcore,
        role: "worker".to_owned(),
        tid: 8,
        polls: 1000,
        busy_polls: 300,
        packets: 4000,
        idle_us: 250_000,
        gap_window_max_us: 1500,
        gap_max_us: 9000,
        gap_max_realtime_ns: REALTIME_NS,
        stalls: 4,
        gaps: vec![900, 80, 15, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        ..LcoreSample::default()
    }
}

pub(crate) fn tee(session: u64, lcore: u32) -> TeeSample {
    TeeSample {
        session,
        pid: 99,
        armed: true,
        lcore,
        ring_bytes: 1 << 20,
        used_bytes: 4096,
        records: 500,
        dropped: 6,
        filtered: 70,
        sampled_out: 0,
    }
}

fn ledger() -> LedgerSample {
    LedgerSample {
        name: "mb_pool_0".to_owned(),
        size: 16_383,
        common: 14_000,
        cached: 383,
        rx_posted: 1024,
        tx_pending: 32,
        rings: 5,
        held: 897,
        leaked: 42,
        lost_at_least: 0,
        armed: true,
        slope_milli: 2500,
        exhausted_in_ms: Some(240_500),
        double_frees: 1,
        use_after_frees: 2,
        ..LedgerSample::default()
    }
}

pub(crate) fn site(site: &str, count: u64) -> SiteSample {
    SiteSample {
        pool: "mb_pool_0".to_owned(),
        site: site.to_owned(),
        function: "forward".to_owned(),
        operation: "rx".to_owned(),
        kind: SiteKind::Leak,
        id: 18,
        count,
        events: count,
        oldest_ms: 1000 * count,
        newest_ms: 10,
        first_realtime_ns: REALTIME_NS,
    }
}
