//! Creates bypasses, reports their status, and removes them.

use std::io;
use std::path::PathBuf;

use pmdscope_links::Link;
use pmdscope_telemetry::interface::{FilterMode, InterfaceQueueSample};
use serde::Serialize;

use crate::app::{self, BypassApp};
use crate::error::BypassError;
use crate::ethtool::{EthtoolNic, Nic};
use crate::flow::{BypassFlow, MAX_FLOWS};
use crate::name::InterfaceName;
use crate::program::{self, BypassCounts, LoadedProgram};
use crate::redirect_object;
use crate::state::{BypassState, StateDirectory, Steering, network_namespace};
use crate::{queue_statistics, steering};

/// A request for a bypass.
#[derive(Clone, Debug)]
pub struct BypassRequest {
    /// The interface, of this network namespace.
    pub interface: InterfaceName,
    /// The RX queue for the app.
    pub queue: u32,
    /// The flows on this queue that the app gets.
    pub flows: Vec<BypassFlow>,
    /// File-prefix of the app that is expected to use the queue; any app if `None`.
    pub app: Option<String>,
}

/// State of a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BypassPhase {
    /// No app polls the queue with the XDP program attached: the kernel gets all packets.
    Waiting,
    /// An app polls the queue, with the XDP program attached.
    Running,
    /// The interface belongs to another network namespace than this process: nothing else is known.
    Elsewhere,
}

/// Status of a bypass.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassStatus {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface.
    pub index: u32,
    /// Inode number of the network namespace of the interface.
    pub network_namespace: u64,
    /// Driver of the interface; empty if unknown.
    pub driver: String,
    /// Number of the bypassed RX queue.
    pub queue: u32,
    /// Flows that the app gets, such as `udp:53`.
    pub flows: Vec<String>,
    /// State of the bypass.
    pub phase: BypassPhase,
    /// The app that polls the queue; `None` if there is none, or if it is not visible.
    pub app: Option<BypassApp>,
    /// Whether the NIC itself steers the flows to the queue.
    pub steered_by_nic: bool,
    /// Why the NIC does not steer the flows to the queue; `None` if it does.
    pub steering_unsupported: Option<String>,
    /// Where the XDP program runs; `None` if it is not attached.
    pub mode: Option<FilterMode>,
    /// Packets by outcome, as counted by the XDP program; `None` if it is not attached.
    pub counts: Option<BypassCounts>,
    /// Packets received on all queues, as counted by the kernel; `None` if unknown.
    pub rx_packets: Option<u64>,
    /// Received packets that were dropped, as counted by the kernel; `None` if unknown.
    pub rx_dropped: Option<u64>,
    /// Counters of the RX queues, as reported by the driver.
    pub queues: Vec<InterfaceQueueSample>,
    /// EAL option with which the app must be started.
    pub vdev: String,
    /// File of the XDP program that the app loads.
    pub object: PathBuf,
    /// Problems, and how to fix them.
    pub problems: Vec<String>,
}

/// Result of the removal of a bypass.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassDownResult {
    /// Name of the interface.
    pub interface: String,
    /// Changes that were undone.
    pub undone: Vec<String>,
    /// The app that still polls the queue, but gets no packets any more; `None` if there is none.
    pub app: Option<BypassApp>,
}

/// Creates a bypass, or changes its flows. It can be repeated, also after a command or the app was
/// killed.
///
/// # Errors
/// If the request is impossible, or the kernel refuses it; the interface is then unchanged.
pub fn up(states: &StateDirectory, request: &BypassRequest) -> Result<BypassStatus, BypassError> {
    let BypassRequest { interface, queue, flows, .. } = request;
    if !(1..=MAX_FLOWS).contains(&flows.len()) {
        return Err(BypassError::BadFlowCount(flows.len()));
    }
    let namespace = network_namespace()?;
    let link =
        read_link(interface)?.ok_or_else(|| BypassError::NoInterface(interface.to_string()))?;
    let nic = open(interface)?;
    let queues = nic.rx_queues().unwrap_or(link.rx_queues);
    if *queue >= queues {
        return Err(BypassError::NoQueue {
            interface: interface.to_string(),
            queue: *queue,
            queues,
        });
    }
    let settings = redirect_object::settings(*queue, flows);
    let object = redirect_object::with_settings(&settings)?;
    program::verify(&object)?;

    let _lock = states.lock()?;
    let attached = ours_or_none(interface, &link)?;
    let old = states.read(interface, namespace)?.filter(|state| state.index == link.index);
    let user = old.as_ref().and_then(|old| app::find(interface, old.queue, namespace));
    if let (Some(old), Some(user)) = (&old, &user)
        && old.queue != *queue
    {
        let app = format!("{} (pid {})", user.prefix, user.pid);
        return Err(BypassError::InUse { interface: interface.to_string(), queue: old.queue, app });
    }
    if let Some(old) = &old {
        undo_steering(states, &nic, old)?;
    }
    let mut state = BypassState::new(interface.clone(), link.index, namespace);
    state.queue = *queue;
    state.flows = flows.iter().map(BypassFlow::to_string).collect();
    state.app.clone_from(&request.app);
    state.promiscuous_before =
        old.as_ref().map_or(link.is_promiscuous, |old| old.promiscuous_before);
    state.mtu_before = old.as_ref().map_or(link.mtu, |old| old.mtu_before);
    state.steering = steering::survey(&nic, *queue);
    // If this command is killed here, the next one can undo the change.
    states.write(&state)?;
    states.write_object(&state, &object)?;
    if let Err(reason) = steering::apply(&nic, &state.steering, flows, *queue) {
        state.steering = Steering::Unsupported { reason };
        states.write(&state)?;
    }
    match attached {
        Some(program) if program.in_use => program.loaded.set_settings(&settings)?,
        // A killed app left it behind: it would prevent the next one from attaching its program.
        Some(program) => detach_program(interface, link.index, program.mode)?,
        None => {}
    }
    status_of(states, &state)
}

/// Reads an interface; `None` if this network namespace has none with that name.
pub(crate) fn read_link(interface: &InterfaceName) -> Result<Option<Link>, BypassError> {
    pmdscope_links::read(interface.as_str())
        .map_err(|error| BypassError::kernel(format!("read interface {interface}"), error))
}

fn detach_program(
    interface: &InterfaceName,
    index: u32,
    mode: FilterMode,
) -> Result<(), BypassError> {
    pmdscope_links::detach_program(index, mode, None).map_err(|error| {
        BypassError::kernel(format!("detach the XDP program of {interface}"), error)
    })
}

/// The attached bypass program of an interface.
struct AttachedBypass {
    loaded: LoadedProgram,
    mode: FilterMode,
    /// Whether a process has it open.
    in_use: bool,
}

/// Returns the bypass program of the interface, if any; an error if another program is attached.
fn ours_or_none(
    interface: &InterfaceName,
    link: &Link,
) -> Result<Option<AttachedBypass>, BypassError> {
    if link.is_offloaded {
        return Err(BypassError::ForeignProgram {
            interface: interface.to_string(),
            program: "in the NIC".to_owned(),
            id: 0,
            how: format!("ip link set dev {interface} xdpoffload off"),
        });
    }
    let Some(attached) = link.programs.first() else { return Ok(None) };
    let Some(loaded) = LoadedProgram::find(attached.id) else { return Ok(None) };
    if loaded.is_bypass() {
        let in_use = app::holder(attached.id).is_some();
        return Ok(Some(AttachedBypass { loaded, mode: attached.mode, in_use }));
    }
    let how = if loaded.name.starts_with("pmdscope") {
        format!("pmdscope xdp detach {interface}")
    } else {
        format!("ip link set dev {interface} xdp off")
    };
    let program = loaded.name;
    Err(BypassError::ForeignProgram {
        interface: interface.to_string(),
        program,
        id: attached.id,
        how,
    })
}

/// Undoes the steering of an earlier bypass, and records this in the state before anything new is
/// changed.
fn undo_steering(
    states: &StateDirectory,
    nic: &impl Nic,
    old: &BypassState,
) -> Result<(), BypassError> {
    let failures = steering::undo(nic, &old.steering, &parsed_flows(old), old.queue);
    if !failures.is_empty() {
        let (interface, reasons) = (old.interface.to_string(), failures.join("; "));
        return Err(BypassError::Incomplete { interface, reasons });
    }
    let mut undone = old.clone();
    undone.steering = Steering::Unsupported { reason: "being changed".to_owned() };
    states.write(&undone)
}

/// Removes the bypass of an interface, and restores its settings. It can be repeated; `None` if there
/// was no bypass.
///
/// # Errors
/// Describes what could not be removed; a retry may succeed.
pub fn down(
    states: &StateDirectory,
    interface: &InterfaceName,
) -> Result<Option<BypassDownResult>, BypassError> {
    let namespace = network_namespace()?;
    let _lock = states.lock()?;
    let link = read_link(interface)?;
    let state = states.read(interface, namespace)?;
    let Some(link) = link else {
        // The interface was removed, and with it all changes.
        states.remove(interface, namespace)?;
        let undone = vec!["forgot an interface that is gone".to_owned()];
        let gone = BypassDownResult { interface: interface.to_string(), undone, app: None };
        return Ok(state.map(|_| gone));
    };
    let mut down =
        BypassDownResult { interface: interface.to_string(), undone: Vec::new(), app: None };
    let mut failures = Vec::new();
    let program = ours_or_none(interface, &link).ok().flatten();
    if state.is_none() && program.is_none() {
        return Ok(None);
    }
    if let Some(program) = program {
        match detach_program(interface, link.index, program.mode) {
            Ok(()) => down.undone.push("detached the XDP program".to_owned()),
            Err(error) => failures.push(error.to_string()),
        }
    }
    if let Some(state) = state.filter(|state| state.index == link.index) {
        down.app = app::find(interface, state.queue, namespace);
        restore(&state, &link, &mut down.undone, &mut failures)?;
    }
    if !failures.is_empty() {
        let reasons = failures.join("; ");
        return Err(BypassError::Incomplete { interface: interface.to_string(), reasons });
    }
    states.remove(interface, namespace)?;
    Ok(Some(down))
}

/// Restores the settings of an interface that a bypass and its app changed.
fn restore(
    state: &BypassState,
    link: &Link,
    undone: &mut Vec<String>,
    failures: &mut Vec<String>,
) -> Result<(), BypassError> {
    let interface = &state.interface;
    let mut note = |done: String, what: &str, result: io::Result<()>| match result {
        Ok(()) => undone.push(done),
        Err(error) => {
            failures.push(BypassError::kernel(format!("{what} {interface}"), error).to_string());
        }
    };
    // Apps change both and do not restore them. An app that still runs does not need them, because it
    // gets no packets.
    if link.is_promiscuous && !state.promiscuous_before {
        let ended = pmdscope_links::end_promiscuous(state.index);
        note("ended promiscuous mode".to_owned(), "end promiscuous mode of", ended);
    }
    if link.mtu != state.mtu_before {
        let restored = pmdscope_links::set_mtu(state.index, state.mtu_before);
        note(format!("restored the MTU {}", state.mtu_before), "set the MTU of", restored);
    }
    if matches!(state.steering, Steering::Ntuple { .. }) {
        let nic = open(interface)?;
        let failed = steering::undo(&nic, &state.steering, &parsed_flows(state), state.queue);
        if failed.is_empty() {
            undone.push("removed the ntuple rules and restored the RSS table".to_owned());
        }
        failures.extend(failed);
    }
    Ok(())
}

/// Returns the status of all bypasses, including those of other network namespaces, by interface name.
///
/// # Errors
/// If a state file cannot be read, or the kernel refuses a request.
pub fn status(states: &StateDirectory) -> Result<Vec<BypassStatus>, BypassError> {
    states.list()?.iter().map(|state| status_of(states, state)).collect()
}

/// Returns the interfaces of this network namespace that have a bypass.
///
/// # Errors
/// If a state file cannot be read.
pub fn bypassed_interfaces(states: &StateDirectory) -> Result<Vec<InterfaceName>, BypassError> {
    let namespace = network_namespace()?;
    let here = states.list()?.into_iter().filter(|state| state.network_namespace == namespace);
    Ok(here.map(|state| state.interface).collect())
}

fn status_of(states: &StateDirectory, state: &BypassState) -> Result<BypassStatus, BypassError> {
    let interface = &state.interface;
    let object = states.object(interface, state.network_namespace);
    let mut told = BypassStatus {
        interface: interface.to_string(),
        index: state.index,
        network_namespace: state.network_namespace,
        driver: String::new(),
        queue: state.queue,
        flows: state.flows.clone(),
        phase: BypassPhase::Elsewhere,
        app: None,
        steered_by_nic: matches!(state.steering, Steering::Ntuple { .. }),
        steering_unsupported: match &state.steering {
            Steering::Unsupported { reason } => Some(reason.clone()),
            Steering::Ntuple { .. } => None,
        },
        mode: None,
        counts: None,
        rx_packets: None,
        rx_dropped: None,
        queues: Vec::new(),
        vdev: vdev(interface, state.queue, &object),
        object,
        problems: Vec::new(),
    };
    if state.network_namespace != network_namespace()? {
        return Ok(told);
    }
    told.phase = BypassPhase::Waiting;
    match read_link(interface)?.filter(|link| link.index == state.index) {
        Some(link) => complete(&mut told, state, &link)?,
        None => told
            .problems
            .push(format!("the interface is gone: 'pmdscope bypass down {interface}' forgets it")),
    }
    Ok(told)
}

/// Adds the values that the kernel reports.
fn complete(
    status: &mut BypassStatus,
    state: &BypassState,
    link: &Link,
) -> Result<(), BypassError> {
    let interface = &state.interface;
    let nic = open(interface)?;
    status.driver = nic.driver();
    status.rx_packets = link.rx_packets;
    status.rx_dropped = link.rx_dropped;
    status.queues = queue_statistics::rx_queues(&nic.counters().unwrap_or_default());
    status.app = app::find(interface, state.queue, state.network_namespace);
    let problems = &mut status.problems;
    problems.extend(steering::missing(&nic, &state.steering, &parsed_flows(state), state.queue));
    if let (Some(wanted), Some(app)) = (&state.app, &status.app)
        && *wanted != app.prefix
    {
        problems
            .push(format!("queue {} is polled by {}, not by {wanted}", state.queue, app.prefix));
    }
    let repair =
        format!("'pmdscope bypass down {interface}' removes it, 'up' prepares the next start");
    match ours_or_none(interface, link) {
        Ok(Some(program)) => {
            status.mode = Some(program.mode);
            status.counts = Some(program.loaded.counts()?);
            if program.in_use {
                status.phase = BypassPhase::Running;
            } else {
                let left = "its app was killed and has left the XDP program behind, with which no app can start";
                problems.push(format!("{left}: {repair}"));
            }
        }
        Ok(None) if status.app.is_some() => problems.push(format!(
            "{} runs without the XDP program: it gets no packets; start it again with the option below",
            status.app.as_ref().map_or("the app", |app| &app.prefix)
        )),
        Ok(None) if link.is_promiscuous && !state.promiscuous_before => {
            problems.push(format!("promiscuous mode is on, as apps leave it, and was off before: {repair}"));
        }
        Ok(None) => {}
        Err(error) => problems.push(error.to_string()),
    }
    let missed = status.counts.map_or(0, |counts| counts.other_queue);
    if missed > 0 {
        problems.push(format!(
            "{missed} packets of the selected flows came to other queues and went to the kernel: \
             {interface} does not steer, so the sender or the switch must choose the queue, \
             or the interface must have one RX queue ('ethtool -L {interface} rx 1' or 'combined 1')"
        ));
    }
    Ok(())
}

/// Returns the EAL option of the app.
fn vdev(interface: &InterfaceName, queue: u32, object: &std::path::Path) -> String {
    let object = object.display();
    format!(
        "--vdev=net_af_xdp0,iface={interface},start_queue={queue},queue_count=1,xdp_prog={object}"
    )
}

fn parsed_flows(state: &BypassState) -> Vec<BypassFlow> {
    state.flows.iter().filter_map(|flow| flow.parse().ok()).collect()
}

fn open(interface: &InterfaceName) -> Result<EthtoolNic<'_>, BypassError> {
    EthtoolNic::open(interface)
        .map_err(|error| BypassError::kernel(format!("ask the driver of {interface}"), error))
}
