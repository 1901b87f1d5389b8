//! `pmdscope record`: records the telemetry of all apps on disk.

mod status;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use pmdscope_recording::{FileMode, RecordingOptions, TelemetryRecorder};
use pmdscope_signals::StopSignal;
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_telemetry::{AppState, AppStatus, Fleet, FleetSettings};

use self::status::RecordingProgress;
use crate::session::{self, AppArg};
use crate::size::parse_bytes;
use crate::{child, duration, interfaces};

/// How often to look for new apps.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(3);

/// Defaults of `--always`.
const ALWAYS_INTERVAL: Duration = Duration::from_millis(100);
const ALWAYS_KEEP: Duration = Duration::from_secs(30 * 60);
const ALWAYS_SIZE: u64 = 1 << 30;

/// Time between two rounds otherwise.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of files for the kept time or size.
const FILES: u32 = 30;

/// Record telemetry of DPDK apps for replay
///
/// top, check, leaks, lcores and netstat read a recording with -r.
#[derive(clap::Args)]
#[command(after_help = "TIME: 90s, 30m, 2h. SIZE: bytes, or with K, M, G or T. Examples: --help")]
#[command(after_long_help = "\
TIME is a number followed by s, m, h or d. SIZE is a number of bytes, or a number
followed by K, M, G or T (powers of 1024).

A full disk pauses the recording. The recording counts the samples it missed.

Examples:
  pmdscope record                         all apps, once a second, until ^C
  pmdscope record -w incident.jsonl.zst --for 60 -i 0.1
                                          one minute at 10 Hz
  pmdscope record --always -w /var/lib/pmdscope
                                          keep the last 30 minutes at 10 Hz
  pmdscope check -r incident.jsonl.zst
  pmdscope top --once -r /var/lib/pmdscope --at -90s
  zstdcat incident.jsonl.zst | jq -c .sample.ports

Exit status: 0 recorded, 1 failed, 2 wrong usage or configuration.")]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// File or directory to write
    ///
    /// In a directory, files are named by their start time.
    #[arg(short, long, value_name = "FILE|DIR", default_value = "./",
          value_hint = clap::ValueHint::AnyPath)]
    write: PathBuf,

    /// Same as -i 0.1 --keep 30m --max-size 1G
    ///
    /// Also waits for apps that do not run yet.
    #[arg(long)]
    always: bool,

    /// Sampling interval, 0.1 to 60 [default: 1]
    #[arg(short, long, value_name = "TIME", value_parser = duration::interval)]
    interval: Option<Duration>,

    /// Trace what takes the CPU from lcores
    ///
    /// Interrupts, softirqs and other threads. Needs root (CAP_BPF and CAP_PERFMON) and bpftrace.
    /// Without them, the counters of /proc are used, which have the times of the scheduler only; a
    /// note says so.
    #[arg(long)]
    interrupts: bool,

    /// Count mempools and rings in the memory of apps
    ///
    /// For apps without libpmdscope. Needs root or CAP_SYS_PTRACE, or the user of the app where the kernel
    /// allows it.
    #[arg(long)]
    xray: bool,

    /// Stop after TIME
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    length: Option<Duration>,

    /// Rotate files after SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    rotate_size: Option<u64>,

    /// Rotate files after TIME
    #[arg(long, value_name = "TIME", value_parser = time)]
    rotate_age: Option<Duration>,

    /// Delete files older than TIME
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep: Option<Duration>,

    /// Delete the oldest files beyond SIZE in total
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,

    /// Access mode of files [default: 600]
    ///
    /// 640 lets the group of the file read it, and 644 everybody.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "600",
        hide_default_value = true,
        hide_short_help = true
    )]
    file_mode: FileMode,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::MAX;
    duration::within(text, range, "90s, 30m or 2h")
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut settings = args.app.settings()?;
    let _tracer = args.interrupts.then(|| session::trace(&mut settings));
    interfaces::read_with(&mut settings);
    if args.xray {
        session::require_xray(&mut settings);
    }
    let all = settings.clone();
    if let Some(name) = &args.app.app {
        settings.only(name, &[]);
    }
    let mut fleet = if args.always {
        let mut fleet = Fleet::new(settings.clone());
        if let Some(name) = &args.app.app {
            fleet.only_interfaces_of(name, &[]);
        }
        fleet
    } else {
        Fleet::start(args.app.app.as_deref(), all)?
    };
    let look_out = AppDiscovery::start(args, settings);
    let now_ns = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0);
    let stop = stop_signal()?;
    let mut recorder = TelemetryRecorder::create(args.recording(), now_ns)?;
    let mut progress = RecordingProgress::new(args.quiet);
    let end = args.length.map(|length| Instant::now() + length);
    let mut beat = RoundTimer { next: Instant::now(), interval: args.interval() };
    loop {
        let missed = beat.catch_up(Instant::now());
        for running in look_out.found.try_iter() {
            fleet.see(running);
            progress.warn_of_unreadable(&fleet.state.unreadable);
        }
        sample(&mut fleet);
        look_out.spare(fleet.connected());
        recorder.record(&fleet.state, missed)?;
        progress.show(recorder.totals());
        beat.next += beat.interval;
        if end.is_some_and(|end| beat.next > end) || stop.wait(beat.next)? {
            break;
        }
    }
    progress.end(&recorder.finish()?);
    if !args.quiet {
        session::tell_untraced(&fleet.state);
        session::tell_uncounted(&fleet.state);
    }
    Ok(ExitCode::SUCCESS)
}

/// From now on, the first signal ends the recording gracefully, the second immediately.
pub(crate) fn stop_signal() -> Result<StopSignal> {
    StopSignal::register(child::may_repeat).context("cannot handle signals")
}

/// Looks for new apps in a thread of its own, because that may take long if one is stuck.
struct AppDiscovery {
    found: Receiver<Vec<DiscoveredApp>>,
    /// Apps that are connected already.
    connected: Arc<Mutex<Vec<DiscoveredApp>>>,
}

impl AppDiscovery {
    fn start(args: &Args, settings: FleetSettings) -> Self {
        let (sender, found) = mpsc::channel();
        let connected = Arc::new(Mutex::new(Vec::new()));
        let (name, mut at_once) = (args.app.app.clone(), args.always);
        let spared = Arc::clone(&connected);
        thread::spawn(move || {
            loop {
                if !std::mem::take(&mut at_once) {
                    thread::sleep(DISCOVERY_INTERVAL);
                }
                let connected = lock(&spared).clone();
                let running = settings.apps(name.as_deref(), &connected).unwrap_or_default();
                if sender.send(running).is_err() {
                    return;
                }
            }
        });
        Self { found, connected }
    }

    /// Skips these apps in the next search.
    fn spare(&self, connected: Vec<DiscoveredApp>) {
        *lock(&self.connected) = connected;
    }
}

fn lock(apps: &Mutex<Vec<DiscoveredApp>>) -> MutexGuard<'_, Vec<DiscoveredApp>> {
    apps.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Queries all apps, one after the other, which at ten rounds a second takes half the CPU time of
/// threads; while one does not answer, in parallel and with a shorter timeout.
fn sample(fleet: &mut Fleet) {
    let apps: Vec<String> = fleet.asked().map(str::to_owned).collect();
    let lost = |app: &AppState| matches!(app.status, AppStatus::Lost { .. });
    if apps.is_empty() || apps.iter().any(|app| fleet.state.find(app).is_some_and(lost)) {
        return fleet.sample(ROUND_TIMEOUT / 4);
    }
    fleet.read_interfaces();
    for app in apps {
        if let Some(mut sampler) = fleet.check_out(&app) {
            let event = sampler.sample(ROUND_TIMEOUT);
            fleet.check_in(sampler, event);
        }
    }
}

/// The schedule of the rounds.
struct RoundTimer {
    next: Instant,
    interval: Duration,
}

impl RoundTimer {
    /// Skips the missed rounds, and returns their number.
    fn catch_up(&mut self, now: Instant) -> u64 {
        let late = now.saturating_duration_since(self.next).as_nanos();
        let missed = late / self.interval.as_nanos().max(1);
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.next += self.interval * missed;
        missed.into()
    }
}

impl Args {
    fn interval(&self) -> Duration {
        let usual = if self.always { ALWAYS_INTERVAL } else { INTERVAL };
        self.interval.unwrap_or(usual)
    }

    fn recording(&self) -> RecordingOptions {
        let keep = self.keep.or(self.always.then_some(ALWAYS_KEEP));
        let max_size = self.max_size.or(self.always.then_some(ALWAYS_SIZE));
        let part = |keep: Duration| (keep / FILES).max(Duration::from_secs(1));
        let mut path = self.write.clone();
        if keep.or(self.rotate_age).is_some() || max_size.or(self.rotate_size).is_some() {
            // It does not exist yet.
            path.push("");
        }
        RecordingOptions {
            path,
            interval: self.interval(),
            mode: self.file_mode,
            rotate_size: self.rotate_size.or(max_size.map(|size| size / u64::from(FILES))),
            rotate_age: self.rotate_age.or(keep.map(part)),
            keep,
            max_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    fn recording(words: &str) -> RecordingOptions {
        parse_args::<Args>("record", words).unwrap().recording()
    }

    #[test]
    fn one_file_unless_more_is_asked_for() {
        let one = recording("-w x");
        assert_eq!((one.path, one.rotate_size, one.rotate_age), ("x".into(), None, None));
        assert_eq!(recording("").path.as_os_str(), "./");
        assert_eq!(recording("-w x --rotate-age 1m").path.as_os_str(), "x/");
    }

    #[test]
    fn what_is_kept_is_cut_into_files() {
        let always = recording("--always -w x");
        assert_eq!(always.path.as_os_str(), "x/");
        assert_eq!(always.interval, Duration::from_millis(100));
        assert_eq!(
            (always.keep, always.max_size),
            (Some(Duration::from_secs(1800)), Some(1 << 30))
        );
        assert_eq!(always.rotate_age, Some(Duration::from_secs(60)));
        assert_eq!(always.rotate_size, Some((1 << 30) / 30));
        let less = recording("--always -i 1 --keep 10s --max-size 3M --rotate-size 1M");
        assert_eq!((less.interval, less.keep), (INTERVAL, Some(Duration::from_secs(10))));
        assert_eq!((less.rotate_age, less.rotate_size), (Some(INTERVAL), Some(1 << 20)));
    }

    #[test]
    fn times_and_sizes_are_checked() {
        for wrong in ["--keep 0", "--keep 100ms", "--rotate-size 0", "--for 0", "-i 0.01"] {
            assert!(parse_args::<Args>("record", wrong).is_err());
        }
    }

    #[test]
    fn beats_that_are_over_are_counted_and_the_pace_is_kept() {
        let start = Instant::now();
        let millis = Duration::from_millis;
        let mut beat = RoundTimer { next: start, interval: millis(100) };
        assert_eq!(beat.catch_up(start), 0);
        assert_eq!(beat.catch_up(start + millis(99)), 0);
        assert_eq!(beat.catch_up(start + millis(350)), 3);
        assert_eq!(beat.next, start + millis(300));
    }
}
