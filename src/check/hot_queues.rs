//! Finds the conversation that makes a receive queue hot, with a short capture of that queue.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pmdscope_capture::budget;
use pmdscope_flows::{Flow, FlowSnapshot, FlowTableSettings};
use pmdscope_packets::{DIR_RX, RunControl};
use pmdscope_render::number::count;
use pmdscope_telemetry::finding::balance::{self, HotQueue};
use pmdscope_telemetry::finding::{FindingCause, FindingSubject, Lint};
use pmdscope_telemetry::missed::MissedCause;
use pmdscope_telemetry::sample::AppIdentity;
use pmdscope_telemetry::{FleetSettings, FleetState};

use crate::attach::CaptureOptions;
use crate::attach::flow_capture::FlowCapture;
use crate::attach::running::RunningApp;
use crate::attach::target::CaptureTarget;
use crate::netstat;
use crate::source::Source;

/// The findings that are explained.
const LINT: Lint = Lint::QueueImbalance;

/// How long packets of a queue are captured.
const LENGTH: Duration = Duration::from_millis(250);

/// Longest time that a capture may take when nothing is left of the time to watch.
const LATE_CAPTURE_TIMEOUT: Duration = Duration::from_secs(1);

/// Share of one core that decides the sampling: some thousand packets name the largest conversation,
/// and a hot queue has no time to spare.
const CPU_SHARE: f64 = 0.01;

/// Most conversations of a queue.
const CAPACITY: usize = 16_384;

/// A conversation with this share of the packets of a queue stands out.
const CLEAR: f64 = 0.5;

/// The hot queues that were seen, and what makes them hot. One capture runs at a time.
pub(super) struct HotQueues {
    settings: Arc<FleetSettings>,
    /// No capture begins that would last longer.
    end: Instant,
    /// By app and device.
    seen: BTreeMap<(String, String), Seen>,
    capture: Option<Capture>,
}

/// The hottest queue of a port, as it was seen last.
struct Seen {
    queue: HotQueue,
    run: AppIdentity,
    cause: Option<String>,
}

/// A capture that runs, or has ended and was not evaluated yet.
struct Capture {
    app: String,
    device: String,
    /// What it is of.
    queue: u16,
    run: AppIdentity,
    begun: Instant,
    control: RunControl,
    thread: JoinHandle<Result<Arc<FlowSnapshot>>>,
}

impl HotQueues {
    /// None is known yet, and captures are to be over at `end`.
    pub(super) fn new(settings: FleetSettings, end: Instant) -> Self {
        Self { settings: Arc::new(settings), end, seen: BTreeMap::new(), capture: None }
    }

    /// Takes in the newest samples, and begins and ends captures. Never waits.
    pub(super) fn update(&mut self, source: &Source) {
        if self.capture.as_ref().is_some_and(|capture| capture.thread.is_finished()) {
            self.end_capture(source.fleet());
        }
        self.note(source.fleet());
        if self.capture.is_none() && Instant::now() + LENGTH <= self.end {
            self.start_capture(source);
        }
    }

    fn note(&mut self, fleet: &FleetState) {
        for (app, model) in fleet.live_models() {
            let run = &model.sample.app;
            for queue in balance::hottest(model, &self.settings.rules.thresholds) {
                let mut ports = model.sample.ports.iter();
                let Some(port) = ports.find(|port| port.id == queue.port) else { continue };
                let seen = self.seen.entry((app.name.clone(), port.device.clone()));
                let is_stock = model.sample.library.is_none();
                let known = || is_stock.then(|| unexplained(&anyhow!("{STOCK}")));
                let seen = seen.or_insert_with(|| Seen { queue, run: run.clone(), cause: known() });
                if seen.queue.queue != queue.queue || !seen.run.same_process(run) {
                    seen.cause = known();
                }
                seen.queue = queue;
                seen.run.clone_from(run);
            }
        }
    }

    /// Begins a capture of a queue that nothing is known of.
    fn start_capture(&mut self, source: &Source) {
        let unknown = |(_, seen): &(_, &mut Seen)| seen.cause.is_none();
        let Some(((app, device), seen)) = self.seen.iter_mut().find(unknown) else { return };
        let model = source.fleet().find(app).and_then(|app| app.model.as_deref());
        let Some((found, model)) = source.app(app).zip(model) else { return };
        let running = RunningApp { app: found, sample: Some(model.sample.clone()) };
        let (queue, control, settings) =
            (seen.queue, RunControl::default(), Arc::clone(&self.settings));
        let stop = control.clone();
        let thread = thread::Builder::new().name("capture".to_owned());
        match thread.spawn(move || capture(running, &queue, &settings, &stop)) {
            Ok(thread) => {
                let (app, device, begun) = (app.clone(), device.clone(), Instant::now());
                let (queue, run) = (queue.queue, seen.run.clone());
                self.capture = Some(Capture { app, device, queue, run, begun, control, thread });
            }
            Err(error) => seen.cause = Some(unexplained(&error.into())),
        }
    }

    /// Waits for the end of the capture, and takes in what it has found.
    fn end_capture(&mut self, fleet: &FleetState) {
        let Some(capture) = self.capture.take() else { return };
        let counted = capture.thread.join();
        let counted = counted.unwrap_or_else(|_| Err(anyhow!("the capture has failed")));
        let now = fleet.find(&capture.app).and_then(|app| app.model.as_deref());
        let same = now.is_none_or(|model| model.sample.app.same_process(&capture.run));
        let counted = if same { counted } else { Err(anyhow!("the app was restarted meanwhile")) };
        if let Some(seen) = self.seen.get_mut(&(capture.app, capture.device))
            && seen.queue.queue == capture.queue
            && seen.run.same_process(&capture.run)
        {
            seen.cause = Some(match counted {
                Ok(counted) => cause(&counted),
                Err(error) => unexplained(&error),
            });
        }
    }

    /// Adds to the findings what makes the queues hot; no capture runs any more.
    pub(super) fn explain(mut self, fleet: &mut FleetState) {
        if let Some(capture) = &self.capture {
            let limit = self.end.max(capture.begun + LENGTH) + LATE_CAPTURE_TIMEOUT;
            while !capture.thread.is_finished() && Instant::now() < limit {
                thread::sleep(LENGTH / 25);
            }
            capture.control.stop.store(true, Ordering::Relaxed);
        }
        self.end_capture(fleet);
        for finding in fleet.apps.iter_mut().flat_map(|app| &mut app.findings) {
            let FindingSubject::Port(device) = &finding.subject else { continue };
            let Some(evidence) =
                of_hot_queue(finding.lint, &mut finding.evidence, &mut finding.causes)
            else {
                continue;
            };
            let seen = self.seen.get(&(finding.app.clone(), device.clone()));
            let cause = seen.and_then(|seen| seen.cause.clone());
            let cause = cause.unwrap_or_else(|| unexplained(&anyhow!("{NO_TIME}")));
            let _ = write!(evidence, "; {cause}");
        }
    }
}

/// The sentence about a hot queue: that of the finding about it, or of the cause of missed packets
/// that it is.
fn of_hot_queue<'a>(
    lint: Lint,
    evidence: &'a mut String,
    causes: &'a mut [FindingCause],
) -> Option<&'a mut String> {
    if lint == LINT {
        return Some(evidence);
    }
    let hot = causes.iter_mut().find(|cause| cause.cause == MissedCause::HotQueue);
    hot.map(|cause| &mut cause.evidence)
}

const STOCK: &str = "one queue can be captured if the app is linked with libpmdscope";

const NO_TIME: &str = "no time was left to capture packets, which a longer --for gives";

/// Counts the conversations of a queue for a moment, in an app with libpmdscope.
fn capture(
    running: RunningApp,
    queue: &HotQueue,
    settings: &Arc<FleetSettings>,
    control: &RunControl,
) -> Result<Arc<FlowSnapshot>> {
    let wanted = CaptureTarget::queue(running, queue.port, queue.queue, settings)?;
    let sample = budget::first_sample(queue.pps, CPU_SHARE);
    let ask = CaptureOptions { sample, dirs: DIR_RX.into(), ..CaptureOptions::default() };
    let kept = FlowTableSettings { capacity: CAPACITY, ..FlowTableSettings::default() };
    let capture = FlowCapture::open(&wanted, ask, kept, Some(LENGTH), &control.stop)?;
    let latest = capture.latest();
    let failure = capture.run(control, &mut ()).failure;
    failure.map_or(Ok(()), Err).context("the capture has failed")?;
    Ok(latest.get())
}

/// Why it is unknown what makes a queue hot.
fn unexplained(error: &anyhow::Error) -> String {
    format!("its conversations are not known: {error:#}")
}

/// What makes a queue hot, by the packets that were captured of it.
fn cause(counted: &FlowSnapshot) -> String {
    let packets = |flow: &Flow| netstat::directions(flow).0.packets;
    let largest = counted.flows.iter().max_by_key(|flow| packets(flow));
    let looked_at = format!("{} sampled packets", count(counted.looked_at));
    let lost = match counted.lost {
        0 => String::new(),
        lost => format!(" ({} more were lost)", count(lost)),
    };
    let Some(largest) = largest.filter(|_| counted.total.packets > 0) else {
        return format!("no conversation in {looked_at}{lost}");
    };
    let share = packets(largest) as f64 / counted.total.packets as f64;
    let percent =
        if share < 0.01 { "less than 1".to_owned() } else { format!("{:.0}", share * 100.0) };
    if share < CLEAR {
        return format!("no single conversation: the largest has {percent} % of {looked_at}{lost}");
    }
    format!("most of it {}, {percent} % of {looked_at}{lost}", netstat::name(largest))
}

#[cfg(test)]
mod tests;
