//! Reads interfaces with a bypass: counters of queues, and the app that polls the bypassed queue.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pmdscope_telemetry::discover::{self, DiscoverOptions};
use pmdscope_telemetry::interface::{BypassSample, InterfaceReader, InterfaceSample};
use pmdscope_telemetry::{Deadline, PortId, TelemetryClient, TelemetryCommand};

use crate::app::{self, BypassApp};
use crate::bypass::read_link;
use crate::error::BypassError;
use crate::ethtool::EthtoolNic;
use crate::name::InterfaceName;
use crate::queue_statistics;
use crate::state::{BypassState, StateDirectory, network_namespace};

/// Timeout for an app to report its ports, which is requested once.
const PORT_TIMEOUT: Duration = Duration::from_millis(100);

/// Reads the interfaces of this network namespace that have a bypass. It caches which app polls a
/// queue, so that later reads take a fraction of a millisecond.
#[derive(Debug, Default)]
pub struct BypassReader {
    states: StateDirectory,
    /// The app and its port, by interface index.
    users: Mutex<BTreeMap<u32, QueueUser>>,
}

/// The app that polls a queue.
#[derive(Clone, Debug)]
struct QueueUser {
    app: BypassApp,
    port: Option<u16>,
}

/// Reads the interfaces of this network namespace that have a bypass, by name, with current values.
///
/// # Errors
/// If a state file cannot be read, or the kernel refuses a request.
pub fn interfaces() -> Result<Vec<InterfaceSample>, BypassError> {
    BypassReader::default().interfaces()
}

/// Reads the kernel's counters of an interface of this network namespace, without filter and bypass;
/// `None` if there is no such interface.
///
/// # Errors
/// If the kernel refuses a request.
pub fn kernel_sample(name: &InterfaceName) -> Result<Option<InterfaceSample>, BypassError> {
    let Some(link) = read_link(name)? else { return Ok(None) };
    let nic = EthtoolNic::open(name)
        .map_err(|error| BypassError::kernel(format!("ask the driver of {name}"), error))?;
    Ok(Some(InterfaceSample {
        name: name.to_string(),
        index: link.index,
        driver: nic.driver(),
        rx_packets: link.rx_packets,
        rx_dropped: link.rx_dropped,
        tx_packets: link.tx_packets,
        queues: queue_statistics::rx_queues(&nic.counters().unwrap_or_default()),
        filter: None,
        bypass: None,
    }))
}

impl BypassReader {
    /// Creates a reader for state files outside [`crate::DEFAULT_STATE_DIRECTORY`].
    pub fn new(states: StateDirectory) -> Self {
        Self { states, users: Mutex::default() }
    }

    /// Reads as [`interfaces`], but faster when repeated.
    ///
    /// # Errors
    /// As [`interfaces`].
    pub fn interfaces(&self) -> Result<Vec<InterfaceSample>, BypassError> {
        let namespace = network_namespace()?;
        let mut samples = Vec::new();
        for state in self.states.list()? {
            if state.network_namespace != namespace {
                continue;
            }
            let sample = kernel_sample(&state.interface)?;
            let Some(mut sample) = sample.filter(|sample| sample.index == state.index) else {
                continue;
            };
            let user = self.user(&state);
            sample.bypass = Some(BypassSample {
                queue: state.queue,
                app: user.as_ref().map(|user| user.app.prefix.clone()),
                port: user.and_then(|user| user.port),
                flows: state.flows,
            });
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Returns the app that polls the queue. If its port is unknown, it is requested again at the next
    /// call.
    fn user(&self, state: &BypassState) -> Option<QueueUser> {
        let (interface, queue, namespace) =
            (&state.interface, state.queue, state.network_namespace);
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let known = users.remove(&state.index);
        let known =
            known.filter(|user| app::again(&user.app, interface, queue, namespace).is_some());
        let user = match known {
            Some(user) if user.port.is_some() => user,
            Some(QueueUser { app, .. }) => QueueUser { port: port(&app), app },
            None => {
                let app = app::find(interface, queue, namespace)?;
                QueueUser { port: port(&app), app }
            }
        };
        users.insert(state.index, user.clone());
        Some(user)
    }
}

impl InterfaceReader for BypassReader {
    fn read(&self) -> Result<Vec<InterfaceSample>, String> {
        self.interfaces().map_err(|error| error.to_string())
    }
}

/// Returns the number of the app's port with this device; `None` if the app does not report it.
fn port(app: &BypassApp) -> Option<u16> {
    let deadline = Deadline::after(PORT_TIMEOUT);
    let socket = discover::find(Some(&app.prefix), &DiscoverOptions::default()).ok()?.socket;
    let mut client = TelemetryClient::connect(&socket, deadline).ok()?;
    let ports = client.ports(deadline).ok()?;
    ports.into_iter().find_map(|port| port_named(&mut client, port, &app.device, deadline))
}

/// Some fields of the reply to `/ethdev/info`.
#[derive(serde::Deserialize)]
struct NamedPort {
    name: String,
    port_id: u16,
}

fn port_named(
    client: &mut TelemetryClient,
    port: PortId,
    device: &str,
    deadline: Deadline,
) -> Option<u16> {
    let info: NamedPort = client.request(&TelemetryCommand::EthdevInfo(port), deadline).ok()?;
    (info.name == device).then_some(info.port_id)
}
