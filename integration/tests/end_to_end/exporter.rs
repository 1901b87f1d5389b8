//! Whatever apps do, the exporter reports the others in time, and these as down; and whatever
//! happens to the exporter, the apps are not affected.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::{Exporter, Scrape};
use pmdscope_integration::fake::{self, BANNER, FakeApp, FakeConnection};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::{Idle, Site, open_files, started};
use rustix::process::Signal;

use crate::hazards::ports_are_themselves;
use crate::support::{LIMIT, Needs, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stopped_app_delays_no_other", Needs::Apps, stopped),
        trial("a_late_reply_is_no_answer", Needs::Apps, late),
        trial("an_app_without_a_free_connection_is_busy", Needs::Apps, busy),
        trial("garbage_spoils_nothing_else", Needs::Apps, garbage),
        trial("a_restarted_app_starts_anew", Needs::Apps, restarted),
        trial("twenty_apps_are_told_of_at_once", Needs::Apps, twenty),
        trial("parallel_scrapes_share_what_they_ask", Needs::Apps, parallel),
        trial("a_killed_exporter_leaves_nothing_behind", Needs::Apps, killed),
    ]
}

const TWO: Idle = Idle { ports: 2, queues: 1, linked: false };
const LINKED: Idle = Idle { ports: 2, queues: 1, linked: true };

fn up(scrape: &Scrape, app: &str) -> Option<bool> {
    scrape.value("dpdk_up", &[("app", app)]).map(|value| value > 0.0)
}

fn errors(scrape: &Scrape, app: &str, reason: &str) -> f64 {
    let labels = [("app", app), ("reason", reason)];
    scrape.value("dpdk_collect_errors_total", &labels).unwrap_or(0.0)
}

fn is_well(scrape: &Scrape, app: &str, idle: Idle) -> Result<()> {
    ensure!(up(scrape, app) == Some(true), "{app} is not up: {:?}", about(scrape, app));
    let ports = scrape.all("dpdk_port_receive_packets_total", &[("app", app)]).count();
    ensure!(ports == usize::from(idle.ports), "{app} has {ports} ports with counters");
    ports_are_themselves(scrape, app, idle, idle.ports)
}

/// What a failed test shows of an app.
fn about(scrape: &Scrape, app: &str) -> Vec<String> {
    let of_app = scrape.0.iter().filter(|sample| sample.label("app") == app && sample.value > 0.0);
    of_app.map(|sample| format!("{}{:?} {}", sample.name, sample.labels, sample.value)).collect()
}

fn wait_for_up(exporter: &Exporter, app: &str) -> Result<()> {
    wait_until(&format!("{app} to be up"), LIMIT, || {
        Ok(up(&exporter.scrape()?, app) == Some(true))
    })?;
    Ok(())
}

/// A stopped app accepts connections and sends nothing.
fn stopped(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let victim = site.idle(scratch, "victim", TWO)?;
    let _good = site.idle(scratch, "good", LINKED)?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let scrape = exporter.scrape()?;
    is_well(&scrape, "victim", TWO)?;
    is_well(&scrape, "good", LINKED)?;

    victim.signal(Signal::STOP)?;
    for seconds in [1.0, 2.0] {
        // If the exporter waited for it, this would not end.
        let scrape = exporter.scrape_within(seconds)?;
        is_well(&scrape, "good", LINKED)?;
        ensure!(up(&scrape, "victim") == Some(false), "{:?}", about(&scrape, "victim"));
        ensure!(errors(&scrape, "victim", "timeout") > 0.0, "{:?}", about(&scrape, "victim"));
        let ready = exporter.get("/ready?app=good", &[])?;
        ensure!(ready.status.as_u16() != 404, "{ready:?}");
    }
    // An exporter that starts while it is stopped finds the others, too.
    let other = Exporter::start(scratch, &site.config())?;
    is_well(&other.scrape_within(2.0)?, "good", LINKED)?;
    drop(other);

    victim.signal(Signal::CONT)?;
    wait_for_up(&exporter, "victim")?;
    for _ in 0..20 {
        is_well(&exporter.scrape()?, "victim", TWO)?;
    }
    Ok(())
}

/// A reply names its command, not its port. One that comes after its deadline must not be taken for
/// the answer to what is asked then.
fn late(scratch: &Scratch) -> Result<()> {
    let real = Site::new(scratch, "real", "")?;
    let _app = real.idle(scratch, "app", TWO)?;
    let site = Site::new(scratch, "relays", "")?;
    let relay = fake::relay(&site.socket("app"), &real.socket("app"))?;
    let exporter = Exporter::start(scratch, &site.config())?;
    is_well(&exporter.scrape()?, "app", TWO)?;
    for _ in 0..5 {
        relay.hold(true);
        let scrape = exporter.scrape_within(0.4)?;
        ensure!(up(&scrape, "app") == Some(false), "{:?}", about(&scrape, "app"));
        ensure!(errors(&scrape, "app", "timeout") > 0.0, "{:?}", about(&scrape, "app"));
        relay.hold(false);
        for _ in 0..3 {
            ports_are_themselves(&exporter.scrape()?, "app", TWO, TWO.ports)?;
        }
        wait_for_up(&exporter, "app")?;
    }
    Ok(())
}

/// DPDK accepts one client too many, and closes that one immediately.
fn busy(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let app = site.idle(scratch, "app", TWO)?;
    let files = open_files(app.pid())?;
    let client = || -> Result<OwnedFd> {
        let client = fake::connect(&site.socket("app"))?;
        fake::receive(&client).context("no banner")?;
        Ok(client)
    };
    let mut clients = (0..10).map(|_| client()).collect::<Result<Vec<_>>>()?;
    let exporter = Exporter::start(scratch, &site.config())?;
    for _ in 0..3 {
        let scrape = exporter.scrape()?;
        ensure!(up(&scrape, "app") == Some(false), "{:?}", about(&scrape, "app"));
        ensure!(errors(&scrape, "app", "busy") > 0.0, "{:?}", about(&scrape, "app"));
    }
    clients.pop();
    wait_for_up(&exporter, "app")?;
    is_well(&exporter.scrape()?, "app", TWO)?;
    // Again all connections are taken, one by the exporter: a search for new apps, once a second,
    // is refused, and that does not change the state of an app that answers.
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        is_well(&exporter.scrape()?, "app", TWO)?;
        thread::sleep(Duration::from_millis(100));
    }
    clients.clear();
    drop(exporter);
    wait_until("the app to have closed what it had open", LIMIT, || {
        Ok(open_files(app.pid())? == files)
    })?;
    Ok(())
}

/// What an app may send, and when.
type Behaviour = fn(&FakeConnection);

/// Sockets that send anything but valid messages of DPDK.
const GARBAGE: &[(&str, Behaviour)] = &[
    ("silent", |connection| {
        connection.receive();
    }),
    ("hangs-up", |_| {}),
    ("no-json", |connection| connection.send("SSH-2.0-OpenSSH_9.2")),
    ("no-text", |connection| connection.send([0xff; 300])),
    ("empty-banner", |connection| connection.send("")),
    ("bragger", |connection| {
        connection.send(r#"{"version":"DPDK 22.11.11","pid":1,"max_output_len":99999999999999}"#);
        connection.answer(|_| Some(vec![b'{'; 100_000]));
    }),
    ("deep", |connection| {
        connection.send(BANNER);
        connection.answer(|_| Some(vec![b'['; 16_000]));
    }),
    ("not-utf8", |connection| {
        connection.send(BANNER);
        connection
            .answer(|request| Some([b"{\"", request.as_bytes(), b"\":[\"\xff\xfe\"]}"].concat()));
    }),
    ("other-key", |connection| {
        connection.send(BANNER);
        connection.answer(|_| Some(br#"{"/mempool/list":["x"]}"#.to_vec()));
    }),
    ("null", |connection| {
        connection.send(BANNER);
        connection.answer(|request| Some(format!(r#"{{"{request}":null}}"#).into_bytes()));
    }),
    ("endless", |connection| {
        connection.send(BANNER);
        connection.answer(|request| {
            let ids = (0..4000).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
            Some(format!(r#"{{"{request}":[{ids}]}}"#).into_bytes())
        });
    }),
    ("wrong-types", |connection| {
        connection.send(BANNER);
        connection.answer(|request| {
            let command = request.split(',').next()?;
            Some(
                format!(r#"{{"{command}":{{"name":7,"port_id":-1,"a\nb\"c":1e999}}}}"#)
                    .into_bytes(),
            )
        });
    }),
    ("dies", |connection| {
        connection.send(BANNER);
        connection.receive();
    }),
];

fn garbage(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let _good = site.idle(scratch, "good", LINKED)?;
    let fakes = GARBAGE
        .iter()
        .map(|(name, behave)| FakeApp::start(&site.socket(name), *behave))
        .collect::<io::Result<Vec<_>>>()?;
    let _stopped = FakeApp::stopped(&site.socket("stopped"))?;
    // A file that is not a socket, and a name that needs quoting.
    fs::create_dir_all(site.dir("directory").join("dpdk_telemetry.v2"))?;
    let odd = "a\"b\\c\nd";
    let _odd = fake::replay(&site.socket(odd), "dpdk-22.11/testpmd-null.jsonl")?;

    let mut exporter = Exporter::start(scratch, &site.config())?;
    for _ in 0..3 {
        let scrape = exporter.scrape_within(2.0)?;
        is_well(&scrape, "good", LINKED)?;
        ensure!(up(&scrape, odd) == Some(true), "{:?}", about(&scrape, odd));
        for (name, _) in GARBAGE {
            ensure!(up(&scrape, name) == Some(false), "{name}: {:?}", about(&scrape, name));
        }
        ensure!(up(&scrape, "stopped") == Some(false), "{:?}", about(&scrape, "stopped"));
        let values = scrape.0.iter().find(|sample| {
            let garbled = GARBAGE.iter().any(|(name, _)| sample.label("app") == *name);
            garbled && sample.name.starts_with("dpdk_port_")
        });
        ensure!(values.is_none(), "a value out of garbage: {values:?}");
    }
    for path in ["/", "/sd", "/ready", "/ready?app=deep", "/healthz"] {
        let reply = exporter.get(path, &[])?;
        ensure!(reply.status.as_u16() != 500, "{path}: {reply:?}");
    }
    ensure!(exporter.process.exited()?.is_none(), "{}", exporter.process.output());
    drop(fakes);
    Ok(())
}

/// An app that is killed leaves its socket behind; one of that name may start again.
fn restarted(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let mut app = site.idle(scratch, "app", Idle { queues: 4, ..TWO })?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let start = |scrape: &Scrape| scrape.value("dpdk_app_start_since_boot_seconds", &[]);
    let first = exporter.scrape()?;
    is_well(&first, "app", Idle { queues: 4, ..TWO })?;

    // Killed between requests, while scrapes go on.
    let scrapes = thread::scope(|scope| -> Result<Vec<Scrape>> {
        let scraping = scope.spawn(|| (0..100).map(|_| exporter.scrape()).collect());
        thread::sleep(Duration::from_millis(20));
        app.signal(Signal::KILL)?;
        scraping.join().map_err(|_| anyhow::anyhow!("a scraper panicked"))?
    })?;
    app.wait(LIMIT)?;
    for scrape in &scrapes {
        ports_are_themselves(scrape, "app", Idle { queues: 4, ..TWO }, 2)?;
    }
    let down = exporter.scrape()?;
    ensure!(up(&down, "app") == Some(false), "{:?}", about(&down, "app"));
    ensure!(errors(&down, "app", "refused") > 0.0, "{:?}", about(&down, "app"));
    let stale = down.all("dpdk_port_receive_packets_total", &[]).count();
    ensure!(stale == 0, "counters of an app that is gone");
    ensure!(fs::exists(site.socket("app"))?, "the socket of a killed app is gone");
    ensure!(exporter.get("/ready?app=app", &[])?.status.as_u16() == 503);

    let mut app = site.launch(scratch, "app", TWO)?;
    started(&mut app)?;
    wait_for_up(&exporter, "app")?;
    let again = exporter.scrape()?;
    is_well(&again, "app", TWO)?;
    ensure!(start(&again) > start(&first), "{:?} after {:?}", start(&again), start(&first));
    Ok(())
}

fn twenty(scratch: &Scratch) -> Result<()> {
    const RECORDING: &str = "dpdk-22.11/testpmd-null.jsonl";
    let site = Site::new(scratch, "run", "")?;
    let names: Vec<_> = (0..20).map(|number| format!("app{number}")).collect();
    // A few are real; more of them would take longer to start than all the rest of this test.
    let (real, others) = names.split_at(4);
    let mut apps =
        real.iter().map(|name| site.launch(scratch, name, TWO)).collect::<Result<Vec<_>>>()?;
    let mut fakes = others
        .iter()
        .map(|name| fake::replay(&site.socket(name), RECORDING))
        .collect::<Result<Vec<_>>>()?;
    apps.iter_mut().try_for_each(started)?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let scrape = exporter.scrape()?;
    real.iter().try_for_each(|name| is_well(&scrape, name, TWO))?;
    let all_up = names.iter().all(|name| up(&scrape, name) == Some(true));
    ensure!(all_up && scrape.value("dpdk_apps_discovered", &[]) == Some(20.0));
    // Half of them end.
    apps.truncate(2);
    fakes.truncate(8);
    let scrape = exporter.scrape()?;
    for (number, name) in names.iter().enumerate() {
        let runs = number < 2 || (4..12).contains(&number);
        ensure!(up(&scrape, name) == Some(runs), "{name}: {:?}", about(&scrape, name));
    }
    Ok(())
}

/// Two Prometheus servers, or a hundred, cost an app no more than one.
fn parallel(scratch: &Scratch) -> Result<()> {
    const SCRAPES: usize = 100;
    let real = Site::new(scratch, "real", "")?;
    let _app = real.idle(scratch, "app", LINKED)?;
    let site = Site::new(scratch, "relays", "")?;
    let relay = fake::relay(&site.socket("app"), &real.socket("app"))?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let before = exporter.scrape()?;
    let each = before.value("dpdk_collect_requests", &[]).context("requests")?;
    let requests = relay.exchanges().len();

    // All of them arrive before the first is answered.
    let idle = open_files(exporter.process.pid())?;
    relay.hold(true);
    let scrapes = thread::scope(|scope| -> Result<Vec<Scrape>> {
        let all: Vec<_> = (0..SCRAPES).map(|_| scope.spawn(|| exporter.scrape())).collect();
        // Connections of the scrape before may still have been open.
        let most = idle + SCRAPES - 5;
        let connected = || -> Result<bool> { Ok(open_files(exporter.process.pid())? >= most) };
        let arrived = wait_until("all scrapes to arrive", LIMIT, connected);
        // They are read a moment after they are accepted. Whatever happened, the test does not wait
        // for ever.
        thread::sleep(Duration::from_millis(500));
        relay.hold(false);
        arrived?;
        all.into_iter()
            .map(|one| one.join().map_err(|_| anyhow::anyhow!("a scraper panicked"))?)
            .collect()
    })?;
    scrapes.iter().try_for_each(|scrape| is_well(scrape, "app", LINKED))?;
    let requests = (relay.exchanges().len() - requests) as f64;
    let after = exporter.scrape()?;
    let grown = |name| -> Result<f64> {
        let value = |scrape: &Scrape| scrape.value(name, &[]).with_context(|| name.to_owned());
        Ok(value(&after)? - value(&before)?)
    };
    let (asked, shared) =
        (grown("dpdk_exporter_collections_total")?, grown("dpdk_exporter_shared_scrapes_total")?);
    ensure!(asked + shared >= SCRAPES as f64, "{asked} collections, {shared} shared");
    ensure!(shared > 0.9 * SCRAPES as f64, "only {shared} scrapes of {SCRAPES} shared an answer");
    ensure!(requests <= (asked + 1.0) * each, "{requests} requests for {asked} collections");
    ensure!(relay.overlaps() == 0, "{} requests overlapped", relay.overlaps());
    Ok(())
}

/// An exporter that is killed in the middle of a scrape frees what it had taken of the app, each time.
fn killed(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let mut app = site.idle(scratch, "app", LINKED)?;
    let (files, left) = (open_files(app.pid())?, site.files("app")?);
    // More often than DPDK has connections.
    for _ in 0..12 {
        let mut exporter = Exporter::start(scratch, &site.config())?;
        thread::scope(|scope| -> Result<()> {
            let scraping = scope.spawn(|| while exporter.get("/metrics", &[]).is_ok() {});
            thread::sleep(Duration::from_millis(50));
            exporter.process.signal(Signal::KILL)?;
            scraping.join().map_err(|_| anyhow::anyhow!("a scraper panicked"))
        })?;
        exporter.process.wait(LIMIT)?;
    }
    wait_until(
        "the app to close what clients left",
        LIMIT,
        || Ok(open_files(app.pid())? == files),
    )?;
    is_well(&Exporter::start(scratch, &site.config())?.scrape()?, "app", LINKED)?;
    let now = site.files("app")?;
    ensure!(now == left, "left behind: {now:?}, not {left:?}");
    app.interrupt()?;
    Ok(())
}
