//! Tests of the tables of libpmdscope, in pages.

use super::*;

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
    // The recording is older than the count of source files with call sites.
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
fn tables_without_rows_are_asked_for_again_once_rows_have_changed() {
    let recording = Recording::read("dpdk-22.11/pmdscope-leaking.jsonl");
    let (asked, rows) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counted, generation) = (Arc::clone(&asked), Arc::clone(&rows));
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| match request {
            "/pmdscope/rings" => {
                counted.fetch_add(1, Ordering::Relaxed);
                rings(request, u64::from(generation.load(Ordering::Relaxed)), |_| 9)
            }
            "/pmdscope" => {
                let reply = recording.answer(request);
                let (before, rest) = reply.split_once("\"generation\":").unwrap();
                let (_, after) = rest.split_once(',').unwrap();
                let generation = generation.load(Ordering::Relaxed);
                format!("{before}\"generation\":{generation},{after}")
            }
            other => recording.answer(other),
        });
    });
    let mut collector = SampleCollector::new(app.app());
    for (generation, requests) in [(0, 1), (0, 1), (2, 2), (2, 3)] {
        rows.store(generation, Ordering::Relaxed);
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!((sample.rings.len(), &sample.partial), (generation as usize, &Vec::new()));
        assert_eq!(asked.load(Ordering::Relaxed), requests);
    }
}

#[test]
fn the_configuration_is_asked_for_when_a_port_was_stopped() {
    let recording = Recording::read("dpdk-22.11/pmdscope-reflector.jsonl");
    let library = recording.answer("/pmdscope").replace(r#""pools","#, r#""pools","ports","#);
    let recording = recording.with("/pmdscope", &library);
    let (stops, asked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (stopped, counted) = (Arc::clone(&stops), Arc::clone(&asked));
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            if request == "/pmdscope/ports" {
                let stops = stopped.load(Ordering::Relaxed);
                return format!(
                    r#"{{"/pmdscope/ports":{{"schema":1,"generation":1,"offset":0,"total":1,
                    "port":[0],"device":["x"],"started":[1],"starts":[{stops}],"stops":[{stops}],
                    "link_changes":[0],"changed_realtime_ns":[{stops}]}}}}"#
                );
            }
            let info = request.starts_with("/ethdev/info,");
            counted.fetch_add(u32::from(info), Ordering::Relaxed);
            recording.answer(request)
        });
    });
    let mut collector = SampleCollector::new(app.app());
    let mut infos = |stops_now| {
        let before = asked.load(Ordering::Relaxed);
        stops.store(stops_now, Ordering::Relaxed);
        // The table shows it in one second, and the ports are requested in the next.
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(910));
            assert_eq!(collector.collect(TIMEOUT).unwrap().partial, Vec::<String>::new());
        }
        asked.load(Ordering::Relaxed) - before
    };
    assert!(infos(0) > 0);
    assert!(infos(1) > 0);
}

/// Returns the reply to `/pmdscope/queue_counters` that matches a `/pmdscope/queues` of one page.
fn queue_counters(queues: &str) -> String {
    let mut reply: serde_json::Value = serde_json::from_str(queues).unwrap();
    let table = reply["/pmdscope/queues"].as_object_mut().unwrap();
    for column in ["device", "bursts", "bursts_buckets", "depths", "depths_buckets"] {
        table.remove(column).unwrap();
    }
    format!("{{\"/pmdscope/queue_counters\":{}}}", reply["/pmdscope/queues"])
}

#[test]
fn histograms_of_queues_are_asked_for_if_wanted() {
    let recording = Recording::read("dpdk-22.11/pmdscope-reflector.jsonl");
    let library = recording.answer("/pmdscope");
    let counters = queue_counters(&recording.answer("/pmdscope/queues"));
    let newer = recording
        .clone()
        .with("/pmdscope", &library.replace(r#""queues","#, r#""queues","queue_counters","#))
        .with("/pmdscope/queue_counters", &counters);
    // An older library always sends them.
    for (recording, without) in [(newer, 0), (recording, 8)] {
        let app = FakeApp::replay(&recording);
        let histograms = Arc::new(QueueHistograms::default());
        let mut collector =
            SampleCollector::new(app.app()).with_histograms(Arc::clone(&histograms));
        let mut queues = |wanted| {
            histograms.want(wanted);
            let sample = collector.collect(TIMEOUT).unwrap();
            assert_eq!(sample.partial, Vec::<String>::new());
            sample.queues
        };
        let mut all = queues(true);
        assert_eq!((all.len(), all[0].bursts.len()), (4, 8));
        let brief = queues(false);
        assert!(brief.iter().all(|queue| queue.bursts.len() == without));
        if without == 0 {
            for queue in &mut all {
                (queue.bursts, queue.depths) = Default::default();
            }
        }
        assert_eq!(brief, all);
    }
}

#[test]
fn ports_are_asked_while_the_app_tells_its_tables() {
    let recording = Recording::read("dpdk-22.11/pmdscope-reflector.jsonl");
    let is_held = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&is_held);
    let app = FakeApp::start(move |connection| {
        connection.send(BANNER);
        while let Some(first) = connection.receive() {
            let mut requests = vec![first];
            // Sends no reply before it is asked about a port.
            if held.load(Ordering::Relaxed) && requests[0].starts_with("/pmdscope/queues") {
                while !requests.last().unwrap().starts_with("/ethdev/xstats") {
                    let Some(next) = connection.receive() else { return };
                    requests.push(next);
                }
            }
            for request in requests {
                connection.send(recording.answer(&request));
            }
        }
    });
    let mut collector = SampleCollector::new(app.app());
    for hold in [false, false, true, true] {
        is_held.store(hold, Ordering::Relaxed);
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!((&sample.partial, sample.ports.len()), (&Vec::new(), 1), "{hold}");
        assert!(!sample.queues.is_empty() && !sample.pools.is_empty());
    }
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
    assert_eq!(sample.lcores[0].stall_longest_us, [1200, 5000]);
    assert_eq!(sample.lcores[0].stall_longest_realtime_ns[1], 1_700_000_000_300_000_000);
    assert!(sample.queues.is_empty());
}

/// Returns the reply to a request for `total` rings; `rows` returns the number of rows for the first
/// row of a page.
fn rings(request: &str, total: u64, rows: impl Fn(u64) -> u64) -> String {
    let offset = request.split_once(',').map_or(0, |(_, offset)| offset.parse().unwrap());
    let end = total.min(offset + rows(offset));
    let next = if end < total { format!("\"next\":{end},") } else { String::new() };
    let names: Vec<_> = (offset..end).map(|row| format!("ring{row:04}")).collect();
    let column = |name: &str| format!("\"{name}\":{:?}", (offset..end).collect::<Vec<_>>());
    let columns = ["capacity", "used", "used_window_max", "used_max"].map(column).join(",");
    let header = format!(r#""schema":1,"generation":3,"offset":{offset},"total":{total},{next}"#);
    format!("{{\"/pmdscope/rings\":{{{header}\"name\":{names:?},{columns}}}}}")
}

fn with_rings() -> Recording {
    let recording = Recording::read("synthetic/pmdscope-two-pages.jsonl");
    let library = recording.answer("/pmdscope").replace(r#""pools","#, r#""pools","rings","#);
    recording.with("/pmdscope", &library)
}

#[test]
fn each_row_of_many_pages_is_taken_once() {
    let cases: [fn(u64) -> u64; 3] = [
        |_| 32,
        |offset| 30 + offset % 5,
        // A short page, followed by long ones.
        |offset| if offset == 62 { 5 } else { 32 + offset / 8 },
    ];
    for rows in cases {
        let asked = Arc::new(Mutex::new(0));
        let (counted, recording) = (Arc::clone(&asked), with_rings());
        let app = FakeApp::start(move |connection| {
            connection.serve(|request| {
                if !request.starts_with("/pmdscope/rings") {
                    return recording.answer(request);
                }
                *counted.lock().unwrap() += 1;
                rings(request, 1180, rows)
            });
        });
        let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
        assert_eq!(sample.partial, Vec::<String>::new());
        let used: Vec<_> = sample.rings.iter().map(|ring| ring.used).collect();
        assert_eq!(used, (0..1180).collect::<Vec<_>>());
        // 37 pages of 32 rows would be enough if the pages did not overlap.
        assert!(*asked.lock().unwrap() <= 42, "{} requests", asked.lock().unwrap());
    }
}

#[test]
fn further_pages_are_asked_for_together() {
    let recording = with_rings();
    let app = FakeApp::start(move |connection| {
        connection.send(BANNER);
        let mut pages = Vec::new();
        while let Some(request) = connection.receive() {
            if request.starts_with("/pmdscope/rings,") {
                // A client that waits for the first reply before it sends the next request gets none.
                pages.push(request);
            } else if request == "/pmdscope/rings" {
                connection.send(rings(&request, 90, |_| 32));
            } else {
                connection.send(recording.answer(&request));
            }
            if pages.len() == 2 {
                pages.drain(..).for_each(|page| connection.send(rings(&page, 90, |_| 32)));
            }
        }
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert_eq!((sample.rings.len(), &sample.partial), (90, &Vec::new()));
}

#[test]
fn why_a_connection_was_lost_between_pages_is_told() {
    let recording = with_rings();
    let app = FakeApp::start(move |connection| {
        connection.send(BANNER);
        while let Some(request) = connection.receive() {
            match request.strip_prefix("/pmdscope/rings") {
                Some("") => connection.send(rings(&request, 900, |_| 32)),
                // A reply to another request.
                Some(_) => connection.send(recording.answer("/eal/params")),
                None => connection.send(recording.answer(&request)),
            }
        }
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    let reason = "/pmdscope/rings: the reply is about";
    assert!(sample.partial[0].starts_with(reason), "{:?}", sample.partial);
}

/// Serves the table of pools with the generation that `generation` returns for each page.
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
