//! Tests of long tables, of what the last line says of them, and of what is typed there.

use insta::assert_snapshot;
use pmdscope_render::Theme;
use ratatui::style::Modifier;

use super::tests::{draw, on, text};
use super::*;
use crate::action::SelectionMotion;
use crate::fixture;
use crate::update::tests::press;
use crate::update::update;

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

/// An app with so many receive queues.
fn with_queues(count: u16) -> FleetState {
    let mut model = fixture::leaking();
    let first = (model.sample.queues[0].clone(), model.queues[0].clone());
    for queue in 2..count {
        let (mut sample, mut rates) = first.clone();
        (sample.queue, rates.queue) = (queue, queue);
        model.sample.queues.push(sample);
        model.queues.push(rates);
    }
    fixture::fleet_of(model, Vec::new())
}

fn last_line(view: &ViewState, fleet: &FleetState) -> String {
    text(view.width, view.height, view, fleet).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn long_tables_keep_selection_and_headings_in_sight() {
    let fleet = with_queues(90);
    let mut view = on(PageTab::Ports);
    for _ in 0..40 {
        update(&mut view, Action::Move(SelectionMotion::Down), &fleet);
    }
    assert_snapshot!(text(80, 16, &view, &fleet));
}

#[test]
fn rows_are_counted_and_those_beyond_the_screen_as_well() {
    let fleet = with_queues(64);
    let mut screens = Vec::new();
    for (width, height) in SIZES {
        let mut view = ViewState { width, height, ..on(PageTab::Ports) };
        screens.push(last_line(&view, &fleet));
        for motion in [SelectionMotion::Top, SelectionMotion::PageDown, SelectionMotion::Bottom] {
            update(&mut view, Action::Move(motion), &fleet);
            screens.push(last_line(&view, &fleet));
        }
        press(&mut view, &fleet, "/queue<9\ngjj");
        screens.push(last_line(&view, &fleet));
        view.theme = Theme::ASCII;
        screens.push(last_line(&view, &fleet));
    }
    assert_snapshot!(screens.join("\n"));
}

#[test]
fn numbers_of_rows_fit_to_what_is_shown() {
    let fleet = with_queues(64);
    let all: usize = tables::shown(&on(PageTab::Ports), &fleet).iter().map(|t| t.rows.len()).sum();
    for height in 10..90 {
        let mut view = ViewState { height, ..on(PageTab::Ports) };
        for motion in [SelectionMotion::Top, SelectionMotion::PageDown, SelectionMotion::Bottom] {
            update(&mut view, Action::Move(motion), &fleet);
            let page = tables::page(&view, &fleet);
            let layout = ScreenLayout::of(Rect::new(0, 0, 80, height), &view);
            let visible = body(&view, &fleet, &page.tables, layout.body);
            let [above, below] = visible.hidden;
            // Headings that stay in sight take the place of a row.
            let shown = count(&visible.lines).rows;
            let rows = above.rows + shown + below.rows;
            assert!(rows == all || rows + 1 == all, "{height} {motion:?}: {rows} of {all}");
        }
    }
}

#[test]
fn the_first_finding_is_selected_at_first_and_enter_follows_it() {
    for tab in [PageTab::Overview, PageTab::Findings] {
        let (mut view, fleet) = (on(tab), fixture::fleet());
        let buffer = draw(80, 24, &view, &fleet);
        let is_selected = |y: u16| buffer[(0, y)].modifier.contains(Modifier::REVERSED);
        let rows: Vec<u16> = (0..24).filter(|y| is_selected(*y)).collect();
        let line =
            text(80, 24, &view, &fleet).lines().nth(usize::from(rows[0])).unwrap().to_owned();
        assert!(rows.len() == 1 && line.starts_with("✖ leak "), "{rows:?} {line}");
        assert!(last_line(&view, &fleet).ends_with(" 1/3"), "{}", last_line(&view, &fleet));
        press(&mut view, &fleet, "\n");
        assert_eq!(view.tab, PageTab::Pools);
        assert!(matches!(view.selected(), Some(Subject::Site { .. })));
        press(&mut view, &fleet, "\x1bj");
        assert!(last_line(&view, &fleet).ends_with(" 2/3"), "{}", last_line(&view, &fleet));
    }
    let healthy = fixture::fleet_of(fixture::leaking(), Vec::new());
    let buffer = draw(80, 24, &on(PageTab::Overview), &healthy);
    assert!(buffer.content().iter().all(|cell| !cell.modifier.contains(Modifier::REVERSED)));
}

#[test]
fn commands_are_typed_in_the_last_line() {
    let fleet = fixture::fleet();
    for (width, height) in SIZES {
        let mut view = ViewState { width, height, ..on(PageTab::Ports) };
        press(&mut view, &fleet, ":sort rx\t");
        assert_snapshot!(format!("command_{width}x{height}"), text(width, height, &view, &fleet));
        let mut lines = Vec::new();
        for keys in ["\x1b:", "po", "\t\t", "\x1b:nonsense\n", "\x1b:filter nosuch:1\n"] {
            press(&mut view, &fleet, keys);
            lines.push(last_line(&view, &fleet));
        }
        let long = "x".repeat(usize::from(width) * 2);
        press(&mut view, &fleet, &long);
        lines.push(last_line(&view, &fleet));
        assert_snapshot!(format!("commands_{width}"), lines.join("\n"));
    }
}

#[test]
fn what_is_typed_is_seen_on_a_small_screen() {
    let fleet = fixture::fleet();
    for height in 3..12 {
        for keys in [":ports", "/ports"] {
            let mut view = ViewState { height, ..on(PageTab::Ports) };
            press(&mut view, &fleet, keys);
            let last = last_line(&view, &fleet);
            assert!(view.mode != InputMode::Browse && last.starts_with(keys), "{height}: {last}");
        }
    }
}

#[test]
fn an_unknown_column_is_refused_when_it_is_typed() {
    let fleet = fixture::fleet();
    let mut lines = Vec::new();
    for (width, height) in SIZES {
        let mut view = ViewState { width, height, ..on(PageTab::Pools) };
        for keys in [
            "/nosuch:",
            "\x08\x08\x08\x08\x08\x08\x08use:55",
            "\n",
            "\x1b/grow>x",
            "\x1b/nosuch>1\n",
        ] {
            press(&mut view, &fleet, keys);
            lines.push(last_line(&view, &fleet));
        }
        assert!(matches!(view.mode, InputMode::Filter { .. }), "it is not kept");
    }
    assert_snapshot!(lines.join("\n"));
}
