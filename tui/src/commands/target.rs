//! What to capture for a selected row: an interface of `pmdscope capture -i`, and a filter.

use std::fmt::Write;

use pmdscope_flows::Tunnel;
use pmdscope_packets::{DIR_RX, DIR_TX};
use pmdscope_render::{ConversationKey, Subject};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::sample::QueueDirection;

use crate::findings::rows;
use crate::state::ViewState;
use crate::task::form::SelectedTraffic;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// The target that the selection means; without one the only app.
///
/// # Errors
/// Why there is none.
pub(crate) fn of(view: &ViewState, fleet: &FleetState) -> Result<SelectedTraffic, String> {
    if let Some(Subject::Interface { interface, .. }) = view.subject() {
        return Err(format!("{interface} is an interface of the kernel: use tcpdump -i"));
    }
    let app = app(view, fleet)?;
    let subject = view.subject().and_then(|subject| best(subject, view, fleet));
    Ok(match subject {
        Some(subject) if subject.app() == app => of_subject(&subject),
        _ => SelectedTraffic::all_of(app),
    })
}

/// The app that the selection means; without one the only one. It answers.
///
/// # Errors
/// Why there is none.
pub(crate) fn app(view: &ViewState, fleet: &FleetState) -> Result<String, String> {
    let app = named_app(view, fleet)?;
    let answers = fleet.live_models().any(|(state, _)| state.name == app);
    if answers { Ok(app) } else { Err(format!("{app} does not answer")) }
}

/// The same, also of one that does not answer.
///
/// # Errors
/// Why there is none.
pub(super) fn named_app(view: &ViewState, fleet: &FleetState) -> Result<String, String> {
    match (view.subject(), &fleet.apps[..]) {
        (Some(Subject::Interface { interface, .. }), _) => {
            Err(format!("{interface} is an interface of the kernel, not an app"))
        }
        (Some(subject), _) if !subject.app().is_empty() => Ok(subject.app().to_owned()),
        (_, [app]) => Ok(app.name.clone()),
        _ => Err("select a row of an app first".to_owned()),
    }
}

/// A finding means what it is about.
pub(super) fn best(subject: &Subject, view: &ViewState, fleet: &FleetState) -> Option<Subject> {
    let Subject::Finding { app, lint, about } = subject else { return Some(subject.clone()) };
    let mut findings = fleet.findings().into_iter().map(|(_, finding)| finding);
    let found = findings.find(|f| (&f.app, f.lint, &f.subject) == (app, *lint, about))?;
    rows::targets(found, &view.thresholds, fleet).into_iter().next()
}

fn of_subject(subject: &Subject) -> SelectedTraffic {
    let target = SelectedTraffic::all_of(subject.app().to_owned());
    match subject {
        Subject::Port { port, .. } => SelectedTraffic { port: port.to_string(), ..target },
        Subject::Queue { port, queue, direction, .. } => SelectedTraffic {
            port: format!("{port}:{queue}"),
            direction: Some(option_of(*direction)),
            ..target
        },
        Subject::Queues { port, direction, .. } => SelectedTraffic {
            port: port.to_string(),
            direction: Some(option_of(*direction)),
            ..target
        },
        Subject::Load { port, dir, queue, .. } => {
            let queue = queue.map_or(String::new(), |queue| format!(":{queue}"));
            let direction = match *dir {
                DIR_RX => Some("in"),
                DIR_TX => Some("out"),
                _ => None,
            };
            SelectedTraffic { port: format!("{port}{queue}"), direction, ..target }
        }
        Subject::Conversation { key, .. } => {
            let (filter, remark) = filter(key);
            SelectedTraffic { filter: Some(filter), remark, ..target }
        }
        _ => target,
    }
}

/// As the option -Q names it.
fn option_of(direction: QueueDirection) -> &'static str {
    match direction {
        QueueDirection::Rx => "in",
        QueueDirection::Tx => "out",
    }
}

/// A filter of pcap-filter(7), and what it cannot tell apart.
pub(super) fn filter(key: &ConversationKey) -> (String, Option<&'static str>) {
    if let Some(tunnel) = key.tunnel {
        let tunnel = outside(tunnel);
        // Tags may be outside of the tunnel or within.
        let filter = format!("{tunnel} or (vlan and ({tunnel}))");
        return (filter, Some("the filter takes all packets in such tunnels"));
    }
    let vlans = key.vlans.iter().filter(|vlan| **vlan != 0).map(|vlan| format!("vlan {vlan} and "));
    (vlans.collect::<String>() + &ends(key), None)
}

fn ends(key: &ConversationKey) -> String {
    let protocol = match key.proto {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        SCTP => "sctp".to_owned(),
        other if key.local.addr.is_ipv6() => format!("ip6 proto {other}"),
        other => format!("ip proto {other}"),
    };
    let mut filter = protocol;
    for end in [key.local, key.remote] {
        // Writing to a string cannot fail.
        let _ = write!(filter, " and host {}", end.addr);
        // Without a port, later fragments have no port either.
        if end.port != 0 {
            let _ = write!(filter, " and port {}", end.port);
        }
    }
    filter
}

/// Packets of that kind of tunnel.
fn outside(tunnel: Tunnel) -> &'static str {
    match tunnel {
        Tunnel::Vxlan(_) => "udp and (port 4789 or port 8472)",
        Tunnel::VxlanGpe(_) => "udp port 4790",
        Tunnel::Geneve(_) => "udp port 6081",
        Tunnel::Gre(_) | Tunnel::Erspan(_) | Tunnel::Pptp => {
            "ip proto 47 or ip6 proto 47 or udp port 4754"
        }
        Tunnel::Pppoe(_) => "pppoes",
        Tunnel::GtpU => "udp port 2152",
        Tunnel::Ipip => "ip proto 4 or ip proto 41 or ip6 proto 4 or ip6 proto 41",
        Tunnel::Mpls => "mpls or udp port 6635 or ip proto 137",
        Tunnel::Nsh => "ether proto 0x894f",
        Tunnel::Teredo => "udp port 3544",
        Tunnel::EtherIp => "ip proto 97 or ip6 proto 97 or ip proto 143 or ip6 proto 143",
        Tunnel::L2tp => "udp port 1701 or ip proto 115 or ip6 proto 115",
        Tunnel::Gue => "udp port 6080",
        Tunnel::Trill => "ether proto 0x22f3",
        Tunnel::Pbb(_) => "ether proto 0x88e7",
    }
}
