//! The interfaces of the kernel as last read, with rates and findings.

use std::sync::Arc;

use serde::Serialize;

use crate::finding::{self, Finding, Thresholds};
use crate::fleet_state::FleetEvent;
use crate::interface::InterfaceSample;
use crate::model::{InterfaceRates, InterfaceTracker};

/// All network interfaces with an XDP filter or a bypassed queue. They belong to the host, not to an app.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfacesState {
    /// Interfaces, sorted by name.
    pub interfaces: Vec<InterfaceState>,
    /// Reason why the interfaces could not be read, in which case none is listed; `None` if they were read.
    pub error: Option<String>,
    /// Monotonic clock when the interfaces were read, nanoseconds.
    #[serde(skip)]
    pub monotonic_ns: u64,
}

/// One network interface, with its rates and findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceState {
    /// Interface as last read.
    #[serde(flatten)]
    pub sample: InterfaceSample,
    /// Rates since the previous read.
    pub rates: InterfaceRates,
    /// Findings about the interface.
    pub findings: Vec<Finding>,
}

impl InterfacesState {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.error.is_none()
    }

    /// Returns the interface of that name.
    pub fn find(&self, name: &str) -> Option<&InterfaceState> {
        self.interfaces.iter().find(|interface| interface.sample.name == name)
    }

    /// Replaces the findings of all interfaces, each by its subject. An interface that no longer
    /// exists is added with its name alone.
    pub fn set_findings(&mut self, findings: Vec<Finding>) {
        self.interfaces.iter_mut().for_each(|interface| interface.findings.clear());
        for finding in findings {
            let name = finding.subject.to_string();
            let known = self.interfaces.iter_mut().find(|known| known.sample.name == name);
            match known {
                Some(known) => known.findings.push(finding),
                None => self.interfaces.push(InterfaceState {
                    sample: InterfaceSample { name, ..InterfaceSample::default() },
                    findings: vec![finding],
                    ..InterfaceState::default()
                }),
            }
        }
    }

    /// Returns the findings of all interfaces.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.interfaces.iter().flat_map(|interface| &interface.findings)
    }
}

/// Converts the interfaces that were read, live or from a recording, into states.
#[derive(Debug)]
pub struct InterfaceEvaluator {
    tracker: InterfaceTracker,
    thresholds: Thresholds,
    /// Restricts the interfaces to those with a queue that bypasses the kernel to one of these apps.
    apps: Option<Vec<String>>,
}

impl InterfaceEvaluator {
    /// Returns an evaluator without earlier reads.
    pub fn new(thresholds: Thresholds) -> Self {
        Self { tracker: InterfaceTracker::default(), thresholds, apps: None }
    }

    /// Restricts the interfaces to those with a queue that bypasses the kernel to one of these apps.
    pub fn only(&mut self, apps: &[&str]) {
        self.apps = Some(apps.iter().map(|app| (*app).to_owned()).collect());
    }

    /// Sets the thresholds for the next reads.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Returns the state of the interfaces that were read at this time of the monotonic clock.
    pub fn read(
        &mut self,
        read: Result<Vec<InterfaceSample>, String>,
        monotonic_ns: u64,
    ) -> InterfacesState {
        let mut samples = match read {
            Ok(samples) => samples,
            Err(error) => {
                return InterfacesState {
                    interfaces: Vec::new(),
                    error: Some(error),
                    monotonic_ns,
                };
            }
        };
        if let Some(apps) = &self.apps {
            samples.retain(|interface| {
                let app = interface.bypass.as_ref().and_then(|bypass| bypass.app.as_ref());
                app.is_some_and(|app| apps.contains(app))
            });
        }
        let rates = self.tracker.update(&samples, monotonic_ns);
        let state = |(sample, rates)| {
            let findings = finding::evaluate_interface(&sample, &rates, &self.thresholds);
            InterfaceState { sample, rates, findings }
        };
        InterfacesState {
            interfaces: samples.into_iter().zip(rates).map(state).collect(),
            error: None,
            monotonic_ns,
        }
    }

    /// Returns the state as an event.
    pub fn event(
        &mut self,
        read: Result<Vec<InterfaceSample>, String>,
        monotonic_ns: u64,
    ) -> FleetEvent {
        FleetEvent::Interfaces(Arc::new(self.read(read, monotonic_ns)))
    }
}
