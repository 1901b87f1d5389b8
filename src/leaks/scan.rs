//! Scans the memory of apps for lost mbufs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{DiscoveredApp, Reachability, UnreachableReason};
use pmdscope_telemetry::sample::{LostGroupSample, PoolScanSample, ScanSample};
use pmdscope_telemetry::{ScanResults, rate, realtime_ns};
use pmdscope_xray::{
    LostMbuf, PoolScan, ReadBudget, ScanReport, ScanSettings, XrayError, XrayTarget,
    leave_polled_cpus,
};

use super::groups::{self, LostGroup, LostPacket};
use crate::duration;
use crate::number::whole;
use crate::progress::Progress;

/// The limit of a scan of an app that does not move.
const STANDS_STILL: &str = "the app does not answer; if it is stopped, mbufs that only registers of its \
                            threads refer to look lost, at most a burst per thread";

/// A scan that takes no longer is repeated to learn the rate.
const REPEATED_SCAN_LIMIT: Duration = Duration::from_secs(5);

/// How the memory of apps is scanned.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct ScanArgs {
    /// Time between the two scans of an app's memory, 0.1 to 60
    ///
    /// Mbufs unreferenced and unchanged in both scans are lost.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::interval,
          hide_short_help = true)]
    pub(crate) scan_interval: Duration,

    /// Limit the rate of a scan, in MB/s, 1 to 100000 [default: no limit]
    ///
    /// A scan runs in one thread of the lowest priority. Without a limit it takes the least time; a limit
    /// spreads its load on the memory of the machine.
    #[arg(long, value_name = "MB", value_parser = whole::<u64>(1..=100_000), hide_short_help = true)]
    pub(crate) scan_rate: Option<u64>,
}

impl ScanArgs {
    fn budget(self) -> ReadBudget {
        let bytes_per_second = self.scan_rate.map(|megabytes| megabytes * 1_000_000);
        ReadBudget { bytes_per_second, ..ReadBudget::UNLIMITED }
    }

    /// For memory that does not change.
    pub(super) fn of_core() -> Self {
        Self { scan_interval: Duration::ZERO, scan_rate: None }
    }

    fn settings(self) -> ScanSettings {
        ScanSettings { interval: self.scan_interval, ..ScanSettings::default() }
    }
}

/// What scans of an app found.
#[derive(Debug)]
pub(super) struct AppScan {
    /// As it is recorded.
    pub(super) sample: ScanSample,
    /// All of it, and where its packets are; `None` in a recording.
    pub(super) live: Option<ScannedMemory>,
}

/// The memory of an app, and what scans of it found.
#[derive(Debug)]
pub(super) struct ScannedMemory {
    pub(super) target: XrayTarget,
    pub(super) report: ScanReport,
}

/// By name of the app; why not, for an app that could not be scanned.
pub(super) type AppScans = BTreeMap<String, Result<AppScan, String>>;

/// Scans apps, repeatedly.
#[derive(Debug)]
pub(crate) struct Scanner {
    args: ScanArgs,
    /// Without progress.
    quiet: bool,
    /// What the last scan found, by app and pool.
    before: BTreeMap<(String, String), LostBefore>,
}

/// Lost mbufs of a pool, as an earlier scan found them.
#[derive(Debug)]
struct LostBefore {
    lost: u64,
    at: Instant,
    /// When each of them, by address, was lost already.
    since: BTreeMap<u64, Instant>,
}

impl Default for ScanArgs {
    fn default() -> Self {
        Self { scan_interval: Duration::from_secs(1), scan_rate: None }
    }
}

/// Whether the memory of an app may show what the app itself does not report: one that was stopped, or runs
/// without telemetry.
pub(super) fn is_readable(app: &DiscoveredApp) -> bool {
    match app.state {
        Reachability::Live | Reachability::NoTelemetry => true,
        Reachability::Unreachable(why) => {
            matches!(why, UnreachableReason::Timeout | UnreachableReason::Busy)
        }
        Reachability::Stale => false,
    }
}

impl Scanner {
    pub(crate) fn new(args: ScanArgs) -> Self {
        Self { args, quiet: false, before: BTreeMap::new() }
    }

    /// Shows no progress if that is true.
    pub(crate) fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }

    /// One app after the other.
    pub(super) fn scan_all(&mut self, apps: &[DiscoveredApp]) -> AppScans {
        // Poll loops that share a CPU with this thread go first. A failure to set that is ignored.
        let _ = rustix::process::setpriority_process(None, 19);
        let scan = |app: &DiscoveredApp| (app.name.clone(), self.scan(app));
        apps.iter().map(scan).collect()
    }

    /// As [`Scanner::scan_all`], for those that sample these apps. Returns why apps could not be scanned.
    pub(crate) fn scan_into(
        &mut self,
        apps: &[DiscoveredApp],
        results: &ScanResults,
    ) -> Vec<(String, String)> {
        let mut scans = self.scan_all(apps);
        let mut failed = Vec::new();
        for app in apps {
            match (scans.remove(&app.name), app.pid) {
                (Some(Ok(scan)), Some(pid)) => results.set(pid, scan.sample),
                (Some(Err(why)), _) => failed.push((app.name.clone(), why)),
                _ => {}
            }
        }
        failed
    }

    /// Scans one app, in words if that fails; where mbufs are lost for the first time once more, unless that
    /// takes long: the second count gives the rate.
    fn scan(&mut self, app: &DiscoveredApp) -> Result<AppScan, String> {
        let opened = self.open(app);
        opened.and_then(|target| self.scan_for_rate(app, target)).map_err(|error| error.to_string())
    }

    /// Opens an app; what this thread does from now on does not happen on the CPUs on which it polls.
    fn open(&self, app: &DiscoveredApp) -> Result<XrayTarget, XrayError> {
        if let Some(pid) = app.pid {
            leave_polled_cpus(pid);
        }
        XrayTarget::open(app, self.args.budget())
    }

    /// Scans one app.
    pub(super) fn scan_once(&mut self, app: &DiscoveredApp) -> Result<AppScan, XrayError> {
        self.scan_target(app, self.open(app)?)
    }

    fn scan_for_rate(
        &mut self,
        app: &DiscoveredApp,
        target: XrayTarget,
    ) -> Result<AppScan, XrayError> {
        let begun = Instant::now();
        let scan = self.scan_target(app, target)?;
        let known = scan.sample.pools.iter().any(|pool| pool.lost_ps.is_some());
        match scan.live {
            Some(live)
                if scan.sample.lost() > 0 && !known && begun.elapsed() < REPEATED_SCAN_LIMIT =>
            {
                self.scan_target(app, live.target)
            }
            _ => Ok(scan),
        }
    }

    fn scan_target(
        &mut self,
        app: &DiscoveredApp,
        target: XrayTarget,
    ) -> Result<AppScan, XrayError> {
        let stands_still = app.state != Reachability::Live;
        self.scan_judged(&app.name, target, |report| {
            if stands_still && report.pools.iter().any(|pool| pool.lost > 0) {
                report.problems.push(STANDS_STILL.to_owned());
            }
        })
    }

    /// Scans what was opened; `judge` may correct the report by what it knows besides.
    pub(super) fn scan_judged(
        &mut self,
        app: &str,
        target: XrayTarget,
        judge: impl FnOnce(&mut ScanReport),
    ) -> Result<AppScan, XrayError> {
        let progress = Progress::read_in_steps(&scan_text(1, app), self.quiet);
        let mut report = pmdscope_xray::scan(&target, &self.args.settings(), &mut |now| {
            progress.say_read(&scan_text(now.scan, app), now.done_bytes, now.total_bytes);
        })?;
        drop(progress);
        judge(&mut report);
        let rates: Vec<_> =
            report.pools.iter_mut().map(|pool| self.compare(app, pool, Instant::now())).collect();
        let mut sample = summary(&target, &report);
        for (pool, rate) in sample.pools.iter_mut().zip(rates) {
            pool.lost_ps = rate;
        }
        Ok(AppScan { sample, live: Some(ScannedMemory { target, report }) })
    }

    /// Compares a pool with the scan before: returns the growth of its losses per second, and gives the
    /// lost ones the age that both scans together prove.
    fn compare(&mut self, app: &str, pool: &mut PoolScan, at: Instant) -> Option<f64> {
        let key = (app.to_owned(), pool.name.clone());
        let before = self.before.remove(&key);
        let mut since = BTreeMap::new();
        for mbuf in &mut pool.lost_mbufs {
            let age = Duration::from_millis(mbuf.age_at_least_ms);
            let first = before.as_ref().and_then(|before| before.since.get(&mbuf.address).copied());
            let first = first.or_else(|| at.checked_sub(age)).unwrap_or(at);
            let age = at.saturating_duration_since(first).max(age);
            mbuf.age_at_least_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            since.insert(mbuf.address, first);
        }
        let lost = pool.lost;
        // Fewer than before: the app has ended, or something else was wrong.
        let rate =
            before.and_then(|before| rate(lost, before.lost, (at - before.at).as_secs_f64()));
        self.before.insert(key, LostBefore { lost, at, since });
        rate
    }
}

fn scan_text(scan: u32, app: &str) -> String {
    format!("scan {scan} of the memory of {app}")
}

/// What is recorded of a scan.
fn summary(target: &XrayTarget, report: &ScanReport) -> ScanSample {
    let groups = |pool: &PoolScan| groups_of(target, pool).iter().map(LostGroup::summary).collect();
    ScanSample {
        realtime_ns: realtime_ns(),
        scans: report.scans,
        scanned_bytes: report.scanned_bytes,
        duration_ms: report.duration_ms,
        pools: report.pools.iter().map(|pool| pool_sample(pool, groups(pool))).collect(),
        problems: report.problems.clone(),
    }
}

/// The lost mbufs of a pool by what their packets have in common. Packets that cannot be read are a group.
pub(super) fn groups_of<'a>(target: &XrayTarget, pool: &'a PoolScan) -> Vec<LostGroup<'a>> {
    let packet = |mbuf: &'a LostMbuf| {
        LostPacket::new(mbuf, &pmdscope_xray::packet(target, mbuf).unwrap_or_default())
    };
    groups::grouped(pool.lost_mbufs.iter().map(packet).collect())
}

/// What is recorded of a pool.
pub(super) fn pool_sample(pool: &PoolScan, groups: Vec<LostGroupSample>) -> PoolScanSample {
    PoolScanSample {
        name: pool.name.clone(),
        size: pool.size,
        held: pool.held,
        lost: pool.lost,
        lost_in_blocks: pool.lost_in_blocks,
        moving: pool.moving,
        not_judged: pool.not_judged,
        not_judged_why: pool.not_judged_why.clone(),
        lost_ps: None,
        oldest_at_least_ms: groups::oldest_at_least_ms(pool.lost_mbufs.iter()),
        groups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(lost: u64, ages_ms: &[(u64, u64)]) -> PoolScan {
        let mbuf = |(address, age_at_least_ms): &(u64, u64)| LostMbuf {
            address: *address,
            age_at_least_ms: *age_at_least_ms,
            ..LostMbuf::default()
        };
        let lost_mbufs = ages_ms.iter().map(mbuf).collect();
        PoolScan { name: "mb".into(), lost, lost_mbufs, ..PoolScan::default() }
    }

    #[test]
    fn a_second_scan_gives_rate_and_age() {
        let scan_interval = Duration::from_secs(1);
        let mut scanner = Scanner::new(ScanArgs { scan_interval, scan_rate: Some(500) });
        let begun = Instant::now() + Duration::from_secs(60);
        let mut first = pool(2, &[(0x1000, 1_000), (0x2000, 1_000)]);
        assert_eq!(scanner.compare("app", &mut first, begun), None);
        let mut second = pool(7, &[(0x2000, 1_500), (0x3000, 1_500)]);
        let later = begun + Duration::from_secs(10);
        assert_eq!(scanner.compare("app", &mut second, later), Some(0.5));
        let ages: Vec<_> = second.lost_mbufs.iter().map(|mbuf| mbuf.age_at_least_ms).collect();
        assert_eq!(ages, [11_000, 1_500]);
        // One that was restarted has lost fewer, and another app is another one.
        let mut third = pool(1, &[(0x2000, 1_500)]);
        assert_eq!(scanner.compare("other", &mut third, later), None);
        assert_eq!(scanner.compare("app", &mut third, later + Duration::from_secs(1)), None);
    }
}
