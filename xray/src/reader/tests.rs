//! Samples of generated apps.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use pmdscope_telemetry::discover::Reachability;
use pmdscope_telemetry::sample::{AppIdentity, HighWater, PoolSample};

use super::*;
use crate::counts::made_up::{Handler, MadeUpApp};
use crate::error::XrayError;

/// Long, as machines that run tests may be busy.
const LONG: Duration = Duration::from_secs(30);

fn found(name: &str, pid: u32) -> DiscoveredApp {
    DiscoveredApp {
        pid: Some(pid),
        ..DiscoveredApp::in_dir("/nonexistent", name, "socket", Reachability::Live)
    }
}

fn sample(pid: u32, pools: &[&str]) -> Sample {
    let pool =
        |name: &&str| PoolSample { name: (*name).to_owned(), size: 1023, ..PoolSample::default() };
    Sample {
        app: AppIdentity { pid, start_ticks: 1, ..AppIdentity::default() },
        pools: pools.iter().map(pool).collect(),
        ..Sample::default()
    }
}

fn completed(reader: &XrayReader, pid: u32, mut sample: Sample) -> Sample {
    reader.complete(&found("app", pid), &mut sample, Deadline::after(LONG));
    sample
}

fn problem(sample: &Sample) -> Option<&str> {
    sample.xray.as_ref().and_then(|xray| xray.problem.as_deref())
}

/// An app with a pool `mb`, of which 23 objects are in use, and a ring.
fn target() -> XrayTarget {
    let mut app = MadeUpApp::new();
    app.pool("mb", 1023, 700, &[0, 300], Handler::Ring);
    app.ring("backlog", 64, 5);
    app.start().0
}

#[test]
fn what_an_app_does_not_tell_is_added() {
    let reader = XrayReader::opening(true, Arc::new(|_| Ok(target())));
    let sample = completed(&reader, 7, sample(7, &["mb"]));
    let pool = &sample.pools[0];
    let parts = PoolOccupancy { common: 700, cached: 300, in_use: 23 };
    assert_eq!((pool.occupancy, pool.source), (Some(parts), Some(CountSource::Xray)));
    assert_eq!(pool.lcore_caches, [(1, 300)].into());
    assert_eq!(pool.high_water, Some(HighWater { window: 23, ever: 23 }));
    let ring = &sample.rings[0];
    assert_eq!((ring.name.as_str(), ring.used, ring.capacity), ("backlog", 5, 63));
    assert_eq!(ring.source, Some(CountSource::Xray));
    assert_eq!((problem(&sample), &sample.partial[..]), (None, &[][..]));
}

#[test]
fn what_the_app_told_itself_stays() {
    let reader = XrayReader::opening(true, Arc::new(|_| Ok(target())));
    let mut told = sample(7, &["mb"]);
    let parts = PoolOccupancy { common: 600, cached: 400, in_use: 23 };
    told.pools[0].occupancy = Some(parts);
    told.pools[0].source = Some(CountSource::Telemetry);
    told.rings = vec![RingSample {
        name: "backlog".into(),
        capacity: 63,
        used: 9,
        source: Some(CountSource::Telemetry),
        ..RingSample::default()
    }];
    let sample = completed(&reader, 7, told);
    let (pool, ring) = (&sample.pools[0], &sample.rings[0]);
    assert_eq!((pool.occupancy, pool.source), (Some(parts), Some(CountSource::Telemetry)));
    assert_eq!((pool.lcore_caches.len(), sample.rings.len()), (1, 1));
    assert_eq!((ring.used, ring.source), (9, Some(CountSource::Telemetry)));
    assert_eq!(ring.high_water, Some(HighWater { window: 5, ever: 5 }));
}

#[test]
fn an_app_that_cannot_be_opened_is_told_once_a_sample_and_not_opened_at_each() {
    for required in [false, true] {
        let opened = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&opened);
        let open = move |_: &DiscoveredApp| {
            count.fetch_add(1, Ordering::Relaxed);
            Err(XrayError::Ended { pid: 7 })
        };
        let reader = XrayReader::opening(required, Arc::new(open));
        let samples: Vec<_> = (0..50).map(|_| completed(&reader, 7, sample(7, &["mb"]))).collect();
        let why = XrayError::Ended { pid: 7 }.to_string();
        for sample in &samples {
            assert_eq!((problem(sample), sample.pools[0].occupancy), (Some(why.as_str()), None));
            let partial = if required { vec![format!("xray: {why}")] } else { Vec::new() };
            assert_eq!(sample.partial, partial);
        }
        assert!(opened.load(Ordering::Relaxed) < 50);
    }
}

#[test]
fn an_app_that_hangs_keeps_no_other_waiting() {
    let (let_go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let open = move |app: &DiscoveredApp| {
        if app.pid == Some(7) {
            let _ = held.lock().unwrap().recv();
        }
        Ok(target())
    };
    let reader = XrayReader::opening(true, Arc::new(open));
    let mut stuck = sample(7, &["mb"]);
    reader.complete(&found("app", 7), &mut stuck, Deadline::after(Duration::from_millis(50)));
    assert_eq!(problem(&stuck), Some("its memory was not read in time; it is read again"));
    assert!(completed(&reader, 8, sample(8, &["mb"])).pools[0].occupancy.is_some());
    // One request more fits into the queue of the thread that hangs.
    for _ in 0..2 {
        reader.complete(&found("app", 7), &mut stuck, Deadline::after(Duration::ZERO));
    }
    assert_eq!(problem(&stuck), Some("its memory is still being read for the last sample"));
    drop(let_go);
    let begun = Instant::now();
    while completed(&reader, 7, sample(7, &["mb"])).pools[0].occupancy.is_none() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_thread_that_panics_is_told_and_started_again() {
    let first = AtomicU32::new(0);
    let open = move |_: &DiscoveredApp| {
        assert!(first.fetch_add(1, Ordering::Relaxed) > 0, "on purpose");
        Ok(target())
    };
    let reader = XrayReader::opening(true, Arc::new(open));
    let lost = completed(&reader, 7, sample(7, &["mb"]));
    assert_eq!(problem(&lost), Some("the thread that reads its memory has panicked"));
    assert!(completed(&reader, 7, sample(7, &["mb"])).pools[0].occupancy.is_some());
}

#[test]
fn a_new_pool_is_found_and_one_that_is_not_is_told() {
    let opened = AtomicU32::new(0);
    let open = move |_: &DiscoveredApp| {
        let mut app = MadeUpApp::new();
        app.pool("mb", 1023, 1000, &[], Handler::Ring);
        if opened.fetch_add(1, Ordering::Relaxed) > 0 {
            app.pool("new", 1023, 900, &[], Handler::Ring);
        }
        Ok(app.start().0)
    };
    let mut watcher = Watcher::new(found("app", 7), Arc::new(open));
    let names =
        |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let begun = Instant::now();
    assert_eq!(watcher.read(&names(&["mb"]), begun).problem, None);
    let early = watcher.read(&names(&["mb", "new"]), begun);
    assert_eq!(early.problem.as_deref(), Some("mempool new is not found"));
    let later = watcher.read(&names(&["mb", "new"]), begun + Duration::from_secs(2));
    assert_eq!((later.problem, later.pools["new"].0.in_use()), (None, Some(123)));
    let lacking = watcher.read(&names(&["mb", "other"]), begun + Duration::from_secs(4));
    assert_eq!(lacking.problem.as_deref(), Some("mempool other is not found"));
    assert_eq!(lacking.pools.len(), 2);
}

#[test]
fn a_peak_between_two_samples_is_in_the_high_water_mark() {
    let mut app = MadeUpApp::new();
    let tail = app.layout().ring.prod_tail;
    let ring = app.ring("backlog", 64, 0);
    let (target, running) = app.start();
    let open = move |_: &DiscoveredApp| Ok(target.clone());
    let mut watcher = Watcher::new(found("app", 7), Arc::new(open));
    let pools = BTreeSet::new();
    assert_eq!(watcher.read(&pools, Instant::now()).rings[0].high_water.ever, 0);
    let empty = u32::MAX - 2;
    running.memory.lock().write_u32(ring + tail, empty.wrapping_add(40));
    watcher.mark();
    running.memory.lock().write_u32(ring + tail, empty);
    let reading = watcher.read(&pools, Instant::now());
    assert_eq!((reading.rings[0].count.used, reading.rings[0].high_water.ever), (0, 40));
}

#[test]
fn rings_that_come_and_go_are_noticed_without_opening_the_app_anew() {
    let mut app = MadeUpApp::new();
    app.ring("backlog", 64, 5);
    app.ring("other", 64, 5);
    let (target, running) = app.start();
    let opened = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&opened);
    let open = move |_: &DiscoveredApp| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(target.clone())
    };
    let mut watcher = Watcher::new(found("app", 7), Arc::new(open));
    let begun = Instant::now();
    let mut rings = |seconds| {
        let reading = watcher.read(&BTreeSet::new(), begun + Duration::from_secs(seconds));
        reading.rings.into_iter().map(|ring| ring.count.name).collect::<Vec<_>>()
    };
    assert_eq!(rings(0), ["backlog", "other"]);
    running.keep_memzones(0b01);
    assert_eq!(
        (rings(29), rings(31)),
        (vec!["backlog".into(), "other".into()], vec!["backlog".into()])
    );
    running.keep_memzones(0b11);
    assert_eq!(
        (rings(60), rings(62)),
        (vec!["backlog".into()], vec!["backlog".into(), "other".into()])
    );
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
