use std::time::Duration;

use insta::assert_snapshot;
use pmdscope_tui::action::Action;
use pmdscope_tui::keys::named_actions;
use pmdscope_tui::state::PageTab;
use proptest::prelude::*;

use super::*;

fn wrong(text: &str) -> String {
    let problems = parse(text.as_bytes()).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn values_of_the_file_are_used() {
    let config = parse(
        br#"
        [discovery]
        roots = ["/run/user/7"]
        keep_lost = "90m"
        [thresholds]
        pool_used = 0.5
        pool_left = "10m"
        [export]
        listen = ["[::1]:9", "systemd"]
        otlp = "https://collector:4318/v1/metrics"
        xstats = ["^rx_.*", "drop"]
        queue_histograms = true
        [top]
        page = "pools"
        interval = "2s"
        read_only = true
        keys.filter = "F"
        [[name]]
        match = 'fwd-(\d+)'
        app = "fwd"
        [[expected]]
        app = "fwd"
        ports = ["03:00.0"]
        may_be_idle = ["*"]
        [[expected]]
        app = "dns"
        min_ports = 2
        "#,
    )
    .unwrap();
    let Config { settings, export, top, .. } = config;
    assert_eq!(settings.discover.roots, [PathBuf::from("/run/user/7")]);
    assert_eq!(settings.keep_lost, Duration::from_secs(5400));
    assert!((settings.rules.thresholds.pool_used - 0.5).abs() < f64::EPSILON);
    assert!((settings.rules.thresholds.pool_left_s - 600.0).abs() < f64::EPSILON);
    assert_eq!(export.listen.len(), 2);
    assert_eq!(export.otlp.as_deref(), Some("https://collector:4318/v1/metrics"));
    assert!(
        export.series_limits.queue_histograms && export.series_limits.xstats.is_match("mac_drops")
    );
    assert_eq!((top.page, top.read_only, top.mouse), (PageTab::Pools, true, true));
    assert_eq!(top.interval, Duration::from_secs(2));
    assert_eq!(top.keys.label(&Action::Filter).as_deref(), Some("F"));
    let expected = &settings.rules.expected;
    assert_eq!(expected.app("fwd").unwrap().ports, ["0000:03:00.0"]);
    assert_eq!(expected.app("dns").unwrap().min_ports, Some(2));
}

#[test]
fn unknown_keys_and_tables_are_named_with_the_nearest_known_one() {
    let text = "[thresholds]\nidle = \"2s\"\npool_usd = 0.5\n[exprot]\n[discovery]\nzzz = 1\n";
    assert_eq!(
        wrong(text),
        "3: there is no key thresholds.pool_usd; did you mean pool_used?\n\
         4: there is no table [exprot]; did you mean export?\n\
         6: there is no key discovery.zzz; expected one of roots, containers, timeout, \
         other_users, per_user, keep_lost"
    );
}

#[test]
fn wrong_values_are_told_with_line_range_and_example() {
    let cases = [
        (
            "[thresholds]\npool_used = 90",
            "2: thresholds.pool_used cannot be 90; it must be a number from 0 to 1, for instance \
             pool_used = 0.9",
        ),
        (
            "[discovery]\n\ntimeout = 300",
            "3: discovery.timeout cannot be 300; it must be a duration from 10ms to 10s, for \
             instance timeout = \"300ms\"",
        ),
        (
            "[export]\nlisten = [\n  \":9177\",\n  \"nowhere\",\n]",
            "4: export.listen cannot be \"nowhere\"; it must be a list, each HOST:PORT, \
             [IPV6]:PORT, :PORT, unix:/PATH or systemd, for instance listen = \
             [\"127.0.0.1:9177\"]",
        ),
        (
            "[top]\npage = \"Ports\"",
            "2: top.page cannot be \"Ports\": expected one of overview, ports, pools, lcores, flows, \
             rings, captures, findings, kernel, raw; it must be the name of a page, in lowercase, for \
             instance page = \"ports\"",
        ),
        ("[top]\nkeys = 1", "2: top.keys must be a table: write [top.keys] above its keys"),
        ("[top]\nkey = 1", "2: there is no key top.key; did you mean keys?"),
        (
            "[top.columns]\nport = [\"Port\"]",
            "2: there is no table top.columns.port; did you mean ports?",
        ),
        (
            "[top.columns]\nsoftware-rings = [\"Ring\", \"Usd\"]",
            "2: top.columns.software-rings has no column Usd; expected one of App, Ring, \
             Used, Win max, Max, Of, Fill",
        ),
        ("[top.columns]\nsoftware-rings = []", "2: top.columns.software-rings needs a column"),
        (
            "[top.columns]\nsoftware-rings = \"Ring\"",
            "2: top.columns.software-rings must be a list of columns, for instance software-rings = [\"App\", \"Ring\", \
             \"Used\", \"Win max\", \"Max\", \"Of\", \"Fill\"]",
        ),
        (
            "[export]\ntolerate = [\"stal\"]",
            "2: export.tolerate cannot be \"stal\": there is no such finding; did you mean stall?; \
             it must be a list, each the name of a finding, for instance tolerate = \
             [\"queue_imbalance\", \"stall\"]",
        ),
        ("export = 1", "1: export must be a table: write [export] above its keys"),
        ("[expected]", "1: expected must be tables: write [[expected]] above the keys of each"),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong(text), expected);
    }
    for text in
        ["[thresholds]\nidle = \"0s\"", "[thresholds]\npool_used = nan", "[export]\notlp = 1"]
    {
        assert!(wrong(text).starts_with("2: "), "{text}");
    }
}

#[test]
fn keys_that_cannot_be_are_told() {
    let unusable = r#"[top.keys]
fliter = "F"
zzz = []
sort = "pagedown"
details = ["i", "I", "i"]
open = 7
tasks = ["ctrl-i", "T"]
copy = "shift-1"
"#;
    assert_snapshot!("keys_that_are_none", wrong(unusable));
    let contradicting = r#"[top.keys]
filter = "q"
select-next = ["n", "down"]
finding-next = ["m", "n"]
filter-apply = "x"
suspend = "ctrl-c"
capture-start = "esc"
"#;
    assert_snapshot!("keys_of_two_actions", wrong(contradicting));
}

#[test]
fn an_action_may_take_the_key_of_one_that_has_another() {
    let keys = |text: &str| parse(text.as_bytes()).unwrap().top.keys;
    let swapped = keys("[top.keys]\nfilter = \"s\"\nsort = [\"/\", \"f5\"]\nattach = []");
    assert_eq!(swapped.label(&Action::Filter).as_deref(), Some("s"));
    assert_eq!(swapped.label(&Action::Sort).as_deref(), Some("/"));
    assert_eq!(swapped.label(&Action::Attach), None);
    assert_eq!(keys("[top.keys]\nquit = \"x\"").label(&Action::Quit).as_deref(), Some("x"));
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let cases = [
        ("[thresholds]\npool_used = 0.99", "1: [thresholds]: pool_used is 0.99"),
        ("[export]\nlisten = []", "1: [export]: listen is empty"),
        ("[thresholds]\npool_left = \"30s\"", "1: [thresholds]: pool_left is 30 s"),
        (
            "[[expected]]\napp = \"a\"\n\n[[expected]]\napp = \"a\"",
            "4: [[expected]]: \"a\" is expected already",
        ),
        ("\n[[expected]]\nports = []", "2: [[expected]]: app is missing; add for instance app = "),
        (
            "[[expected]]\napp = \"a\"\nports = [\"x\", \"y\"]\nmin_ports = 1",
            "1: [[expected]]: min_ports is 1, and 2 ports are listed",
        ),
        (
            "[[name]]\nmatch = 'a'\napp = 'b'\n[[name]]\nmatch = 'a'\napp = 'c'",
            "4: [[name]]: \"a\" is named already",
        ),
        ("[[name]]\nmatch = 'a('\napp = 'b'", "1: [[name]]: invalid regular expression \"a(\""),
        ("[[name]]\nmatch = 'a'\napp = '$1'", "1: [[name]]: the name \"$1\" refers to $1"),
        ("[export]\nxstats = [\n'a', '(']", "3: export.xstats cannot be '(': regex parse error"),
        ("[[expected]]\napp = \"a\"\nports = [\"x\", \"x\"]", "3: expected.ports cannot be \"x\""),
        (
            "[[expected]]\napp = \"a\"\nports = [\"3:40.0\"]",
            "3: expected.ports cannot be \"3:40.0\"",
        ),
    ];
    for (text, expected) in cases {
        let told = wrong(text);
        assert!(told.starts_with(expected), "{text}: {told}");
    }
}

#[test]
fn what_is_no_toml_is_told_by_line() {
    let told = wrong("[export]\nlisten = [\":1\"]]\nx y\n");
    assert!(told.starts_with("2: ") && told.contains("\n3: "), "{told}");
    assert_eq!(parse(b"a = 1\n\xff").unwrap_err()[0].to_string(), "2: the file is not valid UTF-8");
}

#[test]
fn the_printed_configuration_loads_again() {
    let mut all = String::new();
    let changed = r#"
        [discovery]
        roots = ["/a b"]
        containers = false
        timeout = "50ms"
        [thresholds]
        pool_used = 0.25
        rx_missed_ps = 1e9
        [export]
        web_config = "/w\"\\.yml"
        tolerate = []
        [[name]]
        match = '"(\w+)-\d'
        app = "$1"
        [[expected]]
        app = "fwd"
        [[expected]]
        app = "dns"
        min_ports = 2
        [top]
        filter = 'app:"x" \y'
        ascii = false
        keys.quit = ["Q", "esc", "|", '\', '"', "'", "ctrl-space", "alt--"]
        keys.back = "B"
        keys.quit-keep-screen = []
        columns.queue-heat = ["Port", "missed/s"]
    "#;
    for text in ["", changed] {
        let printed = parse(text.as_bytes()).unwrap().text();
        assert_eq!(parse(printed.as_bytes()).unwrap().text(), printed);
        all += &printed;
    }
    for value in [
        "roots = []",
        "roots = [\"/a b\"]",
        "containers = false",
        "min_ports = 2",
        "pool_used = 0.25",
        "quit-keep-screen = []",
        r#"queue-heat = ["Port", "missed/s"]"#,
        r#"quit = ["q", "ctrl-c"]"#,
    ] {
        assert!(all.contains(value), "{value}: {all}");
    }
}

#[test]
fn every_key_has_an_example_that_is_accepted() {
    for part in catalogue::parts() {
        for (line, key) in part.examples() {
            assert!(parse(line.as_bytes()).is_ok(), "{key}: {}", wrong(&line));
        }
    }
}

#[test]
fn the_file_is_that_of_the_command_line_else_of_the_environment_else_the_usual_one() {
    let required = |path: &str| Some((PathBuf::from(path), true));
    assert_eq!(choose(Some(Path::new("a")), Some("b".into())), required("a"));
    assert_eq!(choose(None, Some("b".into())), required("b"));
    assert_eq!(choose(None, None), Some((DEFAULT.into(), false)));
    assert_eq!(choose(Some(Path::new("none")), Some("b".into())), None);
    assert_eq!(choose(None, Some("".into())), None);
}

#[test]
fn only_the_usual_file_may_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    assert!(load(&path, false).is_ok());
    let error = load(&path, true).unwrap_err().to_string();
    assert!(error.contains("x.toml: No such file") && error.contains("--config none"), "{error}");
    fs::write(&path, "[export]\nlisten = 1\ntimeot = 2\n").unwrap();
    let error = load(&path, false).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with(&format!("{}:2: export.listen", path.display())), "{error}");
    assert!(lines[1].starts_with(&format!("{}:3: there is no key", path.display())), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_values_panic(lines in prop::collection::vec((0usize..150, "[ -~]{0,24}"), 0..8)) {
        let keys: Vec<String> =
            catalogue::parts().iter().flat_map(|part| part.examples()).map(|(_, key)| key).collect();
        let line = |(key, value): &(usize, String)| format!("{} = {value}", keys[key % keys.len()]);
        let text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
        if let Ok(config) = parse(text.as_bytes()) {
            prop_assert!(parse(config.text().as_bytes()).is_ok(), "{}", config.text());
        }
    }
}

proptest! {
    #[test]
    fn keys_that_are_accepted_are_printed_and_read_again(
        changes in prop::collection::btree_map(0usize..80, prop::collection::vec("[!-~]|f[0-9]|ctrl-[a-z]|alt-[a-z]|pgup|shift-tab", 0..3), 0..6),
    ) {
        let names: Vec<_> = named_actions().map(|(_, named)| named.name).collect();
        let line = |(at, keys): (&usize, &Vec<String>)| (names[at % names.len()], format!("{keys:?}"));
        let lines: std::collections::BTreeMap<_, _> = changes.iter().map(line).collect();
        let lines = lines.iter().map(|(name, keys)| format!("\n{name} = {keys}"));
        let lines = lines.collect::<Vec<_>>().concat();
        if let Ok(config) = parse(format!("[top.keys]{lines}").as_bytes()) {
            let again = parse(config.text().as_bytes()).map_err(|p| p[0].to_string());
            prop_assert_eq!(again.map(|config| config.text()), Ok(config.text()));
        }
    }
}

const DOCUMENT: &str = include_str!("../../docs/configuration.md");

#[test]
fn every_key_is_documented_with_its_range_and_default() {
    for part in catalogue::parts() {
        let rows = part.rows().join("\n");
        assert!(DOCUMENT.contains(&rows), "== {}\n{rows}", part.name());
    }
}

#[test]
fn the_documented_examples_load() {
    let examples = |text: &'static str| {
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next())
    };
    let load =
        |text: &str| parse(text.as_bytes()).map_err(|p| format!("{text}: {}", p[0])).unwrap();
    let config = examples(DOCUMENT).map(load).next().unwrap();
    assert_eq!(config.settings.rules.expected.apps.len(), 2);
    let others = examples(DOCUMENT).skip(1).chain(examples(include_str!("../../docs/top.md")));
    assert!(others.map(load).collect::<Vec<_>>().len() >= 2);
}
