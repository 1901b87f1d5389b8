//! `pmdscope interrupts`: what takes poll cores from their threads, and for how long.

pub(crate) mod report;
mod rounds;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pmdscope_interrupts::{Tracer, TracerOptions, TracingUnavailable};
use pmdscope_packets::RunControl;
use pmdscope_telemetry::Fleet;
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_telemetry::sample::TracingMethod;

use self::rounds::Rounds;
use crate::color::ColorArg;
use crate::number::whole;
use crate::output::StandardOutput;
use crate::progress::Progress;
use crate::session::{self, AppArg};
use crate::{capture, duration, output};

/// How often apps are asked while bpftrace starts.
const START_STEP: Duration = Duration::from_millis(100);

/// How long to look for threads that poll.
const POLL_THREADS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long bpftrace may take until it traces: poll threads that never leave their CPU delay it.
const ATTACH: Duration = Duration::from_secs(60);

/// Interval of checks for a signal.
const SIGNAL_STEP: Duration = Duration::from_millis(50);

/// Show what takes the CPU from poll threads
#[derive(clap::Args)]
#[command(after_help = "Needs root and bpftrace (apt install bpftrace). Examples: --help")]
#[command(after_long_help = "\
Examples:
  pmdscope interrupts                      all apps, until ^C; then totals and histograms
  pmdscope interrupts -a reflector --for 30s
                                           one app for half a minute
  pmdscope interrupts --min 100us --events | jq .thief
                                           one line of JSON per event of at least 100 us
  pmdscope interrupts --json -n 1          one document
  pmdscope interrupts --no-bpf             how often, not how long: from /proc, without root

Poll threads are detected automatically: those reported by libpmdscope, and threads of the app and
of its secondary processes that keep their CPU busy, whatever their names.

Causes:
  irq          interrupt of a device: action, number, PCI address
  ipi          interrupt from another CPU, and the thread that sent it (Linux 6.5 and later)
  timer        tick of the kernel
  softirq      NET_RX, TIMER, RCU, ...; (own system call): the thread caused it itself
  scheduler    another thread ran; idle CPU (quota): the thread was ready, but its quota was used up
  sleep        the thread slept, by this system call
  page_fault   of an instruction of the thread, without the wait for a disk (sleep)
  signal       a signal handler ran in the thread
  unexplained  hypervisor: steal time of the CPU; or a stall that libpmdscope measured and that no
               event explains

Tracing costs poll cores time: the report estimates how much. See docs/interrupts.md.

Exit status: 0 ok, 1 failed, no app or no poll thread, 2 wrong usage or configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    /// Time between two reports, 0.5 to 60
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print N reports and exit [default: 1 if stdout is not a terminal]
    #[arg(short, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX))]
    n: Option<u64>,

    /// Exit after this time, such as 30s
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,

    /// Shortest event to record individually
    ///
    /// Shorter events are counted, and their time is part of the totals.
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = shortest)]
    min: Duration,

    /// Print JSON, one document per report
    #[arg(long)]
    json: bool,

    /// Print events instead of reports, one JSON object per line
    #[arg(long, conflicts_with = "no_bpf")]
    events: bool,

    /// Count from /proc, without bpftrace
    #[arg(long)]
    no_bpf: bool,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let options =
        TracerOptions { min_event: args.min, bpf: !args.no_bpf, ..TracerOptions::default() };
    match options.check() {
        Err(TracingUnavailable::NotRoot) => {
            bail!("{}; or use --no-bpf", TracingUnavailable::NotRoot);
        }
        Err(reason) if args.events => bail!("{reason}"),
        _ => {}
    }
    let control = capture::control(false)?;
    let tracer = Tracer::start(options);
    let mut settings = args.app.settings()?;
    settings.tracer = Some(tracer.clone());
    settings.discover.stop = Arc::clone(&control.stop).into();
    let mut fleet = session::start(&args.app, &settings)?;
    capture::end_in_order(&control)?;
    fleet.sample(ROUND_TIMEOUT);
    session::tell_silent(&fleet.state);
    let result = report(args, &mut fleet, &tracer, &control);
    tracer.stop();
    result.map(|()| ExitCode::SUCCESS)
}

fn report(
    args: &Args,
    fleet: &mut Fleet,
    tracer: &Arc<Tracer>,
    control: &RunControl,
) -> Result<()> {
    if !wait_for_probes(fleet, tracer, control)? {
        return Ok(());
    }
    let mut rounds = Rounds::new(fleet, tracer);
    let (begun, mut left) = (Instant::now(), args.reports());
    let mut next = begun;
    let progress =
        args.watched(left).map(|length| Progress::watch("watching lcores", length, false));
    let mut read = true;
    while read && left != Some(0) {
        next += args.interval;
        let over = args.length.is_some_and(|length| begun.elapsed() + args.interval > length);
        let end = if over { begun + args.length.unwrap_or_default() } else { next };
        let goes_on = sleep_until(end, control);
        fleet.look();
        fleet.sample(ROUND_TIMEOUT);
        rounds.advance(fleet, tracer);
        read = if args.events { print_events(&mut rounds)? } else { print_round(args, &rounds)? };
        left = left.map(|left| left - 1);
        if over || !goes_on {
            break;
        }
    }
    drop(progress);
    tracer.stop();
    fleet.sample(ROUND_TIMEOUT);
    rounds.finish(fleet, tracer);
    if args.events {
        print_events(&mut rounds)?;
    } else if !args.json && read {
        output::print_lines(&summary::lines(&rounds), args.color.color(&args.app.config)?)?;
    }
    Ok(())
}

impl Args {
    /// How many reports; `None` for no limit.
    fn reports(&self) -> Option<u64> {
        let endless = self.length.is_some() || self.events || StandardOutput::is_terminal();
        self.n.or(if endless { None } else { Some(1) })
    }

    /// How long so many reports take, or less; `None` for no end.
    fn watched(&self, reports: Option<u64>) -> Option<Duration> {
        let reports = reports.map(|reports| u32::try_from(reports).unwrap_or(u32::MAX));
        let taken = reports.map(|reports| self.interval.saturating_mul(reports));
        taken.into_iter().chain(self.length).min()
    }
}

/// Waits until all poll threads are traced, or it is known that they cannot be; false when told to end.
///
/// # Errors
///
/// When no thread polls.
fn wait_for_probes(fleet: &mut Fleet, tracer: &Tracer, control: &RunControl) -> Result<bool> {
    let begun = Instant::now();
    let progress = Progress::begin("looking for threads that poll", false);
    loop {
        fleet.sample(ROUND_TIMEOUT);
        let polls = tracer.poll_threads();
        if polls > 0 && tracer.is_settled() {
            break;
        }
        if polls == 0 && begun.elapsed() >= POLL_THREADS_TIMEOUT {
            bail!(
                "no thread polls: those of all lcores sleep, or cannot be seen (another PID namespace, \
                 hidepid); see 'pmdscope top --once'"
            );
        }
        if begun.elapsed() >= ATTACH {
            output::tell("bpftrace has not attached its probes yet: numbers begin when it has");
            break;
        }
        if polls > 0 {
            progress.say("waiting until bpftrace has attached its probes");
        }
        if !sleep_until(Instant::now() + START_STEP, control) {
            return Ok(false);
        }
    }
    drop(progress);
    for (app, tracing) in rounds::tracings(fleet) {
        if tracing.method == TracingMethod::Proc {
            output::tell(&format!("{app}: not traced: {}", tracing.missing.join("; ")));
        }
    }
    Ok(true)
}

/// Waits; false when a signal has come.
fn sleep_until(end: Instant, control: &RunControl) -> bool {
    loop {
        if control.stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(SIGNAL_STEP.min(left));
    }
}

fn print_round(args: &Args, rounds: &Rounds) -> Result<bool> {
    if args.json {
        return output::print_json(&report::Document::of(rounds));
    }
    if StandardOutput::is_terminal() && !output::clear_terminal()? {
        return Ok(false);
    }
    output::print_lines(&report::lines(rounds), args.color.color(&args.app.config)?)
}

/// Prints the document of no app, where one was asked for; there are no events then.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if args.json && !args.events {
        output::print_json(&report::Document::empty())?;
    }
    Ok(())
}

/// False when the output is closed.
fn print_events(rounds: &mut Rounds) -> Result<bool> {
    for event in rounds.take_events() {
        if !output::print_json(&report::EventDocument::of(event))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(500)..=Duration::from_secs(60);
    duration::within(text, range, "1s or 500ms")
}

fn length(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
    duration::within(text, range, "30s or 5m")
}

fn shortest(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(10);
    duration::within(text, range, "10us or 1ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse_args;

    fn parse(words: &str) -> Result<Args, clap::Error> {
        parse_args("interrupts", words)
    }

    #[test]
    fn without_a_terminal_there_is_an_end() {
        assert_eq!(parse("-n 3").unwrap().reports(), Some(3));
        assert_eq!(parse("--for 5m").unwrap().reports(), None);
        assert_eq!(parse("--min 1ms").unwrap().min, Duration::from_millis(1));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for words in ["-n 0", "-i 0.1", "--min 0s", "--min 5x", "--for 0s", "--events --no-bpf"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
