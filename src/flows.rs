//! Captures packets for the conversations of `top`, only while they are shown.
//!
//! Each app has a thread of its own, a [`probe::Probe`], so that none waits for another.
//! Conversations are kept for a moment after their page was left; then the captures end.

mod probe;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pmdscope_capture::pdump::settle;
use pmdscope_flows::FlowSnapshot;
use pmdscope_packets::wall_clock_ns;
use pmdscope_telemetry::{FleetSettings, FleetState};
use pmdscope_tui::flows::{
    AppRun, CaptureAccess, CapturedApp, CapturedTraffic, FlowRequest, RunningApp,
};
use pmdscope_tui::run::DisplayFeed;

use self::probe::{Errand, Probe};

/// Captures go on for so long after nobody looks any more.
const LINGER: Duration = Duration::from_secs(5);

/// How often the display hears.
const TICK: Duration = Duration::from_millis(500);

/// How often to try again where an app refuses, or has ended.
const LOOK: Duration = Duration::from_secs(3);

/// The same with a helper, also where only to find out about it: that takes another process.
const LOOK_HELPER: Duration = Duration::from_secs(30);

/// Share of one core that all captures together may take.
const SHARE: f64 = 0.1;

/// How long to wait for captures to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often to look whether they have.
const STEP: Duration = Duration::from_millis(10);

/// The side that captures for the display.
pub(crate) struct Sampler(JoinHandle<()>);

impl Sampler {
    /// Waits until nothing is captured any more, once the display has ended.
    pub(crate) fn end(self) {
        wait_until(|| self.0.is_finished());
    }
}

/// Captures what the display wants, until it ends.
pub(crate) fn start(feed: DisplayFeed<FleetState>, settings: FleetSettings) -> Sampler {
    feed.mailbox.publish(CapturedTraffic::default());
    Sampler(thread::spawn(move || serve(&feed, Captures::new(settings))))
}

fn serve(feed: &DisplayFeed<FleetState>, mut captures: Captures) {
    let mut request = FlowRequest::default();
    let mut goes_on = true;
    while goes_on && !request.over {
        request = feed.mailbox.wait_for_request(&request, TICK);
        // Helpers that have left their apps are gone at once, and not only when this process ends.
        let _ = settle(Duration::ZERO);
        let was_idle = captures.is_idle();
        captures.obey(&request, Instant::now());
        if request.shown || !was_idle {
            goes_on = feed.tell(captures.traffic());
        }
    }
    captures.stop();
}

/// Conversations for reports that are printed.
pub(crate) struct Reports(Captures);

impl Reports {
    /// Begins to capture from the apps that answer and hand out packets themselves.
    pub(crate) fn start(world: &FleetState, settings: FleetSettings) -> Self {
        let mut captures = Captures::new(settings);
        captures.obey(&request(world), Instant::now());
        wait_until(|| captures.have_begun());
        Self(captures)
    }

    /// What was counted up to now.
    pub(crate) fn next(&mut self, world: &FleetState) -> CapturedTraffic {
        self.0.obey(&request(world), Instant::now());
        without_helpers(self.0.traffic())
    }

    /// All that was counted; nothing is captured any more.
    pub(crate) fn last(mut self) -> CapturedTraffic {
        self.0.stop();
        without_helpers(self.0.traffic())
    }
}

fn request(world: &FleetState) -> FlowRequest {
    FlowRequest { shown: true, apps: RunningApp::of(world), ..FlowRequest::default() }
}

/// Nobody can be asked for a helper.
fn without_helpers(mut traffic: CapturedTraffic) -> CapturedTraffic {
    for tap in traffic.taps.iter_mut().filter(|tap| tap.access == CaptureAccess::Offered) {
        let app = &tap.app;
        let reason = format!(
            "{app} runs without libpmdscope, and no helper is started beside it here: \
             `pmdscope netstat -a {app}` does that"
        );
        tap.access = CaptureAccess::Refused { reason };
    }
    traffic
}

/// Does an errand, on a thread of its own.
type Work = Arc<dyn Fn(Errand) + Send + Sync>;

/// All captures.
struct Captures {
    work: Work,
    seats: BTreeMap<String, Seat>,
    /// Nobody has looked since then.
    left: Option<Instant>,
    /// Captures that were told to end.
    leaving: Vec<Probe>,
}

/// An app.
struct Seat {
    access: CaptureAccess,
    counted: Arc<FlowSnapshot>,
    probe: Option<Probe>,
    /// The run that a helper was last asked for.
    attach: Option<AppRun>,
    /// When to try, without a probe.
    next: Instant,
}

impl Captures {
    fn new(settings: FleetSettings) -> Self {
        Self::with(Arc::new(move |errand: Errand| errand.run(settings.clone())))
    }

    fn with(work: Work) -> Self {
        Self { work, seats: BTreeMap::new(), left: None, leaving: Vec::new() }
    }

    fn is_idle(&self) -> bool {
        self.seats.is_empty()
    }

    /// No app is being asked for the first time.
    fn have_begun(&mut self) -> bool {
        self.hear(Instant::now());
        self.seats.values().all(|seat| seat.access != CaptureAccess::Opening)
    }

    /// Begins and ends captures. Never waits.
    fn obey(&mut self, request: &FlowRequest, now: Instant) {
        self.leaving.retain(|probe| !probe.is_over());
        self.hear(now);
        if !request.shown {
            let left = *self.left.get_or_insert(now);
            if now - left >= LINGER || request.over {
                self.close();
            }
            return;
        }
        self.left = None;
        self.withdraw(request, now);
        self.seats
            .retain(|app, seat| seat.stays() || request.apps.iter().any(|run| run.app == *app));
        let share = SHARE / request.apps.len().max(1) as f64;
        for running in &request.apps {
            let attach = request.attach.get(&running.app).copied();
            self.look(running, attach, share, now);
        }
    }

    /// Tries to capture from an app, where it is time for that.
    fn look(&mut self, running: &RunningApp, attach: Option<AppRun>, share: f64, now: Instant) {
        let app = &running.app;
        let seat = self.seats.entry(app.clone()).or_insert_with(|| Seat::new(now));
        let is_new = attach.is_some() && attach != seat.attach;
        let wanted = is_new && seat.access == CaptureAccess::Offered;
        if seat.probe.is_none() && (wanted || seat.next <= now) {
            if wanted {
                seat.access = CaptureAccess::Opening;
            }
            seat.attach = attach;
            seat.probe = Some(Probe::start(running, attach, share, Arc::clone(&self.work)));
        }
    }

    /// Ends the helpers that are not wanted any more.
    fn withdraw(&mut self, request: &FlowRequest, now: Instant) {
        for (app, seat) in &mut self.seats {
            let beside = seat.probe.take_if(|probe| {
                let is_other = request.attach.get(app) != probe.attach.as_ref();
                probe.attach.is_some() && seat.access != ARMED && is_other
            });
            if let Some(probe) = beside {
                probe.stop();
                self.leaving.push(probe);
                *seat = Seat { access: CaptureAccess::Offered, ..Seat::new(now + LOOK_HELPER) };
            }
        }
    }

    /// Takes in what the probes have to say.
    fn hear(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            seat.hear(now);
        }
    }

    fn traffic(&mut self) -> CapturedTraffic {
        self.hear(Instant::now());
        let tap = |(app, seat): (&String, &Seat)| CapturedApp {
            app: app.clone(),
            access: seat.access.clone(),
            counted: Arc::clone(&seat.counted),
        };
        CapturedTraffic { realtime_ns: wall_clock_ns(), taps: self.seats.iter().map(tap).collect() }
    }

    /// Tells all captures to end, and forgets what they have counted.
    fn close(&mut self) {
        let seats = std::mem::take(&mut self.seats);
        let probes = seats.into_values().filter_map(|seat| seat.probe);
        self.leaving.extend(probes.inspect(Probe::stop));
    }

    /// Ends all captures, and waits for that; what they have counted stays.
    fn stop(&mut self) {
        let running = || self.seats.values().filter_map(|seat| seat.probe.as_ref());
        running().for_each(Probe::stop);
        wait_until(|| running().chain(&self.leaving).all(Probe::is_over));
    }
}

const ARMED: CaptureAccess = CaptureAccess::Armed { via: None };

impl Seat {
    /// An app that is to be asked at that time.
    fn new(next: Instant) -> Self {
        let access = CaptureAccess::Opening;
        Self { access, counted: Arc::default(), probe: None, attach: None, next }
    }

    /// There is something to show though the app does not answer.
    fn stays(&self) -> bool {
        self.probe.is_some() || self.access == CaptureAccess::Ended
    }

    fn hear(&mut self, now: Instant) {
        let Some(probe) = &self.probe else { return };
        let (is_over, attach) = (probe.is_over(), probe.attach);
        let (access, counted) = probe.told();
        // Another try that has no answer yet says nothing new.
        if access != CaptureAccess::Opening {
            self.access = access;
        }
        if let Some(counted) = counted {
            self.counted = counted;
        }
        if is_over {
            let helper = attach.is_some() || self.access == CaptureAccess::Offered;
            self.next = now + if helper { LOOK_HELPER } else { LOOK };
            self.probe = None;
        }
    }
}

fn wait_until(mut over: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !over() && Instant::now() < end {
        thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests;
