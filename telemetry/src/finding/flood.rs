//! Lint for interfaces with a filter that drops a flood.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, Thresholds};
use crate::interface::InterfaceSample;
use crate::model::{FilterRates, InterfaceRates, SourceRates};

/// Number of reasons and sources that are named.
const NAMED: usize = 3;

/// Returns the finding about a flood that the filter of an interface drops.
pub(crate) fn flood(
    interface: &InterfaceSample,
    rates: &InterfaceRates,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let filter = rates.filter.as_ref()?;
    let (arrived, dropped) = (filter.pps?, filter.dropped_ps?);
    let share = dropped / arrived;
    if dropped <= thresholds.flood_ps || share.is_nan() || share <= thresholds.flood_ratio {
        return None;
    }
    let mut evidence = format!(
        "{dropped:.0} of {arrived:.0} packets/s that arrived were dropped ({:.1} %, over {:.1} s): {}",
        share * 100.0,
        rates.interval_s.unwrap_or(0.0),
        reasons(filter)
    );
    match top(&filter.sources) {
        Some(sources) => _ = write!(evidence, "; top sources: {sources}"),
        None => evidence.push_str("; their sources are not known"),
    }
    let threshold = format!(
        "more than {:.0} dropped packets/s, and more than {:.0} % of those that arrive",
        thresholds.flood_ps,
        thresholds.flood_ratio * 100.0
    );
    Some(Finding {
        lint: Lint::Flood,
        severity: Severity::Warning,
        app: String::new(),
        subject: FindingSubject::Interface(interface.name.clone()),
        evidence,
        threshold,
        advice: advice(&interface.name, filter),
        causes: Vec::new(),
        weight: 0.0,
    })
}

/// Returns the reasons for drops, most packets first.
fn reasons(filter: &FilterRates) -> String {
    let mut reasons: Vec<_> = filter
        .verdicts
        .iter()
        .filter(|verdict| verdict.dropped)
        .filter_map(|verdict| Some((verdict.pps.filter(|pps| *pps > 0.0)?, &verdict.reason)))
        .collect();
    reasons.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = reasons.iter().take(NAMED).map(|(pps, reason)| format!("{reason} {pps:.0}/s"));
    named.collect::<Vec<_>>().join(", ")
}

fn top(sources: &[SourceRates]) -> Option<String> {
    let source = |source: &SourceRates| {
        let least = if source.at_least { "at least " } else { "" };
        format!("{} ({least}{:.0}/s)", source.address, source.pps)
    };
    let named: Vec<_> = sources.iter().take(NAMED).map(source).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

fn advice(interface: &str, filter: &FilterRates) -> String {
    if filter.worst().is_some_and(|worst| worst.reason == "denied") {
        return format!(
            "the filter drops denied prefixes: ask who routes them to you to drop them earlier; if they are \
             legitimate, pmdscope xdp allow {interface} PREFIX"
        );
    }
    let Some(source) = filter.sources.first() else {
        return format!(
            "the filter drops the flood; inspect its packets (tcpdump does not see them): pmdscope xdp \
             status {interface}, and find the sender by the counters of the switch"
        );
    };
    let (address, bits) = (source.address, if source.address.is_ipv6() { 128 } else { 32 });
    format!(
        "if the source is not legitimate, deny it: pmdscope xdp deny {interface} {address}/{bits}, or a \
         shorter prefix; source addresses may be forged, so look at several first: pmdscope xdp status \
         {interface}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::filtered_interface;
    use crate::interface::InterfaceReader;
    use crate::interface_state::InterfaceEvaluator;

    fn found(thresholds: Thresholds, change: impl Fn(&mut InterfaceSample)) -> Vec<Finding> {
        let mut evaluator = InterfaceEvaluator::new(thresholds);
        let mut findings = Vec::new();
        for second in 1..=2 {
            let mut interface = filtered_interface(second);
            change(&mut interface);
            let state = evaluator.read(Ok(vec![interface]), second * 1_000_000_000);
            findings.clone_from(&state.interfaces[0].findings);
        }
        findings
    }

    #[test]
    fn a_flood_is_found_with_rate_share_reasons_and_top_sources() {
        let findings = found(Thresholds::default(), |_| {});
        let [flood] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((flood.lint, flood.severity), (Lint::Flood, Severity::Warning));
        assert_eq!(flood.subject.to_string(), "eth0");
        assert_eq!(
            flood.evidence,
            "9000 of 10000 packets/s that arrived were dropped (90.0 %, over 1.0 s): rate_limit 8000/s, \
             malformed 1000/s; top sources: 10.0.0.7 (6000/s), 2001:db8::1 (2000/s)"
        );
        assert!(flood.advice.contains("pmdscope xdp deny eth0 10.0.0.7/32"), "{}", flood.advice);
    }

    #[test]
    fn rate_and_share_must_both_be_exceeded() {
        let thresholds =
            |flood_ps, flood_ratio| Thresholds { flood_ps, flood_ratio, ..Thresholds::default() };
        assert_eq!(found(thresholds(8999.0, 0.89), |_| {}).len(), 1);
        assert_eq!(found(thresholds(9000.0, 0.0), |_| {}), []);
        assert_eq!(found(thresholds(0.0, 0.9), |_| {}), []);
    }

    #[test]
    fn senders_that_are_not_known_or_denied_already_are_not_to_be_denied() {
        let unknown = found(Thresholds::default(), |interface| {
            interface.filter.as_mut().unwrap().top_sources.clear();
        });
        assert!(unknown[0].evidence.ends_with("their sources are not known"));
        assert!(!unknown[0].advice.contains("deny"));
        let denied = found(Thresholds::default(), |interface| {
            interface.filter.as_mut().unwrap().verdicts[2].reason = "denied".to_owned();
        });
        assert!(denied[0].advice.starts_with("the filter drops denied prefixes"));
    }

    #[test]
    fn a_filter_that_was_replaced_is_no_flood() {
        let reader = crate::fixture::FakeInterfaces::new(vec![filtered_interface(1)]);
        let mut evaluator = InterfaceEvaluator::new(Thresholds::default());
        evaluator.read(reader.read(), 1_000_000_000);
        let mut replaced = filtered_interface(100);
        replaced.filter.as_mut().unwrap().program = 18;
        reader.set(Ok(vec![replaced]));
        let state = evaluator.read(reader.read(), 2_000_000_000);
        assert_eq!(state.interfaces[0].findings, []);
    }
}
