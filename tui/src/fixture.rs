//! Apps for tests: one with libpmdscope and a leak, and a stock app.

pub(crate) mod flows;
mod past;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use pmdscope_render::Theme;
use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, Severity};
use pmdscope_telemetry::fixture as samples;
use pmdscope_telemetry::model::{
    LcoreRates, LedgerRates, Model, PoolTrend, PortRates, QueueRates, SiteRates, StolenRates,
    ThiefRates, ThreadRates,
};
use pmdscope_telemetry::sample::{
    AppIdentity, HighWater, LcoreSample, LedgerSample, LibrarySample, PoolOccupancy, PoolSample,
    PortSample, PortStats, QueueDirection, QueueSample, RingSample, SAMPLE_SCHEMA, Sample,
    SiteKind, SiteSample, StolenCause, TeeSample, ThreadSample, TracingMethod, Xstats,
};

pub(crate) use self::past::trends;
use crate::clock::NS_PER_SECOND;
use crate::state::ViewState;
use pmdscope_telemetry::{
    FleetEvent, FleetState, InterfaceEvaluator, RawReply, RepliesByApp, Thresholds,
};

/// 2026-01-02 03:04:05 UTC.
const REALTIME_NS: u64 = 1_767_323_045_000_000_000;

/// Monotonic clock of the samples.
pub(crate) const MONOTONIC_NS: u64 = 500_000_000_000;

/// A view in UTC with the default theme.
pub(crate) fn view() -> ViewState {
    let mut view = ViewState::new(Theme::default(), 1_000, jiff::tz::TimeZone::UTC);
    "gw7".clone_into(&mut view.host);
    view.follow(Some(flows::both()));
    view.trends = Some(trends());
    view.replies = Some(replies());
    view
}

/// What the reflector replied to two requests.
fn replies() -> RepliesByApp {
    let reply = |text: &str, age_ns| {
        let (text, bytes) = (text.to_owned(), text.len());
        Arc::new(RawReply { text, bytes, monotonic_ns: MONOTONIC_NS - age_ns })
    };
    let replies = [
        ("/ethdev/list".to_owned(), reply(r#"{"/ethdev/list":[0]}"#, 700_000_000)),
        (
            "/mempool/info,reflector_rx".to_owned(),
            reply(r#"{"/mempool/info":{"name":"reflector_rx","size":16383,"cache":512}}"#, 0),
        ),
    ];
    [("reflector".to_owned(), replies.into())].into()
}

/// Both apps, just sampled.
pub(crate) fn fleet() -> FleetState {
    let mut fleet = FleetState { now_ns: MONOTONIC_NS + 200_000_000, ..FleetState::default() };
    fleet.apply(sampled(leaking(), leaking_findings()));
    fleet.apply(sampled(stock(), Vec::new()));
    fleet
}

/// Both apps, a flooded interface, and one that bypasses the kernel to the first app.
pub(crate) fn fleet_with_interfaces() -> FleetState {
    let mut fleet = fleet();
    read_interfaces(&mut fleet, 1..=2);
    fleet
}

/// The same interfaces in these seconds.
pub(crate) fn read_interfaces(fleet: &mut FleetState, seconds: RangeInclusive<u64>) {
    let mut evaluator = InterfaceEvaluator::new(Thresholds::default());
    for second in seconds {
        let mut split = samples::split_interface(second);
        split.bypass.as_mut().unwrap().app = Some("reflector".to_owned());
        let read = vec![samples::filtered_interface(second), split];
        fleet.apply(evaluator.event(Ok(read), second * NS_PER_SECOND));
    }
}

/// Only the app of that name.
pub(crate) fn fleet_of(model: Model, findings: Vec<Finding>) -> FleetState {
    let mut fleet = FleetState { now_ns: MONOTONIC_NS + 200_000_000, ..FleetState::default() };
    fleet.apply(sampled(model, findings));
    fleet
}

/// The event of a sample.
pub(crate) fn sampled(model: Model, findings: Vec<Finding>) -> FleetEvent {
    FleetEvent::Sampled { app: model.sample.app.name.clone(), model: Arc::new(model), findings }
}

fn sample(name: &str, pid: u32) -> Sample {
    Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: REALTIME_NS,
        monotonic_ns: MONOTONIC_NS,
        duration_ns: 1_240_000,
        requests: 14,
        app: AppIdentity {
            name: name.to_owned(),
            pid,
            start_ticks: 1000,
            start_realtime_ns: 0,
            dpdk_version: "DPDK 22.11.11".to_owned(),
            exe: Some(format!("/usr/bin/{name}")),
            eal_args: vec![
                name.to_owned(),
                "--no-pci".to_owned(),
                "-m".to_owned(),
                "64".to_owned(),
            ],
            container: None,
        },
        ..Sample::default()
    }
}

fn port(id: u16, device: &str, queues: u16) -> PortSample {
    PortSample {
        id,
        device: device.to_owned(),
        started: true,
        link_up: Some(true),
        link_mbps: Some(10_000),
        mtu: 1500,
        rx_queues: queues,
        tx_queues: queues,
        numa_node: -1,
        promiscuous: Some(true),
        mac: Some(format!("02:70:63:00:00:{id:02x}")),
        stats: PortStats {
            rx_packets: 1_234_567_890,
            tx_packets: 1_234_000_000,
            rx_bytes: 74_074_073_400,
            tx_bytes: 74_040_000_000,
            rx_missed: 4_711,
            ..PortStats::default()
        },
        xstats: Xstats::from([
            ("rx_q0_packets".to_owned(), 617_283_945),
            ("rx_undersize_errors".to_owned(), 0),
        ]),
        ..PortSample::default()
    }
}

fn port_rates(id: u16) -> PortRates {
    PortRates {
        id,
        rx_pps: Some(14_200_000.0),
        tx_pps: Some(14_150_000.0),
        rx_bps: Some(6_816_000_000.0),
        tx_bps: Some(6_792_000_000.0),
        rx_missed_ps: Some(412.0),
        rx_errors_ps: Some(0.0),
        tx_errors_ps: Some(0.0),
        rx_nombuf_ps: Some(0.0),
        ..PortRates::default()
    }
}

fn queue(queue: u16, direction: QueueDirection) -> QueueSample {
    let rx = direction == QueueDirection::Rx;
    QueueSample {
        port: 0,
        queue,
        direction,
        polls: 90_000_000,
        empty: 30_000_000,
        packets: 617_283_945,
        bytes: 37_037_036_700,
        depth: rx.then_some(17),
        depth_high_water: rx.then_some(HighWater { window: 800, ever: 1024 }),
        descriptors: rx.then_some(1024),
        bursts: vec![10, 20, 40, 80, 160, 59_000_000, 0, 0],
        depths: if rx { vec![50, 10, 10, 20, 40, 10, 0, 0, 0, 3, 2, 1, 0] } else { vec![0; 13] },
        pool_row: None,
    }
}

fn queue_rates(queue: u16, direction: QueueDirection) -> QueueRates {
    QueueRates {
        port: 0,
        queue,
        direction,
        pps: Some(7_100_000.0),
        refused_ps: (direction == QueueDirection::Tx).then_some(0.0),
        refused_packets: (direction == QueueDirection::Tx).then_some(1_234),
        bps: Some(3_408_000_000.0),
        polls_ps: Some(900_000.0),
        busy_ratio: Some(0.66),
        mean_burst: Some(11.8),
        share: Some(0.5),
        missed_ps: None,
    }
}

fn pool(in_use: u64, cached: u64) -> PoolSample {
    PoolSample {
        name: "reflector_rx".to_owned(),
        size: 16_383,
        element_bytes: 2_304,
        cache_size: 512,
        socket: 0,
        occupancy: Some(PoolOccupancy { common: 16_383 - in_use - cached, cached, in_use }),
        high_water: Some(HighWater { window: in_use, ever: in_use + 40 }),
        lcore_caches: BTreeMap::from([(1, cached)]),
        ..PoolSample::default()
    }
}

/// The ledger of [`pool`] with 9,000 in use.
fn ledger() -> LedgerSample {
    let first_leak_realtime_ns = REALTIME_NS - 18_000_000_000;
    LedgerSample { first_leak_realtime_ns, ..samples::ledger() }
}

fn site(id: u32, site: &str, function: &str, count: u64) -> SiteSample {
    SiteSample {
        pool: "reflector_rx".to_owned(),
        site: site.to_owned(),
        function: function.to_owned(),
        operation: if function.is_empty() { String::new() } else { "rx".to_owned() },
        kind: SiteKind::Leak,
        id,
        count,
        events: count,
        oldest_ms: 17_200,
        newest_ms: 90,
        first_realtime_ns: REALTIME_NS - 18_000_000_000,
    }
}

fn sites() -> Vec<SiteSample> {
    let double_free = SiteSample {
        kind: SiteKind::DoubleFree,
        operation: "free".to_owned(),
        ..site(40, "app_fwd.c:48", "retry", 0)
    };
    vec![
        site(18, "app_fwd.c:18", "forward", 7_073),
        site(0, "before arming", "", 287),
        SiteSample { events: 3, ..double_free },
    ]
}

fn site_rates(site: &SiteSample, rate_ps: Option<f64>) -> SiteRates {
    SiteRates { pool: site.pool.clone(), id: site.id, kind: site.kind, rate_ps }
}

fn lcore(id: u32) -> LcoreSample {
    LcoreSample {
        lcore: id,
        role: "worker".to_owned(),
        tid: 4300 + u64::from(id),
        polls: 90_000_000,
        busy_polls: 60_000_000,
        packets: 617_283_945,
        idle_us: 0,
        gap_window_max_us: 48,
        gap_max_us: 2_310,
        gap_max_realtime_ns: REALTIME_NS - 61_000_000_000,
        stalls: 3,
        gaps: vec![89_000_000, 900_000, 90_000, 9_000, 900, 90, 9, 0, 0, 0, 0, 1, 2, 0],
        ..LcoreSample::default()
    }
}

fn thread(lcore: u32, involuntary_switches: u64) -> ThreadSample {
    ThreadSample {
        lcore,
        tid: 4300 + lcore,
        cpus: format!("{lcore}"),
        cpu: lcore,
        voluntary_switches: 4,
        involuntary_switches,
        ..ThreadSample::default()
    }
}

fn thread_rates(lcore: u32, involuntary_ps: f64) -> ThreadRates {
    ThreadRates {
        lcore,
        voluntary_ps: Some(0.0),
        involuntary_ps: Some(involuntary_ps),
        ..ThreadRates::default()
    }
}

fn lcore_rates(id: u32) -> LcoreRates {
    LcoreRates {
        lcore: id,
        polls_ps: Some(900_000.0),
        pps: Some(7_100_000.0),
        busy_ratio: Some(0.66),
        stalls_ps: Some(0.0),
        ..LcoreRates::default()
    }
}

/// An app with the library whose pool is draining.
pub(crate) fn leaking() -> Model {
    let directions = [QueueDirection::Rx, QueueDirection::Tx];
    let queues: Vec<_> = directions.into_iter().flat_map(|d| [(0, d), (1, d)]).collect();
    let mut sample = sample("reflector", 4242);
    sample.ports = vec![port(0, "net_vhost0", 2)];
    sample.queues = queues.iter().map(|&(q, d)| queue(q, d)).collect();
    sample.pools = vec![pool(9_000, 300)];
    let ring = RingSample {
        name: "to_stage2".to_owned(),
        capacity: 1023,
        used: 12,
        high_water: Some(HighWater { window: 90, ever: 1000 }),
        ..RingSample::default()
    };
    sample.rings = vec![ring];
    sample.lcores = vec![lcore(1), lcore(2)];
    sample.threads = vec![thread(1, 0), thread(2, 31)];
    sample.ledger = vec![ledger()];
    sample.sites = sites();
    sample.stages = samples::stages();
    let tee = TeeSample {
        session: 7,
        pid: 5151,
        armed: true,
        lcore: 1,
        ring_bytes: 1 << 20,
        used_bytes: 4096,
        records: 1_000_000,
        dropped: 12,
        filtered: 500,
        sampled_out: 0,
    };
    sample.tee = vec![tee];
    sample.library = Some(LibrarySample {
        version: "0.1.0".to_owned(),
        tsc_hz: 2_399_998_123,
        start_realtime_ns: REALTIME_NS - 3_600_000_000_000,
        sample_ms: 100,
        window_ms: 5_000,
        stall_us: 1_000,
        tee_socket: Some("/var/run/dpdk/reflector/pmdscope.sock".to_owned()),
        traced_units: Some(2),
        ..LibrarySample::default()
    });
    let trend = PoolTrend {
        name: "reflector_rx".to_owned(),
        used_ratio: Some(9_000.0 / 16_383.0),
        slope_ps: Some(412.0),
        exhausted_in_s: Some(17.9),
        history: (0..20).map(|step| 800 + step * 431).collect(),
    };
    let losses = LedgerRates {
        pool: "reflector_rx".to_owned(),
        leaked_ps: Some(412.0),
        history: (0..20).map(|step| step * 387).collect(),
    };
    let rates = [Some(412.0), Some(0.0), None];
    let sites = sample.sites.iter().zip(rates).map(|(site, rate)| site_rates(site, rate)).collect();
    Model {
        sample,
        interval_s: Some(1.0),
        restarted: false,
        ports: vec![port_rates(0)],
        queues: queues.iter().map(|&(q, d)| queue_rates(q, d)).collect(),
        pools: vec![trend],
        lcores: vec![lcore_rates(1), lcore_rates(2)],
        threads: vec![thread_rates(1, 0.0), thread_rates(2, 12.0)],
        ledger: vec![losses],
        sites,
        ..Model::default()
    }
}

/// [`leaking`], traced: an IRQ takes 2 % of one lcore, and nothing of the other.
pub(crate) fn stolen() -> Model {
    let rows = vec![
        samples::stolen(1, StolenCause::Timer, "local_timer", 250, Some(1_500_000)),
        samples::stolen(1, StolenCause::Irq, "eth0-TxRx-3 24", 4_000, Some(20_000_000)),
        samples::stolen(1, StolenCause::Ipi, "reschedule", 3, None),
    ];
    let thief = ThiefRates {
        cause: StolenCause::Irq,
        thief: "eth0-TxRx-3 24".to_owned(),
        events: 4_000,
        stolen_ns: Some(20_000_000),
        longest_ns: Some(41_000),
        new_longest_ns: Some(41_000),
    };
    let robbed = StolenRates {
        lcore: 1,
        ratio: Some(0.0214),
        events_ps: Some(4_250.0),
        worst: Some(thief.clone()),
        longest: Some(thief),
        ..StolenRates::default()
    };
    let spared =
        StolenRates { lcore: 2, ratio: Some(0.0), events_ps: Some(0.0), ..StolenRates::default() };
    let mut model = leaking();
    model.sample.tracing = Some(samples::tracing(&[1, 2], rows));
    model.stolen = vec![robbed, spared];
    model
}

/// The same without BPF.
pub(crate) fn stolen_by_proc() -> Model {
    let mut model = stolen();
    let tracing = model.sample.tracing.get_or_insert_default();
    tracing.method = TracingMethod::Proc;
    tracing.missing = vec!["page faults: not in /proc".to_owned()];
    for row in &mut tracing.stolen {
        (row.stolen_ns, row.longest_ns, row.longest_realtime_ns) = (None, None, None);
    }
    for rates in &mut model.stolen {
        rates.ratio = None;
    }
    model
}

/// The findings of [`leaking`].
pub(crate) fn leaking_findings() -> Vec<Finding> {
    let finding = |lint, severity, subject, evidence: &str| Finding {
        lint,
        severity,
        app: "reflector".to_owned(),
        subject,
        evidence: evidence.to_owned(),
        threshold: "growth that empties the pool within 10 minutes".to_owned(),
        advice: "look for packets that are neither sent nor freed".to_owned(),
        causes: Vec::new(),
        weight: 0.0,
    };
    let leak = Finding {
        advice: "look for a path after this line that frees nothing".to_owned(),
        ..finding(
            Lint::Leak,
            Severity::Critical,
            FindingSubject::Site {
                pool: "reflector_rx".to_owned(),
                site: "app_fwd.c:18".to_owned(),
            },
            "7073 mbufs lost at app_fwd.c:18 forward(), after rx, 412.0/s",
        )
    };
    vec![
        finding(
            Lint::RxMissed,
            Severity::Warning,
            FindingSubject::Port("net_vhost0".to_owned()),
            "412 packets/s missed by the NIC",
        ),
        leak,
        finding(
            Lint::PoolExhausting,
            Severity::Critical,
            FindingSubject::Pool("reflector_rx".to_owned()),
            "in use grows by 412/s, empty in 17.9 s (9000 of 16383 in use)",
        ),
    ]
}

/// [`leaking`], when nothing is left.
pub(crate) fn exhausted() -> Model {
    let mut model = leaking();
    model.sample.pools = vec![pool(16_383, 0)];
    model.pools[0].used_ratio = Some(1.0);
    model.pools[0].slope_ps = Some(0.0);
    model.pools[0].exhausted_in_s = None;
    model.ports[0].rx_pps = Some(0.0);
    model.ports[0].tx_pps = Some(0.0);
    model
}

/// A stock app on a DPDK without pool occupancy, after its first sample.
pub(crate) fn stock() -> Model {
    let mut sample = sample("testpmd", 777);
    sample.ports = vec![port(0, "net_null0", 1)];
    sample.pools = vec![PoolSample { occupancy: None, high_water: None, ..pool(0, 0) }];
    sample.pools[0].name = "mb_pool_0".to_owned();
    sample.pools[0].lcore_caches.clear();
    Model {
        sample,
        interval_s: None,
        restarted: false,
        ports: vec![PortRates { id: 0, ..PortRates::default() }],
        queues: Vec::new(),
        pools: vec![PoolTrend { name: "mb_pool_0".to_owned(), ..PoolTrend::default() }],
        ..Model::default()
    }
}
