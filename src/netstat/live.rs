//! Conversations of apps that run.

mod reporter;
mod taps;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use pmdscope_capture::budget::CpuBudget;
use pmdscope_capture::{CaptureLoop, CaptureObserver, CaptureReport, CaptureSettings};
use pmdscope_flows::{FlowTable, SNAPLEN};
use pmdscope_packets::RunControl;

use self::reporter::Reporter;
use self::taps::Taps;
use super::args::{Args, Sampling, View};
use super::counters::Gauge;
use super::ipfix;
use super::moment::Losses;
use crate::capture::Direction;

/// What the capture tells the thread that reports.
#[derive(Debug, Default)]
struct Shared {
    told: Mutex<Told>,
    /// The capture has ended.
    over: AtomicBool,
    /// Apps whose packets come by a helper.
    helped: Vec<String>,
}

#[derive(Debug, Default)]
struct Told {
    losses: Losses,
    /// Apps that ended or came back.
    news: Vec<String>,
    /// Those that have not come back.
    ended: BTreeSet<String>,
}

impl Shared {
    fn with<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Watches the capture, from its thread: nothing here may wait.
struct Watch<'a> {
    budget: Option<CpuBudget>,
    shared: &'a Shared,
}

impl CaptureObserver for Watch<'_> {
    fn ended(&mut self, app: &str, awaited: bool) {
        let next = if awaited { "; waiting for it to restart" } else { "" };
        self.shared.with(|told| {
            told.news.push(format!("{app} has ended{next}"));
            told.ended.insert(app.to_owned());
        });
    }

    fn returned(&mut self, app: &str) {
        self.shared.with(|told| {
            told.news.push(format!("{app} is back"));
            told.ended.remove(app);
        });
    }

    fn second(&mut self, report: &CaptureReport) {
        if let Some(budget) = &mut self.budget {
            budget.second(report);
        }
        self.shared.with(|told| told.losses = Losses::of(report));
    }
}

/// Counts until told to stop, or for the time that was asked for.
pub(super) fn run(args: &Args, control: &RunControl) -> Result<ExitCode> {
    let sample = match args.sample {
        Sampling::Auto => 1,
        Sampling::Fixed(sample) => sample.get(),
    };
    let export = ipfix::listener(&args.ipfix, sample, false)?;
    let exports = export.is_some();
    let counts = matches!(args.view(), View::Statistics | View::Queues);
    let mut gauge = counts.then(|| Gauge::live(&args.app)).transpose()?;
    let taps = Taps::open(args, control, args.continuous || exports)?;
    // To count from the same moment on.
    gauge.as_mut().map(Gauge::begin).transpose()?;
    let status = export.as_ref().map(|export| export.status.clone());
    let (table, latest) = FlowTable::new(args.table(export));
    let helped = taps.sources.iter().filter(|source| source.via.is_some());
    let helped = helped.map(|source| source.app.clone()).collect();
    let shared = Shared { helped, ..Shared::default() };
    let reporter = Reporter::new(args, control, &shared, latest, gauge, taps.ports, status)?;
    let settings = CaptureSettings {
        snaplen: SNAPLEN,
        duration: args.watch(exports),
        filter: args.expression(),
        outgoing: args.direction() != Direction::In,
        ..CaptureSettings::default()
    };
    let capture = CaptureLoop::new(taps.sources, settings, Box::new(table));
    let budget =
        (args.sample == Sampling::Auto).then(|| CpuBudget::new(args.cpu_budget(), control));
    let (report, reporter) = watch(capture, control, Watch { budget, shared: &shared }, reporter)?;
    shared.with(|told| told.losses = Losses::of(&report));
    reporter.close()?;
    report.failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(failure.into()))
}

/// Runs the capture on this thread and the reports on another, which may wait as long as it likes.
fn watch<'a>(
    capture: CaptureLoop,
    control: &RunControl,
    mut watch: Watch<'a>,
    reporter: Reporter<'a>,
) -> Result<(CaptureReport, Reporter<'a>)> {
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
