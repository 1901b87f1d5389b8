//! Tests of filters.

use proptest::prelude::*;

use super::*;
use crate::cells::{rate, share};
use crate::subject::Subject;
use crate::table::tests::{names, table};
use crate::table::{Cell, ColumnUnit};

/// Values in all units, and unknown ones.
fn measured() -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Miss/s"),
        Column::number("Missed"),
        Column::number("RX pps"),
        Column::number("Used").unit(ColumnUnit::Share),
        Column::number("Gap").unit(ColumnUnit::MICROS),
        Column::text("State"),
    ];
    let mut table = TextTable::new("Apps", columns);
    let rows = [
        ("a", Some(0.0), 0.0, Some(14.2e6), Some(0.95), 40.0, "live"),
        ("b", Some(1_500.0), 9e9, Some(12_000.0), Some(0.9), 2_000.0, "Lost"),
        ("c", None, 3.0, None, None, 0.0, "no answer"),
    ];
    for (name, misses, missed, pps, used, gap, state) in rows {
        let cells = vec![
            Cell::text(name),
            rate(misses),
            rate(Some(missed)),
            rate(pps),
            share(used),
            Cell::number(Some(gap), gap.to_string()),
            Cell::text(state),
        ];
        table.push(Subject::App { app: name.to_owned() }, false, cells);
    }
    table
}

fn left(mut table: TextTable, filter: &str) -> String {
    let parsed = RowFilter::parse(filter).unwrap();
    parsed.check(std::slice::from_ref(&table)).unwrap();
    table.filter(&parsed);
    names(&table)
}

fn problem(filter: &str) -> String {
    let table = measured();
    let checked = RowFilter::parse(filter).and_then(|filter| filter.check(&[table]));
    checked.unwrap_err().to_string()
}

#[test]
fn words() {
    for (filter, rows) in [
        ("", "abc"),
        ("HELD", "abc"),
        ("!200", "ac"),
        ("size:30", "c"),
        ("used:30 name:c", "c"),
        ("!name:c !name:a", "b"),
        ("!198.18.0.1:53", "abc"),
    ] {
        assert_eq!(left(table(), filter), rows, "{filter}");
    }
}

#[test]
fn terms_are_joined_by_and_or_not() {
    for (filter, rows) in [
        ("name:a or name:b", "ab"),
        ("name:a || name:b", "ab"),
        ("name:a | name:b", "ab"),
        ("size:200 or name:a app", "ab"),
        ("(size:200 or name:a) 10", "a"),
        ("( size:200 or name:a ) and 10", "a"),
        ("not name:c", "ab"),
        ("!name:c & !name:b", "a"),
        ("!(name:a or name:b)", "c"),
        ("not (name:a and name:b) && name:c", "c"),
        ("/held/ and (/^a$/ or /^b$/)", "ab"),
        ("held (by) the", "abc"),
        ("by(the)", ""),
        ("orange or name:c", "c"),
    ] {
        assert_eq!(left(table(), filter), rows, "{filter}");
    }
    // Neither a value that is unknown nor its negation decides.
    assert_eq!(left(measured(), "miss>1k or state:answer"), "bc");
    assert_eq!(left(measured(), "!(miss>1k and state:lost)"), "ac");
}

#[test]
fn terms_of_conversations_are_words_elsewhere() {
    let has = |filter: &str| left(measured(), filter);
    assert_eq!((has("state live"), has("state no")), (String::new(), String::new()));
    let mut states = measured();
    states.rows[1].notes.push("State of port 3 is LOST, app fwd".to_owned());
    for (filter, rows) in [
        ("state lost", "b"),
        ("port 3", "b"),
        ("app fwd or state:answer", "bc"),
        ("!(port 3)", "ac"),
        ("port of", "b"),
    ] {
        assert_eq!(left(states.clone(), filter), rows, "{filter}");
    }
    assert_eq!(problem("sport = :7"), "only conversations have 'sport'");
    assert_eq!(problem("state:live dst 10/8"), "only conversations have 'dst'");
}

#[test]
fn terms_of_conversations_ask_conversations() {
    let mut table = measured();
    table.of_conversations = true;
    let said = |filter: &str| {
        let filter = RowFilter::parse(filter).unwrap();
        let checked = filter.check(std::slice::from_ref(&table));
        checked.map_err(|error| (error.to_string(), error.with_place()))
    };
    assert_eq!(said("sport = :7 and (state established or not dst 10/8) live"), Ok(()));
    for (filter, reason, place) in [
        ("live state lost", "no state 'lost': established, syn-sent,", "at character 12: no state"),
        ("sport", "expected a port, such as", "at character 6, the end: expected a port"),
        ("nothing>1", "no column 'nothing'", "no column 'nothing'"),
    ] {
        let (shown, full) = said(filter).unwrap_err();
        assert!(shown.starts_with(reason) && full.starts_with(place), "{filter}: {full}");
    }
}

#[test]
fn expressions() {
    for (filter, rows) in [
        ("/^l/", "ab"),
        ("!/^l/", "c"),
        ("/^L/", "b"),
        (r"/^\Sost/", "b"),
        ("state:/o/", "bc"),
        ("!state:/O/", "abc"),
        ("/no answer/", "c"),
        ("/no answer/ app:a", ""),
        ("state:/^(live|no answer)$/ /c/", "c"),
        (r"/a\/b/", ""),
        ("/a/b/", ""),
        ("//", "abc"),
    ] {
        assert_eq!(left(measured(), filter), rows, "{filter}");
    }
}

#[test]
fn comparisons_use_the_unit_of_the_column() {
    for (filter, rows) in [
        ("miss>1k", "b"),
        ("miss/s>=1.5k", "b"),
        ("miss<=0", "a"),
        ("!miss>1k", "a"),
        ("missed>1Gi", "b"),
        ("rx_pps<1M", "b"),
        ("RXpps>1M", "a"),
        ("rx>1M", "a"),
        ("used>90%", "a"),
        ("used>=90", "ab"),
        ("gap>50us", "b"),
        ("gap=2ms", "b"),
        ("gap>0", "ab"),
        ("gap<1h used>90% state:live", "a"),
    ] {
        assert_eq!(left(measured(), filter), rows, "{filter}");
    }
}

#[test]
fn what_means_nothing_is_told() {
    for (filter, said) in [
        ("/ab", "the regular expression has no / at its end"),
        ("/(/", "regular expression: unclosed group"),
        ("state:/*/", "regular expression: repetition operator missing expression"),
        ("/(?:\\pL{900}){900}/", "regular expression: too large"),
        ("!", "expected a word, /expression/, column:word or column>number"),
        ("a and", "expected a word, /expression/, column:word or column>number"),
        ("or a", "expected a word, /expression/, column:word or column>number"),
        ("(a", "expected and, or, or the ) of an open ("),
        ("a)", "no ( is open here"),
        ("miss>", "no number: ''"),
        ("miss>1x", "no number: '1x'"),
        ("miss=-", "no number: '-'"),
        ("none>1", "no column 'none'; there are app, miss/s, missed, rx_pps, used, gap, state"),
        ("none:/x/", "no column 'none'; there are app, miss/s, missed, rx_pps, used, gap, state"),
        ("none:x", "no column 'none'; there are app, miss/s, missed, rx_pps, used, gap, state"),
        ("mi>1", "no column 'mi'; there are miss/s, missed, app, rx_pps, used, gap, state"),
        ("stats:x", "no column 'stats'; there are state, app, miss/s, missed, rx_pps, used, gap"),
        ("state>1", "State has words: use a colon"),
        ("used>1k", "Used is a share: 90%"),
        ("gap>50", "Gap is a time: 50us, 3ms, 10s, 2m, 1h"),
        ("rx_pps>5m", "RX pps is a number: 100, 1k, 2.5M"),
    ] {
        assert_eq!(problem(filter), said, "{filter}");
    }
}

#[test]
fn addresses_and_places_in_source_code_name_no_column() {
    let words = [
        "192.0.2.1:443",
        "[2001:db8::1]:53",
        "fe80::1",
        "aa:bb:cc",
        "0000:03:00.0",
        "app_fwd.c:18",
        "my-app:0",
        "vlan7.4:x",
        "/none:x/",
    ];
    for word in words {
        let table = measured();
        let parsed = RowFilter::parse(word).unwrap();
        assert_eq!(parsed.check(&[table]), Ok(()), "{word}");
    }
}

#[test]
fn columns_have_names_that_can_be_typed() {
    let titles = ["RX, 1m", "Miss/s", "bit/s 2s", "Queue"];
    let columns: Vec<_> = titles.into_iter().map(Column::number).collect();
    let typed: Vec<_> = columns.iter().map(Column::typed_name).collect();
    assert_eq!(typed, ["rx_1m", "miss/s", "bit/s_2s", "queue"]);
    let table = TextTable::new("Any", columns);
    for (typed, title) in typed.iter().zip(titles) {
        assert_eq!(table.column(typed).map(Column::name), Ok(title));
    }
    assert!(table.column("nothing").is_err());
}

#[test]
fn a_table_without_the_column_has_no_such_rows() {
    let mut other = table();
    other.filter(&RowFilter::parse("!gap>1s").unwrap());
    assert_eq!(names(&other), "");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[!/:<>=.%a-zA-Z0-9 \\\\(){}\\[\\]*+?^$|µ-]{0,40}|.{0,40}") {
        if let Ok(filter) = RowFilter::parse(&text) {
            let mut table = measured();
            let _ = filter.check(std::slice::from_ref(&table));
            table.filter(&filter);
        }
    }

    #[test]
    fn a_term_or_its_negation_holds_for_known_values(number in 0.0..1e10_f64) {
        let mut filters = [">", "<="].map(|sign| left(measured(), &format!("missed{sign}{number}")));
        filters.sort_by_key(String::len);
        prop_assert_eq!(filters.concat().len(), 3);
    }
}
