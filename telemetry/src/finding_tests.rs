//! Tests of the findings.

use super::*;
use crate::discover::UnreachableReason;
use crate::inventory::ExpectedApp;
use crate::model::{ModelTracker, TrendOptions};
use crate::sample::tests::{empty_sample, pool, port, queue};
use crate::sample::{DeviceSample, LibrarySample, PortSample, Sample};

#[path = "finding_silent_port_tests.rs"]
mod silent_ports;

fn healthy() -> Sample {
    let mut sample = empty_sample();
    sample.monotonic_ns = 1_000_000_000;
    sample.ports = vec![port(0, 0)];
    sample
}

fn second_later(sample: &Sample) -> Sample {
    let mut sample = sample.clone();
    sample.monotonic_ns += 1_000_000_000;
    sample
}

/// Returns the findings after the last of these samples.
fn judged(samples: impl IntoIterator<Item = Sample>) -> Vec<Finding> {
    let mut tracker = ModelTracker::new(TrendOptions::default());
    let model = samples.into_iter().map(|sample| tracker.update(sample)).last().unwrap();
    evaluate(&model, &LintRules::default())
}

/// Returns the findings for an app with these expectations.
fn judged_as(samples: impl IntoIterator<Item = Sample>, app: ExpectedApp) -> Vec<Finding> {
    let mut tracker = ModelTracker::default();
    let model = samples.into_iter().map(|sample| tracker.update(sample)).last().unwrap();
    evaluate(
        &model,
        &LintRules { expected: AppInventory { apps: vec![app] }, ..LintRules::default() },
    )
}

fn lints(findings: &[Finding]) -> Vec<(Lint, Severity, FindingSubject)> {
    findings.iter().map(|f| (f.lint, f.severity, f.subject.clone())).collect()
}

fn port_of(device: &str) -> FindingSubject {
    FindingSubject::Port(device.to_owned())
}

fn pool_of(name: &str) -> FindingSubject {
    FindingSubject::Pool(name.to_owned())
}

#[test]
fn a_healthy_app_has_no_findings() {
    assert_eq!(judged([healthy(), second_later(&healthy())]), []);
}

#[test]
fn no_ports_is_critical_unless_the_ports_could_not_be_read() {
    let mut sample = healthy();
    sample.ports.clear();
    assert_eq!(
        lints(&judged([sample.clone()])),
        [(Lint::NoPorts, Severity::Critical, FindingSubject::App)]
    );
    sample.partial = vec!["/ethdev/info,0: timed out".into()];
    let partly_seen = |severity| (Lint::PartlySeen, severity, FindingSubject::App);
    assert_eq!(lints(&judged([sample.clone()])), [partly_seen(Severity::Warning)]);
    sample.partial = vec!["/ethdev/link_status,0: null".into()];
    assert_eq!(
        lints(&judged([sample.clone()])),
        [(Lint::NoPorts, Severity::Critical, FindingSubject::App), partly_seen(Severity::Info)]
    );
    sample.partial.clear();
    let may = ExpectedApp { name: "app".into(), min_ports: Some(0), ..ExpectedApp::default() };
    assert_eq!(judged_as([sample], may), []);
    let mut stopped = healthy();
    stopped.ports[0].started = false;
    let findings = judged([stopped]);
    assert_eq!(lints(&findings), [(Lint::NoPorts, Severity::Critical, FindingSubject::App)]);
    assert!(findings[0].evidence.contains("1 ports"), "{findings:?}");
}

#[test]
fn a_pool_is_judged_by_its_share_in_use() {
    let with = |in_use| {
        let mut sample = healthy();
        sample.pools = vec![pool("mb", 1000, in_use)];
        judged([sample])
    };
    assert_eq!(with(899), []);
    assert_eq!(lints(&with(900)), [(Lint::PoolExhausting, Severity::Warning, pool_of("mb"))]);
    assert_eq!(lints(&with(980)), [(Lint::PoolExhausting, Severity::Critical, pool_of("mb"))]);
    assert!(with(980)[0].evidence.starts_with("980 of 1000 objects (98.0 %) in use"));
}

#[test]
fn a_finding_says_that_its_pool_was_counted_from_outside() {
    let mut sample = healthy();
    sample.pools = vec![pool("mb", 1000, 980)];
    sample.pools[0].source = Some(crate::sample::CountSource::Xray);
    let evidence = &judged([sample])[0].evidence;
    assert!(evidence.contains("(98.0 %) in use (counted via xray)"), "{evidence}");
}

#[test]
fn a_pool_is_judged_by_its_time_left() {
    let leak = |per_second: u64| {
        let samples = (1..=10).map(|second| {
            let mut sample = healthy();
            sample.monotonic_ns = second * 1_000_000_000;
            sample.pools = vec![pool("mb", 10_000, second * per_second)];
            sample
        });
        judged(samples.collect::<Vec<_>>())
    };
    assert_eq!(leak(10), []);
    assert_eq!(lints(&leak(40)), [(Lint::PoolExhausting, Severity::Warning, pool_of("mb"))]);
    let findings = leak(200);
    assert_eq!(lints(&findings), [(Lint::PoolExhausting, Severity::Critical, pool_of("mb"))]);
    assert!(
        findings[0].evidence.ends_with("growing by 200.0/s, exhausted in 40 s"),
        "{findings:?}"
    );
    assert!(findings[0].advice.starts_with("pmdscope leaks shows"), "{findings:?}");
}

#[test]
fn missed_packets_count_from_the_second_sample_on() {
    let mut sample = healthy();
    sample.ports[0].stats.rx_missed = 500;
    assert_eq!(judged([sample.clone()]), []);
    assert_eq!(judged([sample.clone(), second_later(&sample)]), []);
    let mut more = second_later(&sample);
    more.ports[0].stats.rx_missed = 742;
    more.ports[0].stats.rx_nombuf = 5;
    let findings = judged([sample, more]);
    let both = [
        (Lint::RxNombuf, Severity::Critical, port_of("net_null0")),
        (Lint::RxMissed, Severity::Critical, port_of("net_null0")),
    ];
    assert_eq!(lints(&findings), both, "the cause comes first");
    assert!(findings[1].evidence.contains("242.0 packets/s missed"), "{findings:?}");
    assert!(findings[1].evidence.contains("5.0/s buffer allocations failed"), "{findings:?}");
}

fn linked(idle_us: &[u64]) -> Sample {
    let mut sample = healthy();
    let start_realtime_ns = sample.realtime_ns - 10_000_000_000;
    sample.library = Some(LibrarySample { start_realtime_ns, ..LibrarySample::default() });
    let lcore = |(lcore, idle_us): (u32, &u64)| LcoreSample {
        lcore,
        polls: 5,
        idle_us: *idle_us,
        ..LcoreSample::default()
    };
    sample.lcores = (1..).zip(idle_us).map(lcore).collect();
    sample
}

#[test]
fn an_lcore_that_does_not_poll_is_found_and_all_of_them_are_critical() {
    assert_eq!(judged([linked(&[3, 1_000_000])]), []);
    let some = judged([linked(&[3, 1_000_001])]);
    assert_eq!(lints(&some), [(Lint::NoPolling, Severity::Warning, FindingSubject::Lcore(2))]);
    let all = judged([linked(&[2_000_000, 1_000_001])]);
    assert_eq!(
        lints(&all),
        [
            (Lint::NoPolling, Severity::Critical, FindingSubject::Lcore(1)),
            (Lint::NoPolling, Severity::Critical, FindingSubject::Lcore(2))
        ]
    );
}

#[test]
fn polls_that_stand_still_are_found_whatever_the_idle_time_says() {
    let mut later = linked(&[3]);
    later.monotonic_ns += 3_000_000_000;
    let findings = judged([linked(&[3]), later.clone()]);
    assert_eq!(lints(&findings), [(Lint::NoPolling, Severity::Critical, FindingSubject::Lcore(1))]);
    assert!(findings[0].evidence.contains("for 3.0 s"), "{findings:?}");
    later.lcores[0].polls += 1;
    assert_eq!(judged([linked(&[3]), later]), []);
}

#[test]
fn an_app_that_never_polled_is_found_after_a_delay() {
    let never = linked(&[]);
    let findings = judged([never.clone()]);
    assert_eq!(lints(&findings), [(Lint::NoPolling, Severity::Critical, FindingSubject::App)]);
    let mut young = never.clone();
    young.library.as_mut().unwrap().start_realtime_ns = young.realtime_ns;
    assert_eq!(judged([young]), []);
    let mut unread = never;
    unread.partial = vec!["/pmdscope/lcores: malformed reply".into()];
    assert_eq!(
        lints(&judged([unread])),
        [(Lint::PartlySeen, Severity::Warning, FindingSubject::App)]
    );
}

#[test]
fn a_stall_is_found_while_stalls_grow() {
    let mut sample = linked(&[3, 3]);
    sample.library.as_mut().unwrap().stall_us = 1000;
    sample.lcores[1].stalls = 7;
    assert_eq!(judged([sample.clone()]), []);
    let mut more = second_later(&sample);
    more.lcores.iter_mut().for_each(|lcore| lcore.polls += 1);
    assert_eq!(judged([sample.clone(), more.clone()]), []);
    more.lcores[1].stalls = 9;
    (more.lcores[1].tid, more.lcores[1].gap_max_us) = (42, 5123);
    let findings = judged([sample, more.clone()]);
    assert_eq!(lints(&findings), [(Lint::Stall, Severity::Info, FindingSubject::Lcore(2))]);
    let evidence = &findings[0].evidence;
    assert!(evidence.starts_with("lcore 2 (thread 42) stalled 2.0 times/s"), "{evidence}");
    assert!(evidence.contains("between two polls 5.1 ms"), "{evidence}");
    assert!(findings[0].threshold.starts_with("more than 0 gaps/s of at least 1.0 ms"));
    let mut after = second_later(&more);
    after.lcores.iter_mut().for_each(|lcore| lcore.polls += 1);
    assert_eq!(judged([more, after]), []);
}

/// Returns the findings after a second in which the queues of port 0 received these numbers of packets.
fn shared(packets: &[u64], empty_polls: u64) -> Vec<Finding> {
    let sample = |share: u64, polls, empty| {
        let queues = (0..).zip(packets);
        let queues = queues.map(|(number, got)| queue(number, [polls, empty, got * share]));
        Sample { queues: queues.collect(), ..healthy() }
    };
    judged([sample(0, 0, 0), second_later(&sample(1, 1000, empty_polls))])
}

#[test]
fn a_queue_that_gets_most_packets_is_found() {
    assert_eq!(shared(&[1500, 500, 500, 500], 900), []);
    let findings = shared(&[500, 1501, 500, 500], 900);
    assert_eq!(lints(&findings), [(Lint::QueueImbalance, Severity::Info, port_of("net_null0"))]);
    let evidence = &findings[0].evidence;
    assert!(evidence.starts_with("queue 1 gets 1501.0 packets/s, 50 % of"), "{evidence}");
    assert!(evidence.ends_with("the others get 500.0/s on average"), "{evidence}");
    let busy = shared(&[500, 1501, 500, 500], 100);
    assert_eq!(lints(&busy), [(Lint::QueueImbalance, Severity::Warning, port_of("net_null0"))]);
    assert_eq!(lints(&shared(&[5000, 0], 900)).len(), 1);
}

#[test]
fn a_hot_queue_is_a_warning_while_its_port_misses_packets() {
    let sample = |share: u64, missed, by_queue: &[(&str, u64)]| {
        let queues = vec![queue(0, [0, 0, 0]), queue(1, [0, 0, 9000 * share])];
        let mut sample = Sample { queues, ..healthy() };
        sample.ports[0].stats.rx_missed = missed;
        let xstats = by_queue.iter().map(|(name, value)| ((*name).to_owned(), *value));
        sample.ports[0].xstats = xstats.collect();
        sample
    };
    let found = |before, missed, queue_before: &[(&str, u64)], queue_missed: &[(&str, u64)]| {
        let later = second_later(&sample(1, missed, queue_missed));
        let findings = judged([sample(0, before, queue_before), later]);
        findings.into_iter().find(|finding| finding.lint == Lint::QueueImbalance).unwrap()
    };
    let missing = found(7, 19, &[], &[]);
    assert_eq!(missing.severity, Severity::Warning);
    assert!(missing.evidence.ends_with("; the port misses 12.0 packets/s"), "{missing:?}");
    let before = found(7, 7, &[], &[]);
    assert_eq!(before.severity, Severity::Info);
    assert!(!before.evidence.contains("misses"), "{before:?}");
    // If the driver counts them by queue, it may be another queue that misses packets.
    let it = found(0, 9, &[("rx_q1_imissed", 3)], &[("rx_q1_imissed", 8)]);
    assert_eq!(it.severity, Severity::Warning);
    assert!(it.evidence.ends_with("; it misses 5.0 packets/s"), "{it:?}");
    let another = [("rx_q0_imissed", 9), ("rx_q1_imissed", 0)];
    let another = found(0, 9, &[("rx_q0_imissed", 0), ("rx_q1_imissed", 0)], &another);
    assert_eq!(another.severity, Severity::Info);
    let began = found(0, 9, &[], &[("rx_q1_imissed", 8)]);
    assert_eq!(began.severity, Severity::Warning, "no rate yet: that of the port counts");
}

#[test]
fn few_packets_or_one_queue_say_nothing_about_the_balance() {
    assert_eq!(shared(&[999, 0], 900), []);
    assert_eq!(shared(&[100_000], 900), []);
    assert_eq!(shared(&[], 0), []);
}

#[test]
fn the_worst_comes_first() {
    let mut sample = linked(&[3, 2_000_000]);
    sample.pools = vec![pool("b", 100, 99), pool("a", 100, 99)];
    let findings = judged([sample]);
    assert_eq!(
        lints(&findings),
        [
            (Lint::PoolExhausting, Severity::Critical, pool_of("a")),
            (Lint::PoolExhausting, Severity::Critical, pool_of("b")),
            (Lint::NoPolling, Severity::Warning, FindingSubject::Lcore(2))
        ]
    );
}

#[test]
fn apps_that_cannot_be_queried_are_findings() {
    let app = |state| DiscoveredApp {
        pid: Some(7),
        ..DiscoveredApp::in_dir("/run/dpdk/app", "app", "dpdk_telemetry.v2", state)
    };
    assert_eq!(evaluate_unqueried(&app(Reachability::Live)), None);
    assert_eq!(evaluate_unqueried(&app(Reachability::Stale)), None);
    let off = evaluate_unqueried(&app(Reachability::NoTelemetry)).unwrap();
    assert_eq!((off.lint, off.severity), (Lint::TelemetryOff, Severity::Warning));
    assert!(off.evidence.contains("process 7"), "{off:?}");
    let stopped =
        evaluate_unqueried(&app(Reachability::Unreachable(UnreachableReason::Timeout))).unwrap();
    assert_eq!(stopped.lint, Lint::Unreachable);
}

/// Returns an app that asks for the NIC at 03:00.0, which is in the given state, and has one virtual port.
fn with_nic(present: bool, driver: Option<&str>) -> Sample {
    let mut sample = healthy();
    sample.app.eal_args = ["app", "-a", "03:00.0", "--vdev=net_null0"].map(str::to_owned).to_vec();
    sample.devices = vec![DeviceSample {
        address: "0000:03:00.0".into(),
        present,
        network: present,
        driver: driver.map(str::to_owned),
    }];
    sample
}

#[test]
fn a_device_without_a_port_is_named_with_the_reason() {
    let nic = "0000:03:00.0";
    let kernel = judged([with_nic(true, Some("ixgbe"))]);
    assert_eq!(
        lints(&kernel),
        [(Lint::WrongDriver, Severity::Critical, FindingSubject::Device(nic.to_owned()))]
    );
    assert!(kernel[0].evidence.contains("bound to the kernel driver ixgbe"), "{kernel:?}");
    assert!(kernel[0].advice.starts_with("dpdk-devbind.py --bind=vfio-pci 0000:03:00.0,"));
    let unbound = judged([with_nic(true, None)]);
    assert_eq!(
        lints(&unbound),
        [(Lint::WrongDriver, Severity::Critical, FindingSubject::Device(nic.to_owned()))]
    );
    for (driver, evidence) in
        [("vfio-pci", "bound to vfio-pci"), ("mlx5_core", "bound to mlx5_core")]
    {
        let findings = judged([with_nic(true, Some(driver))]);
        assert_eq!(lints(&findings), [(Lint::PortMissing, Severity::Critical, port_of(nic))]);
        assert!(findings[0].evidence.ends_with(evidence), "{findings:?}");
    }
    let absent = judged([with_nic(false, None)]);
    assert_eq!(lints(&absent), [(Lint::PortMissing, Severity::Critical, port_of(nic))]);
    assert!(absent[0].evidence.contains("no PCI device with that address"), "{absent:?}");
    let mut there = with_nic(true, Some("ixgbe"));
    there.ports.push(port(1, 0));
    there.ports[1].device = "03:00.0".into();
    assert_eq!(judged([there]), []);
    let mut unread = with_nic(true, Some("ixgbe"));
    unread.partial = vec!["/ethdev/stats,1: null".into()];
    assert_eq!(
        lints(&judged([unread])),
        [(Lint::PartlySeen, Severity::Warning, FindingSubject::App)]
    );
}

#[test]
fn the_configuration_may_ask_for_devices_and_for_a_number() {
    let app = |ports: &[&str], min_ports| ExpectedApp {
        name: "app".into(),
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        min_ports,
        ..ExpectedApp::default()
    };
    let findings = judged_as([healthy()], app(&["net_null0", "net_vhost3"], None));
    assert_eq!(lints(&findings), [(Lint::PortMissing, Severity::Critical, port_of("net_vhost3"))]);
    let findings = judged_as([healthy()], app(&[], Some(4)));
    assert_eq!(lints(&findings), [(Lint::PortMissing, Severity::Critical, FindingSubject::App)]);
    assert_eq!(findings[0].evidence, "the app has 1 ports; 4 are expected");
    let findings = judged_as([healthy()], app(&["net_vhost3"], Some(3)));
    assert_eq!(findings.len(), 2, "one is named, another is missing besides");
    let mut none = healthy();
    none.ports.clear();
    let findings = judged_as([none], app(&["net_vhost3"], None));
    let all = [
        (Lint::NoPorts, Severity::Critical, FindingSubject::App),
        (Lint::PortMissing, Severity::Critical, port_of("net_vhost3")),
    ];
    assert_eq!(lints(&findings), all);
}

#[test]
fn a_port_that_is_not_started_while_others_are() {
    let mut sample = healthy();
    sample.ports.push(port(1, 0));
    sample.ports[1].started = false;
    let findings = judged([sample]);
    assert_eq!(lints(&findings), [(Lint::PortStopped, Severity::Warning, port_of("net_null1"))]);
    assert!(findings[0].evidence.ends_with("while 1 of 2 ports are"), "{findings:?}");
}

#[test]
fn a_port_that_changes_too_often_is_found() {
    let mut tracker = ModelTracker::default();
    let mut changed = |quarter: u64, link: bool| {
        let mut sample = healthy();
        sample.monotonic_ns += quarter * 250_000_000;
        sample.ports[0].link_up = Some(link);
        evaluate(&tracker.update(sample), &LintRules::default())
    };
    assert_eq!(changed(0, true), []);
    assert_eq!(
        lints(&changed(1, false)),
        [(Lint::LinkDown, Severity::Warning, port_of("net_null0"))]
    );
    assert_eq!(lints(&changed(2, true)), [(Lint::PortFlap, Severity::Info, port_of("net_null0"))]);
    let often = changed(3, false);
    assert_eq!(
        (often[0].lint, often[0].severity),
        (Lint::PortFlap, Severity::Critical),
        "{often:?}"
    );
    assert!(often[0].evidence.contains("its link changed 3 times in the last minute"), "{often:?}");
    assert!(often[0].evidence.ends_with("between two queries are unknown"), "{often:?}");
}

#[test]
fn an_app_that_restarts_again_and_again() {
    let mut tracker = ModelTracker::default();
    let mut restarted = |seconds: u64| {
        let mut sample = healthy();
        sample.app.start_ticks += seconds * 100;
        sample.app.start_realtime_ns = sample.realtime_ns + seconds * 1_000_000_000;
        sample.monotonic_ns += seconds * 1_000_000_000 + 500_000_000;
        sample.realtime_ns += seconds * 1_000_000_000 + 500_000_000;
        evaluate(&tracker.update(sample), &LintRules::default())
    };
    assert_eq!((restarted(0), restarted(1)), (vec![], vec![]));
    let findings = restarted(3);
    assert_eq!(lints(&findings), [(Lint::RestartLoop, Severity::Critical, FindingSubject::App)]);
    let evidence = &findings[0].evidence;
    assert!(evidence.starts_with(
        "3 starts in 4 s; exit reasons: unknown (2); the longest observed run of those that ended was"
    ));
}
