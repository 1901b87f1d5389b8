//! Captures packets for the conversations of `top`, only while they are shown.
//!
//! Each app has a thread of its own, a [`sampler_thread::SamplerThread`], so that none waits for another.
//! Conversations are kept for a moment after their page was left; then the captures end.

mod sampler_thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pmdscope_capture::pdump::wait_for_exits;
use pmdscope_flows::FlowSnapshot;
use pmdscope_telemetry::{FleetSettings, FleetState, realtime_ns};
use pmdscope_tui::flows::{
    AppRun, AppTraffic, CaptureAccess, CapturedTraffic, FlowRequest, RequestedApp,
};
use pmdscope_tui::run::DisplayFeed;
use pmdscope_tui::timeline::live::LiveUpdate;

use self::sampler_thread::{SamplerJob, SamplerThread};

/// Captures end so long after their page was left.
const HIDDEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the display is updated.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// How often to try again where an app refuses, or has ended.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// The same with a helper, also for a check whether it can attach: each try starts another process.
const HELPER_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Share of one core that all captures together may take.
const CPU_SHARE: f64 = 0.1;

/// How long to wait for captures to begin, and to end.
const START_TIMEOUT: Duration = Duration::from_secs(3);

/// How often to check whether they have.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The side that captures for the display.
pub(crate) struct FlowSampler(JoinHandle<()>);

impl FlowSampler {
    /// Waits until nothing is captured any more, once the display has ended.
    pub(crate) fn end(self) {
        wait_until(|| self.0.is_finished());
    }
}

/// Captures what the display wants, until it ends.
pub(crate) fn start(feed: DisplayFeed<LiveUpdate>, settings: FleetSettings) -> FlowSampler {
    feed.mailbox.publish(CapturedTraffic::default());
    FlowSampler(thread::spawn(move || serve(&feed, AppCaptures::new(settings))))
}

fn serve(feed: &DisplayFeed<LiveUpdate>, mut captures: AppCaptures) {
    let mut request = FlowRequest::default();
    let mut goes_on = true;
    while goes_on && !request.over {
        request = feed.mailbox.wait_for_request(&request, UPDATE_INTERVAL);
        // Reaps helpers that have left their apps immediately, and not only when this process ends.
        let _ = wait_for_exits(Duration::ZERO);
        let was_idle = captures.is_idle();
        captures.apply(&request, Instant::now());
        if request.shown || !was_idle {
            goes_on = feed.tell(captures.traffic());
        }
    }
    captures.stop();
}

/// Conversations for reports that are printed.
pub(crate) struct ReportSampler(AppCaptures);

impl ReportSampler {
    /// Begins to capture from the apps that answer and hand out packets themselves.
    pub(crate) fn start(fleet: &FleetState, settings: FleetSettings) -> Self {
        let mut captures = AppCaptures::new(settings);
        captures.apply(&request(fleet), Instant::now());
        wait_until(|| captures.have_begun());
        Self(captures)
    }

    /// What was counted up to now.
    pub(crate) fn next(&mut self, fleet: &FleetState) -> CapturedTraffic {
        self.0.apply(&request(fleet), Instant::now());
        without_helpers(self.0.traffic())
    }

    /// All that was counted; nothing is captured any more.
    pub(crate) fn last(mut self) -> CapturedTraffic {
        self.0.stop();
        without_helpers(self.0.traffic())
    }
}

fn request(fleet: &FleetState) -> FlowRequest {
    FlowRequest { shown: true, apps: RequestedApp::of(fleet), ..FlowRequest::default() }
}

/// A report cannot ask the user for a helper.
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

/// Does a job, on a thread of its own.
type SamplerWork = Arc<dyn Fn(SamplerJob) + Send + Sync>;

/// All captures.
struct AppCaptures {
    work: SamplerWork,
    apps: BTreeMap<String, SampledApp>,
    /// When the page was left.
    left: Option<Instant>,
    /// Captures that were asked to end.
    leaving: Vec<SamplerThread>,
}

/// An app.
struct SampledApp {
    access: CaptureAccess,
    counted: Arc<FlowSnapshot>,
    sampler: Option<SamplerThread>,
    /// The run that a helper was last asked for.
    attach: Option<AppRun>,
    /// When to try, without a sampler.
    next: Instant,
}

impl AppCaptures {
    fn new(settings: FleetSettings) -> Self {
        Self::with(Arc::new(move |job: SamplerJob| job.run(settings.clone())))
    }

    fn with(work: SamplerWork) -> Self {
        Self { work, apps: BTreeMap::new(), left: None, leaving: Vec::new() }
    }

    fn is_idle(&self) -> bool {
        self.apps.is_empty()
    }

    /// No app is being asked for the first time.
    fn have_begun(&mut self) -> bool {
        self.update(Instant::now());
        self.apps.values().all(|sampled| sampled.access != CaptureAccess::Opening)
    }

    /// Begins and ends captures. Never waits.
    fn apply(&mut self, request: &FlowRequest, now: Instant) {
        self.leaving.retain(|sampler| !sampler.is_over());
        self.update(now);
        if !request.shown {
            let left = *self.left.get_or_insert(now);
            if now - left >= HIDDEN_TIMEOUT || request.over {
                self.close();
            }
            return;
        }
        self.left = None;
        self.end_unwanted_helpers(request, now);
        self.apps.retain(|app, sampled| {
            sampled.stays() || request.apps.iter().any(|run| run.app == *app)
        });
        let share = CPU_SHARE / request.apps.len().max(1) as f64;
        for running in &request.apps {
            let attach = request.attach.get(&running.app).copied();
            self.try_to_capture(running, attach, share, now);
        }
    }

    /// Tries to capture from an app, where it is time for that.
    fn try_to_capture(
        &mut self,
        running: &RequestedApp,
        attach: Option<AppRun>,
        share: f64,
        now: Instant,
    ) {
        let app = &running.app;
        let sampled = self.apps.entry(app.clone()).or_insert_with(|| SampledApp::new(now));
        let is_new = attach.is_some() && attach != sampled.attach;
        let wanted = is_new && sampled.access == CaptureAccess::Offered;
        if sampled.sampler.is_none() && (wanted || sampled.next <= now) {
            if wanted {
                sampled.access = CaptureAccess::Opening;
            }
            sampled.attach = attach;
            sampled.sampler =
                Some(SamplerThread::start(running, attach, share, Arc::clone(&self.work)));
        }
    }

    /// Ends the helpers that are not wanted any more.
    fn end_unwanted_helpers(&mut self, request: &FlowRequest, now: Instant) {
        for (app, sampled) in &mut self.apps {
            let beside = sampled.sampler.take_if(|sampler| {
                let is_other = request.attach.get(app) != sampler.attach.as_ref();
                sampler.attach.is_some() && sampled.access != ARMED && is_other
            });
            if let Some(sampler) = beside {
                sampler.stop();
                self.leaving.push(sampler);
                *sampled = SampledApp {
                    access: CaptureAccess::Offered,
                    ..SampledApp::new(now + HELPER_RETRY_INTERVAL)
                };
            }
        }
    }

    /// Takes in the state of the samplers.
    fn update(&mut self, now: Instant) {
        for sampled in self.apps.values_mut() {
            sampled.update(now);
        }
    }

    fn traffic(&mut self) -> CapturedTraffic {
        self.update(Instant::now());
        let tap = |(app, sampled): (&String, &SampledApp)| AppTraffic {
            app: app.clone(),
            access: sampled.access.clone(),
            counted: Arc::clone(&sampled.counted),
        };
        CapturedTraffic { realtime_ns: realtime_ns(), taps: self.apps.iter().map(tap).collect() }
    }

    /// Asks all captures to end, and forgets what they have counted.
    fn close(&mut self) {
        let apps = std::mem::take(&mut self.apps);
        let samplers = apps.into_values().filter_map(|sampled| sampled.sampler);
        self.leaving.extend(samplers.inspect(SamplerThread::stop));
    }

    /// Ends all captures, and waits for that; what they have counted stays.
    fn stop(&mut self) {
        let running = || self.apps.values().filter_map(|sampled| sampled.sampler.as_ref());
        running().for_each(SamplerThread::stop);
        wait_until(|| running().chain(&self.leaving).all(SamplerThread::is_over));
    }
}

const ARMED: CaptureAccess = CaptureAccess::Armed { via: None };

impl SampledApp {
    /// An app that is to be asked at that time.
    fn new(next: Instant) -> Self {
        let access = CaptureAccess::Opening;
        Self { access, counted: Arc::default(), sampler: None, attach: None, next }
    }

    /// There is something to show though the app does not answer.
    fn stays(&self) -> bool {
        self.sampler.is_some() || self.access == CaptureAccess::Ended
    }

    fn update(&mut self, now: Instant) {
        let Some(sampler) = &self.sampler else { return };
        let (is_over, attach) = (sampler.is_over(), sampler.attach);
        let (access, counted) = sampler.state();
        // Another try without an answer yet changes nothing.
        if access != CaptureAccess::Opening {
            self.access = access;
        }
        if let Some(counted) = counted {
            self.counted = counted;
        }
        if is_over {
            let helper = attach.is_some() || self.access == CaptureAccess::Offered;
            self.next = now + if helper { HELPER_RETRY_INTERVAL } else { RETRY_INTERVAL };
            self.sampler = None;
        }
    }
}

fn wait_until(mut over: impl FnMut() -> bool) {
    let end = Instant::now() + START_TIMEOUT;
    while !over() && Instant::now() < end {
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests;
