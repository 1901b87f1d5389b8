//! The longest stay of a poll loop outside the function that receives, from consecutive samples.
//!
//! Consecutive samples in the same function do not prove that it was not left between them: a
//! function that takes half of each iteration is hit by half of all samples, and often by several
//! in a row. So a run of samples counts only if there are more such runs, or longer ones, than
//! expected by chance, both at its share of the whole profile and at its share of the time around
//! the run (bursts of packets).
//!
//! A thread that only lost its CPU between two samples goes on where it was, so its runs continue, in
//! CPU time. Of a thread that sleeps, each sleep ends a run, and the time after it may begin one.

use std::ops::Range;

/// Samples before and after a run from which the local share of the function is computed.
const NEIGHBOURS: usize = 12;

/// Largest share of a function: one that is nearly always on the stack has no stays.
const MOST_SHARE: f64 = 0.95;

/// Natural logarithm of the probability below which runs are not attributed to chance: 0.1 %.
const CHANCE_LN: f64 = -6.9;

/// Largest distance of consecutive samples, in half periods: beyond it, the thread had no CPU in
/// between, or samples were lost.
const MOST_HALF_PERIODS: u64 = 3;

/// A sample of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) time_ns: u64,
    /// Index of its stack.
    pub(crate) stack: usize,
}

/// The functions of a stack that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct StackFunctions {
    /// Whether it is in the function that receives.
    pub(crate) receives: bool,
    /// Functions of the app on it.
    pub(crate) functions: Vec<usize>,
}

/// The longest stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FoundStay {
    /// The function.
    pub(crate) function: usize,
    /// CPU time of its samples, nanoseconds: one period each.
    pub(crate) length_ns: u64,
    /// Number of stays in the function that have at least as many samples as chance does not
    /// explain.
    pub(crate) times: usize,
    /// Share of samples in the function.
    share: f64,
}

/// Returns the longest stay; `None` when none stands out. `sleeps` tells whether the thread slept
/// between samples.
pub(crate) fn longest_stay(
    points: &[Point],
    stacks: &[StackFunctions],
    period_ns: u64,
    sleeps: bool,
) -> Option<FoundStay> {
    let times: Vec<u64> = points.iter().map(|point| point.time_ns).collect();
    let follows = |pair: &[u64]| {
        let [before, now] = pair else { return true };
        !sleeps || 2 * now.saturating_sub(*before) <= MOST_HALF_PERIODS * period_ns
    };
    // Of each sample, whether nothing came between it and the one before.
    let joined: Vec<bool> = std::iter::once(true).chain(times.windows(2).map(follows)).collect();
    let mut functions: Vec<usize> =
        stacks.iter().filter(|stack| !stack.receives).flat_map(|s| s.functions.clone()).collect();
    functions.sort_unstable();
    functions.dedup();
    let found: Vec<FoundStay> = functions
        .into_iter()
        .filter_map(|function| {
            let inside = |point: &Point| {
                let stack = stacks.get(point.stack);
                stack.is_some_and(|stack| !stack.receives && stack.functions.contains(&function))
            };
            let series: Vec<bool> = points.iter().map(inside).collect();
            of_function(function, &joined, &series, period_ns)
        })
        .collect();
    let longest = found.iter().map(|stay| stay.length_ns).max()?;
    // Of functions with stays of about this length, the rarest: the poll loop itself is always on
    // the stack.
    let as_long = found.iter().filter(|stay| stay.length_ns >= longest - longest / 10);
    as_long.min_by(|a, b| a.share.total_cmp(&b.share)).copied()
}

fn of_function(
    function: usize,
    joined: &[bool],
    series: &[bool],
    period_ns: u64,
) -> Option<FoundStay> {
    let hits = series.iter().filter(|hit| **hit).count();
    let share = hits as f64 / series.len() as f64;
    let runs = runs(joined, series);
    // A run begins after a miss, or after a sleep.
    let after_miss = series.len() - hits;
    let split = |pair: (&[bool], &bool)| matches!(pair, ([true, _], false));
    let starts =
        after_miss + series.windows(2).zip(joined.iter().skip(1)).filter(|p| split(*p)).count();
    let longest = runs.iter().max_by_key(|run| run.len())?;
    let least = (2..=longest.len()).find(|least| {
        let long: Vec<&Range<usize>> = runs.iter().filter(|run| run.len() >= *least).collect();
        let around = long.iter().map(|run| share_around(series, run)).sum::<f64>();
        exceeds_chance(long.len(), starts as f64, share.max(around / long.len() as f64), *least)
    })?;
    let length_ns = u64::try_from(longest.len()).ok()?.saturating_mul(period_ns);
    let times = runs.iter().filter(|run| run.len() >= least).count();
    Some(FoundStay { function, length_ns, times, share })
}

/// Returns whether `found` runs of at least `least` samples are more than expected by chance, if
/// one may begin at each of `starts`, and continues with the probability `share`. Uses the
/// Chernoff bound of the Poisson distribution.
fn exceeds_chance(found: usize, starts: f64, share: f64, least: usize) -> bool {
    if share > MOST_SHARE {
        return false;
    }
    let length = i32::try_from(least).unwrap_or(i32::MAX);
    let expected = starts * share.powi(length);
    let found = found as f64;
    found > expected && found - expected + found * (expected / found).ln() < CHANCE_LN
}

/// Returns the share of the function in the samples before or after a run, whichever is larger: a
/// run at the edge of a burst of packets has hits only on one side. One hit is added, so that the
/// share is never 0.
fn share_around(series: &[bool], run: &Range<usize>) -> f64 {
    // The samples next to the run are misses, or it would be longer, so they do not count.
    let last = run.start.saturating_sub(1);
    let before = series.get(last.saturating_sub(NEIGHBOURS)..last).unwrap_or_default();
    let first = series.len().min(run.end + 1);
    let behind = series.get(first..series.len().min(first + NEIGHBOURS)).unwrap_or_default();
    let share = |side: &[bool]| {
        let hits = side.iter().filter(|hit| **hit).count();
        (hits + 1) as f64 / (side.len() + 1) as f64
    };
    // At the start and the end of a profile only one side is known.
    let sides = [before, behind].into_iter().filter(|side| !side.is_empty());
    sides.map(share).fold(0.0, f64::max)
}

/// Returns the runs of samples in the function.
fn runs(joined: &[bool], series: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, (joined, hit)) in joined.iter().zip(series).enumerate() {
        if !hit {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == at && *joined => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1_000_000;
    const RECEIVE: usize = 0;
    const LOOP: usize = 1;
    const PARSE: usize = 2;

    /// Stack 0 receives, 1 is in the loop, 2 in a function of the loop.
    fn stacks() -> Vec<StackFunctions> {
        vec![
            StackFunctions { receives: true, functions: vec![LOOP] },
            StackFunctions { receives: false, functions: vec![LOOP] },
            StackFunctions { receives: false, functions: vec![PARSE, LOOP] },
        ]
    }

    fn points(stacks: impl Iterator<Item = usize>) -> Vec<Point> {
        stacks.enumerate().map(|(at, stack)| Point { time_ns: at as u64 * PERIOD, stack }).collect()
    }

    /// Returns pseudo-random numbers, the same in each run.
    fn random(seed: &mut u64) -> f64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn a_function_that_stays_is_named_with_its_time() {
        let mut seed = 1;
        let stalls = |at: usize| at % 500 < 5;
        let idle = |seed: &mut u64| if random(seed) < 0.6 { RECEIVE } else { LOOP };
        let points = points((0..5000).map(|at| if stalls(at) { PARSE } else { idle(&mut seed) }));
        let stay = longest_stay(&points, &stacks(), PERIOD, false).unwrap();
        assert_eq!((stay.function, stay.length_ns), (PARSE, 5 * PERIOD));
        assert!(stay.times >= 9, "{stay:?}");
    }

    #[test]
    fn a_single_long_stay_is_enough() {
        let mut seed = 2;
        let idle = |seed: &mut u64| if random(seed) < 0.6 { RECEIVE } else { LOOP };
        let points = points(
            (0..9970).map(|at| if (4000..4020).contains(&at) { PARSE } else { idle(&mut seed) }),
        );
        let stay = longest_stay(&points, &stacks(), PERIOD, false).unwrap();
        assert_eq!((stay.function, stay.length_ns, stay.times), (PARSE, 20 * PERIOD, 1));
    }

    #[test]
    fn work_for_each_packet_is_no_stay() {
        for share in [0.02, 0.3, 0.6, 0.9] {
            for mut seed in 0..20 {
                let busy = |seed: &mut u64| if random(seed) < share { PARSE } else { RECEIVE };
                let points = points((0..5000).map(|_| busy(&mut seed)));
                let found = longest_stay(&points, &stacks(), PERIOD, false);
                assert_eq!(found, None, "share {share}");
            }
        }
    }

    #[test]
    fn bursts_of_packets_are_no_stay() {
        for mut seed in 0..20 {
            let share = |at: usize| if at % 500 < 50 { 0.8 } else { 0.02 };
            let busy = |seed: &mut u64, at| if random(seed) < share(at) { PARSE } else { RECEIVE };
            let points = points((0..5000).map(|at| busy(&mut seed, at)));
            assert_eq!(longest_stay(&points, &stacks(), PERIOD, false), None);
        }
    }

    /// Lets something come between each three of these samples.
    fn sliced(mut points: Vec<Point>) -> Vec<Point> {
        for (at, point) in points.iter_mut().enumerate() {
            point.time_ns += (at as u64 / 3) * 4 * PERIOD;
        }
        points
    }

    #[test]
    fn time_slices_are_no_stays() {
        for share in [0.3, 0.6, 0.9] {
            for mut seed in 0..20 {
                let busy = |seed: &mut u64| if random(seed) < share { PARSE } else { RECEIVE };
                let points = sliced(points((0..5000).map(|_| busy(&mut seed))));
                for sleeps in [false, true] {
                    let found = longest_stay(&points, &stacks(), PERIOD, sleeps);
                    assert_eq!(found, None, "share {share}, sleeps {sleeps}");
                }
            }
        }
    }

    #[test]
    fn a_stay_goes_on_after_other_threads_had_the_cpu() {
        let mut seed = 3;
        let stalls = |at: usize| at % 2500 < 200;
        let idle = |seed: &mut u64| if random(seed) < 0.6 { RECEIVE } else { LOOP };
        let points =
            sliced(points((0..5000).map(|at| if stalls(at) { PARSE } else { idle(&mut seed) })));
        let stay = longest_stay(&points, &stacks(), PERIOD, false).unwrap();
        assert_eq!((stay.function, stay.length_ns), (PARSE, 200 * PERIOD));
    }

    #[test]
    fn time_without_a_cpu_is_no_stay_of_the_function() {
        let mut points = points((0..1000).map(|at| if at == 500 || at == 501 { PARSE } else { 0 }));
        for point in &mut points[501..] {
            point.time_ns += 50 * PERIOD;
        }
        assert_eq!(longest_stay(&points, &stacks(), PERIOD, false), None);
    }

    #[test]
    fn a_loop_that_never_receives_tells_nothing() {
        let points = points((0..1000).map(|_| LOOP));
        assert_eq!(longest_stay(&points, &stacks(), PERIOD, false), None);
        assert_eq!(longest_stay(&[], &stacks(), PERIOD, false), None);
    }
}
