use pmdscope_telemetry::model::PortRates;
use pmdscope_telemetry::sample::{HighWater, LcoreSample, PortSample, Sample};

use super::*;

fn lcore(lcore: u32, polls: u64, gap_us: u64) -> LcoreSample {
    LcoreSample { lcore, polls, gap_window_max_us: gap_us, ..LcoreSample::default() }
}

fn queue(port: u16, queue: u16, polls: u64, depth: Option<u64>) -> QueueSample {
    let depth_high_water = depth.map(|window| HighWater { window, ..HighWater::default() });
    QueueSample {
        port,
        queue,
        direction: QueueDirection::Rx,
        polls,
        empty: 0,
        packets: 0,
        bytes: 0,
        depth: None,
        depth_high_water,
        descriptors: Some(512),
        pool_row: None,
        bursts: Vec::new(),
        depths: Vec::new(),
    }
}

/// Lcore 1 polls queue 0:0, lcore 2 the others, of which one is deeper, and only its port misses packets.
fn model() -> Model {
    let port = |id| PortSample { id, ..PortSample::default() };
    let missed = |rx_missed_ps| PortRates { rx_missed_ps, ..PortRates::default() };
    Model {
        sample: Sample {
            lcores: vec![lcore(1, 1_000_000, 40), lcore(2, 7_000_000, 0)],
            ports: vec![port(0), port(1)],
            queues: vec![
                queue(0, 0, 1_000_100, Some(30)),
                queue(0, 1, 7_000_100, Some(60)),
                queue(1, 0, 7_000_200, Some(500)),
                QueueSample { direction: QueueDirection::Tx, ..queue(0, 0, 1_000_100, Some(512)) },
            ],
            ..Sample::default()
        },
        ports: vec![missed(Some(0.0)), missed(Some(70.0))],
        ..Model::default()
    }
}

fn event(cause: StolenCause, duration_ns: u64) -> StolenEvent {
    StolenEvent {
        sequence: 1,
        pid: 1,
        lcore: 1,
        cpu: 1,
        cause,
        thief: "hog".to_owned(),
        start_realtime_ns: duration_ns * 10,
        duration_ns,
    }
}

fn rounds() -> Rounds {
    let nothing = Snapshot { at_ns: 0, totals: BTreeMap::new(), overhead_ns: BTreeMap::new() };
    Rounds {
        apps: Vec::new(),
        begin: nothing.clone(),
        before: nothing,
        around: BTreeMap::new(),
        last: BTreeMap::new(),
        events: Vec::new(),
        sequence: 0,
        seconds: 0.0,
    }
}

#[test]
fn an_lcore_has_the_depth_of_the_queues_that_it_polls() {
    let model = model();
    let depth = |lcore| {
        let queue = lcore_state(&model, lcore).unwrap().deepest_queue.unwrap();
        (queue.port, queue.queue, queue.packets, queue.descriptors)
    };
    assert_eq!(depth(1), (0, 0, 30, Some(512)), "not that of another lcore, nor one to send");
    assert_eq!(depth(2), (1, 0, 500, Some(512)));
}

#[test]
fn an_lcore_has_the_missed_packets_of_the_ports_that_it_polls() {
    let mut model = model();
    let missed = |model: &Model, lcore| lcore_state(model, lcore).unwrap().rx_missed_ps;
    assert_eq!((missed(&model, 1), missed(&model, 2)), (Some(0.0), Some(70.0)));
    model.ports.iter_mut().for_each(|port| port.rx_missed_ps = None);
    assert_eq!(missed(&model, 1), None, "no driver tells");
}

#[test]
fn unknown_is_not_zero() {
    let mut model = model();
    assert_eq!(lcore_state(&model, 1).unwrap().poll_gap_us, Some(40));
    assert_eq!(lcore_state(&model, 2).unwrap().poll_gap_us, None, "no gap in the window");
    assert_eq!(lcore_state(&model, 3), None, "a lcore that libpmdscope does not know");
    model.sample.queues.iter_mut().for_each(|queue| queue.depth_high_water = None);
    assert_eq!(lcore_state(&model, 1).unwrap().deepest_queue, None, "the driver does not tell");
    model.sample.queues.clear();
    assert_eq!(lcore_state(&model, 1).unwrap().rx_missed_ps, Some(70.0), "by packets of lcores");
}

#[test]
fn no_more_than_the_whole_interval_is_stolen() {
    assert_eq!(share_of(250_000_000, 0.5), Some(0.5));
    assert_eq!(share_of(7_190_000_000, 1.0), Some(1.0), "it began six seconds before");
    assert_eq!(share_of(1, 0.0), None);
}

#[test]
fn the_longest_theft_of_an_lcore_stays() {
    let mut rounds = rounds();
    let state = |us| LcoreState { poll_gap_us: Some(us), ..LcoreState::default() };
    rounds.note_longest("app", &state(1), &event(StolenCause::Timer, 100));
    rounds.note_longest("app", &state(2), &event(StolenCause::Scheduler, 5000));
    rounds.note_longest("app", &state(3), &event(StolenCause::Irq, 300));
    rounds.note_longest("app", &state(4), &event(StolenCause::Sleep, 9000));
    let other = StolenEvent { lcore: 2, ..event(StolenCause::Irq, 7) };
    rounds.note_longest("app", &state(5), &other);
    let of = |lcore| &rounds.around[&("app".to_owned(), lcore)];
    let longest = of(1);
    assert_eq!((longest.cause, longest.duration_ns), (StolenCause::Scheduler, 5000));
    assert_eq!((longest.realtime_ns, longest.state.poll_gap_us), (50_000, Some(2)));
    assert_eq!((of(2).duration_ns, of(2).state.poll_gap_us), (7, Some(5)));
}

#[test]
fn an_event_is_printed_with_what_was_seen_around_it() {
    let event = |state| {
        serde_json::to_value(AppEvent {
            app: "app".to_owned(),
            event: event(StolenCause::Timer, 100),
            state,
        })
    };
    let known = event(lcore_state(&model(), 1).unwrap()).unwrap();
    assert_eq!((&known["poll_gap_us"], &known["rx_missed_ps"]), (&40.into(), &0.0.into()));
    assert_eq!(known["deepest_queue"]["packets"], 30);
    let unknown = event(LcoreState::default()).unwrap();
    for field in ["poll_gap_us", "deepest_queue", "rx_missed_ps"] {
        assert!(unknown[field].is_null() && unknown.get(field).is_some(), "{unknown}");
    }
}
