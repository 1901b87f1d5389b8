//! Graphs over time as SVG within the page, each with its numbers in a table.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};
use pmdscope_render::{axis_top, number};

use super::history::{AppHistory, HistoryLine, Quantity, RecordedHistory, STEPS, StepValues};
use super::text::{date_and_time, name, time};

/// Most lines of a graph: as many as there are colours.
const MOST_DRAWN: usize = 8;
/// The last step, which is where the time axis ends.
const LAST: usize = STEPS - 1;
/// Height of a graph in its own coordinates; one step is as wide as 1.
const HEIGHT: f64 = 100.0;
/// Steps without a value that are no gap, as a multiple of the usual distance between two values.
const GAP: usize = 3;

impl Quantity {
    const ALL: [Self; 4] = [Self::Received, Self::Sent, Self::Missed, Self::PoolUse];

    fn title(self) -> &'static str {
        match self {
            Self::Received => "RX packets/s",
            Self::Sent => "TX packets/s",
            Self::Missed => "Missed packets/s",
            Self::PoolUse => "Mempools, in use",
        }
    }

    /// The end of the axis that these lines fit on.
    fn top(self, lines: &[&HistoryLine]) -> f64 {
        match self {
            Self::PoolUse => 1.0,
            _ => axis_top(lines.iter().map(|line| line.most()).fold(0.0, f64::max)),
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::PoolUse => number::percent(value),
            _ => number::si(value),
        }
    }
}

/// The graphs of an app.
pub(super) fn graphs(app: &AppHistory, history: &RecordedHistory) -> Markup {
    html! {
        div.graphs {
            @for quantity in Quantity::ALL {
                (graph(quantity, app, history))
            }
        }
    }
}

fn graph(quantity: Quantity, app: &AppHistory, history: &RecordedHistory) -> Markup {
    let all = app.graphs.get(&quantity).map(Vec::as_slice).unwrap_or_default();
    let known: Vec<&HistoryLine> = all.iter().filter(|line| line.range().is_some()).collect();
    let title = quantity.title();
    if known.is_empty() {
        return html! { p.note { (title) ": not known" } };
    }
    if quantity == Quantity::Missed && known.iter().all(|line| line.most() <= 0.0) {
        let of = number::plural(known.len() as u64, "port");
        return html! { p.note { (title) ": none on " (of) } };
    }
    let mut drawn = known.clone();
    // A stable order: of equal ones the first.
    drawn.sort_by(|a, b| b.most().total_cmp(&a.most()));
    drawn.truncate(MOST_DRAWN);
    let beyond = app.left_out.get(&quantity).copied().unwrap_or_default();
    let left_out = all.len() - drawn.len() + beyond;
    html! {
        figure {
            figcaption { (title) }
            (picture(quantity, &drawn, history))
            (legend(quantity, &drawn))
            @if left_out > 0 {
                p.note { (left_out) " others are not drawn: their peaks are lower or not known, or there was no room" }
            }
        }
    }
}

fn picture(quantity: Quantity, drawn: &[&HistoryLine], history: &RecordedHistory) -> Markup {
    let top = quantity.top(drawn);
    let (begin, end) = history.span_ns;
    let at = |ns: u64| Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
    let (begin, end) = (at(begin), at(end));
    html! {
        div.axis { (quantity.text(top)) }
        svg viewBox={ "0 0 " (LAST) " 100" } preserveAspectRatio="none" role="img"
            aria-label=(quantity.title())
        {
            path.grid d={ "M0 0H" (LAST) "M0 50H" (LAST) "M0 100H" (LAST) } {}
            @for (at, line) in drawn.iter().enumerate() {
                @if let Some(band) = band(line, top) {
                    path class={ "band s" (at) } d=(band) {}
                }
                path class={ "line s" (at) } d=(path(line, top)) {}
            }
        }
        div.times {
            span { (date_and_time(begin, &history.zone)) }
            span { (time(end, &history.zone)) }
        }
    }
}

/// What each line is, with its numbers: also for those who cannot see the picture.
fn legend(quantity: Quantity, drawn: &[&HistoryLine]) -> Markup {
    let text = |value: f64| quantity.text(value);
    html! {
        div.scroll tabindex="0" {
            table.legend {
                thead {
                    tr {
                        th {} th {}
                        th.number { "Least" } th.number { "Mean" } th.number { "Most" } th.number { "At the end" }
                    }
                }
                tbody {
                    @for (at, line) in drawn.iter().enumerate() {
                        @if let Some((least, mean, most)) = line.range() {
                            tr {
                                td { svg.key viewBox="0 0 24 8" aria-hidden="true" { path class={ "line s" (at) } d="M0 4H24" {} } }
                                td { (name(&line.name)) }
                                td.number { (text(least)) }
                                td.number { (text(mean)) }
                                td.number { (text(most)) }
                                td.number { (text(line.last)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The means of a line as a path, with gaps where values are missing.
fn path(line: &HistoryLine, top: f64) -> String {
    let mut path = String::new();
    for run in runs(line) {
        let mut command = 'M';
        for &(step, values) in &run {
            let _ = write!(path, "{command}{step} {}", height(values.mean(), top));
            command = 'L';
        }
        if run.len() == 1 {
            // A dot, because of its round ends.
            path += "h0";
        }
    }
    path
}

/// The area between the least and the greatest values; `None` where no step has several.
fn band(line: &HistoryLine, top: f64) -> Option<String> {
    let is_wide = line.steps.iter().flatten().any(|values| values.least < values.most);
    if !is_wide {
        return None;
    }
    let mut path = String::new();
    for run in runs(line) {
        let upper = run.iter().map(|(step, values)| (step, values.most));
        let lower = run.iter().rev().map(|(step, values)| (step, values.least));
        let mut command = 'M';
        for (step, value) in upper.chain(lower) {
            let _ = write!(path, "{command}{step} {}", height(value, top));
            command = 'L';
        }
        path.push('Z');
    }
    Some(path)
}

/// The steps with values, apart where more are missing between them than usual.
fn runs(line: &HistoryLine) -> Vec<Vec<(usize, StepValues)>> {
    let known = line.steps.iter().enumerate();
    let known: Vec<_> = known.filter_map(|(step, values)| Some((step, (*values)?))).collect();
    let distances = known.windows(2).map(|two| two[1].0 - two[0].0);
    let usual = distances.min().unwrap_or(1);
    let is_near = |a: &(usize, _), b: &(usize, _)| b.0 - a.0 <= GAP * usual;
    known.chunk_by(is_near).map(<[_]>::to_vec).collect()
}

/// The coordinate of a value; that of 0 is at the bottom.
fn height(value: f64, top: f64) -> String {
    let height = HEIGHT * (1.0 - value.clamp(0.0, top) / top);
    let text = format!("{height:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
