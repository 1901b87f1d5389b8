//! Configures a NIC to steer flows to a queue, and restores its settings.

use std::io;

use rustix::io::Errno;

use crate::ethtool::{Nic, SteeringRule};
use crate::flow::BypassFlow;
use crate::state::Steering;

/// Returns the rules that steer the flows.
fn rules(flows: &[BypassFlow], queue: u32) -> Vec<SteeringRule> {
    let rules =
        |flow: &BypassFlow| [false, true].map(|ipv6| SteeringRule { flow: *flow, ipv6, queue });
    flows.iter().flat_map(rules).collect()
}

/// Returns the settings of the NIC before any change, or the reason why it cannot steer.
pub(crate) fn survey(nic: &impl Nic, queue: u32) -> Steering {
    let read = || -> io::Result<Steering> {
        let rules_before = nic.rules()?;
        let enabled_before = nic.steering_enabled()?;
        let uses = |table: &Vec<u32>| table.contains(&queue) && without(table, queue).is_some();
        let rss_before = nic.rss_table().ok().filter(uses);
        Ok(Steering::Ntuple { rules_before, enabled_before, rss_before })
    };
    read().unwrap_or_else(|error| Steering::Unsupported { reason: reason(&error) })
}

fn reason(error: &io::Error) -> String {
    if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) {
        "the driver has no ntuple filters".to_owned()
    } else {
        format!("the driver refuses ntuple filters: {error}")
    }
}

/// Returns the table with this queue replaced by others; `None` if there are no others.
fn without(table: &[u32], queue: u32) -> Option<Vec<u32>> {
    let mut others: Vec<u32> = table.iter().copied().filter(|entry| *entry != queue).collect();
    others.sort_unstable();
    others.dedup();
    let mut next = others.iter().copied().cycle();
    table.iter().map(|entry| if *entry == queue { next.next() } else { Some(*entry) }).collect()
}

/// Steers the flows to the queue, and all other packets to other queues. On failure, it restores the
/// NIC and returns the reason.
pub(crate) fn apply(
    nic: &impl Nic,
    steering: &Steering,
    flows: &[BypassFlow],
    queue: u32,
) -> Result<(), String> {
    let Steering::Ntuple { rss_before, enabled_before, rules_before } = steering else {
        return Ok(());
    };
    let change = || -> io::Result<()> {
        if let Some(table) = rss_before.as_ref().and_then(|table| without(table, queue)) {
            nic.set_rss_table(&table)?;
        }
        if !enabled_before {
            nic.enable_steering(true)?;
        }
        let wanted = rules(flows, queue);
        for rule in &wanted {
            if find(nic, rule, rules_before)?.is_none() {
                nic.add_rule(rule)?;
            }
        }
        Ok(())
    };
    change().map_err(|error| {
        let undone = undo(nic, steering, flows, queue);
        undone.into_iter().fold(reason(&error), |reasons, failed| format!("{reasons}; {failed}"))
    })
}

/// Returns the location of the rule, if it exists and was not there before.
fn find(nic: &impl Nic, rule: &SteeringRule, before: &[u32]) -> io::Result<Option<u32>> {
    for location in nic.rules()?.into_iter().filter(|location| !before.contains(location)) {
        // A rule that was removed in between is not ours.
        if nic.has_rule(location, rule).unwrap_or(false) {
            return Ok(Some(location));
        }
    }
    Ok(None)
}

/// Restores the NIC's settings; returns the failures.
pub(crate) fn undo(
    nic: &impl Nic,
    steering: &Steering,
    flows: &[BypassFlow],
    queue: u32,
) -> Vec<String> {
    let Steering::Ntuple { rules_before, enabled_before, rss_before } = steering else {
        return Vec::new();
    };
    let mut failures = Vec::new();
    let mut note = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            failures.push(format!("cannot {what}: {error}"));
        }
    };
    for rule in rules(flows, queue) {
        let removed = find(nic, &rule, rules_before)
            .and_then(|location| location.map_or(Ok(()), |location| nic.remove_rule(location)));
        note("remove an ntuple rule", removed);
    }
    if !enabled_before {
        note("disable ntuple filters", nic.enable_steering(false));
    }
    if let Some(table) = rss_before {
        note("restore the RSS table", nic.set_rss_table(table));
    }
    failures
}

/// Returns descriptions of the parts of the steering that are missing.
pub(crate) fn missing(
    nic: &impl Nic,
    steering: &Steering,
    flows: &[BypassFlow],
    queue: u32,
) -> Vec<String> {
    let Steering::Ntuple { rules_before, rss_before, .. } = steering else {
        return Vec::new();
    };
    let mut missing: Vec<String> = rules(flows, queue)
        .iter()
        .filter(|rule| !matches!(find(nic, rule, rules_before), Ok(Some(_))))
        .map(|rule| {
            let version = if rule.ipv6 { "IPv6" } else { "IPv4" };
            format!("the NIC has lost its rule for {} over {version}", rule.flow)
        })
        .collect();
    if rss_before.is_some() && nic.rss_table().is_ok_and(|table| table.contains(&queue)) {
        missing.push(format!("the RSS table sends other packets to queue {queue} again"));
    }
    missing
}

#[cfg(test)]
mod tests;
