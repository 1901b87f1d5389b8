//! Conversations: what the display wants of the side that captures, and what it is told.
//!
//! Neither side waits for the other: both leave what they have to say at a [`Desk`].

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmdscope_flows::FlowSnapshot;
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::AppIdentity;
use pmdscope_telemetry::{AppState, FleetState};
use serde::Serialize;

/// How the packets of an app are had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "capture", rename_all = "lowercase")]
pub enum Access {
    /// It is being asked.
    Opening,
    /// They are looked at.
    Armed {
        /// What stands between the app and us; `None` for the app itself.
        via: Option<&'static str>,
    },
    /// They could be had by a helper process beside the app, which nobody has asked for.
    Offered,
    /// They are not.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// They were, until the app has ended.
    Ended,
}

/// The packets of one app.
#[derive(Clone, Debug, Serialize)]
pub struct Tap {
    /// Name of the app.
    pub app: String,
    /// How they are had.
    #[serde(flatten)]
    pub access: Access,
    /// What was counted; its apps are numbered within it.
    pub counted: Arc<FlowSnapshot>,
}

/// The packets of all apps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Traffic {
    /// Wall clock when this was so, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// By name of the app.
    pub taps: Vec<Tap>,
}

impl Traffic {
    /// The tap of that app.
    pub fn find(&self, app: &str) -> Option<&Tap> {
        self.taps.iter().find(|tap| tap.app == app)
    }

    /// Names of the apps whose packets are had in such a way.
    pub fn apps(&self, is: impl Fn(&Access) -> bool) -> impl Iterator<Item = &str> {
        self.taps.iter().filter(move |tap| is(&tap.access)).map(|tap| tap.app.as_str())
    }
}

/// One run of an app, which a later one of the same name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Process id on this host.
    pub pid: u32,
    /// Start time of that process, clock ticks since boot; 0 where that is not known.
    pub start_ticks: u64,
}

impl Run {
    /// The one that answers.
    pub fn of(app: &AppIdentity) -> Self {
        Self { pid: app.pid, start_ticks: app.start_ticks }
    }
}

/// An app that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Its name.
    pub app: String,
    /// Which process it is.
    pub run: Run,
    /// Packets per second that it receives and sends, where that is known.
    pub pps: Option<f64>,
}

impl Running {
    /// All that answer.
    pub fn of(world: &FleetState) -> Vec<Self> {
        let of = |(app, model): (&AppState, &Model)| {
            let pps = model.ports.iter().filter_map(|port| Some(port.rx_pps? + port.tx_pps?));
            let run = Run::of(&model.sample.app);
            Self { app: app.name.clone(), run, pps: pps.reduce(|a, b| a + b) }
        };
        world.models().filter(|(app, _)| !app.stale()).map(of).collect()
    }
}

/// What the display wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    /// Conversations are on display.
    pub shown: bool,
    /// The apps of which.
    pub apps: Vec<Running>,
    /// Apps beside which the user wants the helper process, and the runs of them that he meant.
    pub attach: BTreeMap<String, Run>,
    /// The display has ended.
    pub over: bool,
}

/// Where both sides leave word.
#[derive(Clone, Debug, Default)]
pub struct Desk(Arc<Pads>);

#[derive(Debug, Default)]
struct Pads {
    wish: Mutex<Wish>,
    changed: Condvar,
    traffic: Mutex<Option<Arc<Traffic>>>,
}

impl Desk {
    /// Says what the display wants.
    pub fn want(&self, wish: Wish) {
        let mut wanted = lock(&self.0.wish);
        if *wanted != wish {
            *wanted = wish;
            self.0.changed.notify_all();
        }
    }

    /// What the display wants, as soon as that is something else than `known`, or after that time.
    pub fn wanted(&self, known: &Wish, patience: Duration) -> Wish {
        let wish = lock(&self.0.wish);
        let same = |wish: &mut Wish| *wish == *known;
        let (wish, _) = self
            .0
            .changed
            .wait_timeout_while(wish, patience, same)
            .unwrap_or_else(PoisonError::into_inner);
        wish.clone()
    }

    /// Tells the display.
    pub fn tell(&self, traffic: Traffic) {
        *lock(&self.0.traffic) = Some(Arc::new(traffic));
    }

    /// What was told last; `None` where nobody captures.
    pub fn traffic(&self) -> Option<Arc<Traffic>> {
        lock(&self.0.traffic).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the display shows of them.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// What was told last, or before the display was held.
    pub traffic: Option<Arc<Traffic>>,
    /// Which moment is shown.
    pub moment: FlowTime,
}

/// Which moment is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowTime {
    /// The present.
    #[default]
    Present,
    /// The one in which the display was held.
    Held,
    /// An earlier one.
    Past,
}

impl Flows {
    /// What to show.
    ///
    /// # Errors
    /// Why there is nothing, and what to do.
    pub fn shown(&self) -> Result<&Traffic, &'static str> {
        match (&self.traffic, self.moment) {
            (None, _) => Err(RECORDING),
            (_, FlowTime::Past) => Err(PAST),
            (Some(traffic), FlowTime::Present | FlowTime::Held) => Ok(traffic),
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
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_new_wish_is_heard_at_once_and_an_old_one_after_a_while() {
        let desk = Desk::default();
        let nothing = Wish::default();
        assert_eq!(desk.wanted(&nothing, Duration::from_millis(1)), nothing);
        let shown = Wish { shown: true, ..Wish::default() };
        let begin = Instant::now();
        thread::scope(|scope| {
            let waits = scope.spawn(|| desk.wanted(&nothing, LONG));
            thread::sleep(Duration::from_millis(5));
            desk.want(shown.clone());
            assert_eq!(waits.join().unwrap(), shown);
        });
        assert_eq!(desk.wanted(&nothing, LONG), shown, "it was said before");
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn the_display_sees_what_was_told_last() {
        let desk = Desk::default();
        assert!(desk.traffic().is_none());
        desk.tell(Traffic { realtime_ns: 1, ..Traffic::default() });
        desk.clone().tell(Traffic { realtime_ns: 2, ..Traffic::default() });
        assert_eq!(desk.traffic().map(|traffic| traffic.realtime_ns), Some(2));
    }
}
