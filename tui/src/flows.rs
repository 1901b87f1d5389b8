//! Conversations: requests of the display to the side that captures, and the data that it gets.
//!
//! Neither side waits for the other: a [`FlowMailbox`] keeps the newest of what each sends.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmdscope_flows::{FlowEndpoint, FlowSnapshot};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::AppIdentity;
use pmdscope_telemetry::{AppState, FleetState};
use serde::Serialize;

/// State of the capture of packets of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "capture", rename_all = "lowercase")]
pub enum CaptureAccess {
    /// Connecting to the app.
    Opening,
    /// Packets are captured.
    Armed {
        /// How packets are captured: `pdump` (by a helper) or `peek` (from the memory of the app); `None` if
        /// by its libpmdscope.
        via: Option<&'static str>,
    },
    /// Packets can be captured by a helper process, which has not been requested.
    Offered,
    /// Packets cannot be captured.
    Refused {
        /// Why packets cannot be captured, and what to do.
        reason: String,
    },
    /// The app has ended; packets were captured until then.
    Ended,
}

/// Captured packets of one app.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppTraffic {
    /// Name of the app.
    pub app: String,
    /// State of the capture.
    #[serde(flatten)]
    pub access: CaptureAccess,
    /// Conversations and counts, with their own list of apps.
    pub counted: Arc<FlowSnapshot>,
}

/// Captured packets of all apps.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapturedTraffic {
    /// Wall clock of the data, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Captured packets of each app, sorted by name.
    pub taps: Vec<AppTraffic>,
}

impl CapturedTraffic {
    /// The packets of that app.
    pub fn find(&self, app: &str) -> Option<&AppTraffic> {
        self.taps.iter().find(|tap| tap.app == app)
    }

    /// Names of the apps whose packets are had in such a way.
    pub fn apps(&self, is: impl Fn(&CaptureAccess) -> bool) -> impl Iterator<Item = &str> {
        self.taps.iter().filter(move |tap| is(&tap.access)).map(|tap| tap.app.as_str())
    }
}

/// One run of an app, which a later one of the same name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppRun {
    /// Process id on this host.
    pub pid: u32,
    /// Start time of that process, clock ticks since boot; 0 where that is not known.
    pub start_ticks: u64,
}

impl AppRun {
    /// The run that answers.
    pub fn of(app: &AppIdentity) -> Self {
        Self { pid: app.pid, start_ticks: app.start_ticks }
    }
}

/// An app whose conversations are requested.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedApp {
    /// Its name.
    pub app: String,
    /// Which process it is.
    pub run: AppRun,
    /// Packets per second that it receives and sends, where that is known.
    pub pps: Option<f64>,
}

impl RequestedApp {
    /// All apps that answer.
    pub fn of(fleet: &FleetState) -> Vec<Self> {
        let of = |(app, model): (&AppState, &Model)| {
            let pps = model.ports.iter().filter_map(|port| Some(port.rx_pps? + port.tx_pps?));
            let run = AppRun::of(&model.sample.app);
            Self { app: app.name.clone(), run, pps: pps.reduce(|a, b| a + b) }
        };
        fleet.live_models().map(of).collect()
    }
}

/// Names in place of addresses and ports.
pub trait EndpointNames: Debug + Send + Sync {
    /// An end of a conversation of this IP protocol, with the names that are known by now. Those that are
    /// not are looked up meanwhile.
    fn endpoint(&self, protocol: u8, end: FlowEndpoint) -> String;
}

/// What the display wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRequest {
    /// Conversations are on display.
    pub shown: bool,
    /// The apps of which.
    pub apps: Vec<RequestedApp>,
    /// Apps beside which the user wants the helper process, and the runs of them that he meant.
    pub attach: BTreeMap<String, AppRun>,
    /// The display has ended.
    pub over: bool,
}

/// Passes requests of the display to the side that captures, and conversations back.
#[derive(Clone, Debug, Default)]
pub struct FlowMailbox(Arc<MailboxState>);

#[derive(Debug, Default)]
struct MailboxState {
    request: Mutex<FlowRequest>,
    changed: Condvar,
    traffic: Mutex<Option<Arc<CapturedTraffic>>>,
}

impl FlowMailbox {
    /// Sets what the display wants.
    pub fn request(&self, request: FlowRequest) {
        let mut wanted = lock(&self.0.request);
        if *wanted != request {
            *wanted = request;
            self.0.changed.notify_all();
        }
    }

    /// Waits until the display wants something other than `known`, or for `timeout`; returns what
    /// it wants.
    pub fn wait_for_request(&self, known: &FlowRequest, timeout: Duration) -> FlowRequest {
        let request = lock(&self.0.request);
        let same = |request: &mut FlowRequest| *request == *known;
        let (request, _) = self
            .0
            .changed
            .wait_timeout_while(request, timeout, same)
            .unwrap_or_else(PoisonError::into_inner);
        request.clone()
    }

    /// Gives conversations to the display.
    pub fn publish(&self, traffic: CapturedTraffic) {
        *lock(&self.0.traffic) = Some(Arc::new(traffic));
    }

    /// The conversations that were published last; `None` before that.
    pub fn traffic(&self) -> Option<Arc<CapturedTraffic>> {
        lock(&self.0.traffic).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the display shows of them.
#[derive(Clone, Debug, Default)]
pub struct ShownFlows {
    /// What was published last, or before the display was held.
    pub traffic: Option<Arc<CapturedTraffic>>,
    /// Which moment is shown.
    pub moment: ShownTime,
}

/// Which moment is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownTime {
    /// The present.
    #[default]
    Present,
    /// The one in which the display was held.
    Held,
    /// An earlier one.
    Past,
}

impl ShownFlows {
    /// What to show.
    ///
    /// # Errors
    /// Why there is nothing, and what to do.
    pub fn shown(&self) -> Result<&CapturedTraffic, &'static str> {
        match (&self.traffic, self.moment) {
            (None, _) => Err(RECORDING),
            (_, ShownTime::Past) => Err(PAST),
            (Some(traffic), ShownTime::Present | ShownTime::Held) => Ok(traffic),
        }
    }
}

const RECORDING: &str = "A recording holds counters, and no packets, so it has no conversations. \
                         `pmdscope netstat -r FILE` shows those of a capture file.";

const PAST: &str = "Conversations of the past are not kept. End goes to the present; `pmdscope \
                    capture -w FILE` keeps packets.";

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Never reached: a request ends the wait.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_new_request_is_served_at_once_and_an_old_one_after_the_interval() {
        let mailbox = FlowMailbox::default();
        let nothing = FlowRequest::default();
        assert_eq!(mailbox.wait_for_request(&nothing, Duration::from_millis(1)), nothing);
        let shown = FlowRequest { shown: true, ..FlowRequest::default() };
        thread::scope(|scope| {
            let waits = scope.spawn(|| mailbox.wait_for_request(&nothing, LONG));
            thread::sleep(Duration::from_millis(5));
            mailbox.request(shown.clone());
            assert_eq!(waits.join().unwrap(), shown);
        });
        assert_eq!(mailbox.wait_for_request(&nothing, LONG), shown, "it was said before");
    }

    #[test]
    fn the_display_sees_the_newest_value() {
        let mailbox = FlowMailbox::default();
        assert!(mailbox.traffic().is_none());
        mailbox.publish(CapturedTraffic { realtime_ns: 1, ..CapturedTraffic::default() });
        mailbox.clone().publish(CapturedTraffic { realtime_ns: 2, ..CapturedTraffic::default() });
        assert_eq!(mailbox.traffic().map(|traffic| traffic.realtime_ns), Some(2));
    }
}
