//! Tests the client with apps that misbehave in every way.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::thread::sleep;
use std::time::Duration;

use pmdscope_telemetry::discover::{
    DiscoverOptions, FindError, Reachability, UnreachableReason, discover, find,
};
use pmdscope_telemetry::{
    Deadline, FleetSettings, TelemetryClient, TelemetryCommand, TelemetryError,
};
use serde_json::Value;
use support::{BANNER, FakeApp};

/// Timeout for events that do not happen.
const SOON: Duration = Duration::from_millis(100);
/// Timeout for events that happen, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn connect(app: &FakeApp) -> Result<TelemetryClient, TelemetryError> {
    TelemetryClient::connect(&app.socket(), Deadline::after(LONG))
}

fn connect_soon(app: &FakeApp) -> Result<TelemetryClient, TelemetryError> {
    TelemetryClient::connect(&app.socket(), Deadline::after(SOON))
}

fn ask(client: &mut TelemetryClient) -> Result<Value, TelemetryError> {
    client.request(&TelemetryCommand::EthdevList, Deadline::after(LONG))
}

fn ask_soon(client: &mut TelemetryClient) -> Result<Value, TelemetryError> {
    client.request(&TelemetryCommand::EthdevList, Deadline::after(SOON))
}

/// Returns the result of a request that an app answers with these messages, its client, and the app.
fn answered(
    messages: &'static [&'static [u8]],
) -> (Result<Value, TelemetryError>, TelemetryClient, FakeApp) {
    let app = FakeApp::start(move |connection| {
        connection.send(BANNER);
        while connection.receive().is_some() {
            for message in messages {
                connection.send(message);
            }
        }
    });
    let mut client = connect(&app).unwrap();
    (ask(&mut client), client, app)
}

#[test]
fn a_good_reply_is_read_and_the_peer_known() {
    let (reply, client, _app) = answered(&[br#"{"/ethdev/list":[0,1]}"#]);
    assert_eq!(reply.unwrap(), serde_json::json!([0, 1]));
    assert_eq!(client.banner().version, "DPDK 22.11.11");
    assert_eq!(client.peer().pid, std::process::id());
    assert!(client.peer().start_ticks > 0);
    assert_eq!(client.requests(), 1);
}

#[test]
fn who_looks_once_waits_for_a_slow_app() {
    let app = FakeApp::start(|connection| {
        sleep(Duration::from_millis(400));
        connection.serve(|_| String::new());
    });
    let discover = DiscoverOptions { timeout: Duration::from_millis(300), ..app.discovery() };
    let settings = FleetSettings { discover, ..FleetSettings::default() };
    // The machine of the test may be slow as well.
    let deadline = Deadline::after(LONG);
    while settings.running()[0].state != Reachability::Live {
        assert!(!deadline.passed(), "never found in time");
    }
    assert_eq!(settings.apps(Some("fake"), &[]).map(|found| found.len()).ok(), Some(1));
}

#[test]
fn garbage_is_an_error_of_one_request() {
    for garbage in [
        &[b"\xff\xfe\x00".as_slice()][..],
        &[br#"{"/ethdev/list":[0,"#],
        &[br#"{"/ethdev/list":[0],"/x":1}"#],
        &[b"{}"],
    ] {
        let (reply, client, _app) = answered(Box::leak(garbage.to_vec().into_boxed_slice()));
        assert!(matches!(reply, Err(TelemetryError::Malformed(_))), "{garbage:?}: {reply:?}");
        assert!(client.is_usable());
    }
}

#[test]
fn null_is_an_outcome_of_its_own() {
    let (reply, client, _app) = answered(&[br#"{"/ethdev/list":null}"#]);
    assert!(matches!(reply, Err(TelemetryError::Null)));
    assert!(client.is_usable());
}

#[test]
fn a_reply_about_something_else_ends_the_connection() {
    let (reply, mut client, _app) = answered(&[br#"{"/mempool/list":["mb"]}"#]);
    assert!(matches!(reply, Err(TelemetryError::Mismatch { got }) if got == "/mempool/list"));
    assert!(!client.is_usable());
    assert!(matches!(ask(&mut client), Err(TelemetryError::Closed)));
}

#[test]
fn a_reply_beyond_the_announced_length_is_an_error() {
    let long = format!(r#"{{"/ethdev/list":[{}0]}}"#, "0,".repeat(9000));
    let (reply, _, _app) = answered(Box::leak(Box::new([long.leak().as_bytes()])));
    assert!(matches!(reply, Err(TelemetryError::Truncated { bytes: 18_000.. })), "{reply:?}");
}

#[test]
fn a_second_message_is_never_taken_for_the_next_reply() {
    let two: &[&[u8]] = &[br#"{"/ethdev/list":[0]}"#, br#"{"/ethdev/list":[7]}"#];
    let (reply, mut client, _app) = answered(two);
    assert_eq!(reply.unwrap(), serde_json::json!([0]));
    sleep(Duration::from_millis(20));
    assert!(matches!(ask(&mut client), Err(TelemetryError::Closed)));
}

#[test]
fn a_late_reply_is_never_taken_for_an_answer() {
    let app = FakeApp::start(|connection| {
        connection.send(BANNER);
        while connection.receive().is_some() {
            sleep(SOON + SOON / 2);
            connection.send(r#"{"/ethdev/list":[666]}"#);
        }
    });
    let mut client = connect(&app).unwrap();
    assert!(matches!(ask_soon(&mut client), Err(TelemetryError::Timeout(_))));
    sleep(SOON);
    assert!(matches!(ask(&mut client), Err(TelemetryError::Closed)));
}

#[test]
fn closing_instead_of_answering_is_an_error() {
    let app = FakeApp::start(|connection| {
        connection.send(BANNER);
        connection.receive();
    });
    let mut client = connect(&app).unwrap();
    assert!(matches!(ask(&mut client), Err(TelemetryError::Closed)));
    assert!(!client.is_usable());
}

#[test]
fn closing_before_the_banner_means_busy() {
    let app = FakeApp::start(drop);
    assert!(matches!(connect(&app), Err(TelemetryError::Busy)));
    let state = Reachability::Unreachable(UnreachableReason::Busy);
    assert_eq!(discover(&app.discovery())[0].state, state);
}

#[test]
fn a_bad_banner_is_refused() {
    let app = FakeApp::start(|connection| connection.send("SSH-2.0-OpenSSH"));
    assert!(matches!(connect(&app), Err(TelemetryError::Malformed(_))));
}

#[test]
fn a_slow_banner_is_awaited_until_the_deadline() {
    let app = FakeApp::start(|connection| {
        sleep(SOON / 2);
        connection.serve(|_| r#"{"/ethdev/list":[]}"#.into());
    });
    assert!(ask(&mut connect(&app).unwrap()).is_ok());
    let app = FakeApp::start(|connection| {
        connection.receive();
    });
    assert!(matches!(connect_soon(&app), Err(TelemetryError::Timeout(_))));
}

#[test]
fn an_app_that_accepts_no_connection_fails_at_the_deadline() {
    let app = FakeApp::stopped();
    // The first ones wait for the banner, the others for a place in the backlog.
    let waiting: Vec<_> = (0..4).map(|_| connect_soon(&app)).collect();
    assert!(
        waiting.iter().all(|client| matches!(client, Err(TelemetryError::Timeout(_)))),
        "{waiting:?}"
    );
}

#[test]
fn an_app_that_has_ended_refuses() {
    let app = FakeApp::stopped();
    let gone = app.dir().join("gone");
    let client = TelemetryClient::connect(&gone, Deadline::after(SOON));
    assert!(matches!(client, Err(TelemetryError::Refused)));
}

#[test]
fn a_live_app_is_found_by_name_directory_or_alone() {
    let app = FakeApp::start(|connection| connection.serve(|_| String::new()));
    let options = app.discovery();
    let dir = app.dir().display().to_string();
    for name in [None, Some("fake"), Some(dir.as_str())] {
        let found = find(name, &options).unwrap();
        assert_eq!((found.name.as_str(), found.pid), ("fake", Some(std::process::id())));
        assert_eq!(found.dpdk_version.as_deref(), Some("DPDK 22.11.11"));
    }
    let error = find(Some("other"), &options).unwrap_err();
    assert!(error.to_string().ends_with("running: fake"), "{error}");
}

#[test]
fn apps_that_cannot_be_chosen_are_named() {
    let (one, two) = (FakeApp::stopped(), FakeApp::stopped());
    let mut options = one.discovery();
    let error = find(Some("fake"), &options).unwrap_err();
    let FindError::Unreachable(app, UnreachableReason::Timeout) = error else { panic!("{error}") };
    assert_eq!(app.pid, Some(std::process::id()));
    options.roots.extend(two.discovery().roots);
    let error = find(None, &options).unwrap_err();
    assert!(matches!(&error, FindError::Several(apps) if apps.len() == 2), "{error}");
    assert!(error.to_string().contains(&two.dir().display().to_string()), "{error}");
}
