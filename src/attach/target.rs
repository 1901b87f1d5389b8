//! What to capture from one app.

use std::sync::Arc;

use pmdscope_capture::{CapturePort, Transport};
use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::sample::PortSample;

use super::interface::{PortSelector, parse_target};
use super::policy::AttachPolicy;
use super::running::RunningApp;
use super::transport::Preflight;

/// What to capture from one app.
#[derive(Clone, Debug)]
pub(crate) struct CaptureTarget {
    pub(crate) app: String,
    pub(crate) transport: Transport,
    pub(crate) targets: Vec<PortSelector>,
    pub(super) known: Vec<PortSample>,
    /// A reliable way to find it: its telemetry socket.
    pub(crate) address: String,
    /// How apps are found and judged.
    pub(crate) settings: Arc<FleetSettings>,
    pub(super) policy: AttachPolicy,
    /// The ports as they were asked for.
    pub(super) asked: Vec<String>,
    /// It is meant by `any` only.
    pub(super) unnamed: bool,
}

impl CaptureTarget {
    /// The ports of the app, with those that are captured from.
    pub(crate) fn ports(&self) -> Vec<CapturePort> {
        let wanted = |id| self.targets.iter().any(|t| t.port.is_none_or(|port| port == id));
        let port = |p: &PortSample| CapturePort {
            id: p.id,
            device: p.device.clone(),
            selected: wanted(p.id),
        };
        self.known.iter().map(port).collect()
    }

    /// Whether the user named this app.
    pub(crate) fn is_named(&self) -> bool {
        !self.unnamed
    }

    /// A queue of an app with libpmdscope, from what the app has reported: it is not asked again.
    pub(crate) fn queue(
        running: RunningApp,
        port: u16,
        queue: u16,
        settings: &Arc<FleetSettings>,
    ) -> anyhow::Result<Self> {
        let policy = AttachPolicy::Never;
        let preflight = Preflight::for_capture(&running, policy)?;
        let mut wanted = Self::new(running, preflight, settings, policy)?;
        wanted.add(&format!("{port}:{queue}"))?;
        Ok(wanted)
    }

    /// Everything about an app but its ports.
    pub(super) fn new(
        running: RunningApp,
        preflight: Preflight,
        settings: &Arc<FleetSettings>,
        policy: AttachPolicy,
    ) -> anyhow::Result<Self> {
        let transport = preflight.transport(&running, policy)?;
        let known = running.sample.map(|sample| sample.ports).unwrap_or_default();
        let address = running.app.socket.display().to_string();
        let (app, targets, asked) = (running.app.name, Vec::new(), Vec::new());
        let settings = Arc::clone(settings);
        Ok(Self {
            app,
            transport,
            targets,
            known,
            address,
            settings,
            policy,
            asked,
            unnamed: false,
        })
    }

    /// Adds a port or a queue, as people write it.
    pub(super) fn add(&mut self, port: &str) -> anyhow::Result<()> {
        let target = parse_target(port, &self.app, &self.known)?;
        if !self.targets.contains(&target) {
            self.targets.push(target);
            self.asked.push(port.to_owned());
        }
        Ok(())
    }

    /// The targets as people write them.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.targets.iter().map(|target| {
            let port = target.port.map_or("any".to_owned(), |port| port.to_string());
            let queue = target.queue.map_or(String::new(), |queue| format!(":{queue}"));
            format!("{}:{port}{queue}", self.app)
        })
    }
}
