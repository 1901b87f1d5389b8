//! Tests of graphs over time and of the age of findings.

use super::*;
use crate::fixture;
use crate::timeline::history::FrameHistory;
use crate::timeline::{FrameSource, Timeline};

const START: u64 = fixture::MONOTONIC_NS;

fn point(second: u64, rx_pps: Option<f64>, missed_ps: Option<f64>) -> Arc<TrendPoint> {
    let app = AppPoint {
        app: "a".into(),
        rx_pps,
        tx_pps: None,
        missed_ps,
        pool_used: None,
        pools: Vec::new(),
        lcores: Vec::new(),
    };
    Arc::new(TrendPoint { at: START + second * NS_PER_SECOND, apps: vec![app] })
}

fn trends(points: Vec<Arc<TrendPoint>>) -> Trends {
    let now = points.last().map_or(START, |point| point.at);
    Trends { now, points, ..Trends::default() }
}

fn rx(trends: &Trends, columns: usize) -> Vec<Option<f64>> {
    trends.columns(60 * NS_PER_SECOND, columns, ColumnValue::Mean, |point| {
        point.sum(|app| app.rx_pps)
    })
}

/// Known columns as digits, gaps as dots.
fn digits(columns: &[Option<f64>]) -> String {
    columns
        .iter()
        .map(|value| value.map_or(".".to_owned(), |value| format!("{value:.0}")))
        .collect()
}

#[test]
fn columns_are_filled_up_to_the_point_before_and_gaps_stay() {
    let every_5 = trends((0..12).map(|n| point(n * 5, Some(3.0), None)).collect());
    assert_eq!(digits(&rx(&every_5, 60)), format!("....{}", "3".repeat(56)));
    let gap = trends([0, 1, 2, 30, 31].map(|at| point(at, Some(2.0), None)).to_vec());
    assert_eq!(digits(&rx(&gap, 60)), format!("{}222{}22", ".".repeat(28), ".".repeat(27)));
    let restart = trends(vec![
        point(0, Some(1.0), None),
        point(1, Some(1.0), None),
        point(2, None, None),
        point(3, Some(1.0), None),
    ]);
    assert_eq!(digits(&rx(&restart, 60)), format!("{}11.1", ".".repeat(56)));
}

#[test]
fn a_column_has_the_mean_rate_and_the_worst_loss() {
    let values = [(1.0, 0.0), (3.0, 9.0), (5.0, 0.0)].into_iter().zip(0..);
    let trends =
        trends(values.map(|((rx, missed), at)| point(at, Some(rx), Some(missed))).collect());
    let missed = |point: &TrendPoint| point.sum(|app| app.missed_ps);
    assert_eq!(digits(&rx(&trends, 1)), "3");
    assert_eq!(digits(&trends.columns(60 * NS_PER_SECOND, 1, ColumnValue::Highest, missed)), "9");
    assert_eq!(trends.columns(60 * NS_PER_SECOND, 0, ColumnValue::Mean, missed), []);
}

#[test]
fn values_keep_their_column_while_time_goes_on() {
    let mut trends = trends((0..60).map(|n| point(n, Some((n % 7) as f64), None)).collect());
    let before = rx(&trends, 20);
    trends.now += 2 * NS_PER_SECOND;
    let after = rx(&trends, 20);
    let moved = before[1..].iter().zip(&after).filter(|(a, b)| a == b).count();
    assert!(before == after || moved == 19, "{before:?} {after:?}");
}

#[test]
fn the_axis_grows_with_what_is_known() {
    let length = |seconds: u64| {
        trends((0..=seconds).map(|n| point(n, None, None)).collect()).length_ns() / NS_PER_SECOND
    };
    assert_eq!([0, 10, 60, 61, 120, 121, 300].map(length), [60, 60, 60, 120, 120, 300, 300]);
}

#[test]
fn a_thinned_history_does_not_lose_a_loss() {
    let mut history = FrameHistory::default();
    for tenth in 0..10 {
        let mut model = fixture::leaking();
        model.ports[0].rx_missed_ps = Some(if tenth == 6 { 77.0 } else { 0.0 });
        let fleet = fixture::fleet_of(model, Vec::new());
        history.push(&FleetState { now_ns: START + tenth * NS_PER_SECOND / 10, ..fleet });
    }
    assert!(history.after(START + NS_PER_SECOND / 2).unwrap().is_some());
    let points = history.trends(START + NS_PER_SECOND).points;
    let missed = points.iter().filter_map(|point| point.sum(|app| app.missed_ps));
    assert_eq!(missed.reduce(f64::max), Some(77.0));
}

fn age(log: &FindingLog, at: u64, finding: &Finding) -> Option<(f64, bool)> {
    let findings = log.spans().iter().filter(|span| span.covers(at)).cloned().collect();
    let age = Trends { now: at, findings, ..Trends::default() }.age(finding)?;
    Some((age.seconds, age.at_least))
}

#[test]
fn findings_have_an_age_in_the_present_and_the_past() {
    let leak = &fixture::leaking_findings()[1];
    let mut log = FindingLog::default();
    let there = |second| matches!(second, 20..=40 | 43..=50 | 70..=90);
    for second in 0..=90 {
        let findings = if there(second) { vec![leak.clone()] } else { Vec::new() };
        let fleet = fixture::fleet_of(fixture::leaking(), findings);
        log.update(START + second * NS_PER_SECOND, &fleet);
    }
    let age = |second| age(&log, START + second * NS_PER_SECOND, leak);
    assert_eq!(age(19), None);
    assert_eq!(age(30), Some((10.0, false)));
    assert_eq!(age(45), Some((25.0, false)), "it was not gone");
    assert_eq!(age(60), None);
    assert_eq!(age(90), Some((20.0, false)));
}

#[test]
fn what_was_there_from_the_beginning_has_at_least_that_age() {
    let mut live = crate::timeline::live::LiveTimeline::default();
    let findings = fixture::leaking_findings();
    for second in 0..30 {
        let at = START + second * NS_PER_SECOND;
        let fleet = fixture::fleet_of(fixture::leaking(), findings.clone());
        live.take(FleetState { now_ns: at, ..fleet }.into());
        live.tick(at, at);
    }
    let age = live.trends().age(&findings[0]);
    assert_eq!(age, Some(FindingAge { seconds: 29.0, at_least: true }));
}
