//! Fires when something takes a poll core for too long: `--trigger 'stolen>1ms'`.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use pmdscope_interrupts::{StolenEvent, Tracer, TracerOptions};
use pmdscope_packets::recorder::{RecorderTrigger, TriggerSender};
use pmdscope_telemetry::FleetEvent;
use pmdscope_telemetry::fleet::{AppSampler, ROUND_TIMEOUT};
use pmdscope_telemetry::sample::StolenCause;

use super::FINDINGS_INTERVAL;
use crate::attach::target::CaptureTarget;
use crate::duration;

/// In front of the shortest theft that fires.
const PREFIX: &str = "stolen>";

/// What it is called in names of files.
const NAME: &str = "stolen";

/// Time to wait after one that fired: a thief comes again.
const REARM_DELAY: Duration = Duration::from_secs(1);

/// Reads `stolen>DURATION`; `None` for another trigger.
pub(super) fn parse(text: &str) -> Option<Result<Duration, String>> {
    let range = Duration::from_micros(1)..=Duration::from_secs(10);
    let length = duration::parse(text.strip_prefix(PREFIX)?);
    let length = length.filter(|length| range.contains(length));
    Some(
        length
            .ok_or_else(|| "expected stolen>TIME, from 1us to 10s, such as stolen>1ms".to_owned()),
    )
}

/// Watches the poll threads of these apps from now on.
///
/// # Errors
///
/// When they cannot be traced.
pub(super) fn watch(least: Duration, wanted: &[CaptureTarget], fire: &TriggerSender) -> Result<()> {
    let options = TracerOptions { min_event: least, ..TracerOptions::default() };
    if let Err(reason) = options.check() {
        bail!("--trigger stolen: {reason}");
    }
    let tracer = Tracer::start(options);
    let mut samplers = Vec::new();
    for wanted in wanted {
        let mut settings = (*wanted.settings).clone();
        let app = settings.find(Some(&wanted.address))?;
        settings.tracer = Some(tracer.clone());
        samplers.push(AppSampler::new(app, &settings));
    }
    let fire = fire.clone();
    let thread = thread::Builder::new().name("stolen".to_owned());
    let watch = move || watch_events(&tracer, samplers, least, &fire);
    thread.spawn(watch).context("cannot start a thread for --trigger stolen")?;
    Ok(())
}

fn watch_events(
    tracer: &Tracer,
    mut samplers: Vec<AppSampler>,
    least: Duration,
    fire: &TriggerSender,
) {
    let mut apps = BTreeMap::new();
    let mut sequence = 0;
    let mut quiet_until: Option<Instant> = None;
    loop {
        let start = Instant::now();
        for sampler in &mut samplers {
            if let FleetEvent::Sampled { app, model, .. } = sampler.sample(ROUND_TIMEOUT) {
                apps.insert(model.sample.app.pid, app);
            }
        }
        let events = tracer.events_after(sequence);
        sequence = events.last().map_or(sequence, |event| event.sequence);
        let worst = events.iter().filter(|event| fires(event, least));
        if let Some(event) = worst.max_by_key(|event| event.duration_ns)
            && quiet_until.is_none_or(|until| start >= until)
        {
            quiet_until = Some(start + REARM_DELAY);
            let app = apps.get(&event.pid).map_or("an app", String::as_str);
            fire.fire(fired_by(app, event));
        }
        thread::sleep(FINDINGS_INTERVAL.saturating_sub(start.elapsed()));
    }
}

/// A thread that sleeps by itself is not stolen from.
fn fires(event: &StolenEvent, least: Duration) -> bool {
    event.cause != StolenCause::Sleep && u128::from(event.duration_ns) >= least.as_nanos()
}

fn fired_by(app: &str, event: &StolenEvent) -> RecorderTrigger {
    let begin_ns = event.start_realtime_ns;
    let end_ns = begin_ns.saturating_add(event.duration_ns);
    let time = |ns: u64| Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
    let comment = format!(
        "{app} lcore {}: CPU {} taken for {} us by {} ({}) from {:.6} to {:.6}",
        event.lcore,
        event.cpu,
        event.duration_ns / 1000,
        event.thief,
        event.cause,
        time(begin_ns),
        time(end_ns),
    );
    RecorderTrigger {
        moment_ns: end_ns,
        begin_ns: Some(begin_ns),
        ..RecorderTrigger::now(NAME, comment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cause: StolenCause, duration_ns: u64) -> StolenEvent {
        StolenEvent {
            sequence: 1,
            pid: 7,
            lcore: 3,
            cpu: 5,
            cause,
            thief: "stress".to_owned(),
            start_realtime_ns: 1_780_000_001_900_000_000,
            duration_ns,
        }
    }

    #[test]
    fn a_theft_fires_at_its_end() {
        let trigger = fired_by("fwd", &event(StolenCause::Scheduler, 5_000_000));
        assert_eq!(trigger.moment_ns, 1_780_000_001_905_000_000);
        assert_eq!(trigger.begin_ns, Some(1_780_000_001_900_000_000));
        let says =
            "fwd lcore 3: CPU 5 taken for 5000 us by stress (scheduler) from 2026-05-28T20:26:41.9";
        assert!(trigger.comment.starts_with(says), "{}", trigger.comment);
    }

    #[test]
    fn sleep_and_short_thefts_do_not_fire() {
        let least = Duration::from_millis(1);
        assert!(fires(&event(StolenCause::Irq, 1_000_000), least));
        assert!(!fires(&event(StolenCause::Irq, 999_999), least));
        assert!(!fires(&event(StolenCause::Sleep, 5_000_000), least));
    }

    #[test]
    fn a_time_is_part_of_the_trigger() {
        assert_eq!(parse("stolen>250us"), Some(Ok(Duration::from_micros(250))));
        assert!(parse("stolen>5").is_some_and(|parsed| parsed.is_err()));
        assert_eq!(parse("stall"), None);
    }
}
