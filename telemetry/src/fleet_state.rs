//! The latest state of all apps, which views draw, reports print and exporters export.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::error::ErrorClass;
use crate::finding::{Finding, StickyFindings};
use crate::interface::InterfaceSample;
use crate::interface_state::{InterfaceState, InterfacesState};
use crate::model::Model;
use crate::sample::Sample;

/// An event from the sampling side.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// An app was found, or found again.
    Found {
        /// File-prefix.
        app: String,
    },
    /// An app answered.
    Sampled {
        /// File-prefix.
        app: String,
        /// Its state.
        model: Arc<Model>,
        /// Its findings.
        findings: Vec<Finding>,
    },
    /// An app did not answer; the sampling side retries.
    Lost {
        /// File-prefix.
        app: String,
        /// The reason, for programs.
        class: ErrorClass,
        /// The reason, for people.
        reason: String,
        /// The finding about this.
        finding: Option<Finding>,
    },
    /// An app is no longer shown: it ended too long ago, or has another name.
    Gone {
        /// Name of the app, by default its file-prefix.
        app: String,
    },
    /// The interfaces of the kernel were read, or could not be.
    Interfaces(Arc<InterfacesState>),
    /// No app was found; where they were searched for, and what to do next.
    NoApps {
        /// One or more sentences.
        advice: String,
    },
}

/// Whether an app answers requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum AppStatus {
    /// The app was found, but has not answered yet.
    Waiting,
    /// The app answered in the last round.
    Live,
    /// The app did not answer in the last round.
    Lost {
        /// Reason why the app did not answer.
        reason: String,
    },
}

/// State of one app.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppState {
    /// Name of the app, by default its file-prefix.
    #[serde(rename = "app")]
    pub name: String,
    /// Whether the app answers requests.
    #[serde(flatten)]
    pub status: AppStatus,
    /// Last sample of the app, and what is derived from it; outdated if the app is lost, `None` if it never
    /// answered.
    pub model: Option<Arc<Model>>,
    /// Findings about the last sample, and earlier ones that are still shown; for a lost app, the finding
    /// about its absence.
    pub findings: Vec<Finding>,
    /// Number of rounds, since the app was found, that failed or were made without the lock, by reason.
    #[serde(skip)]
    pub errors: BTreeMap<ErrorClass, u64>,
    /// Monotonic clock when the app first failed to answer since its last answer, nanoseconds; `None` if it
    /// answers, or if the time is unknown.
    #[serde(skip)]
    pub silent_ns: Option<u64>,
    /// Sticky findings, which are shown for some time after they were last seen.
    #[serde(skip)]
    pub sticky: StickyFindings,
}

impl AppState {
    /// Returns an app without any data.
    fn waiting(name: String) -> Self {
        Self {
            name,
            status: AppStatus::Waiting,
            model: None,
            findings: Vec::new(),
            errors: BTreeMap::new(),
            silent_ns: None,
            sticky: StickyFindings::default(),
        }
    }

    /// Whether the shown values are not current.
    pub fn stale(&self) -> bool {
        self.status != AppStatus::Live
    }

    /// Returns 0 for a stock app, otherwise [`LibrarySample::level`]; `None` before the first answer.
    ///
    /// [`LibrarySample::level`]: crate::sample::LibrarySample::level
    pub fn level(&self) -> Option<u8> {
        self.model.as_ref().map(|model| model.sample.level())
    }

    /// Returns the seconds since it was first seen not to answer; `None` for an app that answers.
    pub fn silent_s(&self, now_ns: u64) -> Option<f64> {
        Some(now_ns.saturating_sub(self.silent_ns?) as f64 / 1e9)
    }

    /// Returns the seconds since the last answer.
    pub fn age_s(&self, now_ns: u64) -> Option<f64> {
        let heard = self.model.as_ref()?.sample.monotonic_ns;
        Some(now_ns.saturating_sub(heard) as f64 / 1e9)
    }
}

/// The state of all apps and interfaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetState {
    /// Apps, sorted by name.
    pub apps: Vec<AppState>,
    /// Monotonic clock, nanoseconds; ages are computed from it.
    pub now_ns: u64,
    /// Wall clock at that moment, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Shown when there is no app.
    pub advice: String,
    /// Directories in which more apps may run, and that cannot be read.
    pub unreadable: Vec<PathBuf>,
    /// Interfaces of the kernel, as last read.
    pub interfaces: Arc<InterfacesState>,
}

impl FleetState {
    /// Applies an event.
    pub fn apply(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Found { app } => {
                self.app(app);
            }
            FleetEvent::Sampled { app, model, findings } => {
                let state = self.app(app);
                state.status = AppStatus::Live;
                if model.sample.was_asked_without_lock() {
                    *state.errors.entry(ErrorClass::Busy).or_default() += 1;
                }
                state.findings = state.sticky.update(&model, findings);
                state.model = Some(model);
                state.silent_ns = None;
            }
            FleetEvent::Lost { app, class, reason, finding } => {
                // Before the first update of the clock, the time of the loss is unknown.
                let now_ns = Some(self.now_ns).filter(|&now| now > 0);
                let state = self.app(app);
                state.silent_ns = state.silent_ns.or(now_ns);
                *state.errors.entry(class).or_default() += 1;
                state.status = AppStatus::Lost { reason };
                state.findings = finding.into_iter().collect();
            }
            FleetEvent::Gone { app } => self.apps.retain(|state| state.name != app),
            FleetEvent::Interfaces(interfaces) => self.interfaces = interfaces,
            FleetEvent::NoApps { advice } => self.advice = advice,
        }
    }

    /// Returns the app of that name.
    pub fn find(&self, name: &str) -> Option<&AppState> {
        self.apps.iter().find(|app| app.name == name)
    }

    /// Whether there is no app and no interface to show.
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.interfaces.is_empty()
    }

    /// Returns the packets per second of one interface that bypass the kernel, and that the kernel
    /// processes. If packets that an XDP program redirects are not counted, the counters of the app's
    /// port are used.
    pub fn split_rates(&self, interface: &InterfaceState) -> (Option<f64>, Option<f64>) {
        let rates = &interface.rates;
        let bypassed = rates.bypassed_pps.or_else(|| self.bypass_port_pps(interface));
        (bypassed, rates.kernel_with(bypassed))
    }

    /// Returns the packets per second that the app receives from the queue that bypasses the kernel.
    pub fn bypass_port_pps(&self, interface: &InterfaceState) -> Option<f64> {
        let bypass = interface.sample.bypass.as_ref()?;
        let app = self.find(bypass.app.as_deref()?).filter(|app| !app.stale())?;
        let port = bypass.port?;
        app.model.as_ref()?.ports.iter().find(|rates| rates.id == port)?.rx_pps
    }

    /// Returns the findings of all interfaces and apps, worst first; those of interfaces have no app.
    pub fn findings(&self) -> Vec<(Option<&AppState>, &Finding)> {
        let apps = self.apps.iter();
        let apps = apps.flat_map(|app| app.findings.iter().map(move |f| (Some(app), f)));
        let mut all: Vec<_> = self.interfaces.findings().map(|f| (None, f)).chain(apps).collect();
        all.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
        all
    }

    /// Returns the apps that have answered, each with its last answer.
    pub fn models(&self) -> impl Iterator<Item = (&AppState, &Model)> {
        self.apps.iter().filter_map(|app| Some((app, app.model.as_deref()?)))
    }

    /// Returns the apps that answer, each with its last answer.
    pub fn live_models(&self) -> impl Iterator<Item = (&AppState, &Model)> {
        self.models().filter(|(app, _)| !app.stale())
    }

    fn app(&mut self, name: String) -> &mut AppState {
        let index = match self.apps.binary_search_by(|app| app.name.cmp(&name)) {
            Ok(index) => index,
            Err(index) => {
                self.apps.insert(index, AppState::waiting(name));
                index
            }
        };
        &mut self.apps[index]
    }
}

/// The samples that totals are relative to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TotalsBaseline {
    samples: BTreeMap<String, Sample>,
    interfaces: Arc<InterfacesState>,
}

impl TotalsBaseline {
    /// Returns a baseline at the present samples.
    pub fn mark(fleet: &FleetState) -> Self {
        let samples = fleet.models().map(|(app, model)| (app.name.clone(), model.sample.clone()));
        Self { samples: samples.collect(), interfaces: Arc::clone(&fleet.interfaces) }
    }

    /// Returns the baseline sample of that app, unless it was restarted since, or an earlier moment is shown.
    pub fn of(&self, now: &Sample) -> Option<&Sample> {
        let then = self.samples.get(&now.app.name)?;
        let later = then.monotonic_ns <= now.monotonic_ns;
        (later && then.app.same_process(&now.app)).then_some(then)
    }

    /// Returns the baseline sample of that interface of `shown`, unless it was created again since,
    /// or an earlier moment is shown.
    pub fn of_interface(
        &self,
        now: &InterfaceSample,
        shown: &InterfacesState,
    ) -> Option<&InterfaceSample> {
        let then = &self.interfaces.find(&now.name)?.sample;
        let later = self.interfaces.monotonic_ns <= shown.monotonic_ns;
        (later && then.index == now.index).then_some(then)
    }

    /// Whether the baseline is empty.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.interfaces.is_empty()
    }
}
