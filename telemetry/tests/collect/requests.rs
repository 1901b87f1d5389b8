//! Tests of the requests to an app, their frequency, and wrong replies.

use super::*;

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

/// Starts an app with two ports; the returned string replaces the next reply to `/ethdev/xstats,0`, once.
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
fn the_configuration_of_ports_is_asked_for_less_often_than_their_links() {
    let recording = Recording::read("dpdk-22.11/testpmd-null.jsonl");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            log.lock().unwrap().push(request.to_owned());
            recording.answer(request)
        });
    });
    let mut collector = SampleCollector::new(app.app());
    let mut count = |pauses: u32| {
        for _ in 0..pauses {
            std::thread::sleep(Duration::from_millis(910));
            collector.collect(TIMEOUT).unwrap();
        }
        let asked = asked.lock().unwrap();
        ["/ethdev/info,", "/ethdev/link_status,"]
            .map(|command| asked.iter().filter(|request| request.starts_with(command)).count())
    };
    // Two complete rounds, so that the rates of the ports are known.
    assert_eq!(count(2), [4, 4]);
    let [infos, links] = count(2);
    assert_eq!(links, 8);
    assert!(infos <= 5, "{infos}");
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
    // Ids that no heap can have: they are not requested, though they are on the list.
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
    // Once in ten seconds, and only with the ids of the list.
    let mut requests = asked(recording.clone(), 5);
    requests.retain(|request| request.starts_with("/eal/lcore/"));
    let of = |id: u32| format!("/eal/lcore/info,{id}");
    assert_eq!(requests, ["/eal/lcore/list".to_owned(), of(1), of(2), of(3), of(127)]);
    // A thread that unregisters in between is answered by null.
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
            // Sends no reply before it has both requests.
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

/// Replies that are not quite valid.
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
        // Facts are requested once a second.
        std::thread::sleep(Duration::from_millis(950));
        wrong.store(error, Ordering::Relaxed);
        let sample = collector.collect(TIMEOUT).unwrap();
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "facts were asked for");
        assert_eq!((sample.ports, sample.partial), (expected.clone(), vec![]));
    }
}

#[test]
fn replies_are_kept_without_further_requests_while_somebody_wants_them() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let replies = Arc::new(RawReplies::default());
    let collect = || {
        let collector = SampleCollector::new(app.app());
        collector.with_replies(Some(Arc::clone(&replies))).collect(TIMEOUT).unwrap()
    };
    let unseen = collect();
    assert!(replies.all().is_empty());
    replies.want(true);
    let sample = collect();
    assert_eq!(sample.requests, unseen.requests);
    let all = replies.all();
    let of_app = &all[&sample.app.name];
    assert_eq!(of_app.len(), usize::try_from(sample.requests).unwrap(), "{of_app:?}");
    let list = &of_app["/ethdev/list"];
    assert!(list.text.starts_with(r#"{"/ethdev/list":"#) && list.bytes == list.text.len());
    let command = |request: &String| request.split(',').next().unwrap().to_owned();
    assert!(of_app.iter().all(|(request, reply)| reply.text.contains(&command(request))));
}
