//! `pmdscope check`: are all apps healthy? For people, cron and probes.

mod checked;
mod hot_queues;
pub(crate) mod result;
mod seen;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use pmdscope_telemetry::discover::{DiscoveredApp, FindError, unreadable_text};
use pmdscope_telemetry::{FleetEvent, FleetState, ScanResults};

use self::checked::WatchedTimes;
use self::hot_queues::HotQueues;
use self::result::CheckDocument;
use self::seen::SeenFindings;
use crate::color::ColorArg;
use crate::exit::FAILED;
use crate::leaks::scan::{ScanArgs, Scanner};
use crate::progress::Progress;
use crate::session::{self, AppArg, XrayArg};
use crate::source::{ReplayArg, Source};
use crate::{duration, leaks, output};

/// Time between two samples. A trend wants several, and trouble in any interval counts.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(250);

/// Check the health of DPDK apps, for people, cron and probes
///
/// Reports dead ports, missed, discarded and bad packets, draining mempools, stuck poll loops, mbuf leaks,
/// and floods that XDP filters drop. A result without findings says what was checked, and what was not.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // one per flag of the command line
#[command(after_help = "\
Examples:
  pmdscope check -a fwd --for 30   watch longer to find slow leaks
  pmdscope check -q                for probes and cron: silent if healthy
  pmdscope check -r FILE           all findings of a recording

Exit status: 0 healthy, 1 warning, critical finding or no answer, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope check                        all apps, sampled for two seconds
  pmdscope check -a reflector --for 30  watch longer to find slow leaks
  pmdscope check --json | jq .ok
  pmdscope check -q -a fwd              for probes and cron: silent if healthy
  pmdscope check -r incident.jsonl.zst  all findings of a recording

check samples each app four times a second.

Exit status:
  0  no finding of severity warning or critical; info findings do not count
  1  a warning or critical finding, an app that does not answer, an expected or
     named app that does not run, no app at all, or an app that --scan cannot read
  2  wrong usage or configuration

For a hot queue (queue_imbalance) of a linked app, check captures packets for
0.25 s to name its largest conversation.

The timeout of a probe must exceed --for by a second, for apps that do not
answer: timeoutSeconds: 5 in Kubernetes.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    #[command(flatten)]
    replay: ReplayArg,

    /// Time to watch, 1s to 1h
    ///
    /// Reports every finding of that time. A longer time finds slower problems.
    #[arg(long = "for", value_name = "TIME", default_value = "2s", conflicts_with = "replay",
          value_parser = |text: &str| duration::whole_seconds(text, 1..=3600))]
    seconds: u64,

    /// Trace what takes the CPU from lcores
    ///
    /// Interrupts, softirqs and other threads. Needs root (CAP_BPF and CAP_PERFMON) and bpftrace.
    /// Without them, the counters of /proc are used, which have the times of the scheduler only; a
    /// note says so. Sampling starts once tracing has started, which takes seconds.
    #[arg(long, conflicts_with = "replay")]
    interrupts: bool,

    #[command(flatten)]
    xray: XrayArg,

    /// Scan the memory of apps without libpmdscope for lost mbufs
    ///
    /// A scan reads all memory in which an app may keep references to mbufs, twice or more. It neither
    /// stops the app nor writes to it, and needs root, CAP_SYS_PTRACE, or the user of the app. `check`
    /// ends when the scans have ended.
    #[arg(long, conflicts_with = "replay", hide_short_help = true)]
    scan: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// One line per finding, nothing if healthy
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let scans = args.scan.then(|| Arc::new(ScanResults::default()));
    let (mut source, length) = match open(args, scans.clone()) {
        Err(error) => return without_app(args, error),
        opened => opened?,
    };
    let begun = Instant::now();
    let mut watching = Some(progress(args, length));
    let mut seen = SeenFindings::default();
    let mut watched = WatchedTimes::default();
    let mut hot_queues = match args.replay.replay {
        Some(_) => None,
        None => Some(HotQueues::new(args.app.settings()?, begun + length)),
    };
    // Scans begin when it is known which apps have no ledger of their own.
    let mut scanning: Option<JoinHandle<_>> = None;
    // An app that does not answer makes rounds longer, but not the time that was asked for.
    while source.advance()? {
        seen.note(source.fleet());
        watched.note(source.fleet());
        if let Some(hot_queues) = &mut hot_queues {
            hot_queues.update(&source);
        }
        if let (Some(scans), None) = (&scans, &scanning) {
            scanning = Some(scan(leaks::apps_to_scan(&source), scans.clone(), args.quiet));
        }
        if begun.elapsed() < length {
            continue;
        }
        // From now on, scans are waited for.
        drop(watching.take());
        if scanning.as_ref().is_none_or(JoinHandle::is_finished) {
            break;
        }
    }
    drop(watching);
    let unscanned = match scanning {
        Some(scanning) => finish(scanning, &mut source, &mut seen)?,
        None => Vec::new(),
    };
    for (app, why) in &unscanned {
        output::tell(&format!("{app}: not scanned: {why}"));
    }
    tell_notes(args, &source);
    let mut fleet = source.fleet().clone();
    seen.add_to(&mut fleet);
    if let Some(hot_queues) = hot_queues {
        hot_queues.explain(&mut fleet);
    }
    // Of a live app they are those of the last seconds.
    let times = args.replay.replay.as_ref().map(|_| seen.times(source.time_zone()));
    let mut verdict = CheckDocument::of(&fleet, times.as_ref()).with_checked(&fleet, &watched);
    verdict.ok &= unscanned.is_empty();
    print(args, &verdict, &fleet)?;
    Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Opens the recording, or finds the apps; returns how long to watch them.
fn open(args: &Args, scans: Option<Arc<ScanResults>>) -> Result<(Source, Duration)> {
    if let Some(player) = args.replay.player(&args.app)? {
        return Ok((Source::whole(player, &args.app), Duration::MAX));
    }
    let _starting = args.interrupts.then(|| Progress::begin("waiting for bpftrace", args.quiet));
    let source = if args.interrupts { Source::traced } else { Source::host };
    let source = source(&args.app, args.xray, SAMPLING_INTERVAL, scans)?;
    Ok((source, Duration::from_secs(args.seconds)))
}

fn progress(args: &Args, length: Duration) -> Progress {
    match &args.replay.replay {
        Some(path) => Progress::begin(&format!("reading {}", path.display()), args.quiet),
        None => Progress::watch(&format!("watching {}", args.app.text()), length, args.quiet),
    }
}

/// Reports that the named app does not run, which is a finding as any other.
fn without_app(args: &Args, error: anyhow::Error) -> Result<ExitCode> {
    // In a directory that cannot be read, the app may run.
    let is_missing = |error: &FindError| match error {
        FindError::NoApp { unreadable, .. } | FindError::Unknown { unreadable, .. } => {
            unreadable.is_empty()
        }
        _ => false,
    };
    let named = args.app.app.as_deref();
    let Some(name) = named.filter(|_| error.downcast_ref().is_some_and(is_missing)) else {
        return Err(error);
    };
    let left = args.app.settings()?.names().into_iter().find(|app| app.name == name);
    let left = left.map(|app| format!("; nothing of its owner listens in {}", app.dir.display()));
    let mut fleet = FleetState::default();
    fleet.apply(FleetEvent::not_found(name, &format!("{error}{}", left.unwrap_or_default())));
    print(args, &CheckDocument::of(&fleet, None), &fleet)?;
    Ok(ExitCode::from(FAILED))
}

/// Waits for a scan, and for the samples that have its results; returns why some apps could not be scanned.
fn finish(
    scanning: JoinHandle<Vec<(String, String)>>,
    source: &mut Source,
    seen: &mut SeenFindings,
) -> Result<Vec<(String, String)>> {
    let unscanned =
        scanning.join().map_err(|_| anyhow!("the scan failed, which is a bug of pmdscope"))?;
    // Its results are in the next samples.
    source.advance()?;
    seen.note(source.fleet());
    Ok(unscanned)
}

/// Reports what the findings leave out, and why.
fn tell_notes(args: &Args, source: &Source) {
    source.tell_notes();
    if args.interrupts && !args.quiet {
        session::tell_untraced(source.fleet());
    }
    if !args.quiet && args.replay.replay.is_none() {
        session::tell_uncounted(source.fleet());
    }
    if let Some(error) = source.fleet().interfaces.error.as_ref().filter(|_| !args.quiet) {
        output::tell(&format!("note: interfaces: {error}"));
    }
    if let Some(text) = unreadable_text(&source.fleet().unreadable).filter(|_| !args.quiet) {
        output::tell(&text);
    }
}

fn print(args: &Args, verdict: &CheckDocument<'_>, fleet: &FleetState) -> Result<()> {
    let color = args.color.color(&args.app.config)?;
    if args.json {
        output::print_json(verdict)?;
    } else if args.quiet {
        output::print_lines(&verdict.lines(), color)?;
    } else {
        output::print_fitted(&verdict.text(fleet), color)?;
    }
    Ok(())
}

/// Scans these apps in a thread of its own, which returns why some could not be scanned.
fn scan(
    apps: Vec<DiscoveredApp>,
    results: Arc<ScanResults>,
    quiet: bool,
) -> JoinHandle<Vec<(String, String)>> {
    let mut scanner = Scanner::new(ScanArgs::default()).quiet(quiet);
    thread::spawn(move || scanner.scan_into(&apps, &results))
}

/// Prints the document of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if args.json {
        output::print_json(&CheckDocument::empty(&FleetState::default()))?;
    }
    Ok(())
}
