//! Tests the collector with recorded and synthetic replies.
#![allow(clippy::unwrap_used, reason = "test code")]

mod connection;
mod library;
mod releases;
mod requests;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::fleet::AppSampler;
use pmdscope_telemetry::sample::{PoolOccupancy, QueueDirection, Sample};
use pmdscope_telemetry::{
    AppLock, AppStatus, Deadline, ErrorClass, FleetSettings, FleetState, LintRules, ModelTracker,
    QueueHistograms, RawReplies, SampleCollector, TelemetryError, finding,
};
use proptest::prelude::*;
use support::{BANNER, FakeApp, Recording};

/// Long, since machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(5);

fn collect(recording: &Recording) -> Sample {
    let app = FakeApp::replay(recording);
    SampleCollector::new(app.app()).collect(TIMEOUT).unwrap()
}

/// Returns the requests of this number of consecutive rounds.
fn asked(recording: Recording, rounds: u32) -> Vec<String> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            log.lock().unwrap().push(request.to_owned());
            recording.answer(request)
        });
    });
    let mut collector = SampleCollector::new(app.app());
    for _ in 0..rounds {
        let _ = collector.collect(TIMEOUT);
    }
    asked.lock().unwrap().clone()
}

#[test]
fn testpmd_with_two_ports() {
    let sample = collect(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    assert_eq!(sample.app.dpdk_version, "DPDK 22.11.11");
    assert_eq!(sample.app.eal_args[0], "dpdk-testpmd");
    let [first, second] = &sample.ports[..] else { panic!("{:?}", sample.ports) };
    assert_eq!((first.id, first.device.as_str(), first.started), (0, "net_null0", true));
    assert_eq!((first.link_up, first.link_mbps, first.mtu), (Some(true), Some(10_000), 1500));
    assert_eq!((first.rx_queues, first.tx_queues, first.numa_node), (2, 2, 0));
    assert_eq!((first.stats.rx_packets, first.stats.tx_packets), (16_920_896, 16_085_312));
    assert_eq!(first.xstats.get("rx_q1_packets"), Some(8_461_472));
    assert_eq!((first.xstats.len(), first.xstats_truncated), (18, false));
    assert_eq!(second.stats.rx_packets, 16_917_312);
    let [heap] = &sample.heaps[..] else { panic!("{:?}", sample.heaps) };
    assert_eq!((heap.name.as_str(), heap.size, heap.allocations), ("socket_0", 134_217_728, 517));
    assert_eq!(heap.allocated + heap.free, heap.size);
    assert!(first.mac.is_some() && first.promiscuous.is_some());
    let [pool] = &sample.pools[..] else { panic!("{:?}", sample.pools) };
    assert_eq!((pool.name.as_str(), pool.size, pool.element_bytes), ("mb_pool_0", 2048, 2368));
    assert_eq!((pool.occupancy, pool.cache_size, pool.socket), (None, 250, 0));
    assert!(sample.library.is_none() && sample.rings.is_empty() && sample.lcores.is_empty());
}

#[test]
fn testpmd_without_ports_is_a_complete_sample() {
    let sample = collect(&Recording::read("dpdk-22.11/testpmd-no-ports.jsonl"));
    assert!(sample.ports.is_empty() && sample.partial.is_empty(), "{:?}", sample.partial);
    assert_eq!(sample.pools.len(), 1);
}

#[test]
fn sixty_four_queues() {
    let sample = collect(&Recording::read("dpdk-22.11/testpmd-64-queues.jsonl"));
    assert_eq!((sample.ports[0].rx_queues, sample.ports[0].xstats.len()), (64, 88));
    assert!(!sample.ports[0].xstats_truncated);
}

#[test]
fn later_rounds_keep_the_connection_and_ask_less() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let mut collector = SampleCollector::new(app.app());
    let mut rounds: Vec<_> = (0..4).map(|_| collector.collect(TIMEOUT).unwrap()).collect();
    // Commands, EAL arguments, lists of ports, pools and heaps, four requests per port, one per pool
    // and heap; then the ports again, to learn their rates; then only their counters.
    let requests: Vec<_> = rounds.iter().map(|sample| sample.requests).collect();
    assert_eq!(requests, [15, 8, 2, 2]);
    let (last, first) = (rounds.pop().unwrap(), rounds.remove(0));
    assert!(last.monotonic_ns > first.monotonic_ns);
    assert_eq!((last.partial.len(), last.ports.len()), (0, 2));
    assert_eq!((first.ports, first.pools, first.heaps), (last.ports, last.pools, last.heaps));
    assert_eq!(first.app, last.app);
}

#[test]
fn a_part_that_fails_is_named_and_the_rest_remains() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl")
        .with("/ethdev/stats,0", "garbage")
        .with("/ethdev/link_status,1", r#"{"/ethdev/link_status":null}"#)
        .with("/ethdev/xstats,1", r#"{"/ethdev/xstats":{"a":-1}}"#);
    let sample = collect(&recording);
    assert_eq!(sample.ports.iter().map(|port| port.id).collect::<Vec<_>>(), [1]);
    assert_eq!((sample.ports[0].link_up, sample.ports[0].xstats.len()), (None, 0));
    assert_eq!(sample.pools.len(), 1);
    let failed: Vec<_> = sample.partial.iter().map(|p| p.split(": ").next().unwrap()).collect();
    assert_eq!(failed, ["/ethdev/stats,0", "/ethdev/xstats,1", "/ethdev/link_status,1"]);
}

#[test]
fn an_app_that_answers_nothing_but_garbage_is_not_sampled() {
    for garbage in ["[[[", r#"{"/":7}"#, r#"{"/":null}"#] {
        let app = FakeApp::start(move |connection| connection.serve(|_| garbage.into()));
        let sample = SampleCollector::new(app.app()).collect(TIMEOUT);
        assert!(sample.is_err(), "{garbage}: {sample:?}");
    }
}

#[test]
fn a_reply_about_another_port_is_asked_again() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let wrong = AtomicU32::new(1);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request {
            "/ethdev/info,0" if wrong.swap(0, Ordering::Relaxed) == 1 => {
                recording.answer("/ethdev/info,1")
            }
            other => recording.answer(other),
        });
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.ports[0].device.as_str(), sample.partial.len()), ("net_null0", 0));
}

#[test]
fn a_port_that_always_answers_for_another_is_left_out() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let other = recording.answer("/ethdev/info,1");
    let sample = collect(&recording.with("/ethdev/info,0", &other));
    assert_eq!(sample.ports.iter().map(|port| port.id).collect::<Vec<_>>(), [1]);
    assert!(sample.partial[0].starts_with("/ethdev/info,0: "), "{:?}", sample.partial);
}

#[test]
fn counters_that_contradict_each_other_are_asked_again() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let wrong = AtomicU32::new(1);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request {
            "/ethdev/stats,1" if wrong.swap(0, Ordering::Relaxed) == 1 => {
                recording.answer("/ethdev/stats,0")
            }
            other => recording.answer(other),
        });
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!(sample.ports[1].stats.rx_packets, 16_917_312);
}

#[test]
fn extended_counters_at_the_limit_are_flagged() {
    let entries: Vec<_> = (0..256).map(|i| format!(r#""c{i}":{i}"#)).collect();
    let full = format!(r#"{{"/ethdev/xstats":{{{}}}}}"#, entries.join(","));
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let sample = collect(&recording.with("/ethdev/xstats,0", &full));
    assert!(sample.ports[0].xstats_truncated && !sample.ports[1].xstats_truncated);
    // Those of the queues come from the basic counters.
    let (given, queues): (Vec<_>, Vec<_>) =
        sample.ports[0].xstats.names().partition(|name| name.starts_with('c'));
    assert_eq!((given.len(), queues), (256, vec!["rx_q0_packets", "rx_q1_packets"]));
}

#[test]
fn newer_dpdk_reports_pool_counts_and_rings() {
    let sample = collect(&Recording::read("synthetic/dpdk-24.11-pool-counts-and-rings.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    let parts = PoolOccupancy { common: 1500, cached: 48, in_use: 500 };
    assert_eq!(sample.pools[0].occupancy, Some(parts));
    let [ring] = &sample.rings[..] else { panic!("{:?}", sample.rings) };
    assert_eq!((ring.name.as_str(), ring.capacity, ring.used), ("work", 1023, 17));
}

#[test]
fn start_threads_and_secondaries_come_from_the_kernel() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let running = app.dir().join("mp_socket_11_aa");
    let listening = std::os::unix::net::UnixDatagram::bind(&running).unwrap();
    drop(std::os::unix::net::UnixDatagram::bind(app.dir().join("mp_socket_12_bb")).unwrap());
    let _primary = std::os::unix::net::UnixDatagram::bind(app.dir().join("mp_socket")).unwrap();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let worker = std::thread::Builder::new().name("rte-worker-77".into());
    let worker = worker.spawn(move || wait.recv()).unwrap();
    while !thread_names().contains(&"rte-worker-77".to_owned()) {
        std::thread::yield_now();
    }
    let mut collector = SampleCollector::new(app.app());
    let sample = collector.collect(TIMEOUT).unwrap();
    assert_eq!(sample.secondaries, 1);
    // The app of this test is the test itself. Its arguments say -l 0-1, so its main lcore is 0.
    let lcores: Vec<_> = sample.threads.iter().map(|thread| thread.lcore).collect();
    assert_eq!(lcores, [0, 77]);
    assert_eq!(sample.threads[0].tid, std::process::id());
    assert!(sample.threads.iter().all(|thread| !thread.cpus.is_empty()), "{:?}", sample.threads);
    assert_eq!(sample.control_shares_poll_cpu, None, "no control thread runs");
    let age_ns = sample.realtime_ns - sample.app.start_realtime_ns;
    assert!(age_ns < 600_000_000_000, "{age_ns}");
    assert_eq!(collector.collect(TIMEOUT).unwrap().app, sample.app);
    let mut received = [0; 8];
    listening.set_nonblocking(true).unwrap();
    assert!(listening.recv(&mut received).is_err(), "secondaries are sent nothing");
    drop(done);
    let _ = worker.join();
}

fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.ok()?)).map(|name| name.trim_end().to_owned()).collect()
}
