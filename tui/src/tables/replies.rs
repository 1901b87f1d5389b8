//! What apps replied last, as they wrote it.

use pmdscope_render::number::{bytes, seconds};
use pmdscope_render::{Cell, Column, ColumnUnit, Subject, TextTable};
use pmdscope_telemetry::{AppState, FleetState, RawReply};

use crate::state::ViewState;

/// One row per request; none in the past, of which no reply is kept.
pub(super) fn replies(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Request").flex(16),
        Column::number("Age").unit(ColumnUnit::SECONDS).drop_at(1),
        Column::number("Length").drop_at(2),
        Column::text("Reply").flex(20),
    ];
    let mut table = TextTable::new("Replies", columns);
    let present = view.replies.iter().flatten().filter(|_| view.time_bar.is_none());
    for (app, replies) in present {
        let stale = fleet.find(app).is_none_or(AppState::stale);
        for (request, reply) in replies {
            let subject = Subject::Reply { app: app.clone(), request: request.clone() };
            table.push(subject, stale, cells(app, request, reply, fleet.now_ns));
        }
    }
    if !table.rows.is_empty() {
        let note = "only what samples ask for anyway, some of it once in 10 s";
        table.notes.push(note.to_owned());
    }
    table
}

fn cells(app: &str, request: &str, reply: &RawReply, now_ns: u64) -> Vec<Cell> {
    let age = now_ns.saturating_sub(reply.monotonic_ns) as f64 / 1e9;
    vec![
        Cell::text(app),
        Cell::text(request),
        Cell::number(Some(age), seconds(age)),
        Cell::number(Some(reply.bytes as f64), bytes(reply.bytes as u64)),
        Cell::text(&reply.text),
    ]
}

/// A reply with a line for each value, as far as it is whole.
pub(crate) fn details(reply: &RawReply) -> Vec<String> {
    let json = serde_json::from_str::<serde_json::Value>(&reply.text);
    let pretty = json.and_then(|json| serde_json::to_string_pretty(&json));
    let mut lines: Vec<String> =
        pretty.unwrap_or_else(|_| reply.text.clone()).lines().map(str::to_owned).collect();
    if reply.bytes > reply.text.len() {
        lines.push(format!("... of {} bytes", reply.bytes));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;

    use super::*;
    use crate::action::{Action, SelectionMotion};
    use crate::fixture;
    use crate::screen::tests::text;
    use crate::state::PageTab;
    use crate::timeline::TimeSpan;
    use crate::timeline::time_bar::{TimeBar, TimeBarKind};
    use crate::update::update;

    #[test]
    fn replies_are_shown_as_they_are_and_line_by_line() {
        let fleet = fixture::fleet();
        let mut view = ViewState { tab: PageTab::Raw, ..fixture::view() };
        let page = text(80, 12, &view, &fleet);
        update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
        update(&mut view, Action::Open, &fleet);
        assert_snapshot!([page, text(80, 20, &view, &fleet)].join("----\n"));
    }

    #[test]
    fn a_reply_that_is_no_json_or_was_cut_is_shown_as_it_is() {
        let reply = |text: &str, bytes| RawReply { text: text.to_owned(), bytes, monotonic_ns: 0 };
        assert_eq!(details(&reply("{\"a\":[1", 9)), ["{\"a\":[1", "... of 9 bytes"]);
        assert_eq!(details(&reply("{\"a\":1}", 7)), ["{", "  \"a\": 1", "}"]);
    }

    #[test]
    fn a_page_without_replies_says_why() {
        let fleet = fixture::fleet();
        let mut view = ViewState { tab: PageTab::Raw, ..fixture::view() };
        let place = TimeBarKind::Past { ago_ns: 1 };
        let span = TimeSpan { oldest: 0, newest: 2 };
        let past = TimeBar { at: 1, realtime_ns: 1, span, marks: Vec::new(), place, remark: None };
        view.time_bar = Some(past);
        assert!(text(80, 12, &view, &fleet).contains("Replies of the past are not kept"));
        view.replies = None;
        assert!(text(80, 12, &view, &fleet).contains("A recording has no replies."));
        (view.time_bar, view.replies) = (None, Some(pmdscope_telemetry::RepliesByApp::new()));
        assert!(text(80, 12, &view, &fleet).contains("No reply since"));
        let reply = RawReply { text: "\u{1b}[2J".to_owned(), bytes: 4, monotonic_ns: 0 };
        let replies = [("/x".to_owned(), Arc::new(reply))].into();
        view.replies = Some([("reflector".to_owned(), replies)].into());
        assert!(text(80, 12, &view, &fleet).contains("?[2J"));
    }
}
