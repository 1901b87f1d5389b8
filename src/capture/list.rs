//! `-D`, `-L` and `-J`: lists of ports, link types and timestamp types.

use std::collections::BTreeMap;
use std::process::ExitCode;

use pmdscope_telemetry::fleet::obstacle;
use serde::Serialize;

use super::args::Args;
use crate::attach::interface::{self, ListedPort};
use crate::attach::policy::AttachPolicy;
use crate::attach::running::{self, RunningApp};
use crate::attach::transport::Preflight;
use crate::output;

/// Version of the JSON; raised when a field changes its meaning.
const LIST_SCHEMA: u32 = 1;

/// Output of `capture -D --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = LIST_SCHEMA)))]
    schema: u32,
    /// Ports of all apps that answer.
    interfaces: Vec<Interface>,
}

/// An interface.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Interface {
    /// Number that `-i` accepts: the port id if one app runs, otherwise the position in the list, from 0.
    number: usize,
    /// Name that `-i` accepts, `APP:PORT`.
    name: String,
    /// Name of the app, by default its file-prefix.
    app: String,
    /// DPDK port id.
    port: u16,
    /// Device name, for instance `0000:03:00.0` or `net_vhost0`.
    device: String,
    /// Whether the link is up; `None` if the app does not report it.
    link_up: Option<bool>,
    /// Whether packets can be captured.
    captures: bool,
    /// How packets are captured: `pdump` (by a helper) or `peek` (from the memory of the app); `None` if by
    /// its libpmdscope, or not at all.
    via: Option<&'static str>,
    /// Why packets cannot be captured; `None` if they can.
    reason: Option<String>,
}

impl Interface {
    fn new(listed: &ListedPort<'_>, preflight: &Result<Preflight, String>) -> Self {
        Self {
            number: listed.number,
            name: listed.name(),
            app: listed.running.app.name.clone(),
            port: listed.port.id,
            device: listed.port.device.clone(),
            link_up: listed.port.link_up,
            captures: preflight.is_ok(),
            via: preflight.as_ref().ok().and_then(Preflight::via),
            reason: preflight.as_ref().err().cloned(),
        }
    }

    /// As tcpdump lists it.
    fn line(&self) -> String {
        let link = match self.link_up {
            Some(true) => "Up",
            Some(false) => "Down",
            None => "link unknown",
        };
        let note = match (self.captures, self.via) {
            (false, _) => ", no captures".to_owned(),
            (true, None) => String::new(),
            (true, Some(via)) => format!(", via {via}"),
        };
        let (number, name, device) = (self.number, &self.name, &self.device);
        output::one_line(&format!("{number}.{name} ({device}) [{link}{note}]"))
    }
}

/// Prints the list that was asked for, if any.
pub(super) fn answer(args: &Args) -> anyhow::Result<Option<ExitCode>> {
    let name = args.source.interfaces.first().map_or("any", String::as_str);
    if args.list_interfaces {
        let settings = args.source.config.load()?.settings;
        let attach = args.source.attach.attach();
        return interfaces(&running::running(&settings)?, attach, args.json).map(Some);
    }
    let text = if args.list_data_link_types {
        let name = output::one_line(name);
        format!("Data link types for {name} (use option -y to set):\n  EN10MB (Ethernet)\n")
    } else if args.list_time_stamp_types {
        let name = output::one_line(name);
        format!("Time stamp types for {name} (use option -j to set):\n  host (Host)\n")
    } else {
        return Ok(None);
    };
    output::print(&text)?;
    Ok(Some(ExitCode::SUCCESS))
}

/// Code 1 when there is none.
fn interfaces(
    running: &[RunningApp],
    attach: AttachPolicy,
    json: bool,
) -> anyhow::Result<ExitCode> {
    for silent in running.iter().filter(|one| one.sample.is_none()) {
        let why = obstacle(&silent.app).map_or_else(String::new, |(_, why)| format!(": {why}"));
        output::tell(&format!("{}: cannot read its ports{why}", silent.app.name));
    }
    let (all, reasons) = all(running, attach);
    for reason in reasons.iter().filter(|_| !json) {
        output::tell(&format!("no captures: {reason}"));
    }
    let code = if all.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if all.is_empty() {
        output::tell("no running DPDK app has a port");
    }
    if json {
        output::print_json(&Document { schema: LIST_SCHEMA, interfaces: all })?;
    } else if !all.is_empty() {
        output::print(&lines(&all))?;
    }
    Ok(code)
}

/// All ports, and why there are apps without packets; each app is checked once.
fn all(running: &[RunningApp], attach: AttachPolicy) -> (Vec<Interface>, Vec<String>) {
    let answering = running.iter().filter(|one| one.sample.is_some());
    let preflight =
        |one: &RunningApp| Preflight::of(one, attach).map_err(|error| format!("{error:#}"));
    let found = answering.map(|one| (&one.app.socket, preflight(one))).collect::<BTreeMap<_, _>>();
    let interface =
        |listed: &ListedPort<'_>| Interface::new(listed, &found[&listed.running.app.socket]);
    let all = interface::list(running).iter().map(interface).collect();
    (all, found.into_values().filter_map(Result::err).collect())
}

fn lines(all: &[Interface]) -> String {
    let any = "any (All ports of all apps that can be captured from)".to_owned();
    let lines = all.iter().map(Interface::line).chain([any]);
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_listed_as_by_tcpdump() {
        let interface = |number, link_up, captures, via| Interface {
            number,
            name: format!("rte:{number}"),
            app: "rte".into(),
            port: 0,
            device: "net_null0".into(),
            link_up,
            captures,
            via,
            reason: None,
        };
        let all = [
            interface(0, Some(true), true, None),
            interface(1, Some(false), true, Some("pdump")),
            interface(2, None, false, None),
        ];
        insta::assert_snapshot!(lines(&all), @r"
        0.rte:0 (net_null0) [Up]
        1.rte:1 (net_null0) [Down, via pdump]
        2.rte:2 (net_null0) [link unknown, no captures]
        any (All ports of all apps that can be captured from)
        ");
    }
}
