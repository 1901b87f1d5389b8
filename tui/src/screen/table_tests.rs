//! Tests of what users do with tables: filters, order, columns, units.

use insta::assert_snapshot;

use super::tests::{on, text};
use super::*;
use crate::action::Action;
use crate::fixture;
use crate::state::InputMode;
use crate::update::tests::press;
use crate::update::update;
use pmdscope_render::{Column, ColumnUnit};

/// All tables of all pages with a value of each kind.
fn all_tables(view: &ViewState) -> Vec<TextTable> {
    let mut fleet = fixture::fleet_with_interfaces();
    fleet.apply(fixture::sampled(fixture::stolen(), fixture::leaking_findings()));
    PageTab::ALL.into_iter().flat_map(|tab| tables::of(tab, &fleet, view)).collect()
}

#[test]
fn columns_of_a_table_have_different_titles() {
    for table in all_tables(&ViewState { height: 60, ..fixture::view() }) {
        let mut titles: Vec<&str> = table.columns.iter().map(Column::title).collect();
        let all = titles.len();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), all, "{}", table.title);
    }
}

/// `1.5%` in a column of shares, `3ms` in one of times, and nowhere else.
#[test]
fn columns_say_the_unit_of_their_numbers() {
    let ends = |value: &str, units: &[&str]| units.iter().any(|unit| value.ends_with(unit));
    let mut seen = 0;
    for table in all_tables(&ViewState { height: 60, ..fixture::view() }) {
        // A rate, or the share of a hot queue.
        let known = |column: &&(usize, Column)| column.1.title() != "Rate";
        let columns: Vec<_> = table.columns.iter().copied().enumerate().collect();
        for (index, column) in columns.iter().filter(known) {
            for cell in table.rows.iter().map(|row| &row.cells[*index]) {
                let Some(value) = cell.value() else { continue };
                let text = cell.to_string();
                let expected = match column.measures() {
                    ColumnUnit::Share => ends(&text, &["%"]),
                    ColumnUnit::Time(_) => ends(&text, &["s", "m", "h", "empty"]),
                    ColumnUnit::Count => !ends(&text, &["%", "s", "m", "h"]),
                };
                assert!(expected, "{} {}: {text} {value}", table.title, column.title());
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn an_invalid_filter_says_so_and_keeps_the_rows() {
    let (mut view, fleet) = (on(PageTab::Overview), fixture::fleet());
    let shown = |view: &ViewState| tables::shown(view, &fleet)[1].rows.len();
    press(&mut view, &fleet, "/app:testpmd gap>50");
    assert_eq!((shown(&view), view.filter.text()), (1, "app:testpmd gap>50"));
    let screen = text(80, 24, &view, &fleet);
    assert!(screen.contains("gap>50▏  Gap is a time: 50us, 3ms"), "{screen}");
    press(&mut view, &fleet, "\n");
    assert!(matches!(view.mode, InputMode::Filter { .. }), "what is not valid is not kept");
    press(&mut view, &fleet, &"\x08".repeat(6));
    press(&mut view, &fleet, "/(/");
    assert_eq!(shown(&view), 1);
    assert!(text(80, 24, &view, &fleet).contains("/(/▏  regular expression: unclosed group"));
    press(&mut view, &fleet, "\x1b/lvl>=0 /^TEST/");
    assert_eq!(shown(&view), 0, "the expression has capitals, the name has not");
    press(&mut view, &fleet, &"\x08".repeat(6));
    press(&mut view, &fleet, "^test/");
    assert_eq!(shown(&view), 1);
    press(&mut view, &fleet, "\n");
    assert_eq!(view.mode, InputMode::Browse);
    press(&mut view, &fleet, "3");
    let pools = text(80, 24, &view, &fleet);
    assert!(pools.contains("no column 'lvl'; there are l"), "{pools}");
}

#[test]
fn a_filter_error_at_80_columns() {
    let (mut view, fleet) = (on(PageTab::Overview), fixture::fleet());
    press(&mut view, &fleet, "/app:/^test/ pool>9x");
    assert_snapshot!(text(80, 24, &view, &fleet));
}

#[test]
fn a_click_on_a_title_sorts_reverses_and_restores() {
    let (mut view, fleet) = (on(PageTab::Ports), fixture::fleet());
    let area = Rect::new(0, 0, 80, 24);
    let own = text(80, 24, &view, &fleet);
    let y = own.lines().position(|line| line.contains("RX pps")).unwrap();
    let x = own.lines().nth(y).unwrap().find("RX pps").unwrap();
    let position = Position { x: u16::try_from(x + 2).unwrap(), y: u16::try_from(y).unwrap() };
    let mut orders = Vec::new();
    for _ in 0..3 {
        let Some(ClickTarget::Title { table, column }) = hit(area, position, &view, &fleet) else {
            panic!("no title at {position}: {own}")
        };
        update(&mut view, Action::SortBy { table, column }, &fleet);
        orders.push(view.sort.get("Ports").map(|sort| (sort.column, sort.descending)));
    }
    assert_eq!(orders, [Some(("RX pps", true)), Some(("RX pps", false)), None]);
    let right = Position { x: 79, ..position };
    assert!(!matches!(hit(area, right, &view, &fleet), Some(ClickTarget::Row(_))));
}

#[test]
fn headings_that_stay_in_sight_can_be_clicked() {
    let fleet = fixture::fleet_with_interfaces();
    let mut view = ViewState { width: 80, height: 12, ..on(PageTab::Ports) };
    press(&mut view, &fleet, "G");
    let screen = text(80, 12, &view, &fleet);
    let y = screen.lines().position(|line| line.contains("Queue") && line.contains("pps")).unwrap();
    let position = Position { x: 1, y: u16::try_from(y).unwrap() };
    let target = hit(Rect::new(0, 0, 80, 12), position, &view, &fleet);
    assert!(matches!(target, Some(ClickTarget::Title { table: "Queues", .. })), "{screen}");
}

#[test]
fn columns_are_chosen_and_moved_in_a_window() {
    let (mut view, fleet) = (on(PageTab::Ports), fixture::fleet());
    (view.width, view.height) = (80, 24);
    let titles = |view: &ViewState| {
        let header = tables::shown(view, &fleet)[0].layout(Some(80), view.theme).header(None);
        header.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let own = titles(&view);
    press(&mut view, &fleet, "ojjj ");
    assert!(matches!(view.mode, InputMode::Columns(_)));
    assert_eq!(titles(&view), own.replace("Link ", ""));
    press(&mut view, &fleet, "jjKKKK");
    assert_snapshot!("column_window_80x24", text(80, 24, &view, &fleet));
    press(&mut view, &fleet, "\n");
    assert_eq!(view.mode, InputMode::Browse);
    assert!(titles(&view).find("TX pps") < titles(&view).find("Port"), "{}", titles(&view));
    press(&mut view, &fleet, "sI");
    assert_eq!(view.sort.get("Ports").map(|sort| sort.column), Some("App"));
    press(&mut view, &fleet, "od\n");
    assert_eq!(titles(&view), own);
}

#[test]
fn one_column_is_always_shown_and_a_window_obeys_keys_of_pages() {
    let (mut view, fleet) = (on(PageTab::Rings), fixture::fleet());
    press(&mut view, &fleet, "o");
    for _ in 0..20 {
        press(&mut view, &fleet, " j");
    }
    assert_eq!(tables::shown(&view, &fleet)[0].columns.len(), 1);
    press(&mut view, &fleet, "gJJJJJJJJJJJJ");
    assert_eq!(view.scroll, crate::overlay::positions(&view, &fleet) - 1);
    press(&mut view, &fleet, "x5G");
    assert_eq!(view.tab, PageTab::Rings, "pages are not turned behind the window");
    press(&mut view, &fleet, "\x1b");
    assert_eq!(view.mode, InputMode::Browse);
}

#[test]
fn bytes_and_totals_say_so() {
    let mut fleet = fixture::fleet();
    let mut view = ViewState { tab: PageTab::Ports, height: 24, ..fixture::view() };
    press(&mut view, &fleet, "b");
    view.columns.set("Ports", ["App", "Port", "RX bit/s", "TX bit/s", "RX pps"]);
    assert_snapshot!("bytes_80x24", text(80, 24, &view, &fleet));
    assert!(text(120, 24, &view, &fleet).lines().next().unwrap().contains("B/s"));
    view.columns = crate::state::ColumnChoices::default();
    press(&mut view, &fleet, "br");
    assert_snapshot!("totals_80x24", text(80, 24, &view, &fleet));
    press(&mut view, &fleet, "z");
    let mut later = fixture::leaking();
    later.sample.ports[0].stats.rx_packets += 1_500;
    fleet.apply(fixture::sampled(later, Vec::new()));
    let marked = text(120, 24, &view, &fleet);
    assert!(marked.contains("totals since the mark") && marked.contains(" 1.50k"), "{marked}");
    let flows = text(120, 24, &ViewState { tab: PageTab::Flows, ..view.clone() }, &fleet);
    assert!(flows.contains("Captured packets  totals since the capture began"), "{flows}");
    press(&mut view, &fleet, "r");
    let rates = text(120, 24, &view, &fleet);
    assert!(rates.contains("RX pps") && rates.contains("? help"), "{rates}");
}

#[test]
fn the_kernel_page_shows_totals_since_the_start_or_the_mark() {
    let mut fleet = fixture::fleet_with_interfaces();
    let mut view = ViewState { height: 24, ..on(PageTab::Kernel) };
    press(&mut view, &fleet, "r");
    assert_snapshot!("kernel_totals", text(120, 24, &view, &fleet));
    press(&mut view, &fleet, "z");
    let columns = |view: &ViewState, fleet: &FleetState| {
        let screen = text(120, 24, view, fleet);
        let row = screen.lines().find(|line| line.contains("eth0")).unwrap().to_owned();
        let row: Vec<_> = row.split_whitespace().map(str::to_owned).collect();
        (row, screen)
    };
    let (row, screen) = columns(&view, &fleet);
    assert!(screen.contains("Interfaces  totals since the mark"), "{screen}");
    assert_eq!(row[2..4], ["0", "0"], "{screen}");
    fixture::read_interfaces(&mut fleet, 2..=3);
    let (row, screen) = columns(&view, &fleet);
    assert_eq!(row[2..5], ["10.0k", "1.00k", "!9.00k"], "{screen}");
    press(&mut view, &fleet, "r");
    let rates = text(120, 24, &view, &fleet);
    assert!(rates.contains("RX pps") && !rates.contains("totals"), "{rates}");
}

#[test]
fn the_hottest_queues_and_lcores_show_totals() {
    let mut fleet = fixture::fleet();
    let mut view = ViewState { width: 120, height: 60, ..on(PageTab::Overview) };
    press(&mut view, &fleet, "rz");
    let mut later = fixture::leaking();
    later.sample.queues[0].packets += 2_500;
    later.sample.lcores[0].packets += 3_500;
    later.sample.lcores[0].stalls += 7;
    fleet.apply(fixture::sampled(later, Vec::new()));
    let screen = text(120, 60, &view, &fleet);
    let lines: Vec<&str> =
        screen.lines().skip_while(|line| !line.contains("Hottest queues")).collect();
    let shown = lines.join("\n");
    assert!(shown.contains(" Packets ") && shown.contains(" Missed "), "{shown}");
    for total in [" 2.50k ", " 3.50k ", "!7"] {
        assert!(shown.contains(total), "{total}: {shown}");
    }
    assert!(!shown.contains("pps"), "{shown}");
}
