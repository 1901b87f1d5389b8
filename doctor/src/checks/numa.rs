//! Whether NICs, lcores and pools are on the same NUMA node.

use std::collections::BTreeSet;

use crate::app::AppFacts;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, pass, skip, warn};
use crate::tree::{Fact, Unknown};

pub(super) const CHECKS: [Check; 2] = [
    Check {
        id: "numa_lcores",
        group: CheckGroup::Nics,
        title: "Lcores are on the NUMA node of the NIC",
        matters: "An lcore on another node than its NIC pays a remote memory access for every \
                  descriptor and packet.",
        run: lcores,
    },
    Check {
        id: "numa_pools",
        group: CheckGroup::Nics,
        title: "Mbuf pools are on the NUMA node of the NIC",
        matters: "A NIC that writes packets to another node is limited by the link between the \
                  processors.",
        run: pools,
    },
];

fn several_nodes(evidence: &Evidence) -> Fact<()> {
    if evidence.host.cpus.node_count() < 2 {
        return Err(Unknown("the host has one NUMA node".into()));
    }
    Ok(())
}

/// Returns the nodes of the NICs of an app: as the kernel reports them, otherwise as the app does.
fn nodes_of_nics(evidence: &Evidence, app: &AppFacts) -> Fact<BTreeSet<u32>> {
    let of_kernel = super::nics::of_app(evidence, app)?.into_iter().filter_map(|found| found.node);
    let nodes: BTreeSet<u32> = of_kernel.collect();
    if !nodes.is_empty() {
        return Ok(nodes);
    }
    let ports = app.sample.iter().flat_map(|sample| &sample.ports);
    Ok(ports.filter_map(|port| u32::try_from(port.numa_node).ok()).collect())
}

fn text(nodes: &BTreeSet<u32>) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn lcores(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    several_nodes(evidence)?;
    let verdict = |app: &&AppFacts| {
        let nics = nodes_of_nics(evidence, app)?;
        let cpus = app.poll_cpus();
        let node = |cpu: &u32| evidence.host.cpus.node_of(*cpu);
        if nics.is_empty() || cpus.is_empty() {
            return Ok(skip(format!(
                "{}: the node of its NICs or its CPUs is not known",
                app.label()
            )));
        }
        let far: Vec<String> = cpus
            .0
            .iter()
            .filter_map(|cpu| Some((cpu, node(cpu)?)))
            .filter(|(_, node)| !nics.contains(node))
            .map(|(cpu, node)| format!("CPU {cpu} (node {node})"))
            .collect();
        if far.is_empty() {
            return Ok(pass(format!("{}: node {}", app.label(), text(&nics))));
        }
        let near =
            evidence.host.cpus.nodes.as_ref().ok().and_then(|nodes| nodes.get(nics.first()?));
        let near = near.map(ToString::to_string).unwrap_or_default();
        let fix = Fix::advice(format!(
            "start {} with -l on CPUs {near}, or use a NIC of the other node",
            app.label()
        ));
        Ok(warn(
            format!(
                "{}: its NICs are on node {}, and it polls on {}",
                app.label(),
                text(&nics),
                far.join(", ")
            ),
            fix,
        ))
    };
    evidence.running()?.iter().map(verdict).collect()
}

fn pools(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    several_nodes(evidence)?;
    let verdict = |app: &&AppFacts| {
        let nics = nodes_of_nics(evidence, app)?;
        let pools = app.sample.iter().flat_map(|sample| &sample.pools);
        let pools: Vec<_> =
            pools.filter_map(|pool| Some((&pool.name, u32::try_from(pool.socket).ok()?))).collect();
        if nics.is_empty() || pools.is_empty() {
            return Ok(skip(format!(
                "{}: the node of its NICs or its pools is not known",
                app.label()
            )));
        }
        let far = pools.iter().filter(|(_, node)| !nics.contains(node));
        let far: Vec<String> = far.map(|(name, node)| format!("{name} (node {node})")).collect();
        if far.is_empty() {
            return Ok(pass(format!("{}: node {}", app.label(), text(&nics))));
        }
        let fix = Fix::advice(
            "create the pool with rte_eth_dev_socket_id() of the port as its socket, and reserve \
             hugepages there",
        );
        Ok(warn(
            format!(
                "{}: its NICs are on node {}, and these pools are not: {}",
                app.label(),
                text(&nics),
                far.join(", ")
            ),
            fix,
        ))
    };
    evidence.running()?.iter().map(verdict).collect()
}
