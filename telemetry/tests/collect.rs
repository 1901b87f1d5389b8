//! The collector against recorded and synthetic replies.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::fleet::AppSampler;
use pmdscope_telemetry::sample::{PoolOccupancy, QueueDirection, Sample};
use pmdscope_telemetry::{
    AppLock, AppStatus, Deadline, ErrorClass, FleetSettings, FleetState, LOCK_FILE, LintRules,
    ModelTracker, SampleCollector, TelemetryError, finding,
};
use proptest::prelude::*;
use support::{BANNER, FakeApp, Recording};

/// Long, since machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(5);

fn collect(recording: &Recording) -> Sample {
    let app = FakeApp::replay(recording);
    SampleCollector::new(app.app()).collect(TIMEOUT).unwrap()
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
    assert_eq!(first.xstats["rx_q1_packets"], 8_461_472);
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
    // Commands, EAL arguments, lists of ports, pools and heaps, four a port, one a pool and a heap;
    // then the ports once more, to learn how fast they count; then their counters alone.
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
    assert_eq!(sample.ports[0].xstats.len(), 256);
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
fn an_app_with_libpmdscope() {
    let sample = collect(&Recording::read("dpdk-22.11/pmdscope-reflector.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    let [pool] = &sample.pools[..] else { panic!("{:?}", sample.pools) };
    let parts = PoolOccupancy { common: 7615, cached: 531, in_use: 45 };
    assert_eq!((pool.occupancy, pool.size), (Some(parts), 8191));
    assert_eq!(pool.lcore_caches, [(0, 256), (1, 275)].into());
    let rows: Vec<_> = sample.queues.iter().map(|q| (q.direction, q.queue, q.packets)).collect();
    let (first, second) = (95_616_512, 34_284_768);
    let of = |direction| [(direction, 0, first), (direction, 1, second)];
    assert_eq!(rows, [of(QueueDirection::Rx), of(QueueDirection::Tx)].concat());
    assert_eq!((sample.queues[0].depth, sample.queues[0].descriptors), (None, None));
    assert_eq!((sample.queues[0].bursts.len(), sample.queues[0].depths.len()), (8, 13));
    assert_eq!(sample.queues[0].bursts[5], sample.queues[0].polls);
    let lcores: Vec<_> =
        sample.lcores.iter().map(|l| (l.lcore, l.role.as_str(), l.polls)).collect();
    assert_eq!(lcores, [(0, "main", 2_988_078), (1, "worker", 1_071_399)]);
    // Recorded before libraries told how many source files have call sites.
    assert_eq!((sample.level(), sample.level_may_be_higher()), (1, true));
    assert!(sample.library.is_some_and(|library| library.control_shares_poll_cpu));
}

#[test]
fn ledgers_and_captures_are_asked_for_once_a_second() {
    let recording = Recording::read("dpdk-22.11/pmdscope-leaking.jsonl");
    let tables = |asked: Vec<String>| {
        let counted = |table: &str| asked.iter().filter(|request| **request == table).count();
        ["pools", "lcores", "leaks", "tee"].map(|table| counted(&format!("/pmdscope/{table}")))
    };
    assert_eq!(tables(asked(recording, 3)), [3, 3, 1, 1]);
}

#[test]
fn sixty_four_queues_of_libpmdscope_come_in_four_pages() {
    let sample = collect(&Recording::read("dpdk-22.11/pmdscope-64-queues.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    let rx: Vec<_> = sample.queues.iter().take(64).map(|q| (q.direction, q.queue)).collect();
    assert_eq!(rx, (0..64).map(|queue| (QueueDirection::Rx, queue)).collect::<Vec<_>>());
    assert_eq!((sample.queues.len(), sample.ports[0].rx_queues), (128, 64));
    assert!(sample.queues.iter().all(|queue| queue.packets > 0));
}

#[test]
fn tables_of_libpmdscope_are_read_page_by_page() {
    let sample = collect(&Recording::read("synthetic/pmdscope-two-pages.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    let names: Vec<_> = sample.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["clones", "mb_pool", "z_last"]);
    assert_eq!(sample.pools[1].lcore_caches, [(1, 183), (3, 200)].into());
    assert_eq!((sample.level(), sample.level_may_be_higher()), (2, false));
    let library = sample.library.unwrap();
    assert_eq!((library.version.as_str(), library.tee_socket), ("0.1.0", None));
    assert_eq!(sample.lcores[0].gaps, [5, 6, 7]);
    assert!(sample.queues.is_empty());
}

/// Serves the pools with a generation that `generation` gives for each page.
fn changing(generation: impl Fn(u32) -> u32 + Send + 'static) -> FakeApp {
    let recording = Recording::read("synthetic/pmdscope-two-pages.jsonl");
    let pages = AtomicU32::new(0);
    FakeApp::start(move |connection| {
        connection.serve(|request| {
            let reply = recording.answer(request);
            if !request.starts_with("/pmdscope/pools") {
                return reply;
            }
            let page = pages.fetch_add(1, Ordering::Relaxed);
            reply.replace(r#""generation":3"#, &format!(r#""generation":{}"#, generation(page)))
        });
    })
}

#[test]
fn a_table_that_changes_between_pages_is_read_again() {
    let app = changing(|page| page.min(2));
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.pools.len(), sample.partial.len()), (3, 0), "{:?}", sample.partial);
}

#[test]
fn a_table_that_keeps_changing_is_left_out() {
    let app = changing(|page| page);
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert!(sample.pools.is_empty() && sample.lcores.len() == 1);
    assert!(sample.partial[0].starts_with("/pmdscope/pools: the table changed"));
}

#[test]
fn a_page_of_another_offset_is_never_taken() {
    let recording = Recording::read("synthetic/pmdscope-two-pages.jsonl");
    let first = recording.answer("/pmdscope/pools").replace(r#""next":2,"#, "");
    let sample = collect(&recording.with("/pmdscope/pools,2", &first));
    assert!(sample.pools.is_empty(), "{:?}", sample.pools);
    assert!(sample.partial[0].starts_with("/pmdscope/pools: the reply is about"));
}

#[test]
fn an_unknown_schema_falls_back_to_the_tables_of_stock_apps() {
    let recording = Recording::read("synthetic/pmdscope-two-pages.jsonl");
    let other = recording.answer("/pmdscope").replace(r#""schema":1"#, r#""schema":9"#);
    let sample = collect(&recording.with("/pmdscope", &other));
    assert!(sample.library.is_none());
    assert_eq!(sample.pools.len(), 1);
    assert!(sample.partial[0].starts_with("/pmdscope: libpmdscope speaks schema 9"));
}

#[test]
fn a_restarted_app_is_connected_again_within_the_round() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let connections = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&connections);
    let app = FakeApp::start(move |connection| {
        seen.fetch_add(1, Ordering::Relaxed);
        connection.send(support::BANNER);
        // As many requests as a first round makes, then the app ends.
        for _ in 0..15 {
            let Some(request) = connection.receive() else { return };
            connection.send(recording.answer(&request));
        }
    });
    let mut collector = SampleCollector::new(app.app());
    for _ in 0..3 {
        assert_eq!(collector.collect(TIMEOUT).unwrap().ports.len(), 2);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[test]
fn losing_the_connection_midway_keeps_what_was_learned() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let app = FakeApp::start(move |connection| {
        connection.send(support::BANNER);
        for _ in 0..7 {
            let Some(request) = connection.receive() else { return };
            connection.send(recording.answer(&request));
        }
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.ports.len(), sample.pools.len()), (1, 0));
    let failed: Vec<_> = sample.partial.iter().map(|p| p.split(": ").next().unwrap()).collect();
    assert_eq!(failed, ["/ethdev/info,1", "/mempool/list", "/eal/heap_list"]);
}

#[test]
fn losing_the_connection_before_any_number_is_an_error() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let app = FakeApp::start(move |connection| {
        connection.send(support::BANNER);
        for _ in 0..3 {
            let Some(request) = connection.receive() else { return };
            connection.send(recording.answer(&request));
        }
    });
    let lost = SampleCollector::new(app.app()).collect(TIMEOUT);
    assert!(matches!(lost, Err(TelemetryError::Closed)), "{lost:?}");
}

#[test]
fn losing_the_connection_before_the_lcores_is_no_proof_of_no_polling() {
    let recording = Recording::read("dpdk-22.11/pmdscope-reflector.jsonl");
    let app = FakeApp::start(move |connection| {
        connection.send(support::BANNER);
        while let Some(request) = connection.receive() {
            if request == "/pmdscope/queues" {
                return;
            }
            connection.send(recording.answer(&request));
        }
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert!(sample.library.is_some() && sample.lcores.is_empty());
    assert!(sample.failed("/pmdscope/lcores"), "{:?}", sample.partial);
    let model = ModelTracker::default().update(sample);
    let findings = finding::evaluate(&model, &LintRules::default());
    assert_eq!(findings.iter().map(|found| found.lint).collect::<Vec<_>>(), [Lint::PartlySeen]);
}

#[test]
fn an_app_that_never_answers_is_an_error_within_the_deadline() {
    let app = FakeApp::start(|connection| {
        connection.send(support::BANNER);
        while connection.receive().is_some() {}
    });
    let error = SampleCollector::new(app.app()).collect(Duration::from_millis(80)).unwrap_err();
    assert!(matches!(error, TelemetryError::Timeout(_)), "{error}");
}

/// An app that notes by which requests nobody held its lock.
fn with_a_watched_lock() -> (FakeApp, Arc<Mutex<Vec<String>>>) {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let (unlocked, dir) =
        (Arc::<Mutex<Vec<String>>>::default(), Arc::new(OnceLock::<PathBuf>::new()));
    let (noted, watched) = (Arc::clone(&unlocked), Arc::clone(&dir));
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            let lock = AppLock::open(watched.wait()).unwrap();
            if lock.hold(Deadline::after(Duration::ZERO)).is_ok() {
                noted.lock().unwrap().push(request.to_owned());
            }
            recording.answer(request)
        });
    });
    dir.set(app.dir().to_owned()).unwrap();
    (app, unlocked)
}

#[test]
fn the_lock_is_held_for_the_whole_round_and_no_longer() {
    let (app, unlocked) = with_a_watched_lock();
    let mut collector = SampleCollector::new(app.app());
    for _ in 0..2 {
        assert_eq!(collector.collect(TIMEOUT).unwrap().partial, Vec::<String>::new());
        let other_tool = AppLock::open(app.dir()).unwrap();
        assert!(other_tool.hold(Deadline::after(TIMEOUT)).is_ok(), "held beyond the round");
    }
    assert_eq!(*unlocked.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn a_stopped_tool_that_holds_the_lock_does_not_make_an_app_silent() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let stopped = AppLock::open(app.dir()).unwrap();
    let held = stopped.hold(Deadline::after(TIMEOUT)).unwrap();
    let mut sampler = AppSampler::new(app.app(), &FleetSettings::default());
    let mut fleet = FleetState::default();
    for round in 1..=3 {
        fleet.apply(sampler.sample(TIMEOUT));
        assert_eq!(fleet.apps[0].status, AppStatus::Live);
        let sample = &fleet.apps[0].model.as_ref().unwrap().sample;
        assert_eq!((sample.ports.len(), sample.partial.len()), (2, 1));
        assert!(
            sample.partial[0].starts_with("lock: another pmdscope tool"),
            "{:?}",
            sample.partial
        );
        assert_eq!(fleet.apps[0].errors, [(ErrorClass::Busy, round)].into());
        assert_eq!(fleet.apps[0].findings, []);
    }
    drop(held);
    fleet.apply(sampler.sample(TIMEOUT));
    assert_eq!(fleet.apps[0].errors, [(ErrorClass::Busy, 3)].into());
    assert_eq!(fleet.apps[0].model.as_ref().unwrap().sample.partial, Vec::<String>::new());
}

#[test]
fn the_lock_is_that_of_the_directory_after_a_restart() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let restarts = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&restarts);
    let app = FakeApp::start(move |connection| {
        connection.send(support::BANNER);
        while let Some(request) = connection.receive().filter(|_| !ends.load(Ordering::Relaxed)) {
            connection.send(recording.answer(&request));
        }
    });
    let mut collector = SampleCollector::new(app.app());
    collector.collect(TIMEOUT).unwrap();
    restarts.store(true, Ordering::Relaxed);
    // What is left of the last round may still tell something.
    let _ = collector.collect(TIMEOUT);
    restarts.store(false, Ordering::Relaxed);
    std::fs::remove_file(app.dir().join(LOCK_FILE)).unwrap();
    let other_tool = AppLock::open(app.dir()).unwrap();
    let _held = other_tool.hold(Deadline::after(TIMEOUT)).unwrap();
    let sample = collector.collect(TIMEOUT).unwrap();
    assert!(sample.partial[0].starts_with("lock: another pmdscope tool"), "{:?}", sample.partial);
}

#[test]
fn without_the_lock_the_sample_says_so() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    std::fs::create_dir(app.dir().join(LOCK_FILE)).unwrap();
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.ports.len(), sample.partial.len()), (2, 1));
    assert!(sample.partial[0].starts_with("lock: cannot create the lock file"));
}

#[test]
fn a_null_for_an_object_on_the_list_is_asked_again() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let nulls = AtomicU32::new(1);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request {
            "/ethdev/stats,0" if nulls.swap(0, Ordering::Relaxed) == 1 => {
                r#"{"/ethdev/stats":null}"#.into()
            }
            other => recording.answer(other),
        });
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.ports.len(), sample.partial.len()), (2, 0), "{:?}", sample.partial);
}

#[test]
fn a_stock_app_is_never_asked_for_what_may_harm_it() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            log.lock().unwrap().push(request.to_owned());
            recording.answer(request)
        });
    });
    SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    let harmless = [
        "/",
        "/eal/heap_info,0",
        "/eal/heap_list",
        "/eal/params",
        "/ethdev/list",
        "/mempool/info,mb_pool_0",
        "/mempool/list",
    ];
    for request in asked.lock().unwrap().iter() {
        let port =
            request.starts_with("/ethdev/") && (request.ends_with(",0") || request.ends_with(",1"));
        assert!(harmless.contains(&request.as_str()) || port, "{request}");
    }
}

/// Two ports, and what the next reply to `/ethdev/xstats,0` is instead, once.
fn disturbed() -> (FakeApp, Arc<Mutex<Option<String>>>, Recording) {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let instead = Arc::new(Mutex::new(None));
    let (next, replies) = (Arc::clone(&instead), recording.clone());
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            let disturbed = request == "/ethdev/xstats,0";
            let instead = disturbed.then(|| next.lock().unwrap().take()).flatten();
            instead.unwrap_or_else(|| replies.answer(request))
        });
    });
    (app, instead, recording)
}

#[test]
fn counters_that_jump_or_go_back_are_asked_again_with_all_else() {
    let (app, instead, recording) = disturbed();
    let mut collector = SampleCollector::new(app.app());
    let right = (0..3).map(|_| collector.collect(TIMEOUT).unwrap()).last().unwrap();
    let jump = recording.answer("/ethdev/xstats,0").replace("16920896", "26920896");
    for wrong in [jump, recording.answer("/ethdev/xstats,1"), r#"{"/ethdev/xstats":{}}"#.into()] {
        *instead.lock().unwrap() = Some(wrong.clone());
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!((sample.requests, &sample.ports), (6, &right.ports), "{wrong}");
        assert_eq!(collector.collect(TIMEOUT).unwrap().ports, right.ports);
    }
}

#[test]
fn garbage_for_counters_is_asked_again_with_all_else() {
    let (app, instead, _) = disturbed();
    let mut collector = SampleCollector::new(app.app());
    let right = (0..3).map(|_| collector.collect(TIMEOUT).unwrap()).last().unwrap();
    for wrong in ["garbage", r#"{"/ethdev/xstats":null}"#, r#"{"/ethdev/xstats":[1]}"#] {
        *instead.lock().unwrap() = Some(wrong.into());
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!((sample.ports, sample.partial), (right.ports.clone(), Vec::new()), "{wrong}");
    }
}

#[test]
fn links_and_ports_that_change_are_seen_within_a_second() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let down = Arc::new(AtomicU32::new(0));
    let state = Arc::clone(&down);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match (request, state.load(Ordering::Relaxed)) {
            ("/ethdev/link_status,1", 1) => r#"{"/ethdev/link_status":{"status":"DOWN"}}"#.into(),
            ("/ethdev/list", 1) => r#"{"/ethdev/list":[1]}"#.into(),
            _ => recording.answer(request),
        });
    });
    let mut collector = SampleCollector::new(app.app());
    assert_eq!(collector.collect(TIMEOUT).unwrap().ports.len(), 2);
    down.store(1, Ordering::Relaxed);
    let changed = std::time::Instant::now();
    loop {
        let begins_after = changed.elapsed();
        let sample = collector.collect(TIMEOUT).unwrap();
        if let [port] = &sample.ports[..] {
            assert_eq!((port.id, port.link_up, port.link_mbps), (1, Some(false), None));
            break;
        }
        assert!(begins_after <= Duration::from_secs(1), "not seen {begins_after:?} later");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn newer_dpdk_reports_cycles_and_several_heaps() {
    let recording = Recording::read("synthetic/dpdk-24.11-usage-and-heaps.jsonl");
    let sample = collect(&recording);
    assert_eq!(sample.partial, Vec::<String>::new());
    let usage: Vec<_> = sample.usage.iter().map(|u| (u.lcore, u.busy, u.total)).collect();
    assert_eq!(usage, [(1, 1 << 63, u64::MAX), (2, 1, 2000)]);
    let heaps: Vec<_> = sample.heaps.iter().map(|h| (h.name.as_str(), h.greatest_free)).collect();
    assert_eq!(heaps, [("socket_0", 40_000_000), ("socket_1", 0)]);
    let uneven = r#"{"/eal/lcore/usage":{"lcore_ids":[1],"total_cycles":[],"busy_cycles":[1]}}"#;
    let sample = collect(&recording.with("/eal/lcore/usage", uneven));
    assert!(sample.usage.is_empty());
    assert_eq!(sample.partial, ["/eal/lcore/usage: malformed reply: columns of [1, 0, 1] values"]);
}

/// Requests of so many rounds, one after the other.
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
fn heaps_are_asked_for_by_the_ids_of_the_list_and_seldom() {
    let recording = Recording::read("synthetic/dpdk-24.11-usage-and-heaps.jsonl");
    let heaps = |recording, rounds| {
        let mut asked: Vec<String> = asked(recording, rounds);
        asked.retain(|request| request.starts_with("/eal/heap_"));
        asked
    };
    let all = ["/eal/heap_list", "/eal/heap_info,0", "/eal/heap_info,1"];
    assert_eq!(heaps(recording.clone(), 5), all);
    // Ids that no heap has: nothing is asked for them, though the list would have it so.
    for list in ["[-1]", "[4294967295]", "[65536,0]", r#"["0"]"#, "{}", "null", "[0.5]", "[[0]]"] {
        let list = format!(r#"{{"/eal/heap_list":{list}}}"#);
        assert_eq!(heaps(recording.clone().with("/eal/heap_list", &list), 1), all[..1], "{list}");
    }
    let none = recording.clone().with("/eal/heap_list", r#"{"/eal/heap_list":[]}"#);
    assert_eq!(heaps(none, 3), all[..1]);
}

#[test]
fn a_heap_that_answers_for_another_is_left_out() {
    let recording = Recording::read("synthetic/dpdk-24.11-usage-and-heaps.jsonl");
    let other = recording.answer("/eal/heap_info,0");
    let sample = collect(&recording.with("/eal/heap_info,1", &other));
    assert_eq!(sample.heaps.len(), 1);
    assert!(sample.partial[0].starts_with("/eal/heap_info,1: the reply is about"));
}

#[test]
fn an_app_that_counts_no_cycles_is_not_asked_for_them_each_time() {
    let recording = Recording::read("synthetic/dpdk-24.11-usage-and-heaps.jsonl");
    let none = r#"{"/eal/lcore/usage":{"lcore_ids":[],"total_cycles":[],"busy_cycles":[]}}"#;
    let usage = |recording| {
        asked(recording, 5).iter().filter(|request| *request == "/eal/lcore/usage").count()
    };
    assert_eq!(usage(recording.clone().with("/eal/lcore/usage", none)), 1);
    assert_eq!(usage(recording), 5);
}

#[test]
fn newer_dpdk_tells_the_roles_of_lcores() {
    let recording = Recording::read("synthetic/dpdk-24.11-lcore-roles.jsonl");
    let sample = collect(&recording);
    assert_eq!(sample.partial, Vec::<String>::new());
    let roles: Vec<_> = sample.roles.iter().map(|own| (own.lcore, own.role.as_str())).collect();
    assert_eq!(roles, [(1, "RTE"), (2, "RTE"), (3, "SERVICE"), (127, "NON_EAL")]);
    assert_eq!((sample.role_of(3), sample.role_of(4)), (Some("SERVICE"), None));
    // Once in ten seconds, and by the ids of the list alone.
    let mut requests = asked(recording.clone(), 5);
    requests.retain(|request| request.starts_with("/eal/lcore/"));
    let of = |id: u32| format!("/eal/lcore/info,{id}");
    assert_eq!(requests, ["/eal/lcore/list".to_owned(), of(1), of(2), of(3), of(127)]);
    // A thread that unregisters in between answers null.
    let gone = recording.with("/eal/lcore/info,127", r#"{"/eal/lcore/info":null}"#);
    assert_eq!(collect(&gone).roles.len(), 3);
    // An old DPDK has no such commands.
    let old = collect(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    assert_eq!(old.roles, []);
}

#[test]
fn ports_are_asked_ahead_of_their_replies() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let in_pairs = Arc::new(AtomicBool::new(false));
    let pairs = Arc::clone(&in_pairs);
    let app = FakeApp::start(move |connection| {
        connection.send(BANNER);
        while let Some(first) = connection.receive() {
            // Gives no reply before it has both requests.
            let both = pairs.load(Ordering::Relaxed) && first.starts_with("/ethdev/xstats");
            let second = both.then(|| connection.receive()).flatten();
            for request in std::iter::once(first).chain(second) {
                connection.send(recording.answer(&request));
            }
        }
    });
    let mut collector = SampleCollector::new(app.app());
    for _ in 0..2 {
        collector.collect(TIMEOUT).unwrap();
    }
    in_pairs.store(true, Ordering::Relaxed);
    let sample = collector.collect(TIMEOUT).unwrap();
    assert_eq!(sample.partial, Vec::<String>::new());
    let packets: Vec<_> = sample.ports.iter().map(|port| port.stats.rx_packets).collect();
    assert_eq!(packets, [16_920_896, 16_917_312], "each reply is that of its port");
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

/// Replies that are not quite what they should be.
fn garbage() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        "[\\[\\]{}\":,0-9a-zA-Z_. -]{0,40}",
        prop::collection::vec(-3_i64..70_000, 0..5).prop_map(|ids| format!("{ids:?}")),
        Just(r#"{"Heap_id":1,"Name":"x","Heap_size":-1}"#.to_owned()),
        Just(r#"{"lcore_ids":[1,1],"total_cycles":[1,2],"busy_cycles":["0x5",7]}"#.to_owned()),
        Just("null".to_owned()),
    ];
    (value, prop::bool::weighted(0.9))
        .prop_map(|(value, framed)| if framed { format!("{{\"COMMAND\":{value}}}") } else { value })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn heaps_are_queried_only_by_listed_ids(
        list in garbage(),
        heap in garbage(),
        usage in garbage(),
        xstats in garbage(),
    ) {
        let framed = |reply: &str, command: &str| reply.replace("COMMAND", command);
        let list = framed(&list, "/eal/heap_list");
        let ids: Vec<u16> = serde_json::from_str::<serde_json::Value>(&list)
            .ok()
            .and_then(|reply| serde_json::from_value(reply.get("/eal/heap_list")?.clone()).ok())
            .unwrap_or_default();
        let mut recording = Recording::read("dpdk-22.11/testpmd-null.jsonl")
            .with("/eal/heap_list", &list)
            .with("/eal/lcore/usage", &framed(&usage, "/eal/lcore/usage"))
            .with("/ethdev/xstats,1", &framed(&xstats, "/ethdev/xstats"));
        let commands = recording.answer("/").replace("/eal/params", "/eal/lcore/usage\",\"/eal/params");
        recording = recording.with("/", &commands);
        for id in &ids {
            recording = recording.with(&format!("/eal/heap_info,{id}"), &framed(&heap, "/eal/heap_info"));
        }
        let requests = asked(recording, 3);
        let heaps = requests.iter().filter_map(|request| request.strip_prefix("/eal/heap_info,"));
        for id in heaps {
            prop_assert!(id.parse().is_ok_and(|id| ids.contains(&id)), "{id} of {ids:?}");
        }
    }
}

#[test]
fn rings_of_an_app_that_has_many_are_asked_in_turn() {
    const RINGS: usize = 200;
    let asked = Arc::new(Mutex::new(vec![0_usize; RINGS]));
    let counts = Arc::clone(&asked);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request.split_once(",r") {
            Some(("/ring/info", number)) => {
                let mut counts = counts.lock().unwrap();
                let count = &mut counts[number.parse::<usize>().unwrap()];
                *count += 1;
                format!(
                    r#"{{"/ring/info":{{"name":"r{number}","socket":0,"size":1024,"capacity":1023,
                    "used_count":{count},"avail_count":0}}}}"#
                )
            }
            _ => match request {
                "/" => r#"{"/":["/","/ethdev/list","/mempool/list","/ring/list","/ring/info"]}"#
                    .to_owned(),
                "/ring/list" => {
                    let names: Vec<_> = (0..RINGS).map(|ring| format!("\"r{ring:03}\"")).collect();
                    format!(r#"{{"/ring/list":[{}]}}"#, names.join(","))
                }
                other => format!(r#"{{"{other}":[]}}"#),
            },
        });
    });
    let mut collector = SampleCollector::new(app.app());
    let asked_so_far = || asked.lock().unwrap().iter().sum::<usize>();
    let first = collector.collect(TIMEOUT).unwrap();
    assert_eq!((first.rings.len(), &first.partial[..]), (RINGS, &[][..]));
    assert_eq!(asked_so_far(), RINGS, "all in the first round");
    let deadline = Instant::now() + Duration::from_secs(60);

    while asked.lock().unwrap().iter().any(|count| *count < 2) {
        assert!(Instant::now() < deadline, "some are never asked again: {asked:?}");
        let before = asked_so_far();
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!((sample.rings.len(), sample.partial), (RINGS, vec![]));
        assert!(asked_so_far() > before);
    }
    let sample = collector.collect(TIMEOUT).unwrap();
    assert!(sample.rings.iter().all(|ring| ring.used >= 2), "as they were told last");
}

#[test]
fn facts_of_ports_that_are_asked_together_are_those_of_the_port() {
    let wrong = Arc::new(AtomicU32::new(0));
    let wrong_too = Arc::clone(&wrong);
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request {
            "/ethdev/info,0" if wrong_too.swap(0, Ordering::Relaxed) == 1 => {
                recording.answer("/ethdev/info,1")
            }
            "/ethdev/link_status,1" if wrong_too.swap(0, Ordering::Relaxed) == 2 => {
                r#"{"/ethdev/link_status":null}"#.to_owned()
            }
            _ => recording.answer(request),
        });
    });
    let mut collector = SampleCollector::new(app.app());
    let expected = collector.collect(TIMEOUT).unwrap().ports;
    collector.collect(TIMEOUT).unwrap();
    for error in 1..=2 {
        // Facts are asked for once a second.
        std::thread::sleep(Duration::from_millis(950));
        wrong.store(error, Ordering::Relaxed);
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "facts were asked for");
        assert_eq!((sample.ports, sample.partial), (expected.clone(), vec![]));
    }
}
