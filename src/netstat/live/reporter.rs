//! Reports while packets are being counted.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use pmdscope_flows::LatestSnapshot;
use pmdscope_flows::ipfix::ExportStatus;
use pmdscope_packets::RunControl;
use pmdscope_render::number::count;
use pmdscope_telemetry::Thresholds;

use super::SharedState;
use crate::attach::peek::PeekCoverage;
use crate::netstat::args::{Args, ReportView};
use crate::netstat::counters::CounterReader;
use crate::netstat::report_data::ReportData;
use crate::netstat::report_layout::ReportLayout;
use crate::netstat::resolver::NameResolver;
use crate::netstat::{ipfix, show};
use crate::output;
use crate::progress::Progress;

/// Time between two checks of the state of the capture.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the reports.
pub(in crate::netstat) struct LiveReporter<'a> {
    args: &'a Args,
    control: &'a RunControl,
    shared: &'a SharedState,
    latest: LatestSnapshot,
    counter_reader: Option<CounterReader>,
    ports: Vec<(String, u16)>,
    export: Option<ExportStatus>,
    thresholds: Thresholds,
    names: Option<NameResolver>,
    progress: Option<Progress>,
    begun: Instant,
    /// Time of the last report.
    shown_ns: u64,
    /// The output is not closed.
    read: bool,
}

impl<'a> LiveReporter<'a> {
    /// Reports of a capture that is about to run.
    pub(in crate::netstat) fn new(
        args: &'a Args,
        control: &'a RunControl,
        shared: &'a SharedState,
        latest: LatestSnapshot,
        counter_reader: Option<CounterReader>,
        ports: Vec<(String, u16)>,
        export: Option<ExportStatus>,
    ) -> Result<Self> {
        let (thresholds, names) = (args.thresholds()?, args.resolver()?);
        let begun = Instant::now();
        // Reports of -c show themselves how far it is.
        let progress = (!args.continuous).then(|| progress(args.watch(export.is_some())));
        Ok(Self {
            args,
            control,
            shared,
            latest,
            counter_reader,
            ports,
            export,
            thresholds,
            names,
            progress,
            begun,
            shown_ns: 0,
            read: true,
        })
    }

    /// Reports until the capture has ended; stops it when the output is closed.
    pub(in crate::netstat) fn run(mut self) -> Result<Self> {
        let result = self.report();
        if result.is_err() || !self.read {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        self.progress = None;
        result.map(|()| self)
    }

    fn report(&mut self) -> Result<()> {
        let mut next = self.begun + self.args.interval();
        while self.read && !self.shared.over.load(Ordering::Acquire) {
            thread::park_timeout(POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
            self.tell();
            // What was counted last is shown in the end.
            let stops = self.control.stop.load(Ordering::Relaxed);
            if !self.args.continuous {
                next = Instant::now() + POLL_INTERVAL;
                self.say_progress();
            } else if Instant::now() >= next && self.has_news() && !stops {
                next = (next + self.args.interval()).max(Instant::now());
                self.read = self.show()?;
            }
        }
        Ok(())
    }

    /// There is a newer snapshot than that of the last report, perhaps without packets.
    fn has_news(&self) -> bool {
        self.latest.get().now_ns != self.shown_ns
    }

    /// The last report.
    pub(in crate::netstat) fn close(mut self) -> Result<()> {
        self.tell();
        if self.read {
            self.show()?;
        }
        if let Some(status) = &self.export {
            output::tell(&ipfix::line(status));
        }
        Ok(())
    }

    fn show(&mut self) -> Result<bool> {
        let data = self.data()?;
        self.shown_ns = data.counted().now_ns;
        show(self.args, &data, &ReportLayout::new(self.args))
    }

    fn data(&mut self) -> Result<ReportData> {
        let rolls = self.args.continuous && self.args.view() == ReportView::Queues;
        Ok(ReportData {
            snapshot: Some(self.latest.get()),
            recent: self.args.continuous,
            losses: self.shared.with(|state| state.losses.clone()),
            ended: self.shared.with(|state| state.ended.iter().cloned().collect()),
            helped: self.shared.helped.clone(),
            peek: self.coverage(),
            counters: self
                .counter_reader
                .as_mut()
                .map(|counter_reader| counter_reader.read(rolls))
                .transpose()?,
            ports: Some(self.ports.clone()),
            filtered: !self.args.expression().is_empty(),
            asked: self.args.asked()?,
            thresholds: self.thresholds,
            names: self.names.clone(),
        })
    }

    fn coverage(&self) -> Option<PeekCoverage> {
        let seen = self.shared.with(|state| state.losses.seen);
        self.shared.peeked.as_ref().map(|peeked| peeked.coverage(seen))
    }

    /// Reports events of apps and collectors.
    fn tell(&mut self) {
        let notices = self.shared.with(|state| std::mem::take(&mut state.notices));
        let collectors = self.export.as_ref().map(ExportStatus::notices).unwrap_or_default();
        for line in notices.into_iter().chain(collectors) {
            output::tell(&line);
        }
    }

    fn say_progress(&self) {
        let Some(progress) = &self.progress else { return };
        if let Some(status) = &self.export {
            return progress.say(&ipfix::line(status));
        }
        let snapshot = self.latest.get();
        let flows = count(snapshot.flows.len() as u64);
        let packets = count(snapshot.total.packets);
        progress.say(&format!("{packets} packets, {flows} conversations"));
    }
}

/// Of a capture for so long, or until it is stopped.
fn progress(length: Option<Duration>) -> Progress {
    match length {
        Some(length) => Progress::watch("counting packets", length, false),
        None => Progress::begin("counting packets", false),
    }
}
