//! Opens a real `dpdk-testpmd`, with all kinds of memory that it may use; skipped if it is not
//! installed. Its memory must show the same values as it reports itself.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use pmdscope_telemetry::discover::{DiscoverOptions, DiscoveredApp, Reachability, discover};
use pmdscope_telemetry::{Deadline, MemzoneTable};
use pmdscope_testing::{TESTPMD, Testpmd, skip, skip_without_testpmd};
use pmdscope_xray::{MemoryConfig, ProcessMemory, ReadBudget, XrayError, XrayTarget};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Timeout for events, also on a busy machine.
const LONG: Duration = Duration::from_secs(30);

fn main() {
    let trials = [
        ("memzones_on_hugepages_are_found", on_hugepages as fn() -> _, 128),
        ("memzones_of_legacy_memory_are_found", legacy, 128),
        ("memzones_without_hugepages_are_found", no_huge, 0),
        ("in_memory_apps_of_one_prefix_are_told_apart", in_memory, 128),
        ("an_app_in_a_container_is_opened", in_container, 0),
        ("an_app_that_is_stopped_is_opened", stopped, 128),
        ("an_app_without_telemetry_is_opened", without_telemetry, 0),
        ("an_app_that_ends_is_an_error", ends, 0),
    ];
    let trials = trials.map(|(name, test, hugepages)| {
        Trial::test(name, test).with_ignored_flag(skip_without_testpmd(name, hugepages))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// A separate runtime directory, so that other apps and tests are not seen.
struct Host {
    root: TempDir,
}

impl Host {
    fn new() -> Result<Self, Failed> {
        Ok(Self { root: tempfile::tempdir()? })
    }

    fn start(&self, eal: &[&str]) -> Result<Testpmd, Failed> {
        self.start_by(Command::new(TESTPMD), eal)
    }

    /// `eal` selects the kind of memory.
    fn start_by(&self, command: Command, eal: &[&str]) -> Result<Testpmd, Failed> {
        // Files on hugepages are named after the prefix, and other tests run at the same time.
        let root = self.root.path().file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("pmd{}", root.trim_start_matches('.'));
        let eal = [&["--vdev=net_null0"], eal].concat();
        Ok(Testpmd::start(command, self.root.path(), &prefix, &eal)?)
    }

    fn apps(&self) -> Vec<DiscoveredApp> {
        discover(&DiscoverOptions {
            roots: vec![self.root.path().into()],
            proc: None,
            timeout: Duration::from_secs(2),
            ..DiscoverOptions::default()
        })
    }

    /// Waits for this number of apps that answer.
    fn live(&self, count: usize) -> Result<Vec<DiscoveredApp>, Failed> {
        let live = |app: &DiscoveredApp| app.state == Reachability::Live;
        eventually(|| {
            let apps = self.apps();
            if apps.len() == count && apps.iter().all(live) {
                return Ok(apps);
            }
            Err(format!("{apps:?}"))
        })
    }
}

fn eventually<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, Failed> {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if began.elapsed() > LONG => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

/// Checks that the memory of the app shows what it reports, and that its pools can be read.
fn assert_opened(app: &DiscoveredApp) -> Result<(), Failed> {
    // Memzones change while the app starts its ports.
    let target = eventually(|| {
        let target = XrayTarget::open(app, ReadBudget::UNLIMITED).map_err(|e| e.to_string())?;
        let told = MemzoneTable::fetch(&app.dir, &app.socket, Deadline::after(LONG));
        let told = told.map_err(|error| error.to_string())?;
        let told: Vec<_> =
            told.memzones.into_iter().map(|zone| (zone.name, zone.address, zone.bytes)).collect();
        let found: Vec<_> = target
            .memzones
            .iter()
            .map(|zone| (zone.name.clone(), zone.address, zone.bytes))
            .collect();
        let has_pool = found.iter().any(|(name, ..)| name.starts_with("MP_mb_pool"));
        if found != told || !has_pool {
            return Err(format!("found {found:?}, told {told:?}"));
        }
        Ok(target)
    })?;
    assert_pool(&target)
}

fn assert_pool(target: &XrayTarget) -> Result<(), Failed> {
    let pools = target.pools();
    let pool = pools.iter().flatten().find(|pool| pool.name == "mb_pool_0");
    let pool = pool.ok_or_else(|| format!("no pool mb_pool_0 in {pools:?}"))?;
    assert_eq!((pool.size, pool.populated), (2048, 2048));
    Ok(())
}

fn one_app(eal: &[&str]) -> Result<(), Failed> {
    let host = Host::new()?;
    let _testpmd = host.start(eal)?;
    assert_opened(&host.live(1)?[0])
}

fn on_hugepages() -> Result<(), Failed> {
    one_app(&["--huge-unlink"])
}

fn legacy() -> Result<(), Failed> {
    one_app(&["--legacy-mem", "--huge-unlink", "--iova-mode=va"])
}

fn no_huge() -> Result<(), Failed> {
    one_app(&["--no-huge"])
}

fn in_memory() -> Result<(), Failed> {
    let host = Host::new()?;
    let _first = host.start(&["--in-memory"])?;
    host.live(1)?;
    let _second = host.start(&["--in-memory"])?;
    let apps = host.live(2)?;
    for app in &apps {
        assert_opened(app)?;
    }
    let pids: BTreeSet<_> = apps.iter().map(|app| app.pid).collect();
    assert_eq!(pids.len(), 2);
    Ok(())
}

fn in_container() -> Result<(), Failed> {
    const UNSHARE: [&str; 5] = ["--pid", "--mount", "--fork", "--kill-child", "--mount-proc"];
    let works = Command::new("unshare").args(UNSHARE).arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        skip("an_app_in_a_container_is_opened", "unshare may not make a PID namespace here");
        return Ok(());
    }
    let host = Host::new()?;
    let mut unshare = Command::new("unshare");
    unshare.args(UNSHARE).arg(TESTPMD);
    let unshare = host.start_by(unshare, &["--no-huge"])?;
    let app = host.live(1)?.remove(0);
    assert_ne!(app.pid, Some(unshare.0.id()));
    assert_opened(&app)
}

fn stopped() -> Result<(), Failed> {
    // Without files in the runtime directory only the socket identifies the process.
    for eal in ["--no-huge", "--in-memory"] {
        let host = Host::new()?;
        let testpmd = host.start(&[eal])?;
        assert_opened(&host.live(1)?[0])?;
        kill_process(Pid::from_child(&testpmd.0), Signal::STOP)?;
        let app = eventually(|| match host.apps().pop() {
            Some(app) if app.state != Reachability::Live => Ok(app),
            other => Err(format!("not stopped: {other:?}")),
        })?;
        assert_pool(&XrayTarget::open(&app, ReadBudget::UNLIMITED)?)?;
    }
    Ok(())
}

fn without_telemetry() -> Result<(), Failed> {
    let host = Host::new()?;
    let _testpmd = host.start(&["--no-huge", "--no-telemetry"])?;
    eventually(|| {
        let apps = host.apps();
        let app = apps.first().ok_or("no app")?;
        assert_ne!(app.state, Reachability::Live);
        let target = XrayTarget::open(app, ReadBudget::UNLIMITED).map_err(|e| e.to_string())?;
        let pools = target.pools();
        if !pools.iter().flatten().any(|pool| pool.name == "mb_pool_0" && pool.populated == 2048) {
            return Err(format!("{pools:?}"));
        }
        Ok(())
    })
}

fn ends() -> Result<(), Failed> {
    let host = Host::new()?;
    let mut testpmd = host.start(&["--no-huge"])?;
    let app = host.live(1)?.remove(0);
    assert_opened(&app)?;
    let memory = ProcessMemory::open(testpmd.0.id())?;
    let target = XrayTarget::open(&app, ReadBudget::UNLIMITED)?;
    testpmd.0.kill()?;
    testpmd.0.wait()?;
    let is_ended = |error: &XrayError| matches!(error, XrayError::Ended { .. });
    assert!(target.pools().iter().all(|pool| pool.as_ref().is_err_and(is_ended)));
    assert!(MemoryConfig::find(&memory).as_ref().is_err_and(is_ended));
    assert!(XrayTarget::open(&app, ReadBudget::UNLIMITED).as_ref().is_err_and(is_ended));
    Ok(())
}
