//! The measurements as tables, and their goals.

use std::fmt::Write as _;
use std::time::Duration;

use pmdscope_integration::spread::Spread;

use crate::bench::{ExportResults, ScrapeRound};
use crate::exporters::{MeasuredExporter, PEER};
use crate::http::ConnectionMode;
use crate::plan::ExportCase;

const NEW: MeasuredExporter = MeasuredExporter::Pmdscope(ConnectionMode::New);
const KEPT: MeasuredExporter = MeasuredExporter::Pmdscope(ConnectionMode::Kept);
/// Ratio of the series of pmdscope to those of the peer.
const SERIES_GOAL: f64 = 3.0;
/// Ratio of the app's CPU time with pmdscope to that with the peer.
const CPU_GOAL: f64 = 1.0 / 3.0;

/// All tables.
pub(crate) fn tables(results: &ExportResults, cases: &[ExportCase]) -> String {
    let mut out = String::new();
    let rested_cases: Vec<_> =
        cases.iter().filter(|case| results.rested.contains_key(&(**case, NEW))).collect();
    rested(&mut out, results, &rested_cases);
    let cases: Vec<_> =
        cases.iter().filter(|case| results.rounds.contains_key(&(**case, NEW))).collect();
    if cases.is_empty() {
        return out;
    }
    times(&mut out, results, &cases);
    costs(&mut out, results, &cases);
    goals(&mut out, results, &cases);
    out
}

fn times(out: &mut String, results: &ExportResults, cases: &[&ExportCase]) {
    let _ = writeln!(
        out,
        "\nOne scrape of everything, ms: p50 by round, median (quartiles), and p99 of all rounds\n"
    );
    let _ = writeln!(
        out,
        "| apps, ports x queues | pmdscope, p50 | p99 | kept connection, p50 | p99 | {PEER}, p50 \
         | p99 | ratio of p50 |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|---|");
    for case in cases {
        let cells = MeasuredExporter::ALL.map(|who| {
            rounds(results, case, who).map_or("- | -".to_owned(), |rounds| {
                format!("{:.3} | {:.2}", p50(rounds), p99(rounds))
            })
        });
        let ratio = ratio(results, case, NEW, |round| percentile(&round.took, 50));
        let _ = writeln!(out, "| {case} | {} | {} |", cells.join(" | "), told(ratio, 1));
    }
}

fn rested(out: &mut String, results: &ExportResults, cases: &[&ExportCase]) {
    let _ = writeln!(
        out,
        "\nScrapes 1.1 s apart, in turns, ms: median (quartiles), and mean CPU time of the apps\n"
    );
    let _ = writeln!(
        out,
        "| apps, ports x queues | pmdscope | kept connection | CPU of the apps | {PEER} \
         | CPU of the apps | ratio of medians | of the peer's CPU |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|---|");
    for case in cases {
        let of = |who| results.rested.get(&(**case, who));
        let new = of(NEW).map_or("-".to_owned(), |round| format!("{:.2}", spread(round)));
        let cells = [KEPT, MeasuredExporter::Peer].map(|who| {
            of(who).map_or("- | -".to_owned(), |round| {
                format!("{:.2} | {:.2}", spread(round), round.apps_ns / 1e6)
            })
        });
        let both = of(KEPT).zip(of(MeasuredExporter::Peer));
        let ratio = both.map(|(ours, peer)| spread(peer).median / spread(ours).median);
        let share = both.map(|(ours, peer)| ours.apps_ns / peer.apps_ns);
        let _ = writeln!(
            out,
            "| {case} | {new} | {} | {} | {} |",
            cells.join(" | "),
            told(ratio, 1),
            told(share, 2)
        );
    }
}

fn costs(out: &mut String, results: &ExportResults, cases: &[&ExportCase]) {
    let _ = writeln!(
        out,
        "\nWhat one scrape of everything takes: CPU time in ms, median (quartiles), and the rest\n"
    );
    let _ = writeln!(
        out,
        "| apps, ports x queues | who | CPU of the exporter | CPU of the apps | of the peer's \
         | requests | connections | series | MiB |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|---|---|");
    for case in cases {
        for who in [NEW, MeasuredExporter::Peer] {
            let Some(rounds) = rounds(results, case, who) else { continue };
            let Some(facts) = results.facts.get(&(**case, who)) else { continue };
            let share = match who {
                MeasuredExporter::Peer => String::new(),
                MeasuredExporter::Pmdscope(_) => {
                    told(ratio(results, case, who, |r| r.apps_ns).map(|r| 1.0 / r), 2)
                }
            };
            let twice = match facts.lines - facts.series {
                0 => String::new(),
                more => format!(" (and {more} twice)"),
            };
            let _ = writeln!(
                out,
                "| {case} | {} | {:.3} | {:.3} | {share} | {} | {} | {}{twice} | {:.1} |",
                who.name(),
                Spread::of(rounds.iter().map(|round| round.exporter_ns / 1e6)),
                Spread::of(rounds.iter().map(|round| round.apps_ns / 1e6)),
                facts.requests,
                facts.connections,
                facts.series,
                facts.memory as f64 / f64::from(1 << 20),
            );
        }
    }
}

/// The goal of a number.
#[derive(Clone, Copy)]
enum PerformanceGoal {
    Most(f64),
    Least(f64),
}

impl PerformanceGoal {
    fn met(self, measured: f64) -> bool {
        match self {
            Self::Most(bound) => measured <= bound,
            Self::Least(bound) => measured >= bound,
        }
    }

    fn told(self) -> String {
        match self {
            Self::Most(bound) => format!("<= {bound:.2}"),
            Self::Least(bound) => format!(">= {bound:.2}"),
        }
    }
}

/// The goals. A missed goal is reported, but is not a failure of the run.
fn goals(out: &mut String, results: &ExportResults, cases: &[&ExportCase]) {
    let _ = writeln!(out, "\nAims\n\n| | aim | measured | met |\n|---|---|---|---|");
    for case in cases {
        for (what, goal, measured) in time_goals(results, case) {
            print_goal(out, case, what, goal, Some(measured));
        }
        let series = |who| results.facts.get(&(**case, who)).map(|facts| facts.series as f64);
        let times = series(NEW).zip(series(MeasuredExporter::Peer)).map(|(ours, peer)| ours / peer);
        print_goal(out, case, "series, to the peer's", PerformanceGoal::Least(SERIES_GOAL), times);
        let share = ratio(results, case, NEW, |round| round.apps_ns).map(|ratio| 1.0 / ratio);
        print_goal(
            out,
            case,
            "CPU of the apps, to the peer's",
            PerformanceGoal::Most(CPU_GOAL),
            share,
        );
    }
}

fn time_goals(
    results: &ExportResults,
    case: &ExportCase,
) -> Vec<(&'static str, PerformanceGoal, f64)> {
    let most = match (case.apps, case.idle.ports, case.idle.queues) {
        (1, 1, 1) => 0.1,
        (1, 16, 16) => 0.3,
        _ => return Vec::new(),
    };
    [(KEPT, "p50 of a kept connection, ms"), (NEW, "p50 of a new connection, ms")]
        .into_iter()
        .filter_map(|(who, what)| {
            Some((what, PerformanceGoal::Most(most), p50(rounds(results, case, who)?).median))
        })
        .collect()
}

fn print_goal(
    out: &mut String,
    case: &ExportCase,
    what: &str,
    goal: PerformanceGoal,
    measured: Option<f64>,
) {
    let Some(measured) = measured else { return };
    let met = if goal.met(measured) { "yes" } else { "no" };
    let _ = writeln!(out, "| {case}: {what} | {} | {measured:.3} | {met} |", goal.told());
}

fn rounds<'a>(
    results: &'a ExportResults,
    case: &ExportCase,
    who: MeasuredExporter,
) -> Option<&'a [ScrapeRound]> {
    results.rounds.get(&(*case, who)).map(Vec::as_slice)
}

/// Of the scrapes, milliseconds.
fn spread(round: &ScrapeRound) -> Spread {
    Spread::of(round.took.iter().map(|took| took.as_secs_f64() * 1e3))
}

/// By round, milliseconds.
fn p50(rounds: &[ScrapeRound]) -> Spread {
    Spread::of(rounds.iter().map(|round| percentile(&round.took, 50)))
}

/// Of all rounds, milliseconds.
fn p99(rounds: &[ScrapeRound]) -> f64 {
    let all: Vec<_> = rounds.iter().flat_map(|round| &round.took).copied().collect();
    percentile(&all, 99)
}

fn percentile(took: &[Duration], percent: usize) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

/// Ratio of the peer's number to that of `who`, in the same round; the median.
fn ratio(
    results: &ExportResults,
    case: &ExportCase,
    who: MeasuredExporter,
    of: impl Fn(&ScrapeRound) -> f64,
) -> Option<f64> {
    let (ours, peer) =
        (rounds(results, case, who)?, rounds(results, case, MeasuredExporter::Peer)?);
    Some(Spread::of(ours.iter().zip(peer).map(|(ours, peer)| of(peer) / of(ours))).median)
}

fn told(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
}
