//! `pmdscope capture` from a stock app, with a helper that does as told: what people see of it.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pmdscope_testing::{current_test, output, skip};
use serde_json::Value;
use support::FakeApp;
use tempfile::TempDir;

const REFUSE: u16 = 2;
const ACCEPT: u16 = 1;

fn answer(request: &str, arguments: &str) -> String {
    let command = request.split(',').next().unwrap_or_default();
    match request {
        "/" => r#"{"/":["/ethdev/list","/ethdev/info","/ethdev/stats","/eal/params"]}"#.into(),
        "/ethdev/list" => r#"{"/ethdev/list":[0]}"#.into(),
        "/ethdev/info,0" => r#"{"/ethdev/info":{"name":"net_null0","state":1,"nb_rx_queues":2,
            "nb_tx_queues":1,"port_id":0,"mtu":1500,"dev_started":1,"promiscuous":0}}"#
            .into(),
        "/ethdev/stats,0" => r#"{"/ethdev/stats":{"ipackets":0,"opackets":0,"ibytes":0,"obytes":0,
            "imissed":0,"ierrors":0,"oerrors":0,"rx_nombuf":0}}"#
            .into(),
        "/eal/params" => format!(r#"{{"/eal/params":["app",{arguments}"-l","0"]}}"#),
        _ => format!(r#"{{"{command}":null}}"#),
    }
}

/// A stock app with shared memory, and further arguments in JSON.
fn app(arguments: &'static str) -> FakeApp {
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| answer(request, arguments));
    });
    let root = app.discovery().roots.remove(0);
    File::create(root.join("dpdk/fake/config")).unwrap();
    app
}

/// A command that sends one message of the capture protocol over standard input.
fn send(kind: u16, text: &str) -> String {
    let mut bytes = b"PMDT\x01\x00".to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(text.as_bytes());
    bytes.resize(128, 0);
    let octal = bytes.iter().fold(String::new(), |mut octal, byte| {
        let _ = write!(octal, "\\{byte:03o}");
        octal
    });
    format!("printf '{octal}' >&0")
}

/// A helper that says so much after it got the request, and leaves when its consumer does.
fn helper(says: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    write_helper(&dir.path().join("pmdscope-pdump"), "22.11.11", says);
    dir
}

/// The same, built with this version of DPDK.
fn write_helper(path: &Path, dpdk: &str, says: &str) {
    let script = format!(
        "#!/bin/sh\ntest \"$1\" = --version && echo 'pmdscope-pdump 1 (DPDK {dpdk})' && exit\n\
         dd bs=8192 count=1 of=/dev/null 2>/dev/null\n{says}\ncat >/dev/null; echo >\"$0.left\"\n"
    );
    let staged = path.with_extension("staged");
    fs::write(&staged, script).unwrap();
    // Written by another process: ours may just be starting one that inherits it open for writing.
    let mut install = Command::new("install");
    assert!(install.arg("-m755").args([&*staged, path]).status().unwrap().success());
}

fn capture(app: &FakeApp, helper: &Path, line: &str) -> Output {
    let mut command = capture_by(Path::new(env!("CARGO_BIN_EXE_pmdscope")), app, helper, line);
    output(command.env("PMDSCOPE_PDUMP", helper.join("pmdscope-pdump"))).unwrap()
}

fn capture_by(pmdscope: &Path, app: &FakeApp, dir: &Path, line: &str) -> Command {
    let mut command = Command::new(pmdscope);
    command
        .args(["capture", "-a", "fake"])
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("RUNTIME_DIRECTORY", app.discovery().roots.remove(0))
        .env("PMDSCOPE_CONFIG", "none")
        .env_remove("PMDSCOPE_PDUMP")
        .stdin(Stdio::null());
    command
}

/// Whether another process may look into this one, which plays the app.
fn is_attachable() -> bool {
    let memory = format!("if=/proc/{}/mem", std::process::id());
    let opened = output(Command::new("dd").args([&memory, "of=/dev/null", "count=0"])).unwrap();
    if !opened.status.success() {
        let why = format!("ptrace is not permitted: {}", text(&opened.stderr).trim_end());
        skip(&current_test(), why);
    }
    opened.status.success()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_stock_app_is_listed_with_the_way_to_its_packets() {
    if !is_attachable() {
        return;
    }
    let (app, helper) = (app(""), helper(""));
    let listed = capture(&app, helper.path(), "-D");
    assert!(
        text(&listed.stdout).contains("fake:0 (net_null0) [link unknown, via pdump]"),
        "{listed:?}"
    );
    let listed = capture(&app, helper.path(), "-D --json --no-pdump");
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let fake = list["interfaces"].as_array().unwrap().iter().find(|i| i["app"] == "fake").unwrap();
    assert_eq!((&fake["captures"], &fake["via"]), (&Value::Bool(false), &Value::Null));
    assert!(fake["reason"].as_str().unwrap().contains("--no-pdump forbids"), "{fake}");
}

#[test]
fn a_refusal_of_the_helper_is_told_with_its_cure() {
    if !is_attachable() {
        return;
    }
    let says =
        send(REFUSE, "no answer: call rte_pdump_init()") + "; echo 'asked for 5 s' >&2; exit 1";
    let refused = capture(&app(""), helper(&says).path(), "-w out.pcapng");
    assert_eq!(refused.status.code(), Some(1));
    let expected = "pmdscope: error: cannot capture from fake (--peek samples its packets without \
                    attaching): pmdscope-pdump: no answer: call rte_pdump_init() (asked for 5 s)\n";
    assert_eq!(text(&refused.stderr), expected);
}

/// The app says that it has DPDK 22.11.11.
#[test]
fn of_the_helpers_that_are_installed_the_one_of_the_apps_release_is_used() {
    if !is_attachable() {
        return;
    }
    // Where the command can be linked to.
    let prefix = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = |name: &str| prefix.path().join(name);
    for dir in ["bin", "libexec/pmdscope"] {
        fs::create_dir_all(place(dir)).unwrap();
    }
    let pmdscope = place("bin/pmdscope");
    fs::hard_link(env!("CARGO_BIN_EXE_pmdscope"), &pmdscope).unwrap();
    let helpers =
        [("pdump-22.11", "22.11.2"), ("pdump-25.11", "25.11.0"), ("pmdscope-pdump", "24.11.8")];
    for (name, dpdk) in helpers {
        let says = send(REFUSE, &format!("this is {name}")) + "; exit 1";
        write_helper(&place("libexec/pmdscope").join(name), dpdk, &says);
    }
    let app = app("");
    let said = || {
        let line = "-w out.pcapng";
        text(&output(&mut capture_by(&pmdscope, &app, prefix.path(), line)).unwrap().stderr)
    };
    let of_its_release = said();
    assert!(of_its_release.contains("this is pdump-22.11"), "{of_its_release}");

    fs::remove_file(place("libexec/pmdscope/pdump-22.11")).unwrap();
    let of_others = said();
    assert!(of_others.contains("DPDK 24.11.8: both must be of one release"), "{of_others}");
    assert!(of_others.contains("by `pmdscope-pdump-build DPDK_PREFIX`"), "{of_others}");

    fs::remove_file(place("libexec/pmdscope/pmdscope-pdump")).unwrap();
    let none = said();
    assert!(none.contains("not installed; `pmdscope-pdump-build DPDK_PREFIX` builds it"), "{none}");
    assert!(none.contains("libexec/pmdscope/pdump-22.11, "), "{none}");
}

#[test]
fn an_app_that_hides_its_memory_is_not_touched() {
    let refused =
        capture(&app(r#""--in-memory","#), helper("").path(), "-w out.pcapng --force-pdump");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains("fake was started with --in-memory") && said.contains("restart it"),
        "{said}"
    );
}

#[test]
fn a_capture_says_what_it_goes_through_and_ends_after_its_helper() {
    if !is_attachable() {
        return;
    }
    let helper = helper(&send(ACCEPT, ""));
    let done = capture(&app(""), helper.path(), "-w out.pcapng --duration 0.2 -v");
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("listening on fake:any via pdump"), "{said}");
    assert!(said.contains("pmdscope-pdump of fake runs on CPUs "), "{said}");
    assert!(helper.path().join("pmdscope-pdump.left").exists());
}
