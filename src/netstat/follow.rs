//! Conversations of a live pipe: reports while packets still arrive.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pmdscope_flows::FlowTable;
use pmdscope_packets::read::{FileReplay, ReplayReport};
use pmdscope_packets::{
    CaptureInterface, InterfaceStatistics, Packet, PacketSink, RunControl, SectionOrigin,
    SinkError, SinkProgress,
};
use pmdscope_render::number::plural;

use super::args::Args;
use super::live::{LiveReporter, SharedState};
use super::report_data::PacketLosses;
use super::{ipfix, offline};
use crate::{capture, output};

/// Time between two snapshots, as of live captures.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// Counts what comes through the pipe, and reports every interval until it ends.
pub(super) fn run(args: &Args, control: &RunControl) -> Result<ExitCode> {
    capture::end_in_order(control)?;
    let export = ipfix::listener(&args.ipfix, 1, false)?;
    let status = export.as_ref().map(|export| export.status.clone());
    let replay = FileReplay::open(args.read.clone(), offline::settings(args), control);
    let replay = replay.map_err(capture::plain)?;
    let (table, latest) = FlowTable::new(args.table(export));
    let table = Mutex::new(PipedTable::new(table));
    let shared = SharedState::default();
    let reporter =
        LiveReporter::new(args, control, &shared, latest, None, Vec::new(), status.clone())?;
    let (report, reporter) = thread::scope(|scope| {
        let clock = thread::Builder::new().name("clock".to_owned());
        let clock = clock.spawn_scoped(scope, || keep_time(&table, &shared.over));
        let clock = clock.context("cannot start the clock thread")?;
        let thread = thread::Builder::new().name("report".to_owned());
        let reporter = thread.spawn_scoped(scope, move || reporter.run());
        let report = reporter.is_ok().then(|| count(replay, &table));
        shared.over.store(true, Ordering::Release);
        clock.thread().unpark();
        let reporter = reporter.context("cannot start the report thread")?;
        reporter.thread().unpark();
        let reporter = reporter.join().map_err(|_| anyhow!("the report thread panicked"))?;
        Ok::<_, anyhow::Error>((report.unwrap_or_default(), reporter?))
    })?;
    let undirected = report.undirected;
    shared.with(|state| state.losses = PacketLosses { undirected, ..PacketLosses::default() });
    reporter.close()?;
    match report.failure {
        Some(failure) => Err(capture::plain(failure)),
        None if status.as_ref().is_none_or(ipfix::is_complete) => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

fn count(replay: FileReplay, table: &Mutex<PipedTable>) -> ReplayReport {
    replay.run(&mut PipeSink(table), &mut |report| {
        output::tell(&format!("{} read", plural(report.read, "packet")));
    })
}

/// Has a snapshot made every second, also while no packet comes.
fn keep_time(table: &Mutex<PipedTable>, over: &AtomicBool) {
    let mut next = Instant::now() + SNAPSHOT_INTERVAL;
    while !over.load(Ordering::Acquire) {
        let now = Instant::now();
        if now >= next {
            lock(table).snapshot(now);
            next = now + SNAPSHOT_INTERVAL;
        }
        thread::park_timeout(next.saturating_duration_since(now));
    }
}

fn lock(table: &Mutex<PipedTable>) -> MutexGuard<'_, PipedTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table, and the time by the clock of the process that captures: that of the newest packet, and
/// goes on from there, as the pipe may come from another machine or from a file.
#[derive(Debug)]
struct PipedTable {
    table: FlowTable,
    newest_ns: u64,
    /// Time of the newest packet at the last snapshot with new ones, and when that was.
    base: Option<(u64, Instant)>,
}

impl PipedTable {
    fn new(table: FlowTable) -> Self {
        Self { table, newest_ns: 0, base: None }
    }

    fn snapshot(&mut self, now: Instant) {
        if self.newest_ns == 0 {
            return;
        }
        let base = self.base.filter(|(ns, _)| *ns == self.newest_ns);
        let (ns, since) = *self.base.insert(base.unwrap_or((self.newest_ns, now)));
        let elapsed = now.saturating_duration_since(since).as_nanos();
        let end_ns = ns.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX));
        // Without an interface: it only carries the time.
        let interface = u32::MAX;
        let clock = InterfaceStatistics { interface, end_ns, ..InterfaceStatistics::default() };
        self.table.counters(&[clock]);
    }
}

/// A table that a clock shares.
#[derive(Debug)]
struct PipeSink<'a>(&'a Mutex<PipedTable>);

impl PacketSink for PipeSink<'_> {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        lock(self.0).table.section(origin)
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        lock(self.0).table.interface(interface)
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        let mut shared = lock(self.0);
        shared.newest_ns = shared.newest_ns.max(packet.ns);
        shared.table.packet(packet)
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        lock(self.0).table.counters(statistics);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        lock(self.0).table.flush()
    }

    fn done(&mut self) -> bool {
        lock(self.0).table.done()
    }

    fn progress(&self) -> SinkProgress {
        lock(self.0).table.progress()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        lock(self.0).table.finish()
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_flows::FlowTableSettings;

    use super::*;

    #[test]
    fn time_goes_on_from_the_newest_packet() {
        let (table, latest) = FlowTable::new(FlowTableSettings::default());
        let mut piped = PipedTable::new(table);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        piped.snapshot(start);
        assert_eq!(latest.get().now_ns, 0);
        piped.newest_ns = 50_000_000_000;
        for (seconds, expected) in [(1, 50), (2, 51), (3, 52)] {
            piped.snapshot(after(seconds));
            assert_eq!(latest.get().now_ns, expected * 1_000_000_000);
        }
        // What was buffered meanwhile is older than the clock, and then newer.
        for (newest, seconds, expected) in [(51, 4, 52), (60, 5, 60), (60, 6, 61)] {
            piped.newest_ns = newest * 1_000_000_000;
            piped.snapshot(after(seconds));
            assert_eq!(latest.get().now_ns, expected * 1_000_000_000);
        }
    }
}
