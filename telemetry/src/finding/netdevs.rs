//! Lint for interfaces of the kernel below ports: DPDK may report the link of such a port as up whatever they do.

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::inventory::PortExpectation;
use crate::model::Model;
use crate::sample::{NetdevSample, NetdevState};

/// Returns the started ports whose interface is missing, down, or without a carrier.
pub(super) fn unusable<'a>(
    model: &'a Model,
    expected: &'a PortExpectation,
) -> impl Iterator<Item = Finding> + 'a {
    let of_started = |netdev: &&NetdevSample| {
        let mut ports = model.sample.ports.iter();
        ports.any(|port| port.device == netdev.port && port.started)
    };
    let netdevs = model.sample.netdevs.iter().filter(of_started);
    netdevs.filter_map(|netdev| of_netdev(model, netdev, expected))
}

fn of_netdev(model: &Model, netdev: &NetdevSample, expected: &PortExpectation) -> Option<Finding> {
    let name = &netdev.interface;
    let (what, severity, advice) = match (netdev.state, &netdev.renamed) {
        (NetdevState::Up | NetdevState::Exists, _) => return None,
        (NetdevState::Missing, Some(new)) => (
            format!("is called {new} now"),
            Severity::Warning,
            format!(
                "rename it back (ip link set {new} name {name}), or restart the app with the new name; drivers \
                 that address it by name can neither change it nor find it again"
            ),
        ),
        (NetdevState::Missing, None) => (
            "does not exist: it was deleted, renamed, or moved to another namespace".to_owned(),
            Severity::Critical,
            format!(
                "create {name} again and restart the app: its sockets stay bound to the interface that is gone"
            ),
        ),
        (NetdevState::Down, _) => (
            "is down".to_owned(),
            Severity::Critical,
            format!("ip link set {name} up, in the network namespace of the app"),
        ),
        (NetdevState::NoCarrier, _) if expected.may_be_idle(&netdev.port) => return None,
        (NetdevState::NoCarrier, _) => (
            "has no carrier".to_owned(),
            Severity::Warning,
            format!(
                "check what {name} is connected to: the cable and the switch, the other end of a veth pair, or the \
                 process that holds a tap. If it may be idle, add the port to may_be_idle in the configuration"
            ),
        ),
    };
    let evidence =
        format!("the interface {name} below the port {what}{}", link_text(model, netdev));
    Some(finding(
        model,
        Lint::NetdevDown,
        severity,
        FindingSubject::Port(netdev.port.clone()),
        evidence,
        "the interface below a started port exists and is up",
        &advice,
    ))
}

/// Returns what DPDK says of the link, if that contradicts.
fn link_text(model: &Model, netdev: &NetdevSample) -> &'static str {
    let mut ports = model.sample.ports.iter();
    let is_up = ports.any(|port| port.device == netdev.port && port.link_up == Some(true));
    if is_up { ", although DPDK reports its link as up" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::inventory::{AppInventory, ExpectedApp};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};

    fn judged(state: NetdevState, renamed: Option<&str>, idle: bool) -> Vec<(Severity, String)> {
        let mut sample = empty_sample();
        sample.ports = vec![port(0, 0)];
        sample.ports[0].link_up = Some(true);
        sample.netdevs = vec![NetdevSample {
            port: "net_null0".into(),
            interface: "eth1".into(),
            state,
            renamed: renamed.map(str::to_owned),
        }];
        let app = ExpectedApp {
            name: "app".into(),
            may_be_idle: if idle { vec!["*".into()] } else { Vec::new() },
            ..ExpectedApp::default()
        };
        let rules =
            LintRules { expected: AppInventory { apps: vec![app] }, ..LintRules::default() };
        let found = evaluate(&ModelTracker::default().update(sample), &rules);
        let found = found.into_iter().filter(|finding| finding.lint == Lint::NetdevDown);
        found.map(|finding| (finding.severity, finding.evidence)).collect()
    }

    #[test]
    fn an_interface_that_is_down_missing_or_renamed_is_named() {
        let of = |what: &str| {
            format!(
                "the interface eth1 below the port {what}, although DPDK reports its link as up"
            )
        };
        assert_eq!(judged(NetdevState::Down, None, true), [(Severity::Critical, of("is down"))]);
        let gone = of("does not exist: it was deleted, renamed, or moved to another namespace");
        assert_eq!(judged(NetdevState::Missing, None, false), [(Severity::Critical, gone)]);
        let renamed = judged(NetdevState::Missing, Some("eth9"), false);
        assert_eq!(renamed, [(Severity::Warning, of("is called eth9 now"))]);
        let carrier = judged(NetdevState::NoCarrier, None, false);
        assert_eq!(carrier, [(Severity::Warning, of("has no carrier"))]);
        assert_eq!(judged(NetdevState::NoCarrier, None, true), []);
        assert_eq!(judged(NetdevState::Up, None, false), []);
        assert_eq!(judged(NetdevState::Exists, None, false), []);
    }
}
