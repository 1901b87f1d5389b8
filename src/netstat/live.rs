//! Conversations of apps that run.

mod captures;
mod reporter;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use pmdscope_capture::budget::CpuBudget;
use pmdscope_capture::{CaptureObserver, CaptureReport, CaptureSettings, CaptureSource, Transport};
use pmdscope_packets::RunControl;

use self::captures::OpenCaptures;
pub(super) use self::reporter::LiveReporter;
use super::args::{Args, ReportView};
use super::counters::CounterReader;
use super::ipfix;
use super::report_data::PacketLosses;
use crate::attach::flow_capture::FlowCapture;
use crate::attach::peek::PeekedPorts;
use crate::capture::Direction;
use crate::sampling::SamplingMode;

/// What the capture, or the reader of a pipe, shares with the thread that reports.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    state: Mutex<CaptureState>,
    /// The capture has ended.
    pub(super) over: AtomicBool,
    /// Apps whose packets come by a helper.
    helped: Vec<String>,
    /// Apps whose packets are sampled from their memory.
    peeked: Option<PeekedPorts>,
}

#[derive(Debug, Default)]
pub(super) struct CaptureState {
    pub(super) losses: PacketLosses,
    /// Apps and ports that ended or came back.
    notices: Vec<String>,
    /// Those that have not come back.
    ended: BTreeSet<String>,
}

impl SharedState {
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut CaptureState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Watches the capture, from its thread: nothing here may wait.
struct LossObserver<'a> {
    budget: Option<CpuBudget>,
    shared: &'a SharedState,
}

impl CaptureObserver for LossObserver<'_> {
    fn ended(&mut self, app: &str, awaited: bool) {
        let next = if awaited { "; waiting for it to restart" } else { "" };
        self.shared.with(|state| {
            state.notices.push(format!("{app} has ended{next}"));
            state.ended.insert(app.to_owned());
        });
    }

    fn returned(&mut self, app: &str) {
        self.shared.with(|state| {
            state.notices.push(format!("{app} is back"));
            state.ended.remove(app);
        });
    }

    fn note(&mut self, app: &str, note: &str) {
        self.shared.with(|state| state.notices.push(format!("{app}: {note}")));
    }

    fn second(&mut self, report: &CaptureReport) {
        if let Some(budget) = &mut self.budget {
            budget.second(report);
        }
        self.shared.with(|state| state.losses = PacketLosses::of(report));
    }
}

/// Counts until told to stop, or for the time that was asked for.
pub(super) fn run(args: &Args, control: &RunControl) -> Result<ExitCode> {
    let sample = match args.sample {
        SamplingMode::Auto => 1,
        SamplingMode::Fixed(sample) => sample.get(),
    };
    let export = ipfix::listener(&args.ipfix, sample, false)?;
    let exports = export.is_some();
    let counts = matches!(args.view(), ReportView::Statistics | ReportView::Queues);
    let mut counter_reader = counts.then(|| CounterReader::live(&args.app)).transpose()?;
    let captures = OpenCaptures::open(args, control, args.continuous || exports)?;
    // So that both count from the same moment.
    counter_reader.as_mut().map(CounterReader::begin).transpose()?;
    let status = export.as_ref().map(|export| export.status.clone());
    let is_helped = |source: &&CaptureSource| source.via == Some(Transport::PDUMP);
    let helped = captures.sources.iter().filter(is_helped);
    let helped = helped.map(|source| source.app.clone()).collect();
    let peeked = captures.peeked;
    let shared = SharedState { helped, peeked, ..SharedState::default() };
    let settings = CaptureSettings {
        duration: args.watch(exports),
        filter: args.expression(),
        outgoing: args.direction() != Direction::In,
        ..CaptureSettings::default()
    };
    let capture = FlowCapture::new(captures.sources, settings, args.table(export));
    let latest = capture.latest();
    let reporter =
        LiveReporter::new(args, control, &shared, latest, counter_reader, captures.ports, status)?;
    let budget = (args.sample == SamplingMode::Auto && shared.peeked.is_none())
        .then(|| CpuBudget::new(args.cpu_budget(), control));
    let (report, reporter) =
        watch(capture, control, LossObserver { budget, shared: &shared }, reporter)?;
    shared.with(|state| state.losses = PacketLosses::of(&report));
    reporter.close()?;
    report.failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(failure.into()))
}

/// Runs the capture on this thread and the reports on another, which may wait as long as it likes.
fn watch<'a>(
    capture: FlowCapture,
    control: &RunControl,
    mut watch: LossObserver<'a>,
    reporter: LiveReporter<'a>,
) -> Result<(CaptureReport, LiveReporter<'a>)> {
    let shared = watch.shared;
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("report".to_owned());
        let thread = thread.spawn_scoped(scope, move || reporter.run());
        let thread = thread.context("cannot start the report thread")?;
        let report = capture.run(control, &mut watch);
        shared.over.store(true, Ordering::Release);
        thread.thread().unpark();
        let reporter = thread.join().map_err(|_| anyhow!("the report thread panicked"))?;
        Ok((report, reporter?))
    })
}
