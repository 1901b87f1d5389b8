//! Requests to apps, whichever command sends them: never more than apps can bear, and never from
//! two tools at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::{Exporter, Scrape};
use pmdscope_integration::fake::{self, BANNER, Exchange, FakeApp, answer, recorded};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::{Idle, Site, open_files};
use serde_json::Value;

use crate::support::{LIMIT, Needs, pmdscope, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("tools_never_ask_an_app_at_once", Needs::Apps, taking_turns),
        trial("only_listed_ids_are_asked_for", Needs::Apps, allowed),
        trial("a_list_that_shrinks_is_believed", Needs::Apps, shrinking),
        trial("ports_may_come_and_go", Needs::Apps, hotplug),
        trial("scrapes_cost_few_requests_and_one_connection", Needs::Apps, frugal),
    ]
}

const PORTS: u16 = 8;
const MANY: Idle = Idle { ports: PORTS, queues: 2, linked: false };

/// Runs every command that asks apps, for a moment each.
const COMMANDS: [&[&str]; 6] = [
    &["ls", "--json"],
    &["top", "--once", "--json", "-i", "0.2"],
    &["check", "--json", "--for", "1"],
    &["leaks", "--json"],
    &["record", "--for", "1"],
    &["ls"],
];

/// Requests of several clients at the same time are answered with each other's parameters, so
/// several tools take turns. No value of another port ever shows up, whichever tool asks.
fn taking_turns(scratch: &Scratch) -> Result<()> {
    let real = Site::new(scratch, "real", "")?;
    let _app = real.idle(scratch, "app", MANY)?;
    let site = Site::new(scratch, "relays", "")?;
    let relay = fake::relay(&site.socket("app"), &real.socket("app"))?;
    let exporter = Exporter::start(scratch, &site.config())?;

    let end = Instant::now() + Duration::from_secs(2);
    let scrapes = thread::scope(|scope| -> Result<Vec<Scrape>> {
        let tools: Vec<_> =
            COMMANDS.iter().map(|words| scope.spawn(|| command(scratch, &site, words))).collect();
        let scrapers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut scrapes = Vec::new();
                    while Instant::now() < end {
                        scrapes.push(exporter.scrape()?);
                    }
                    Ok::<_, anyhow::Error>(scrapes)
                })
            })
            .collect();
        for tool in tools {
            tool.join().map_err(|_| anyhow::anyhow!("a tool panicked"))??;
        }
        let mut all = Vec::new();
        for scraper in scrapers {
            all.extend(scraper.join().map_err(|_| anyhow::anyhow!("a scraper panicked"))??);
        }
        Ok(all)
    })?;

    ensure!(relay.overlaps() == 0, "{} requests overlapped", relay.overlaps());
    ensure!(scrapes.len() > 20, "only {} scrapes", scrapes.len());
    let complete = scrapes.iter().filter(|scrape| scrape.value("dpdk_up", &[]) == Some(1.0));
    ensure!(complete.count() * 2 > scrapes.len(), "most scrapes were not complete");
    scrapes.iter().try_for_each(|scrape| ports_are_themselves(scrape, "app", MANY, PORTS))
}

/// The values reported for each port are those of that port: its counters and its MTU differ from
/// all others.
pub(crate) fn ports_are_themselves(
    scrape: &Scrape,
    app: &str,
    idle: Idle,
    ports: u16,
) -> Result<()> {
    for port in 0..ports {
        let device = Idle::device(port);
        let labels = [("app", app), ("port", device.as_str())];
        let told = |name| scrape.value(name, &labels);
        let (mtu, packets) = (told("dpdk_port_mtu_bytes"), told("dpdk_port_receive_packets_total"));
        ensure!(agrees(mtu, Idle::mtu(port)), "{device} has an MTU of {mtu:?}");
        ensure!(agrees(packets, idle.packets(port)), "{device} has received {packets:?}");
        for sample in scrape.all("dpdk_queue_receive_packets_total", &labels) {
            let right = agrees(Some(sample.value), idle.packets(port) / f64::from(idle.queues));
            ensure!(right, "a queue of another port: {sample:?}");
        }
    }
    Ok(())
}

/// A value that is not reported is not wrong; counts of packets are exact.
fn agrees(told: Option<f64>, truth: f64) -> bool {
    told.is_none() || told == Some(truth)
}

/// Some handlers crash the app when asked for something that it does not have, some change it or touch
/// its hardware. So only harmless requests are sent, and only about what the app itself has listed.
fn allowed(scratch: &Scratch) -> Result<()> {
    let real = Site::new(scratch, "real", "")?;
    let site = Site::new(scratch, "relays", "")?;
    let (mut apps, mut relays) = (Vec::new(), Vec::new());
    for (name, linked) in [("stock", false), ("linked", true)] {
        // Enough queues for several pages.
        let idle = Idle { ports: 4, queues: 16, linked };
        apps.push(real.idle(scratch, name, idle)?);
        relays.push((fake::relay(&site.socket(name), &real.socket(name))?, linked));
    }
    for words in COMMANDS {
        command(scratch, &site, words)?;
    }
    command(scratch, &site, &["leaks", "-a", "linked", "--json"])?;
    let exporter = Exporter::start(scratch, &site.config())?;
    for path in ["/metrics", "/metrics?app=stock", "/ready?app=linked", "/sd", "/", "/metrics"] {
        exporter.get(path, &[])?;
    }
    for (relay, linked) in &relays {
        let exchanges = relay.exchanges();
        ensure!(exchanges.len() > 100, "only {} requests", exchanges.len());
        ensure!(exchanges.iter().any(|e| e.request.starts_with("/pmdscope/queues,")) == *linked);
        only_harmless(&exchanges)?;
    }
    Ok(())
}

/// Harmless on any DPDK: reads what is there, of the whole app.
const HARMLESS: [&str; 12] = [
    "/",
    "/info",
    "/eal/app_params",
    "/eal/params",
    "/eal/heap_list",
    "/eal/lcore/list",
    "/eal/lcore/usage",
    "/eal/memzone_list",
    "/ethdev/list",
    "/mempool/list",
    "/pmdscope",
    "/ring/list",
];

/// Harmless for what is in a list.
const LISTED: [(&str, &str); 9] = [
    ("/eal/heap_info", "/eal/heap_list"),
    ("/eal/lcore/info", "/eal/lcore/list"),
    ("/eal/memzone_info", "/eal/memzone_list"),
    ("/ethdev/info", "/ethdev/list"),
    ("/ethdev/link_status", "/ethdev/list"),
    ("/ethdev/stats", "/ethdev/list"),
    ("/ethdev/xstats", "/ethdev/list"),
    ("/mempool/info", "/mempool/list"),
    ("/ring/info", "/ring/list"),
];

fn only_harmless(exchanges: &[Exchange]) -> Result<()> {
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for Exchange { request, reply } in exchanges {
        let (command, parameter) = match request.split_once(',') {
            Some((command, parameter)) => (command, Some(parameter)),
            None => (request.as_str(), None),
        };
        let list = LISTED.iter().find(|(about, _)| *about == command).map(|(_, list)| *list);
        // Nothing of the library but its tables: one of its commands arms the ledger.
        let table = command.starts_with("/pmdscope/") && command != "/pmdscope/arm";
        let offered =
            |id: &str| list.and_then(|list| told.get(list)).is_some_and(|t| t.contains(id));
        let harmless = match parameter {
            None => table || HARMLESS.contains(&command),
            // A page may begin with any row of the table: further pages are asked for together.
            Some(row) if table => {
                row.parse().is_ok_and(|row: u64| totals.get(command).is_some_and(|all| row < *all))
            }
            Some(id) => offered(id),
        };
        ensure!(harmless, "asked for {request}, offered was {told:?}, rows were {totals:?}");
        if let Ok(reply) = serde_json::from_str::<Value>(reply) {
            totals
                .extend(reply[command]["total"].as_u64().map(|total| (command.to_owned(), total)));
            told.insert(command.to_owned(), offers(&reply[command]));
        }
    }
    Ok(())
}

/// Ids and names in a list.
fn offers(reply: &Value) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match reply {
        Value::Array(items) => items.iter().map(text).collect(),
        _ => BTreeSet::new(),
    }
}

/// A port that was removed from the list is not asked for any more. One that is removed while it is
/// asked for is a missing part, not a value.
fn shrinking(scratch: &Scratch) -> Result<()> {
    const LIST: &str = "/ethdev/list";
    let site = Site::new(scratch, "fakes", "")?;
    let replies = recorded("dpdk-22.11/testpmd-null.jsonl")?;
    let step = Arc::new(AtomicU32::new(0));
    let now = Arc::clone(&step);
    let fake = FakeApp::start(&site.socket("app"), move |connection| {
        connection.send(BANNER);
        connection.answer(|request| {
            let (step, second) = (now.load(Ordering::SeqCst), request.ends_with(",1"));
            Some(
                match (request, step) {
                    // The second port is removed: first while it is still listed, then from the
                    // list too.
                    (_, 1) if second => answer(&replies, "/unknown").replace("unknown", request),
                    (LIST, 2) => format!(r#"{{"{LIST}":[0]}}"#),
                    _ => answer(&replies, request),
                }
                .into_bytes(),
            )
        });
    })?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let ports = |scrape: &Scrape| {
        let all = scrape.all("dpdk_port_receive_packets_total", &[]);
        all.map(|sample| sample.label("port").to_owned()).collect::<Vec<_>>()
    };
    ensure!(ports(&exporter.scrape()?) == ["net_null0", "net_null1"]);
    step.store(1, Ordering::SeqCst);
    ensure!(ports(&exporter.scrape()?) == ["net_null0"], "a port without an answer has values");
    step.store(2, Ordering::SeqCst);
    let before = fake.exchanges().len();
    ensure!(ports(&exporter.scrape()?) == ["net_null0"]);
    let asked = fake.exchanges().split_off(before);
    ensure!(asked.iter().all(|e| !e.request.ends_with(",1")), "asked for a port that is gone");
    step.store(0, Ordering::SeqCst);
    // Lists are remembered for a second.
    wait_until("the port that came back", LIMIT, || Ok(ports(&exporter.scrape()?).len() == 2))?;
    only_harmless(&fake.exchanges())
}

/// DPDK before 24.11 answers without a lock while ports come and go.
fn hotplug(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let idle = Idle { ports: 3, queues: 1, linked: false };
    let mut app = site.changing(scratch, "app", idle)?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let (mut with, mut without) = (0, 0);
    let begun = Instant::now();
    // On a busy machine it takes longer until both were seen.
    while begun.elapsed() < Duration::from_secs(3)
        || ((with == 0 || without == 0) && begun.elapsed() < LIMIT)
    {
        let scrape = exporter.scrape()?;
        ensure!(scrape.value("dpdk_up", &[]) == Some(1.0), "{:?}", scrape.value("dpdk_up", &[]));
        ports_are_themselves(&scrape, "app", idle, idle.ports)?;
        let ports: BTreeSet<_> = scrape
            .all("dpdk_port_mtu_bytes", &[])
            .map(|sample| sample.label("port").to_owned())
            .collect();
        ensure!((0..idle.ports).all(|port| ports.contains(&Idle::device(port))), "{ports:?}");
        *(if ports.contains("net_null3") { &mut with } else { &mut without }) += 1;
        thread::sleep(Duration::from_millis(5));
    }
    ensure!(with > 0 && without > 0, "{with} scrapes with the changing port, {without} without");
    ensure!(app.exited()?.is_none(), "{}", app.output());
    app.interrupt()?;
    Ok(())
}

/// Each request may preempt a polling lcore.
fn frugal(scratch: &Scratch) -> Result<()> {
    const SCRAPES: usize = 20;
    let real = Site::new(scratch, "real", "")?;
    let app = real.idle(scratch, "app", MANY)?;
    let site = Site::new(scratch, "relays", "")?;
    let relay = fake::relay(&site.socket("app"), &real.socket("app"))?;
    let files = open_files(app.pid())?;
    let exporter = Exporter::start(scratch, &site.config())?;
    exporter.scrape()?;
    let (requests, connections) = (relay.exchanges().len(), relay.connections());
    let mut told = 0.0;
    for _ in 0..SCRAPES {
        told += exporter.scrape()?.value("dpdk_collect_requests", &[]).context("requests")?;
    }
    let requests = relay.exchanges().len() - requests;
    ensure!(agrees(Some(told), requests as f64), "{requests} requests were made, {told} told");
    // Four a port, and a few lists.
    let most = SCRAPES * (usize::from(PORTS) * 4 + 6);
    ensure!(requests <= most, "{requests} requests for {SCRAPES} scrapes");
    // A search for new apps may come in between.
    let more = relay.connections() - connections;
    ensure!(more <= 1, "{more} connections for {SCRAPES} scrapes");
    drop(exporter);
    // The relay has hung up on the app by now, for each client that has left it.
    wait_until("connections to be closed", LIMIT, || Ok(open_files(app.pid())? <= files))?;
    Ok(())
}

/// Runs a command on all apps of a site; whatever it finds is fine.
fn command(scratch: &Scratch, site: &Site, words: &[&str]) -> Result<String> {
    let recording = scratch.path("recording.jsonl.zst");
    let mut args = words.to_vec();
    if words[0] == "record" {
        args.extend(["-w", recording.to_str().context("path")?]);
    }
    args.extend(site.config());
    pmdscope(scratch, &args, &[0, 1])
}
