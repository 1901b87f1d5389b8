//! Tests of keys and their actions.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use pmdscope_flows::{FlowEndpoint, FlowSnapshot};
use pmdscope_render::SortOrder;

use super::*;
use crate::fixture;
use crate::fixture::flows::traffic;
use crate::flows::{EndpointNames, FlowRequest, ShownFlows, ShownTime};
use crate::input::action_of;

/// Presses keys, one after the other; what the last one did.
pub(crate) fn press(view: &mut ViewState, fleet: &FleetState, keys: &str) -> LoopControl {
    let mut flow = LoopControl::Continue;
    for character in keys.chars() {
        let code = match character {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\x08' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        let event = KeyEvent::new(code, KeyModifiers::NONE);
        if let Some(action) = action_of(event, view) {
            flow = update(view, action, fleet);
        }
    }
    flow
}

fn selected(view: &ViewState) -> String {
    view.selected().map(Subject::title).unwrap_or_default()
}

#[test]
fn digits_and_tab_turn_pages() {
    let (mut view, fleet) = (fixture::view(), fixture::fleet());
    press(&mut view, &fleet, "3");
    assert_eq!(view.tab, PageTab::Pools);
    press(&mut view, &fleet, "\t\t");
    assert_eq!(view.tab, PageTab::Flows);
    update(&mut view, Action::Go(PageTab::Overview), &fleet);
    update(&mut view, Action::Previous, &fleet);
    assert_eq!(Some(&view.tab), PageTab::ALL.last());
    press(&mut view, &fleet, "\t");
    assert_eq!(view.tab, PageTab::Overview);
    for (tab, key) in PageTab::ALL.into_iter().zip("1234567890".chars()) {
        press(&mut view, &fleet, &key.to_string());
        assert_eq!(view.tab, tab);
    }
}

#[test]
fn selection_stays_in_bounds_and_follows_its_subject() {
    let (mut view, mut fleet) = (fixture::view(), fixture::fleet());
    press(&mut view, &fleet, "kk");
    assert_eq!(selected(&view), "leak: reflector reflector_rx app_fwd.c:18");
    press(&mut view, &fleet, "Gjjj");
    assert_eq!(selected(&view), "app testpmd");
    press(&mut view, &fleet, "kk");
    assert_eq!(selected(&view), "rx_missed: reflector net_vhost0");
    let mut later = fixture::leaking();
    later.sample.monotonic_ns += 60_000_000_000;
    fleet.apply(fixture::sampled(later, Vec::new()));
    press(&mut view, &fleet, "j");
    assert_eq!(selected(&view), "app reflector", "a vanished row falls back to the first");
}

#[test]
fn filter_is_typed_kept_undone_and_cleared() {
    let (mut view, fleet) = (fixture::view(), fixture::fleet());
    press(&mut view, &fleet, "/qtest\x08t");
    assert_eq!(view.filter.text(), "qtest");
    press(&mut view, &fleet, "\x1b");
    assert_eq!(view.filter.text(), "");
    press(&mut view, &fleet, "/testpmd\n");
    assert_eq!(view.mode, InputMode::Browse);
    assert_eq!(tables::shown(&view, &fleet)[1].rows.len(), 1);
    press(&mut view, &fleet, "\x1b");
    assert_eq!(tables::shown(&view, &fleet)[1].rows.len(), 2);
}

#[test]
fn sort_goes_through_the_columns_of_the_selected_table_and_back() {
    let (mut view, fleet) =
        (ViewState { tab: PageTab::Ports, ..fixture::view() }, fixture::fleet());
    press(&mut view, &fleet, "s");
    assert_eq!(view.sort.get("Ports"), Some(&SortOrder { column: "App", descending: true }));
    press(&mut view, &fleet, "I");
    assert_eq!(view.sort.get("Ports"), Some(&SortOrder { column: "App", descending: false }));
    let columns = crate::columns::visible("Ports", &view, &fleet).len();
    for _ in 0..columns {
        press(&mut view, &fleet, "s");
    }
    assert_eq!(view.sort.get("Ports"), None);
    let arrow = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let orders = [KeyCode::Left, KeyCode::Left, KeyCode::Right, KeyCode::Right, KeyCode::Right];
    let orders = orders.map(|code| {
        let action = action_of(arrow(code), &view).unwrap();
        update(&mut view, action, &fleet);
        view.sort.get("Ports").map_or("", |order| order.column)
    });
    let last = crate::columns::visible("Ports", &view, &fleet);
    let expected = [last[columns - 1], last[columns - 2], last[columns - 1], "", last[0]];
    assert_eq!(orders, expected, "round and round");
    press(&mut view, &fleet, "iss\x1b");
    assert_eq!(view.sort["Ports"].column, last[0], "a window hides the tables");
    press(&mut view, &fleet, "Gs");
    assert!(view.sort.contains_key("Queues"));
}

#[test]
fn interval_moves_within_its_limits() {
    let (mut view, fleet) = (fixture::view(), fixture::fleet());
    press(&mut view, &fleet, "+");
    assert_eq!(view.interval_ms, 2_000);
    press(&mut view, &fleet, &"+".repeat(20));
    assert_eq!(view.interval_ms, INTERVALS[INTERVALS.len() - 1]);
    press(&mut view, &fleet, &"-".repeat(20));
    assert_eq!(view.interval_ms, INTERVALS[0]);
}

#[test]
fn overlays_scroll_and_close() {
    let (mut view, fleet) = (ViewState { height: 8, ..fixture::view() }, fixture::fleet());
    press(&mut view, &fleet, "?jj");
    assert!(matches!(view.mode, InputMode::Help { .. }) && view.scroll == 2);
    press(&mut view, &fleet, "G");
    assert_eq!(view.scroll, crate::overlay::positions(&view, &fleet) - 1);
    assert!(view.scroll > 5, "a screen has no room for all keys");
    press(&mut view, &fleet, "\x1bG\n");
    assert_eq!(view.mode, InputMode::Detail(Subject::App { app: "testpmd".to_owned() }));
    press(&mut view, &fleet, "jj?");
    assert!(matches!(view.mode, InputMode::Help { .. }) && view.scroll == 0);
    press(&mut view, &fleet, "?");
    assert!(matches!(view.mode, InputMode::Detail(_)), "help lay over the details");
    assert_eq!(view.scroll, 2);
    press(&mut view, &fleet, "\x1b");
    assert_eq!(view.mode, InputMode::Browse);
}

#[test]
fn a_table_has_the_whole_page_and_gives_it_back() {
    let (mut view, fleet) =
        (ViewState { tab: PageTab::Ports, ..fixture::view() }, fixture::fleet());
    let titles = |view: &ViewState| -> Vec<&str> {
        tables::shown(view, &fleet).iter().map(|table| table.title).collect()
    };
    let all = titles(&view);
    press(&mut view, &fleet, "Ge");
    assert_eq!(titles(&view), ["Queues"]);
    press(&mut view, &fleet, "gk");
    assert_eq!(selected(&view), "rx queue reflector:0:0", "the first row of that table");
    press(&mut view, &fleet, "3");
    assert!(titles(&view).len() > 1, "another page");
    press(&mut view, &fleet, "2?e\x1b");
    assert_eq!(titles(&view), ["Queues"], "the help lay over it");
    press(&mut view, &fleet, "e");
    assert_eq!(titles(&view), all);
}

#[test]
fn a_reset_leads_back_to_how_it_began() {
    let (mut view, fleet) =
        (ViewState { default_filter: "reflector".to_owned(), ..fixture::view() }, fixture::fleet());
    press(&mut view, &fleet, "2jsez/x\n");
    let key = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL);
    let reset_view = action_of(key, &view).unwrap();
    update(&mut view, reset_view, &fleet);
    assert_eq!(view.tab, PageTab::Ports);
    assert_eq!(view.filter.text(), "reflector");
    assert!(view.sort.is_empty() && view.selected.is_empty() && view.expanded.is_none());
    assert_eq!(view.baseline, TotalsBaseline::default());
}

#[test]
fn quits_from_everywhere_but_typing() {
    let (mut view, fleet) = (fixture::view(), fixture::fleet());
    assert_eq!(press(&mut view, &fleet, "?q"), LoopControl::Quit);
    assert_eq!(press(&mut view, &fleet, "\x1b/q"), LoopControl::Continue);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(action_of(interrupt, &view), Some(Action::Quit));
    let mut release = interrupt;
    release.kind = KeyEventKind::Release;
    assert_eq!(action_of(release, &view), None);
}

fn attached(view: &ViewState) -> Vec<&str> {
    view.attach.keys().map(String::as_str).collect()
}

#[test]
fn a_helper_is_started_only_by_its_key_on_its_page() {
    let (mut view, fleet) = (fixture::view(), fixture::fleet());
    press(&mut view, &fleet, "P");
    assert_eq!(attached(&view), [""; 0], "another page");
    press(&mut view, &fleet, "5?P");
    assert_eq!(attached(&view), [""; 0], "the help lies over it");
    press(&mut view, &fleet, "\x1b/P\x1b");
    assert_eq!(attached(&view), [""; 0], "the key is typed");
    press(&mut view, &fleet, "P");
    assert_eq!(attached(&view), ["testpmd"], "not the one that hands out packets itself");
    press(&mut view, &fleet, "P");
    assert_eq!(attached(&view), [""; 0], "again ends it");
    view.follow(Some(traffic([(
        "reflector",
        CaptureAccess::Armed { via: None },
        FlowSnapshot::default(),
    )])));
    press(&mut view, &fleet, "P");
    let notice = view.tasks.notice.as_ref().map(|(text, _)| text.as_str());
    assert!(notice.is_some_and(|text| text.starts_with("there is no app to attach to")));
}

#[test]
fn no_helper_is_started_for_what_is_over_or_recorded() {
    let fleet = fixture::fleet();
    for flows in
        [ShownFlows::default(), ShownFlows { moment: ShownTime::Past, ..fixture::view().flows }]
    {
        let mut view = ViewState { flows, tab: PageTab::Flows, ..fixture::view() };
        press(&mut view, &fleet, "P");
        assert_eq!(attached(&view), [""; 0]);
    }
}

#[test]
fn an_app_that_starts_later_is_confirmed_separately() {
    let (mut view, mut fleet) =
        (ViewState { tab: PageTab::Flows, ..fixture::view() }, fixture::fleet());
    press(&mut view, &fleet, "P");
    let mut ovs = fixture::stock();
    ovs.sample.app.name = "ovs".to_owned();
    fleet.apply(fixture::sampled(ovs, Vec::new()));
    let armed = CaptureAccess::Armed { via: Some("pdump") };
    view.follow(Some(traffic([
        ("ovs", CaptureAccess::Offered, FlowSnapshot::default()),
        ("testpmd", armed, FlowSnapshot::default()),
    ])));
    assert_eq!(attached(&view), ["testpmd"]);
    press(&mut view, &fleet, "P");
    assert_eq!(attached(&view), ["ovs", "testpmd"]);
}

#[test]
fn a_restarted_app_is_confirmed_again() {
    let (mut view, fleet) =
        (ViewState { tab: PageTab::Flows, ..fixture::view() }, fixture::fleet());
    let before = FlowRequest::default();
    press(&mut view, &fleet, "P");
    assert!(view.request(&fleet, &before).attach.contains_key("testpmd"));
    let mut anew = fleet.clone();
    let mut model = fixture::stock();
    model.sample.app.start_ticks += 1;
    anew.apply(fixture::sampled(model, Vec::new()));
    assert!(view.request(&anew, &before).attach.is_empty());
    let silent = FleetState { apps: Vec::new(), ..fleet };
    assert!(view.request(&silent, &before).attach.contains_key("testpmd"), "it may be the same");
    press(&mut view, &anew, "P");
    assert!(view.request(&anew, &before).attach.contains_key("testpmd"));
}

/// Gives each end a name, and notes which it was asked for.
#[derive(Debug, Default)]
struct FakeNames(Mutex<BTreeSet<u16>>);

impl EndpointNames for FakeNames {
    fn endpoint(&self, _: u8, end: FlowEndpoint) -> String {
        self.0.lock().unwrap().insert(end.port);
        format!("host.example:{}", end.port)
    }
}

#[test]
fn names_are_shown_while_filters_are_about_numbers() {
    let names = Arc::new(FakeNames::default());
    let shown: Arc<dyn EndpointNames> = names.clone();
    let view = ViewState { tab: PageTab::Flows, names: Some(shown), ..fixture::view() };
    let (mut view, fleet) = (view, fixture::fleet());
    press(&mut view, &fleet, "/remote:198.51.100.7\n");
    names.0.lock().unwrap().clear();
    let rows = tables::shown(&view, &fleet).into_iter().flat_map(|table| table.rows);
    let rows: Vec<_> =
        rows.filter(|row| matches!(row.subject, Subject::Conversation { .. })).collect();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let cells = row.cells.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(cells.contains(&"host.example:50123".to_owned()), "{cells:?}");
    assert!(cells.contains(&"host.example:443".to_owned()), "{cells:?}");
    assert_eq!(*names.0.lock().unwrap(), [443, 50_123].into(), "nobody else was looked up");
}

#[test]
fn flows_are_sorted_by_the_columns_that_are_shown() {
    let (mut view, fleet) =
        (ViewState { tab: PageTab::Flows, ..fixture::view() }, fixture::fleet());
    let remotes = |view: &ViewState| -> Vec<u16> {
        let rows = tables::shown(view, &fleet).into_iter().flat_map(|table| table.rows);
        let keys = rows.filter_map(|row| match row.subject {
            Subject::Conversation { key, .. } => Some(key.remote.port),
            _ => None,
        });
        keys.collect()
    };
    assert_eq!(remotes(&view), [50_123, 61_000, 50_999, 0], "the fastest first");
    press(&mut view, &fleet, "jjj");
    assert!(matches!(view.selected(), Some(Subject::Conversation { .. })));
    press(&mut view, &fleet, "ss");
    assert_eq!(
        view.sort.get("Conversations"),
        Some(&SortOrder { column: "Proto", descending: true })
    );
    assert_eq!(remotes(&view)[0], 61_000, "udp");
    press(&mut view, &fleet, "I");
    assert_eq!(remotes(&view)[0], 0, "icmp");
    press(&mut view, &fleet, "/proto:tcp\n");
    assert_eq!(remotes(&view), [50_123, 50_999]);
}
