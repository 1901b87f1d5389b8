//! The page of a bundle: HTML that any browser shows, for those without pmdscope. It has no scripts, and loads
//! nothing.

#[cfg(test)]
mod fixture;
mod graph;
mod history;
mod table;
mod text;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use pmdscope_render::{Theme, number};
use pmdscope_tui::report;
use pmdscope_tui::state::ViewState;

use self::graph::graphs;
pub(super) use self::history::{PlayLimit, RecordedHistory};
use self::table::table;
use self::text::{name, sentence};
use super::findings::{BundleFinding, BundleFindings, SEVERITIES};
use super::index::{BundleIndex, PartEntry};
use crate::output::plain;

/// Its name in the bundle.
pub(super) const FILE: &str = "report.html";

/// Nothing but the styles of the page itself: neither scripts nor anything of other places.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = include_str!("report/page.css");

/// The table of `top` that the page has as a section of its own.
const FINDINGS: &str = "Findings";
/// Most causes of a finding.
const MOST_CAUSES: usize = 20;
/// Most apps with graphs.
const MOST_APPS: usize = 16;
/// Most files and missing parts.
const MOST_PARTS: usize = 200;
/// Interval of samples of the tables, which they show nowhere, milliseconds.
const INTERVAL_MS: u64 = 1000;

/// The page; `history` is that of the recording, or why there is none.
pub(super) fn page(index: &BundleIndex, history: &Result<RecordedHistory, String>) -> String {
    let host = name(&index.host);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (host) " · pmdscope bundle" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header(index, &host))
                (findings(index))
                (unasked(&index.found))
                (missing(index))
                @match history {
                    Ok(history) => { (over_time(history, &index.found)) (at_the_end(history)) }
                    Err(reason) => section { h2 { "Over time" } p { "no recording: " (sentence(reason)) } },
                }
                (files(index))
                (redaction(index))
            }
        }
    };
    // Whatever comes from outside is made harmless where it is used; this is the last line of defence.
    plain(&page.into_string()) + "\n"
}

fn header(index: &BundleIndex, host: &str) -> Markup {
    html! {
        header {
            h1 { (host) }
            p {
                "Collected from " (index.started) " to " (index.ended)
                " (" (number::seconds(index.seconds)) ") by pmdscope " (index.tool)
            }
            @if index.interrupted {
                p.warn { "Interrupted: later parts were not collected" }
            }
        }
    }
}

fn findings(index: &BundleIndex) -> Markup {
    let found = &index.found;
    html! {
        section {
            h2 {
                "Findings"
                @if let Some(counts) = found.counts() { ": " (counts) }
            }
            @if found.findings.is_empty() { p { (index.no_findings()) } }
            @for one in &found.findings { (finding(one)) }
            @if found.more_findings > 0 {
                p.note { "and " (found.more_findings) " more in findings/" }
            }
        }
    }
}

fn finding(finding: &BundleFinding) -> Markup {
    let class = SEVERITIES.into_iter().find(|word| *word == finding.severity);
    html! {
        article class=[class] {
            h3 {
                span.severity { (name(&finding.severity)) } " "
                (name(&finding.lint)) " of " (name(&finding.place()))
            }
            p { (sentence(&finding.evidence)) }
            @if !finding.causes.is_empty() {
                ul {
                    @for cause in finding.causes.iter().take(MOST_CAUSES) {
                        li { "cause: " (sentence(&cause.text())) }
                    }
                }
            }
            p { b { "What to do: " } (sentence(&finding.advice)) }
            p.note { "Threshold: " (sentence(&finding.threshold)) }
            @if let Some(when) = &finding.when { p.note { "When: " (sentence(&when.text())) } }
        }
    }
}

fn unasked(found: &BundleFindings) -> Markup {
    html! {
        section {
            h2 { "Not asked" }
            @if found.unasked.is_empty() { p { "Every app that was found has answered." } }
            ul {
                @for unasked in &found.unasked {
                    li {
                        @if let Some(app) = &unasked.app { b { (name(app)) } ": " }
                        (sentence(&unasked.reason))
                    }
                }
            }
            @if !found.not_checked.is_empty() {
                h3 { "Not checked" }
                ul { @for what in &found.not_checked { li { (sentence(what)) } } }
            }
        }
    }
}

/// The graphs; apps with the worst findings come first.
fn over_time(history: &RecordedHistory, found: &BundleFindings) -> Markup {
    let place = |app: &str| found.findings.iter().position(|finding| finding.app == app);
    let mut apps: Vec<_> = history.apps.iter().collect();
    apps.sort_by_key(|(app, _)| place(app).unwrap_or(usize::MAX));
    let left_out = history.left_out.len() + apps.len().saturating_sub(MOST_APPS);
    let (begin, end) = history.span_ns;
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    html! {
        section {
            h2 { "Over time" }
            p.note {
                "Recording of " (number::seconds(seconds)) ", in which apps were asked "
                (number::plural(history.rounds, "time"))
                ". A line is the mean, the area around it reaches from the least to the greatest value."
            }
            @for note in &history.notes { p.warn { (sentence(note)) } }
            @if apps.is_empty() { p { "No app answered." } }
            @for (app, graphed) in apps.iter().take(MOST_APPS) {
                h3 { (name(app)) }
                (graphs(graphed, history))
            }
            @if left_out > 0 { p.note { (left_out) " more apps have no graphs here" } }
        }
    }
}

/// What `top` shows of the last moment, except for the findings.
fn at_the_end(history: &RecordedHistory) -> Markup {
    let view = ViewState::new(Theme::default(), INTERVAL_MS, history.zone.clone());
    let tables = report::tables(&history.last, &view);
    html! {
        section {
            h2 { "At the end of the recording" }
            @if history.last.is_empty() { p { "No app was there any more." } }
            @for one in tables.iter().filter(|table| table.title != FINDINGS) { (table(one)) }
        }
    }
}

fn missing(index: &BundleIndex) -> Markup {
    let missing: Vec<&PartEntry> = index.missing().collect();
    html! {
        section {
            h2 { "Not collected" }
            @if missing.is_empty() { p { "Nothing is missing." } }
            ul {
                @for part in missing.iter().take(MOST_PARTS) {
                    li {
                        b { (name(&part.name())) } " (" (part.status.word()) "): "
                        (sentence(part.why_missing()))
                    }
                }
            }
            (more(missing.len()))
        }
    }
}

fn files(index: &BundleIndex) -> Markup {
    let parts = index.parts.iter();
    let files: Vec<_> =
        parts.flat_map(|part| part.files.iter().map(move |file| (part, file))).collect();
    html! {
        section {
            h2 { "Files" }
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "File" } th.number { "Size" } th { "Part" } th { "Status" } } }
                    tbody {
                        @for (part, file) in files.iter().take(MOST_PARTS) {
                            tr {
                                td { (name(&file.path)) }
                                td.number { (number::bytes(file.bytes)) }
                                td { (name(&part.name())) }
                                td {
                                    (part.status.word())
                                    @if let Some(reason) = &part.reason { ": " (sentence(reason)) }
                                }
                            }
                        }
                    }
                }
            }
            (more(files.len()))
            p.note {
                "INDEX.txt has the commands. pmdscope top --replay BUNDLE shows the recording as it was seen live; "
                "wireshark opens the files below capture/ and leaks/."
            }
        }
    }
}

/// What a list of parts does not show.
fn more(all: usize) -> Markup {
    let left_out = all.saturating_sub(MOST_PARTS);
    html! {
        @if left_out > 0 { p.note { "and " (left_out) " more in INDEX.txt" } }
    }
}

fn redaction(index: &BundleIndex) -> Markup {
    html! {
        section {
            @if let Some(redaction) = &index.redaction {
                h2 { "Redacted" }
                ul { @for what in redaction.replaced { li { (what) } } }
                h3 { "Not redacted" }
                ul { @for what in redaction.kept { li { (what) } } }
            } @else {
                h2 { "Not redacted" }
                p { "The bundle contains addresses, and payloads of packets." }
            }
        }
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
