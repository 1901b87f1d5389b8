//! Tests of commands and their completion.

use pmdscope_render::CounterMode;
use proptest::prelude::*;

use super::completion::Completions;
use super::*;
use crate::fixture;

/// The page Ports, of which the table of that title is selected.
fn scope(selected: &'static str) -> CommandScope {
    let view = ViewState { tab: PageTab::Ports, ..fixture::view() };
    CommandScope {
        tables: tables::of(view.tab, &fixture::fleet(), &view),
        selected: Some(selected),
    }
}

fn action(text: &str) -> Option<Action> {
    match parse(text, &scope("Ports")) {
        Ok(Some(Command::Act(action))) => Some(action),
        _ => None,
    }
}

fn error(text: &str) -> String {
    parse(text, &scope("Ports")).unwrap_err()
}

#[test]
fn pages_and_actions_have_their_names() {
    for tab in PageTab::ALL {
        assert_eq!(action(&format!(" :{} ", tab.name().to_uppercase())), Some(Action::Go(tab)));
    }
    for named in actions() {
        assert_eq!(action(named.name).as_ref(), Some(&named.action), "{}", named.name);
        assert!(!error(&format!("{} x", named.name)).is_empty());
    }
    assert_eq!(action("lc"), Some(Action::Go(PageTab::Lcores)));
    for quit in ["q", ":q!", "qu", "quit"] {
        assert_eq!(action(quit), Some(Action::Quit));
    }
    assert!(matches!(parse(" : ", &scope("Ports")), Ok(None)));
}

#[test]
fn what_begins_something_outside_is_written_in_full() {
    for (text, said) in [
        ("atta", "no command 'atta'"),
        ("po", "'po' is the beginning of several commands"),
        ("nonsense", "no command 'nonsense'"),
        ("ports 1", "nothing can follow ports"),
        ("quit now", "nothing can follow quit"),
        ("help x", "the help has the pages keys, filters, commands, signs"),
        ("sort rx_pps up", "expected sort [COLUMN [asc]]"),
    ] {
        assert_eq!(error(text), said);
    }
    assert_eq!(action("captur"), Some(Action::Go(PageTab::Captures)));
    assert!(error("sort nosuch").starts_with("no column 'nosuch'; there are "));
    assert!(error("columns port nosuch").starts_with("no column 'nosuch'; there are "));
    assert!(error("filter gap>1x").contains("no number: '1x'"));
    assert!(error("filter nosuch:1").starts_with("no column 'nosuch'; there are "));
    let nothing = CommandScope::default();
    assert!(parse("sort rx", &nothing).unwrap_err().contains("no table with rows"));
}

#[test]
fn tables_are_sorted_and_have_their_columns_chosen() {
    let parsed = |text: &str, table| parse(text, &scope(table)).unwrap().unwrap();
    for (text, column, descending) in [
        ("sort rx_pps", "RX pps", true),
        ("sort RX_pps asc", "RX pps", false),
        ("sort miss desc", "Miss/s", true),
    ] {
        let expected = SortOrder { column, descending };
        let Command::Sort("Ports", Some(order)) = parsed(text, "Ports") else { panic!("{text}") };
        assert_eq!(order, expected, "{text}");
    }
    assert!(matches!(parsed("sort", "Queues"), Command::Sort("Queues", None)));
    let Command::Columns("Queues", Some(names)) = parsed("columns depth, queue", "Queues") else {
        panic!("no columns")
    };
    assert_eq!(names, ["Depth", "Queue"]);
    assert!(matches!(parsed("columns default", "Queues"), Command::Columns("Queues", None)));
    let Command::Filter(filter) = parsed("filter miss>0 !port:1", "Ports") else { panic!("none") };
    assert_eq!(filter.text(), "miss>0 !port:1");
    assert!(matches!(parsed("filter", "Ports"), Command::Filter(none) if none.is_empty()));
    assert!(matches!(parsed("help f", "Ports"), Command::Help(HelpPage::Filters)));
    assert!(matches!(parsed("help", "Ports"), Command::Help(HelpPage::Keys)));
}

#[test]
fn columns_may_be_called_by_any_of_their_titles() {
    let mut scope = scope("Ports");
    for table in &mut scope.tables {
        table.count(CounterMode { totals: true, bytes: true });
    }
    let Ok(Some(Command::Sort("Ports", Some(order)))) = parse("sort rx_pps", &scope) else {
        panic!("no order")
    };
    assert_eq!(order.column, "RX pps");
}

fn words(text: &str) -> (usize, Vec<String>) {
    let Completions { start, words, .. } = complete(text, &scope("Queues"));
    (start, words)
}

#[test]
fn the_last_word_is_completed() {
    assert_eq!(words("po").1, ["ports", "pools"]);
    assert_eq!(words(":so").0, 1);
    assert_eq!(words("so").1, ["sort", "sort-previous", "sort-reverse"]);
    assert_eq!(words("sort de").1, ["depth"]);
    assert_eq!(words("sort depth ").1, ["asc", "desc"]);
    assert_eq!(words("columns depth d").1, ["dir"]);
    assert_eq!(words("columns d").1.last().map(String::as_str), Some("default"));
    let (start, found) = words("filter port:0 !mis");
    assert_eq!((start, found.join(" ").as_str()), (15, "miss/s missed missed/s"));
    assert_eq!(words("help ").1, ["keys", "filters", "commands", "signs"]);
    for nothing in ["nonsense ", "ports x", "quit ", "sort depth asc "] {
        assert_eq!(words(nothing).1, [""; 0], "{nothing}");
    }
    assert!(words("").1.len() > 60, "everything");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[ :!a-zA-Z_/>=0-9,é\u{a0}]{0,40}|(filter|sort|columns|help) .{0,30}|.{0,30}") {
        for scope in [scope("Queues"), CommandScope::default()] {
            let _ = parse(&text, &scope);
            let Completions { start, words, .. } = complete(&text, &scope);
            let typed = text[start..].to_lowercase();
            for word in words {
                prop_assert!(word.starts_with(&typed), "{} {}", word, typed);
                let again = complete(&format!("{}{word}", &text[..start]), &scope);
                prop_assert!(again.start == start && again.words.contains(&word));
            }
        }
    }
}
