//! Tests discovery and collection with a real `dpdk-testpmd`; skipped if it is not installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use pmdscope_telemetry::discover::{
    DiscoverOptions, DiscoveredApp, FindError, Reachability, discover, find,
};
use pmdscope_telemetry::finding::{self, Lint};
use pmdscope_telemetry::fleet::AppSampler;
use pmdscope_telemetry::{
    FleetEvent, FleetSettings, LintRules, ModelTracker, SampleCollector, TelemetryError,
};
use pmdscope_testing::{TESTPMD, Testpmd, all_stopped, skip_without_testpmd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(20);
/// Timeout for events that do not happen.
const SHORT: Duration = Duration::from_millis(400);
/// Timeout for events that happen, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

fn main() {
    let trials = [
        ("an_app_is_followed_through_stop_continue_and_kill", follow as fn() -> _, 0),
        ("an_app_without_telemetry_is_told", without_telemetry, 0),
        ("an_app_that_starts_is_not_told_to_have_telemetry", starting, 0),
        ("an_app_without_ports_is_a_finding", without_ports, 0),
        ("in_memory_instances_are_told_apart", in_memory, 64),
    ];
    let trials = trials.map(|(name, test, hugepages)| {
        Trial::test(name, test).with_ignored_flag(skip_without_testpmd(name, hugepages))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// A separate root of runtime directories, so that neither other apps nor other tests are seen.
struct Host {
    root: TempDir,
}

impl Host {
    fn new() -> Result<Self, Failed> {
        Ok(Self { root: tempfile::tempdir()? })
    }

    /// Starts testpmd; `eal` determines the kind of memory, `--no-huge` or `--in-memory`.
    fn start(&self, eal: &[&str], devices: usize) -> Result<Testpmd, Failed> {
        let vdevs: Vec<_> = (0..devices).map(|i| format!("--vdev=net_null{i}")).collect();
        let eal: Vec<_> = eal.iter().copied().chain(vdevs.iter().map(String::as_str)).collect();
        Ok(Testpmd::start(Command::new(TESTPMD), self.root.path(), "pmd", &eal)?)
    }

    fn options(&self) -> DiscoverOptions {
        DiscoverOptions {
            roots: vec![self.root.path().into()],
            proc: None,
            timeout: Duration::from_secs(2),
            ..DiscoverOptions::default()
        }
    }

    /// Waits until the apps satisfy `ready`.
    fn await_apps(
        &self,
        ready: impl Fn(&[DiscoveredApp]) -> bool,
    ) -> Result<Vec<DiscoveredApp>, Failed> {
        let began = Instant::now();
        loop {
            let apps = discover(&self.options());
            if ready(&apps) {
                return Ok(apps);
            }
            if began.elapsed() > START {
                return Err(format!("gave up waiting, apps are {apps:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the app answers and has started its ports.
    fn await_started(&self, ports: usize) -> Result<SampleCollector, Failed> {
        let app = self.await_apps(all_live)?.remove(0);
        let mut collector = SampleCollector::new(app);
        let began = Instant::now();
        loop {
            let started = collector.collect(DEADLINE).is_ok_and(|sample| {
                sample.ports.iter().filter(|port| port.started).count() == ports
                    && !sample.pools.is_empty()
            });
            if started {
                return Ok(collector);
            }
            if began.elapsed() > START {
                return Err("gave up waiting for the ports".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn all_live(apps: &[DiscoveredApp]) -> bool {
    !apps.is_empty() && apps.iter().all(|app| app.state == Reachability::Live)
}

fn signal(testpmd: &Testpmd, signal: Signal) -> Result<(), Failed> {
    Ok(kill_process(Pid::from_child(&testpmd.0), signal)?)
}

fn follow() -> Result<(), Failed> {
    let host = Host::new()?;
    let testpmd = host.start(&["--no-huge"], 2)?;
    let mut collector = host.await_started(2)?;
    let found = find(None, &host.options())?;
    assert_eq!((found.name.as_str(), found.pid), ("pmd", Some(testpmd.0.id())));

    let sample = collector.collect(DEADLINE)?;
    assert_eq!(sample.partial, Vec::<String>::new());
    assert_eq!(sample.app.pid, testpmd.0.id());
    assert!(sample.app.start_ticks > 0);
    assert_eq!(sample.app.exe.as_deref().map(PathBuf::from), Some(std::fs::canonicalize(TESTPMD)?));
    assert!(sample.app.eal_args.contains(&"--vdev=net_null1".into()));
    let devices: Vec<_> = sample.ports.iter().map(|port| port.device.as_str()).collect();
    assert_eq!(devices, ["net_null0", "net_null1"]);
    assert_eq!(sample.pools[0].size, 2048);
    let lcores: Vec<_> = sample.threads.iter().map(|thread| thread.lcore).collect();
    assert_eq!((lcores, sample.threads[0].tid), (vec![0, 1], testpmd.0.id()));
    assert!(sample.control_shares_poll_cpu.is_some());
    let [heap] = &sample.heaps[..] else { return Err(format!("{:?}", sample.heaps).into()) };
    assert!(heap.size >= 64 << 20 && heap.allocated + heap.free == heap.size, "{heap:?}");
    let age_ns = sample.realtime_ns.checked_sub(sample.app.start_realtime_ns);
    assert!(age_ns.is_some_and(|age| age < 600_000_000_000), "{age_ns:?}");

    stop_and_continue(&testpmd, &mut collector)?;
    kill(&host, testpmd, &mut collector)
}

fn stop_and_continue(testpmd: &Testpmd, collector: &mut SampleCollector) -> Result<(), Failed> {
    signal(testpmd, Signal::STOP)?;
    let began = Instant::now();
    while !all_stopped(testpmd.0.id())? {
        assert!(began.elapsed() < START, "not all of its threads have stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
    // First over the existing connection, then over a new one.
    for _ in 0..2 {
        let stopped = collector.collect(SHORT);
        assert!(matches!(stopped, Err(TelemetryError::Timeout(_))), "{stopped:?}");
    }
    is_told_to_be_stopped(testpmd, collector.app())?;
    signal(testpmd, Signal::CONT)?;
    let sample = collector.collect(Duration::from_secs(5))?;
    assert_eq!((sample.ports.len(), sample.partial.len()), (2, 0));
    Ok(())
}

/// Checks that a client which was never connected reports it as stopped, too.
fn is_told_to_be_stopped(testpmd: &Testpmd, app: &DiscoveredApp) -> Result<(), Failed> {
    let says = format!("; process {} is stopped by a signal", testpmd.0.id());
    let mut sampler = AppSampler::new(app.clone(), &FleetSettings::default());
    let FleetEvent::Lost { reason, finding, .. } = sampler.sample(SHORT) else {
        return Err("it answers though it is stopped".into());
    };
    let evidence = finding.map(|finding| finding.evidence).unwrap_or_default();
    assert!(reason.contains(&says) && evidence.contains(&says), "{reason} {evidence}");
    let root = app.dir.ancestors().nth(2).map(Path::to_owned);
    let roots = root.into_iter().collect();
    let default = DiscoverOptions::default();
    let options = DiscoverOptions { roots, proc: None, timeout: SHORT, ..default };
    let error = find(None, &options).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains(&says)), "{error:?}");
    Ok(())
}

fn kill(host: &Host, testpmd: Testpmd, collector: &mut SampleCollector) -> Result<(), Failed> {
    drop(testpmd);
    let socket = &collector.app().socket;
    assert!(socket.exists(), "a killed app leaves its socket behind");
    assert_eq!(discover(&host.options()), []);
    assert!(matches!(find(None, &host.options()), Err(FindError::NoApp { .. })));
    let all = discover(&DiscoverOptions { stale: true, ..host.options() });
    assert_eq!(all[0].state, Reachability::Stale);
    let gone = collector.collect(DEADLINE);
    assert!(matches!(gone, Err(TelemetryError::Refused)), "{gone:?}");

    let again = host.start(&["--no-huge"], 2)?;
    host.await_started(2)?;
    assert_eq!(collector.collect(DEADLINE)?.app.pid, again.0.id());
    Ok(())
}

fn without_telemetry() -> Result<(), Failed> {
    let host = Host::new()?;
    let testpmd = host.start(&["--no-huge", "--no-telemetry"], 1)?;
    let apps = host.await_apps(|apps| !apps.is_empty())?;
    assert_eq!((apps[0].state, apps[0].pid), (Reachability::NoTelemetry, Some(testpmd.0.id())));
    let found = find(None, &host.options());
    assert!(matches!(found, Err(FindError::NoTelemetry(_))), "{found:?}");
    assert_eq!(finding::evaluate_unqueried(&apps[0]).map(|f| f.lint), Some(Lint::TelemetryOff));
    Ok(())
}

/// Between taking the lock on its configuration and opening its socket, an app looks like one without
/// telemetry.
fn starting() -> Result<(), Failed> {
    let host = Host::new()?;
    for _ in 0..3 {
        let _testpmd = host.start(&["--no-huge"], 1)?;
        let apps = host.await_apps(|apps| {
            let off = |app: &DiscoveredApp| app.state == Reachability::NoTelemetry;
            assert!(!apps.iter().any(off), "{apps:?}");
            all_live(apps)
        })?;
        assert_eq!(apps.len(), 1);
    }
    Ok(())
}

fn in_memory() -> Result<(), Failed> {
    let host = Host::new()?;
    let first = host.start(&["--in-memory"], 1)?;
    host.await_apps(all_live)?;
    let second = host.start(&["--in-memory"], 1)?;
    let apps = host.await_apps(|apps| apps.len() == 2 && all_live(apps))?;
    let found: Vec<_> = apps.iter().map(|app| (app.name.as_str(), app.pid)).collect();
    assert_eq!(found, [("pmd", Some(first.0.id())), ("pmd:1", Some(second.0.id()))]);
    assert!(matches!(find(None, &host.options()), Err(FindError::Several(_))));
    assert_eq!(find(Some("pmd:1"), &host.options())?.pid, Some(second.0.id()));
    Ok(())
}

fn without_ports() -> Result<(), Failed> {
    let host = Host::new()?;
    let _testpmd = host.start(&["--no-huge"], 0)?;
    let mut collector = host.await_started(0)?;
    let model = ModelTracker::default().update(collector.collect(DEADLINE)?);
    let lints: Vec<_> = finding::evaluate(&model, &LintRules::default());
    assert_eq!(lints.iter().map(|f| f.lint).collect::<Vec<_>>(), [Lint::NoPorts]);
    Ok(())
}
