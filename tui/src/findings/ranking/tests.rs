//! Tests of the order of findings.

use pmdscope_telemetry::finding::{FindingCause, Severity};
use pmdscope_telemetry::missed::MissedCause;

use super::*;
use crate::fixture;

fn finding(lint: Lint, severity: Severity, subject: FindingSubject) -> Finding {
    Finding { lint, severity, subject, ..fixture::leaking_findings().remove(0) }
}

fn site(name: &str) -> Finding {
    let subject = FindingSubject::Site { pool: "reflector_rx".into(), site: name.into() };
    finding(Lint::Leak, Severity::Critical, subject)
}

fn pool() -> Finding {
    let subject = FindingSubject::Pool("reflector_rx".into());
    finding(Lint::PoolExhausting, Severity::Critical, subject)
}

fn fleet(findings: Vec<Finding>) -> FleetState {
    fixture::fleet_of(fixture::leaking(), findings)
}

/// What each row is about, and what is folded into it.
fn order(fleet: &FleetState) -> Vec<(String, usize)> {
    let ranked = ranked(fleet, &Thresholds::default());
    ranked.iter().map(|found| (found.finding.subject.to_string(), found.folded.len())).collect()
}

fn subjects(fleet: &FleetState) -> Vec<String> {
    order(fleet).into_iter().map(|(subject, _)| subject).collect()
}

#[test]
fn severity_comes_before_all_else() {
    let missed =
        finding(Lint::RxMissed, Severity::Warning, FindingSubject::Port("net_vhost0".into()));
    let info = Finding { severity: Severity::Info, ..site("app_fwd.c:18") };
    assert_eq!(
        subjects(&fleet(vec![info, missed, pool()])),
        ["reflector_rx", "net_vhost0", "reflector_rx app_fwd.c:18"]
    );
}

#[test]
fn a_line_of_code_comes_first_then_a_cause() {
    let port = FindingSubject::Port("net_vhost0".into());
    let cause = FindingCause {
        cause: MissedCause::StalledLcore,
        share: Some(0.9),
        evidence: "lcore 1 stood still".into(),
    };
    let missed =
        Finding { causes: vec![cause], ..finding(Lint::RxMissed, Severity::Critical, port) };
    let findings = vec![site("untraced code"), pool(), missed, site("app_fwd.c:18")];
    let expected =
        ["reflector_rx app_fwd.c:18", "net_vhost0", "reflector_rx", "reflector_rx untraced code"];
    assert_eq!(subjects(&fleet(findings)), expected);
}

#[test]
fn the_fastest_comes_first_and_then_the_one_with_the_least_time() {
    let mut model = fixture::leaking();
    model.sample.sites[2].kind = pmdscope_telemetry::sample::SiteKind::Leak;
    model.sites[2].rate_ps = Some(5_000.0);
    let fleet = fixture::fleet_of(model, vec![site("app_fwd.c:18"), site("app_fwd.c:48")]);
    assert_eq!(subjects(&fleet), ["reflector_rx app_fwd.c:48", "reflector_rx app_fwd.c:18"]);
    let mut slow = fixture::leaking();
    let mut trend = slow.pools[0].clone();
    (trend.name, trend.exhausted_in_s) = ("other".into(), Some(5.0));
    slow.pools.push(trend);
    let other = Finding { subject: FindingSubject::Pool("other".into()), ..pool() };
    let fleet = fixture::fleet_of(slow, vec![pool(), other]);
    assert_eq!(subjects(&fleet), ["other", "reflector_rx"]);
}

#[test]
fn a_small_change_of_a_rate_does_not_change_the_order() {
    let at = |rate| {
        let mut model = fixture::leaking();
        model.pools[0].slope_ps = Some(rate);
        let missed =
            finding(Lint::RxMissed, Severity::Critical, FindingSubject::Port("net_vhost0".into()));
        subjects(&fixture::fleet_of(model, vec![missed, pool()]))
    };
    assert_eq!(at(300.0), at(500.0));
    assert_ne!(at(300.0), at(20.0));
}

#[test]
fn what_was_lost_before_arming_is_part_of_its_pool() {
    let early = site("before arming");
    let all = fleet(vec![early.clone(), site("app_fwd.c:18"), pool()]);
    let expected = [("reflector_rx app_fwd.c:18".to_owned(), 0), ("reflector_rx".to_owned(), 1)];
    assert_eq!(order(&all), expected);
    let without_pool = fleet(vec![early.clone(), site("app_fwd.c:18")]);
    assert_eq!(order(&without_pool), [("reflector_rx app_fwd.c:18".to_owned(), 1)]);
    let elsewhere = FindingSubject::Pool("other".into());
    let other = fleet(vec![early.clone(), Finding { subject: elsewhere, ..pool() }]);
    assert_eq!(order(&other).len(), 2, "of another pool");
    assert_eq!(order(&fleet(vec![early])).len(), 1, "nothing else says it");
}

#[test]
fn rates_time_left_and_age_are_those_of_the_app() {
    let fleet = fleet(fixture::leaking_findings());
    let ranked = ranked(&fleet, &Thresholds::default());
    let texts: Vec<_> = ranked.iter().map(|found| found.rate.map(FindingRate::text)).collect();
    assert_eq!(
        texts,
        [Some("412/s".to_owned()), Some("412/s".to_owned()), Some("412/s".to_owned())]
    );
    assert_eq!(ranked[0].left_s, Some(17.9));
    assert_eq!(ranked[2].left_s, None, "the NIC has no pool");
    assert_eq!(ranked[0].age(None), Some(FindingAge { seconds: 18.0, at_least: false }));
    assert_eq!(ranked[1].age(None), None);
}
