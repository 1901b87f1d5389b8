//! `pmdscope leaks` against apps that answer as told: what it prints, and its exit codes.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::process::{Command, Output};

use pmdscope_testing::output;
use support::FakeApp;

const LIBRARY: &str = r#"{"/pmdscope":{"schema":1,"version":"0.1.0","dpdk":"DPDK 22.11.11","pid":1,
    "tsc_hz":2000000000,"start_realtime_ns":1,"sample_ms":100,"window_ms":1000,"stall_us":1000,
    "generation":1,"tables":["pools","leaks","sites","stages"],"tee_socket":"","tee_sessions":0,
    "foreign_polls":0,"foreign_bursts":0,"control_shares_poll_cpu":0,"abandoned_bytes":0}}"#;

const POOLS: &str = r#"{"/pmdscope/pools":{"schema":1,"generation":1,"offset":0,"total":1,
    "name":["mb"],"socket":[0],"size":[1000],"element_bytes":[2368],"cache_size":[0],"common":[600],
    "cached":[0],"in_use":[400],"in_use_window_max":[400],"in_use_max":[400]}}"#;

/// The ledger of a pool of which so much is lost.
fn ledger(lost: u64) -> String {
    let held = 100 - lost;
    format!(
        r#"{{"/pmdscope/leaks":{{"schema":1,"generation":1,"offset":0,"total":1,"name":["mb"],
        "size":[1000],"common":[600],"cached":[0],"rx_posted":[256],"tx_pending":[32],"rings":[12],
        "held":[{held}],"leaked":[{lost}],"unplaced":[0],"lost_at_least":[0],"prearm":[0],
        "armed":[1],"mode":["auto"],"slope_milli":[2000],"exhausted_in_ms":[300000],
        "first_leak_realtime_ns":[{lost}],"walks":[9],"walk_us":[40],"double_frees":[0],
        "use_after_frees":[0]}}}}"#
    )
}

fn sites(lost: u64) -> String {
    let empty = r#"{"/pmdscope/sites":{"schema":1,"generation":1,"offset":0,"total":0}}"#;
    if lost == 0 {
        return empty.into();
    }
    format!(
        r#"{{"/pmdscope/sites":{{"schema":1,"generation":1,"offset":0,"total":1,"pool":["mb"],
        "site":["app.c:18"],"function":["forward"],"operation":["rx"],"kind":["leak"],"id":[4],
        "count":[{lost}],"events":[{lost}],"oldest_ms":[1500],"newest_ms":[3],
        "first_realtime_ns":[2]}}}}"#
    )
}

fn answer(request: &str, lost: Option<u64>) -> String {
    let command = request.split(',').next().unwrap_or_default();
    let null = format!(r#"{{"{command}":null}}"#);
    match (request, lost) {
        ("/", None) => r#"{"/":["/ethdev/list","/mempool/list"]}"#.into(),
        ("/", Some(_)) => r#"{"/":["/ethdev/list","/pmdscope","/pmdscope/arm"]}"#.into(),
        ("/ethdev/list" | "/mempool/list", _) => format!(r#"{{"{command}":[]}}"#),
        (_, None) => null,
        ("/pmdscope", _) => LIBRARY.into(),
        ("/pmdscope/pools", _) => POOLS.into(),
        ("/pmdscope/leaks", Some(lost)) => ledger(lost),
        ("/pmdscope/sites", Some(lost)) => sites(lost),
        ("/pmdscope/stages", _) => {
            r#"{"/pmdscope/stages":{"schema":1,"generation":1,"offset":0,"total":0}}"#.into()
        }
        ("/pmdscope/arm,60", _) => r#"{"/pmdscope/arm":{"armed":1,"mode":"auto"}}"#.into(),
        ("/pmdscope/arm,0", _) => r#"{"/pmdscope/arm":{"armed":1,"mode":"always"}}"#.into(),
        _ => null,
    }
}

/// An app with a ledger of which so much is lost, or a stock app.
fn app(lost: Option<u64>) -> FakeApp {
    FakeApp::start(move |connection| connection.serve(|request| answer(request, lost)))
}

fn leaks(app: &FakeApp, arguments: &[&str]) -> Output {
    let runtime = app.discovery().roots.remove(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.args(["leaks", "-a", "fake", "-i", "0.1"]).args(arguments);
    output(command.env("RUNTIME_DIRECTORY", runtime)).unwrap()
}

fn code_and_text(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_leak_is_a_row_and_exit_code_1() {
    let (code, text) = code_and_text(&leaks(&app(Some(12)), &[]));
    let row: Vec<_> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    let expected = ["mb", "leak", "!12", "0", "1.5s", "5m00s", "rx", "app.c:18", "forward()"];
    assert_eq!((code, row.as_slice()), (Some(1), &expected[..]), "{text}");
}

#[test]
fn no_leak_is_exit_code_0() {
    let (code, text) = code_and_text(&leaks(&app(Some(0)), &[]));
    assert_eq!((code, text.as_str()), (Some(0), "fake: no leaks in 1 pool of 1,000 mbufs\n"));
}

#[test]
fn a_stock_app_is_scanned_unless_that_is_not_wanted() {
    for unwanted in ["--no-scan", "--no-xray"] {
        let (code, text) = code_and_text(&leaks(&app(None), &[unwanted]));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("a scan of its memory counts lost mbufs"), "{text}");
    }
    // Its process is that of this test, which has no DPDK in its memory.
    for arguments in [&[][..], &["--explain"]] {
        let (code, text) = code_and_text(&leaks(&app(None), arguments));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("cannot find the memory configuration of DPDK"), "{text}");
    }
}

#[test]
fn a_ledger_is_explained_and_an_unknown_pool_refused() {
    let leaking = app(Some(12));
    let (code, text) = code_and_text(&leaks(&leaking, &["--explain", "mb"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("+         12  leaked "), "{text}");
    let (code, text) = code_and_text(&leaks(&leaking, &["--explain", "nope"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no mbuf pool \"nope\"; there is mb"), "{text}");
}

#[test]
fn stamps_are_switched_and_refusals_told() {
    let leaking = app(Some(12));
    let (code, text) = code_and_text(&leaks(&leaking, &["--arm"]));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text, "fake: stamps armed for 60 s (mode auto)\n");
    let (code, text) = code_and_text(&leaks(&leaking, &["--disarm"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stamps are still armed: its mode is always"), "{text}");
    let (code, text) = code_and_text(&leaks(&leaking, &["--arm", "5"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("fake: it refuses to arm or disarm its stamps"), "{text}");
    let (code, text) = code_and_text(&leaks(&app(None), &["--arm"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("fake: runs without libpmdscope"), "{text}");
}

#[test]
fn nothing_lost_writes_no_file_and_an_app_without_a_socket_is_told() {
    let clean = app(Some(0));
    let file = clean.dir().join("leaked.pcapng");
    let write = ["--write", file.to_str().unwrap()];
    let (code, text) = code_and_text(&leaks(&clean, &write));
    assert_eq!((code, file.exists()), (Some(0), false), "{text}");
    assert!(text.contains("has lost no mbufs, so there is nothing to write"), "{text}");
    let (code, text) = code_and_text(&leaks(&app(Some(12)), &write));
    assert_eq!((code, file.exists()), (Some(1), false), "{text}");
    assert!(text.contains("offers no captures"), "{text}");
    let (code, text) = code_and_text(&leaks(&app(None), &write));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("cannot scan fake: "), "{text}");
}

#[test]
fn json_is_one_document_with_the_verdict() {
    let output = leaks(&app(Some(12)), &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema"], &json["leaks"]), (&1.into(), &true.into()));
    assert_eq!(json["apps"][0]["sites"][0]["site"], "app.c:18");
}

#[test]
fn a_reader_that_leaves_ends_the_watch() {
    let leaking = app(Some(12));
    let runtime = leaking.discovery().roots.remove(0);
    let watch =
        format!("{} leaks -a fake -i 0.1 --watch | head -1", env!("CARGO_BIN_EXE_pmdscope"));
    let output =
        output(Command::new("sh").args(["-c", &watch]).env("RUNTIME_DIRECTORY", runtime)).unwrap();
    let (_, text) = code_and_text(&output);
    assert!(text.starts_with("Pool ") && text.lines().count() == 1, "{text}");
}
