//! The present and the last minutes.

use std::fmt;

use pmdscope_telemetry::FleetState;

use super::history::{FrameHistory, HistoryLimits};
use super::time_bar::{TimeBar, TimeBarKind};
use super::trends::Trends;
use super::{FrameSource, SeekTarget, TimeSpan, Timeline, TimelineFrame, resolve};

/// Shows the present until the user goes back; what comes in meanwhile is kept.
#[derive(Debug, Default)]
pub struct LiveTimeline {
    present: FleetState,
    history: FrameHistory,
    /// What the present has become since it was drawn.
    update: Option<LiveUpdate>,
    /// The moment that is shown instead of the present.
    shown: Option<TimelineFrame>,
}

/// Gives the state of all apps when it is drawn. With many apps it changes many times for one frame.
pub struct LiveUpdate(Box<dyn FnOnce() -> FleetState + Send>);

impl LiveUpdate {
    /// The state that `tell` will return.
    pub fn new(tell: impl FnOnce() -> FleetState + Send + 'static) -> Self {
        Self(Box::new(tell))
    }
}

impl From<FleetState> for LiveUpdate {
    fn from(state: FleetState) -> Self {
        Self::new(move || state)
    }
}

impl fmt::Debug for LiveUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveUpdate").finish_non_exhaustive()
    }
}

impl LiveTimeline {
    /// Nothing is known yet.
    pub fn new(limits: HistoryLimits) -> Self {
        Self { history: FrameHistory::new(limits), ..Self::default() }
    }

    /// What can be gone back to.
    pub fn history(&self) -> &FrameHistory {
        &self.history
    }

    fn show(&mut self, from: u64, to: SeekTarget) {
        let Ok(moment) = self.history.seek(from, to);
        self.shown = moment;
    }

    /// Going on from the newest moment leads to the present.
    fn leads_to_present(&self, to: SeekTarget, newest: u64) -> bool {
        let at_newest = self.shown.as_ref().is_none_or(|shown| shown.at >= newest);
        match to {
            SeekTarget::Newest => true,
            SeekTarget::Step(steps) => steps > 0 && at_newest,
            SeekTarget::By(ns) => ns > 0 && at_newest,
            _ => false,
        }
    }
}

impl Timeline for LiveTimeline {
    type Update = LiveUpdate;

    fn take(&mut self, update: LiveUpdate) {
        self.update = Some(update);
    }

    fn tick(&mut self, monotonic_ns: u64, realtime_ns: u64) {
        let update = self.update.take();
        let is_new = update.is_some();
        if let Some(LiveUpdate(tell)) = update {
            self.present = tell();
        }
        self.present.now_ns = monotonic_ns;
        self.present.realtime_ns = realtime_ns;
        if is_new {
            self.history.push(&self.present);
        }
        // The moment that is shown leaves the history at last.
        let shown = self.shown.as_ref().map(|shown| shown.at);
        if let (Some(shown), Some(span)) = (shown, self.history.span())
            && shown < span.oldest
        {
            self.show(shown, SeekTarget::Oldest);
        }
    }

    fn fleet(&self) -> &FleetState {
        self.shown.as_ref().map_or(&self.present, |shown| &shown.fleet)
    }

    fn time_bar(&self) -> Option<TimeBar> {
        let shown = self.shown.as_ref()?;
        let span = self.history.span()?;
        Some(TimeBar {
            at: span.clamp(shown.at),
            realtime_ns: shown.fleet.realtime_ns,
            span,
            marks: self.history.marks(),
            place: TimeBarKind::Past { ago_ns: self.present.now_ns.saturating_sub(shown.at) },
            remark: None,
        })
    }

    fn trends(&self) -> Trends {
        self.history.trends(self.shown.as_ref().map_or(self.present.now_ns, |shown| shown.at))
    }

    fn seek(&mut self, to: SeekTarget) {
        let Some(TimeSpan { newest, .. }) = self.history.span() else { return };
        if self.leads_to_present(to, newest) {
            self.shown = None;
            return;
        }
        let shown = self.shown.as_ref().map(|shown| shown.at);
        // Seen from the present, a finding that began in the newest moment is one before.
        let seen_from = shown.unwrap_or(newest.saturating_add(1));
        if let Some(to) = resolve(to, seen_from, &self.history.marks()) {
            self.show(shown.unwrap_or(newest), to);
        }
    }

    fn hold(&mut self) {
        match self.shown {
            Some(_) => self.shown = None,
            None => self.show(u64::MAX, SeekTarget::At(u64::MAX)),
        }
    }

    fn hasten(&mut self, _faster: bool) -> bool {
        false
    }
}
