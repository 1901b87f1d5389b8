//! Runs the rounds, with every exporter in each, so that disturbances of the machine affect all of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::fake::{self, FakeApp};
use pmdscope_integration::machine::{process_cpu_ns, real_time, threads_cpu_ns};
use pmdscope_integration::process::Process;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::{Site, started};

use crate::exporters::{ExporterPrograms, MeasuredExporter, RunningExporters};
use crate::http::ScrapeClient;
use crate::plan::{ExportCase, rested_scrapes, scrapes};

/// Name of DPDK's threads that answer requests.
const TELEMETRY: &str = "telemetry-v2";
/// Longer than the time for which a tool may cache the data of an app.
const CACHE_EXPIRY_WAIT: Duration = Duration::from_millis(1100);
/// Wait after the last scrape.
const SETTLE_TIME: Duration = Duration::from_millis(5);
/// Number of scrapes before the first one that counts.
const WARM_UP_SCRAPES: usize = 5;

/// Scrapes of one exporter.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScrapeRound {
    /// Time of each scrape of all apps.
    pub(crate) took: Vec<Duration>,
    /// CPU time per scrape of all apps, nanoseconds.
    pub(crate) exporter_ns: f64,
    /// CPU time per scrape of the answering threads of all apps, nanoseconds.
    pub(crate) apps_ns: f64,
}

/// Values that are the same in all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScrapeFacts {
    /// Different series in a scrape.
    pub(crate) series: usize,
    /// Number of lines with a sample, of which there may be two for a series.
    pub(crate) lines: usize,
    /// Memory of all exporters, bytes.
    pub(crate) memory: u64,
    /// Requests to all apps for one scrape, a while after the last.
    pub(crate) requests: usize,
    /// Telemetry connections for it.
    pub(crate) connections: usize,
}

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct ExportResults {
    /// Consecutive scrapes.
    pub(crate) rounds: BTreeMap<(ExportCase, MeasuredExporter), Vec<ScrapeRound>>,
    /// Scrapes with more than a second between them, as in practice.
    pub(crate) rested: BTreeMap<(ExportCase, MeasuredExporter), ScrapeRound>,
    pub(crate) facts: BTreeMap<(ExportCase, MeasuredExporter), ScrapeFacts>,
}

/// The programs, and the measurements so far.
pub(crate) struct ExportBench<'a> {
    pub(crate) programs: ExporterPrograms,
    pub(crate) quick: bool,
    /// All processes at real-time priority while they are measured.
    pub(crate) fifo: bool,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) results: ExportResults,
}

/// The apps of one case, and their exporters.
struct BenchSetup {
    apps: Vec<Process>,
    exporters: Vec<(MeasuredExporter, RunningExporters)>,
}

impl BenchSetup {
    /// Only after the start: an app at real-time priority would wait for its own threads without
    /// end while it starts.
    fn hurry(&self) -> Result<()> {
        self.apps.iter().try_for_each(|app| real_time(app.pid()))?;
        self.exporters.iter().try_for_each(|(_, exporters)| exporters.hurry())
    }
}

impl ExportBench<'_> {
    /// All rounds of one case.
    pub(crate) fn case(&mut self, case: ExportCase, rounds: usize) -> Result<()> {
        let scratch = Scratch::new()?;
        let site = Site::new(&scratch, "run", "")?;
        let names: Vec<_> = (0..case.apps).map(|app| format!("app{app}")).collect();
        let mut apps = Vec::new();
        for name in &names {
            apps.push(site.launch(&scratch, name, case.idle)?);
        }
        apps.iter_mut().try_for_each(started)?;
        let sockets: Vec<_> = names.iter().map(|name| site.socket(name)).collect();
        let mut setup = BenchSetup { apps, exporters: self.start(&scratch, &site, &sockets)? };
        if self.fifo {
            setup.hurry()?;
        }
        for round in 0..rounds {
            // The order changes from round to round.
            setup.exporters.rotate_left(usize::from(round > 0));
            for (who, exporters) in &setup.exporters {
                ensure!(!self.stop.load(Ordering::Relaxed), "stopped");
                let measured = measure(&setup, *who, exporters, scrapes(&case, self.quick))
                    .with_context(|| format!("{case}: {}", who.name()))?;
                self.results.rounds.entry((case, *who)).or_default().push(measured);
            }
        }
        self.rest(case, &setup)?;
        for (who, exporters) in &setup.exporters {
            let facts = facts(*who, exporters)?;
            self.results.facts.insert((case, *who), facts);
        }
        drop(setup.exporters);
        self.count_requests(case, &scratch, &sockets)
    }

    /// Scrapes all in turn, each so long after its last scrape that no data is cached.
    fn rest(&mut self, case: ExportCase, setup: &BenchSetup) -> Result<()> {
        let exporters = &setup.exporters;
        let mut clients: Vec<_> =
            exporters.iter().map(|(who, all)| all.clients(who.connection())).collect();
        let pause = CACHE_EXPIRY_WAIT / u32::try_from(exporters.len())?;
        for turn in 0..=rested_scrapes(self.quick) {
            for ((who, exporters), clients) in exporters.iter().zip(&mut clients) {
                ensure!(!self.stop.load(Ordering::Relaxed), "stopped");
                sleep(pause);
                let one = measure_scrapes(setup, exporters, clients, 1)?;
                if turn > 0 {
                    self.results.rested.entry((case, *who)).or_default().add(one);
                }
            }
        }
        Ok(())
    }

    fn start(
        &self,
        scratch: &Scratch,
        site: &Site,
        sockets: &[PathBuf],
    ) -> Result<Vec<(MeasuredExporter, RunningExporters)>> {
        let mut exporters = Vec::new();
        for who in MeasuredExporter::ALL {
            match (who, &self.programs.peer) {
                (MeasuredExporter::Pmdscope(_), _) => {
                    let program = &self.programs.pmdscope;
                    exporters.push((who, RunningExporters::pmdscope(program, scratch, site)?));
                }
                (MeasuredExporter::Peer, Some(program)) => {
                    exporters.push((who, RunningExporters::peers(program, scratch, sockets)?));
                }
                (MeasuredExporter::Peer, None) => {}
            }
        }
        Ok(exporters)
    }

    /// Passes all requests once through relays, which count them.
    fn count_requests(
        &mut self,
        case: ExportCase,
        scratch: &Scratch,
        apps: &[PathBuf],
    ) -> Result<()> {
        let site = Site::new(scratch, "relays", "")?;
        let sockets: Vec<_> =
            (0..apps.len()).map(|app| site.socket(&format!("app{app}"))).collect();
        let relays = sockets
            .iter()
            .zip(apps)
            .map(|(socket, app)| fake::relay(socket, app))
            .collect::<Result<Vec<_>>>()?;
        let count = || {
            let requests = relays.iter().map(|relay| relay.exchanges().len()).sum::<usize>();
            (requests, relays.iter().map(FakeApp::connections).sum::<usize>())
        };
        for (who, exporters) in self.start(scratch, &site, &sockets)? {
            let mut clients = exporters.clients(who.connection());
            scrape(&mut clients)?;
            sleep(CACHE_EXPIRY_WAIT);
            let before = count();
            scrape(&mut clients)?;
            let after = count();
            if let Some(facts) = self.results.facts.get_mut(&(case, who)) {
                (facts.requests, facts.connections) = (after.0 - before.0, after.1 - before.1);
            }
        }
        Ok(())
    }
}

/// One scrape of each client, one after the other.
fn scrape(clients: &mut [ScrapeClient]) -> Result<Duration> {
    clients.iter_mut().map(ScrapeClient::scrape).sum()
}

fn measure(
    setup: &BenchSetup,
    who: MeasuredExporter,
    exporters: &RunningExporters,
    scrapes: usize,
) -> Result<ScrapeRound> {
    let mut clients = exporters.clients(who.connection());
    for _ in 0..WARM_UP_SCRAPES {
        scrape(&mut clients)?;
    }
    measure_scrapes(setup, exporters, &mut clients, scrapes)
}

fn measure_scrapes(
    setup: &BenchSetup,
    exporters: &RunningExporters,
    clients: &mut [ScrapeClient],
    scrapes: usize,
) -> Result<ScrapeRound> {
    let (exporter, apps) = (exporters.cpu_ns()?, telemetry_ns(&setup.apps)?);
    let mut took = Vec::with_capacity(scrapes);
    for _ in 0..scrapes {
        took.push(scrape(clients)?);
    }
    // Threads of closed connections may still be ending.
    sleep(SETTLE_TIME);
    let each = |before, after: u64| after.saturating_sub(before) as f64 / scrapes as f64;
    Ok(ScrapeRound {
        took,
        exporter_ns: each(exporter, exporters.cpu_ns()?),
        apps_ns: each(apps, telemetry_ns(&setup.apps)?),
    })
}

impl ScrapeRound {
    /// Adds a round of one scrape.
    fn add(&mut self, one: Self) {
        let before = self.took.len() as f64;
        let mean = |mean: f64, next: f64| (mean * before + next) / (before + 1.0);
        self.exporter_ns = mean(self.exporter_ns, one.exporter_ns);
        self.apps_ns = mean(self.apps_ns, one.apps_ns);
        self.took.extend(one.took);
    }
}

/// CPU time of the answering threads: DPDK starts one for each connection, so most have ended, and
/// their time is only in that of their process.
fn telemetry_ns(apps: &[Process]) -> Result<u64> {
    let of_app = |app: &Process| {
        let others = threads_cpu_ns(app.pid(), |name| name != TELEMETRY)?;
        Ok(process_cpu_ns(app.pid())?.saturating_sub(others))
    };
    apps.iter().map(of_app).sum()
}

fn facts(who: MeasuredExporter, exporters: &RunningExporters) -> Result<ScrapeFacts> {
    let mut clients = exporters.clients(who.connection());
    scrape(&mut clients)?;
    let (mut series, mut lines) = (0, 0);
    for client in &clients {
        let samples = client.body()?.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<_> = samples.filter_map(|line| line.rsplit_once(' ')).collect();
        lines += names.len();
        series += names.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len();
    }
    Ok(ScrapeFacts { series, lines, memory: exporters.memory()?, requests: 0, connections: 0 })
}
