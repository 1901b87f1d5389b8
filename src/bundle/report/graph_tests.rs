//! Tests of the paths of graphs.

use super::super::fixture;
use super::*;

/// A line with these values, a step apart.
fn line(values: &[Option<f64>]) -> HistoryLine {
    let states = fixture::states("fwd", 2, |_, _| {});
    let mut history = fixture::history(&states);
    let mut graphs = history.apps.remove("fwd").unwrap().graphs;
    let line = graphs.get_mut(&Quantity::PoolUse).unwrap().remove(0);
    let value = |value: &Option<f64>| value.map(StepValues::of);
    HistoryLine { steps: values.iter().map(value).collect(), ..line }
}

#[test]
fn a_path_goes_from_the_bottom_for_nothing_to_the_top_for_all() {
    let line = line(&[Some(0.0), Some(0.5), Some(1.0), Some(2.0)]);
    assert_eq!(path(&line, 1.0), "M0 100L1 50L2 0L3 0");
    assert_eq!(band(&line, 1.0), None);
}

#[test]
fn a_gap_is_longer_than_the_usual_distance() {
    let every_second = line(&[
        Some(1.0),
        None,
        Some(1.0),
        None,
        Some(1.0),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        Some(0.5),
    ]);
    assert_eq!(path(&every_second, 1.0), "M0 0L2 0L4 0M12 50h0");
    assert_eq!(path(&line(&[None, None]), 1.0), "");
}

#[test]
fn a_band_reaches_from_the_least_to_the_greatest_value() {
    let mut line = line(&[Some(0.5), Some(0.5)]);
    let mut wide = StepValues::of(0.5);
    (wide.least, wide.most) = (0.25, 0.75);
    line.steps[1] = Some(wide);
    assert_eq!(band(&line, 1.0).as_deref(), Some("M0 50L1 25L1 75L0 50Z"));
    assert_eq!(path(&line, 1.0), "M0 50L1 50");
}

#[test]
fn coordinates_are_short_and_within_the_picture() {
    let heights = [0.0, 1.0 / 3.0, 1e9, -5.0].map(|value| height(value, 1.0));
    assert_eq!(heights, ["100", "66.7", "0", "100"]);
}
