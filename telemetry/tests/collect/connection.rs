//! Tests of connections that end, apps that restart, and the lock of the tools.

use super::*;

#[test]
fn a_restarted_app_is_connected_again_within_the_round() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let connections = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&connections);
    let app = FakeApp::start(move |connection| {
        seen.fetch_add(1, Ordering::Relaxed);
        connection.send(support::BANNER);
        // The number of requests of a first round; then the app ends.
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

/// Starts an app that records the requests during which its lock was not held.
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
    // Replies of the last round may still be outstanding, so the result does not matter.
    let _ = collector.collect(TIMEOUT);
    restarts.store(false, Ordering::Relaxed);
    // The directory of the app before was locked by itself, for want of this file.
    std::fs::write(app.dir().join("config"), "").unwrap();
    let other_tool = AppLock::open(app.dir()).unwrap();
    let _held = other_tool.hold(Deadline::after(TIMEOUT)).unwrap();
    let sample = collector.collect(TIMEOUT).unwrap();
    assert!(sample.partial[0].starts_with("lock: another pmdscope tool"), "{:?}", sample.partial);
}

#[test]
fn without_the_lock_the_sample_says_so() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    std::os::unix::fs::symlink("/nonexistent", app.dir().join("config")).unwrap();
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.ports.len(), sample.partial.len()), (2, 1));
    assert!(sample.partial[0].starts_with("lock: cannot open what tools lock"));
}
