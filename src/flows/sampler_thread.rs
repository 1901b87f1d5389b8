//! A thread that captures from one app.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use pmdscope_capture::budget::CpuBudget;
use pmdscope_capture::{Transport, budget};
use pmdscope_flows::{FlowSnapshot, FlowTableSettings, LatestSnapshot};
use pmdscope_packets::{DIR_RX, DIR_TX, RunControl};
use pmdscope_telemetry::FleetSettings;
use pmdscope_tui::flows::{AppRun, CaptureAccess, RequestedApp};

use super::SamplerWork;
use crate::attach::flow_capture::FlowCapture;
use crate::attach::policy::AttachPolicy;
use crate::attach::{CaptureOptions, resolve};
use crate::output::one_line;

/// Most conversations of an app.
const CAPACITY: usize = 16_384;

/// Conversations that were silent for so long are forgotten.
const IDLE: Duration = Duration::from_secs(300);

/// The caller's side, which never waits.
pub(super) struct SamplerThread {
    /// The run of the app that a helper was asked for.
    pub(super) attach: Option<AppRun>,
    control: RunControl,
    state: Arc<Mutex<SamplerState>>,
    thread: JoinHandle<()>,
}

/// What the thread publishes.
struct SamplerState {
    access: CaptureAccess,
    latest: Option<LatestSnapshot>,
}

impl SamplerThread {
    /// Runs `work` for an app; it may take `share` of a core.
    pub(super) fn start(
        running: &RequestedApp,
        attach: Option<AppRun>,
        share: f64,
        work: SamplerWork,
    ) -> Self {
        let control = RunControl::default();
        let state =
            Arc::new(Mutex::new(SamplerState { access: CaptureAccess::Opening, latest: None }));
        let job = SamplerJob {
            running: running.clone(),
            attach,
            share,
            control: control.clone(),
            state: Arc::clone(&state),
        };
        let thread = thread::spawn(move || work(job));
        Self { attach, control, state, thread }
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }

    /// The thread has ended.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// How packets are had, and what was counted of them.
    pub(super) fn state(&self) -> (CaptureAccess, Option<Arc<FlowSnapshot>>) {
        let state = lock(&self.state);
        (state.access.clone(), state.latest.as_ref().map(LatestSnapshot::get))
    }
}

/// What the thread is to do.
pub(super) struct SamplerJob {
    pub(super) running: RequestedApp,
    /// With a helper, where there is no other way, beside that run.
    pub(super) attach: Option<AppRun>,
    /// Of one core.
    share: f64,
    pub(super) control: RunControl,
    state: Arc<Mutex<SamplerState>>,
}

impl SamplerJob {
    /// Captures until it is told to end, or the app ends or refuses.
    pub(super) fn run(&self, settings: FleetSettings) {
        let access = self.capture(settings).unwrap_or_else(|error| CaptureAccess::Refused {
            reason: one_line(&format!("{error:#}")),
        });
        // After a request to end, the state remains as it was.
        if !self.control.stop.load(Ordering::Relaxed) {
            self.tell(access);
        }
    }

    pub(super) fn tell(&self, access: CaptureAccess) {
        lock(&self.state).access = access;
    }

    fn capture(&self, settings: FleetSettings) -> anyhow::Result<CaptureAccess> {
        let app = &self.running.app;
        let wanted = resolve::resolve(&[], Some(app), settings, AttachPolicy::Safe)?.pop();
        let wanted = wanted.with_context(|| format!("{app} has no ports"))?;
        let via = wanted.transport.via();
        if let Transport::Pdump(pdump) = &wanted.transport
            && self.attach.is_none_or(|run| run.pid != pdump.pid)
        {
            return Ok(CaptureAccess::Offered);
        }
        let sample = budget::first_sample(self.running.pps.unwrap_or(0.0), self.share);
        self.control.sample.store(sample, Ordering::Relaxed);
        let ask =
            CaptureOptions { sample, dirs: (DIR_RX | DIR_TX).into(), ..CaptureOptions::default() };
        let kept = FlowTableSettings {
            capacity: CAPACITY,
            idle: Some(IDLE),
            windows: true,
            ..Default::default()
        };
        let capture = FlowCapture::open(&wanted, ask, kept, None, &self.control.stop)?;
        let latest = Some(capture.latest());
        *lock(&self.state) = SamplerState { access: CaptureAccess::Armed { via }, latest };
        let report = capture.run(&self.control, &mut CpuBudget::new(self.share, &self.control));
        report.failure.map_or(Ok(CaptureAccess::Ended), |failure| Err(failure.into()))
    }
}

fn lock(state: &Mutex<SamplerState>) -> MutexGuard<'_, SamplerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
