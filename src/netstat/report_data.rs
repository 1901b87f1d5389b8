//! The data of a report: counted packets, counters of apps, losses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pmdscope_capture::CaptureReport;
use pmdscope_flows::filter::FlowFilter;
use pmdscope_flows::{Flow, FlowEndpoint, FlowSnapshot, PacketCounts};
use pmdscope_render::conversation::{self, TrafficRate};
use pmdscope_render::number::plural;
use pmdscope_telemetry::sample::{PortSample, Sample};
use pmdscope_telemetry::{FleetState, Thresholds};
use serde::Serialize;

use super::args::Args;
use super::resolver::NameResolver;
use crate::attach::peek::PeekCoverage;
use crate::attach::transport;
use crate::sampling;

/// How long a single report waits for names.
const NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// What a report is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportData {
    /// What was counted; `None` where only counters are read.
    pub(super) snapshot: Option<Arc<FlowSnapshot>>,
    /// Rates are those of the last second, and not of the whole time.
    pub(super) recent: bool,
    /// What is missing in it.
    pub(super) losses: PacketLosses,
    /// Apps that have ended.
    pub(super) ended: Vec<String>,
    /// Apps whose packets come by a helper.
    pub(super) helped: Vec<String>,
    /// How much of the packets a sample from the memory of apps is.
    pub(super) peek: Option<PeekCoverage>,
    /// Counters of the apps, and those of a while before.
    pub(super) counters: Option<AppCounters>,
    /// Ports that packets come from; `None` is all.
    pub(super) ports: Option<Vec<(String, u16)>>,
    /// Packets were chosen by a filter, which counters do not know.
    pub(super) filtered: bool,
    /// Which conversations are shown; `None` is all.
    pub(super) asked: Option<FlowFilter>,
    /// From when on a queue is hot.
    pub(super) thresholds: Thresholds,
    /// Names of hosts and services, if they are wanted.
    pub(super) names: Option<NameResolver>,
}

/// Counters of apps at two moments.
#[derive(Clone, Debug, Default)]
pub(super) struct AppCounters {
    /// The earlier; empty where there is none.
    pub(super) before: FleetState,
    /// The later.
    pub(super) now: FleetState,
}

impl AppCounters {
    /// Samples of all apps, each with its earlier one of the same run.
    pub(super) fn samples(&self) -> impl Iterator<Item = (&str, Option<&Sample>, &Sample)> {
        self.now.models().map(|(app, model)| {
            let before = self.before.find(&app.name).and_then(|app| app.model.as_deref());
            let before = before.map(|model| &model.sample).filter(|before| {
                before.app.same_process(&model.sample.app)
                    && before.monotonic_ns < model.sample.monotonic_ns
            });
            (app.name.as_str(), before, &model.sample)
        })
    }

    /// Apps that do not answer, and why.
    pub(super) fn silent(&self) -> Vec<String> {
        use pmdscope_telemetry::AppStatus;
        let silent = self.now.apps.iter().filter_map(|app| match &app.status {
            AppStatus::Live => None,
            AppStatus::Waiting => Some(format!("{}: has not answered yet", app.name)),
            AppStatus::Lost { reason } => {
                let old = if app.model.is_some() { "; the data shown is old" } else { "" };
                Some(format!("{}: {reason}{old}", app.name))
            }
        });
        let partly = self.now.models().flat_map(|(app, model)| {
            model.sample.partial.iter().map(|part| format!("{}: partly: {part}", app.name))
        });
        silent.chain(partly).collect()
    }
}

/// Packets that are missing from the counts, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PacketLosses {
    /// Packets that passed the filter: counted, lost, or left out by sampling; `None` for files.
    pub(super) passed_filter: Option<u64>,
    /// Packets dropped because rings were full.
    pub(super) rings_full: u64,
    /// Packets dropped because rings were full, by interface.
    pub(super) by_interface: BTreeMap<String, u64>,
    /// Packets without a time, because their app ended before it had measured its clock.
    pub(super) untimed: u64,
    /// Packets left out by `-Q`, because their file has no direction.
    pub(super) undirected: u64,
    /// Apps that cannot change their sampling, because their library is too old.
    pub(super) fixed: Vec<String>,
    /// Number of lcores that polled; `None` for files.
    pub(super) lcores: Option<usize>,
    /// Packets that were examined, including packets that the filter rejected.
    #[serde(skip)]
    pub(super) seen: u64,
}

impl PacketLosses {
    /// Those of a capture.
    pub(super) fn of(report: &CaptureReport) -> Self {
        Self {
            passed_filter: Some(report.rings.passed_filter()),
            rings_full: report.rings.dropped,
            by_interface: report.dropped.iter().cloned().collect(),
            untimed: report.unwritten,
            undirected: 0,
            fixed: report.fixed.clone(),
            lcores: Some(report.nb_rings),
            seen: report.rings.seen(),
        }
    }
}

impl ReportData {
    /// What was counted, or nothing.
    pub(super) fn counted(&self) -> Arc<FlowSnapshot> {
        self.snapshot.clone().unwrap_or_default()
    }

    /// Whether the report covers a port.
    pub(super) fn includes(&self, app: &str, port: &PortSample) -> bool {
        let same = |(name, id): &(String, u16)| name == app && *id == port.id;
        self.ports.as_ref().is_none_or(|ports| ports.iter().any(same))
    }

    /// Whether a conversation is one of those that were asked for.
    pub(super) fn shows(&self, args: &Args, snapshot: &FlowSnapshot, flow: &Flow) -> bool {
        let asked = self.asked.as_ref();
        args.row_filter.takes(flow)
            && asked.is_none_or(|asked| asked.matches(app_of(snapshot, flow.app), flow))
    }

    /// How fast something is, by what was counted of it in all and in the last second.
    pub(super) fn speed(
        &self,
        snapshot: &FlowSnapshot,
        all: PacketCounts,
        recent: PacketCounts,
    ) -> Option<TrafficRate> {
        if self.recent && snapshot.interval_s > 0.0 {
            TrafficRate::of(recent, snapshot.interval_s)
        } else {
            TrafficRate::of(all, seconds(snapshot))
        }
    }

    /// How fast a conversation is.
    pub(super) fn flow_speed(&self, snapshot: &FlowSnapshot, flow: &Flow) -> Option<TrafficRate> {
        self.speed(snapshot, flow.total(), flow.recent_rx.plus(flow.recent_tx))
    }

    /// Has the names of ends that are about to be shown looked up. The next report of several has those
    /// that take long.
    pub(super) fn look_up(&self, ends: impl Iterator<Item = (u8, FlowEndpoint)>) {
        if let Some(names) = &self.names {
            names.look_up(ends, if self.recent { Duration::ZERO } else { NAMES_TIMEOUT });
        }
    }

    /// An end by its numbers, or by the names that are known and wanted.
    pub(super) fn endpoint(&self, protocol: u8, end: FlowEndpoint) -> String {
        let names = self.names.as_ref();
        names.map_or_else(|| conversation::endpoint(end), |names| names.endpoint(protocol, end))
    }

    /// A conversation by its ends.
    pub(super) fn conversation(&self, flow: &Flow) -> String {
        with_ends(flow, [flow.local, flow.remote].map(|end| self.endpoint(flow.proto, end)))
    }

    /// Packets that are missing according to rings or files.
    pub(super) fn lost(&self) -> u64 {
        self.losses.rings_full.max(self.counted().lost)
    }

    /// Advice against losses; there is none for those of files.
    fn cure(&self) -> String {
        if self.losses.passed_filter.is_none() {
            return String::new();
        }
        let places = self.losses.by_interface.keys().map(String::as_str);
        format!("; {}", transport::cure(places, &self.helped, "a filter or --sample can help"))
    }

    /// Caveats about the counts: sampling and losses.
    pub(super) fn caveats(&self) -> Vec<String> {
        let snapshot = self.counted();
        let mut notes = Vec::new();
        notes.extend(self.peek.as_ref().map(PeekCoverage::line));
        if snapshot.variance > 0 || snapshot.sample > 1 {
            notes.push(format!(
                "sampled: {}, now one in {}; counts are estimates, ± their standard error",
                plural(snapshot.looked_at, "packet"),
                snapshot.sample.max(1)
            ));
        }
        if self.lost() > 0 {
            let places = &self.losses.by_interface;
            let places = places.iter().map(|(name, count)| format!("{name} {count}"));
            let places = places.collect::<Vec<_>>().join(", ");
            let places = if places.is_empty() { places } else { format!(" ({places})") };
            notes.push(format!(
                "lost: {}{places}, not included in any count{}",
                plural(self.lost(), "packet"),
                self.cure()
            ));
        }
        if self.losses.untimed > 0 {
            let packets = plural(self.losses.untimed, "packet");
            notes.push(format!(
                "lost: {packets} of an app that exited before its clock was calibrated"
            ));
        }
        if self.losses.undirected > 0 {
            notes.push(format!(
                "excluded by -Q: {} without a direction in the file; -Q inout includes them",
                plural(self.losses.undirected, "packet")
            ));
        }
        notes.extend(sampling::fixed(&self.losses.fixed));
        if !self.ended.is_empty() {
            let waits = if self.recent { ", waiting for restart" } else { "" };
            notes.push(format!("ended{waits}: {}", self.ended.join(", ")));
        }
        if self.losses.lcores == Some(0) {
            notes.push("no lcore of the app polls".to_owned());
        }
        notes
    }
}

/// Length of the time that was counted in.
pub(super) fn seconds(snapshot: &FlowSnapshot) -> f64 {
    snapshot.now_ns.saturating_sub(snapshot.begin_ns) as f64 / 1e9
}

/// Received packets and bytes, and sent ones. Where a file does not contain the direction, those from
/// the remote end count as received.
pub(crate) fn directions(flow: &Flow) -> (PacketCounts, PacketCounts) {
    let rx = flow.rx.from_local.plus(flow.rx.from_remote).plus(flow.unknown.from_remote);
    let tx = flow.tx.from_local.plus(flow.tx.from_remote).plus(flow.unknown.from_local);
    (rx, tx)
}

/// The app of a conversation.
pub(super) fn app_of(snapshot: &FlowSnapshot, app: u16) -> &str {
    snapshot.apps.get(usize::from(app)).map_or(pmdscope_render::number::UNKNOWN, String::as_str)
}

/// Name of a direction.
pub(super) fn way(dir: u8) -> &'static str {
    pmdscope_render::direction_name(dir)
}

/// A conversation by its ends, in numbers.
pub(crate) fn name(flow: &Flow) -> String {
    with_ends(flow, [flow.local, flow.remote].map(conversation::endpoint))
}

fn with_ends(flow: &Flow, [local, remote]: [String; 2]) -> String {
    let wrapping = conversation::wrapping(flow);
    let wrapping = if wrapping.is_empty() { wrapping } else { format!(" in {wrapping}") };
    format!(
        "{} {local} <-> {remote}{wrapping}",
        super::format::protocol(flow.proto, flow.local.addr)
    )
}
