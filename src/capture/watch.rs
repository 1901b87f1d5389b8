//! Messages during a capture.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use pmdscope_capture::budget::CpuBudget;
use pmdscope_capture::{CaptureObserver, CaptureReport};
use pmdscope_packets::RunControl;
use pmdscope_packets::file::FileEvent;
use pmdscope_packets::recorder;

use super::args::{Args, EventFilter};
use super::events::EventPrinter;
use super::report;
use super::status::{self, Status};
use crate::output::{self, StandardOutput};
use crate::progress::StatusLine;
use crate::terminal;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Line,
    /// As `tcpdump -v -w`.
    Count,
    None,
}

/// Watches a capture.
pub(super) struct CaptureProgress {
    progress: Progress,
    quiet: bool,
    filter: EventFilter,
    grow: bool,
    /// Ends the capture; once it is true, a signal gives up what is not written.
    stop: Arc<AtomicBool>,
    /// The user who must reach an app that comes back, after `-Z`.
    user: Option<String>,
    events: Option<Receiver<FileEvent>>,
    /// Reports events at the end.
    printer: Option<EventPrinter>,
    recorder: Option<Arc<recorder::RecorderStatus>>,
    /// Decides how many packets apps are to keep.
    budget: Option<CpuBudget>,
    status: Status,
    since: Instant,
    line: StatusLine,
    told: Option<u64>,
    /// Shortest history of the recorder that was warned of.
    short: Option<Duration>,
    /// Seconds in which nothing could be written, and why.
    waited: Option<(f64, String)>,
}

impl CaptureProgress {
    pub(super) fn new(
        args: &Args,
        control: &RunControl,
        events: Receiver<FileEvent>,
        recorder: Option<Arc<recorder::RecorderStatus>>,
        budget: Option<CpuBudget>,
    ) -> Self {
        Self {
            progress: progress(args),
            quiet: args.quiet,
            filter: args.event_filter(),
            grow: args.files.grow(),
            stop: Arc::clone(&control.stop),
            user: args.relinquish_privileges.clone(),
            events: Some(events),
            printer: None,
            recorder,
            budget,
            status: Status::default(),
            since: Instant::now(),
            line: StatusLine::default(),
            told: None,
            short: None,
            waited: None,
        }
    }

    /// Clears the line, and reports the last events. Returns for how many seconds nothing could be
    /// written, and why.
    pub(super) fn close(mut self) -> Option<(f64, String)> {
        self.tell_files();
        self.printer = None;
        self.line.clear();
        self.waited
    }

    /// Warns when memory is too small for the history that was asked for, and again when only half as
    /// much is held.
    fn warn_of_short_history(&mut self) {
        let Some(status) = self.recorder.as_ref().filter(|_| !self.quiet) else { return };
        let Some(held) = status.least_held() else { return };
        if self.short.is_none_or(|warned| held < warned / 2) {
            self.short = Some(held);
            output::say(report::short_history(status, held));
        }
    }

    fn tell_files(&mut self) {
        for event in self.events.iter().flat_map(Receiver::try_iter) {
            report::file(&event, self.filter);
        }
    }
}

impl CaptureObserver for CaptureProgress {
    fn ended(&mut self, app: &str, awaited: bool) {
        if self.quiet {
            return;
        }
        let next = match (&self.user, awaited) {
            (_, false) => String::new(),
            (None, true) => "; waiting for it to restart (--exit-with-app stops here)".into(),
            (Some(user), true) => format!(
                "; waiting for it to restart and to admit {user} (--exit-with-app stops here)"
            ),
        };
        output::say(format_args!("pmdscope: {app} has ended{next}"));
    }

    fn returned(&mut self, app: &str) {
        if !self.quiet {
            output::say(format_args!("pmdscope: {app} is back; its packets go to a new section"));
        }
    }

    fn note(&mut self, app: &str, note: &str) {
        if !self.quiet {
            output::say(format_args!("pmdscope: {app}: {note}"));
        }
    }

    fn second(&mut self, report: &CaptureReport) {
        if let Some(budget) = &mut self.budget {
            budget.second(report);
        }
        self.tell_files();
        self.warn_of_short_history();
        let recorder = self.recorder.as_deref().map(status::recorder);
        let seconds = status::lap(&mut self.since);
        if let Some(reason) = &report.progress.waiting {
            let before = self.waited.take().map_or(0.0, |(seconds, _)| seconds);
            self.waited = Some((before + seconds, reason.clone()));
        }
        self.status = self.status.after(seconds, report, recorder, self.grow);
        match self.progress {
            Progress::Line => {
                self.line.show(&self.status.to_string());
            }
            Progress::Count if self.told != Some(report.captured) => {
                self.told = Some(report.captured);
                terminal::rewrite(&format!("Got {}", report.captured));
            }
            Progress::Count | Progress::None => {}
        }
    }

    fn asked(&mut self, report: &CaptureReport) {
        output::say(report::at_once(report, self.recorder.as_deref()));
    }

    fn ending(&mut self) {
        // Whatever ended the capture: from now on a signal gives up what is not written.
        self.stop.store(true, Ordering::Relaxed);
        self.line.clear();
        let start = |events| EventPrinter::start(events, self.filter);
        self.printer = self.events.take().map(start);
    }
}

fn progress(args: &Args) -> Progress {
    let to_file = args.files.write.as_deref().is_some_and(|path| path != Path::new("-"));
    let shown_too = args.files.print && StandardOutput::is_terminal();
    if args.quiet || !to_file || shown_too {
        Progress::None
    } else if terminal::is_on_stderr() {
        Progress::Line
    } else if args.view().verbose > 0 {
        Progress::Count
    } else {
        Progress::None
    }
}
