//! Counters of apps, now or in a recording.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use pmdscope_packets::RunControl;
use pmdscope_recording::{RecordingPlayer, TimeSpec as When};
use pmdscope_telemetry::FleetState;

use super::args::Args;
use super::report_data::{AppCounters, ReportData};
use super::report_layout::ReportLayout;
use super::show;
use crate::capture;
use crate::session::AppArg;
use crate::source::{AtArg, Source};

/// Time between two checks for a signal.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reads the counters of all chosen apps.
pub(super) struct CounterReader {
    source: Source,
    before: FleetState,
}

impl CounterReader {
    /// Reads them for the first time.
    pub(super) fn live(app: &AppArg) -> Result<Self> {
        // The caller reads at its own pace.
        let source = Source::live(app, Duration::ZERO)?;
        let mut counter_reader = Self { source, before: FleetState::default() };
        counter_reader.begin()?;
        Ok(counter_reader)
    }

    /// Takes the counters of now for those of the first time.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.source.advance()?;
        self.before = self.source.fleet().clone();
        Ok(())
    }

    /// Reads them again, beside those of the first time or, where that `rolls` on, of the last.
    pub(super) fn read(&mut self, rolls: bool) -> Result<AppCounters> {
        self.source.advance()?;
        let now = self.source.fleet().clone();
        let before = if rolls {
            std::mem::replace(&mut self.before, now.clone())
        } else {
            self.before.clone()
        };
        Ok(AppCounters { before, now })
    }
}

/// Shows counters alone.
pub(super) fn run(args: &Args, control: &RunControl) -> Result<ExitCode> {
    match args.replay.player(&args.app)? {
        Some(player) => replay(args, player)?,
        None => live(args, control)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn live(args: &Args, control: &RunControl) -> Result<()> {
    let mut source = Source::live(&args.app, Duration::ZERO)?;
    if args.continuous {
        capture::end_in_order(control)?;
    }
    let mut next = Instant::now();
    loop {
        source.advance()?;
        let counters = AppCounters { before: FleetState::default(), now: source.fleet().clone() };
        let data = ReportData { counters: Some(counters), ..ReportData::default() };
        if !show(args, &data, &ReportLayout::new(args))? || !args.continuous {
            return Ok(());
        }
        next += args.interval();
        while Instant::now() < next {
            if control.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(SIGNAL_POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
        }
    }
}

/// The counters of a moment, and those of the time to look before it.
fn replay(args: &Args, player: RecordingPlayer) -> Result<()> {
    let span = player.span();
    let now_ns = match &args.at.at {
        Some(at) => at.resolve(span, player.utc_offset_s())?,
        None => span.1,
    };
    let length = args.watch(false).unwrap_or_default();
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let from_ns = now_ns.saturating_sub(length_ns).max(span.0);
    let from = AtArg { at: Some(When::At(Timestamp::from_nanosecond(from_ns.into())?)) };
    let step = Duration::from_nanos(now_ns - from_ns);
    let mut source = Source::steps(player, &args.app, &from, step, 2)?;
    source.advance()?;
    let before = source.fleet().clone();
    source.advance()?;
    source.tell_notes();
    let counters = AppCounters { before, now: source.fleet().clone() };
    let thresholds = args.thresholds()?;
    let data = ReportData { counters: Some(counters), thresholds, ..ReportData::default() };
    show(args, &data, &ReportLayout::new(args))?;
    Ok(())
}
