//! Tests of memzones, as an app reports them.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pmdscope_telemetry::{AppLock, Deadline, MemzoneEntry, MemzoneTable, TelemetryError};
use support::{FakeApp, Recording};

const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(100);

fn zone(id: u32, name: &str, address: u64) -> String {
    format!(
        r#"{{"/eal/memzone_info":{{"Zone":{id},"Name":"{name}","Length":1024,
        "Address":"{address:#x}","Socket":0,"Flags":0,"Hugepage_size":2097152}}}}"#
    )
}

fn fetch(recording: &Recording) -> Result<MemzoneTable, TelemetryError> {
    let app = FakeApp::replay(recording);
    MemzoneTable::fetch(app.dir(), &app.socket(), Deadline::after(LONG))
}

fn two_zones() -> Recording {
    Recording::default()
        .with("/eal/memzone_list", r#"{"/eal/memzone_list":[3,1]}"#)
        .with("/eal/memzone_info,1", &zone(1, "MP_high", 0x2000))
        .with("/eal/memzone_info,3", &zone(3, "RG_low", 0x1000))
}

#[test]
fn memzones_come_by_address() {
    let table = fetch(&two_zones()).unwrap();
    let zone = |name: &str, address| MemzoneEntry { name: name.into(), address, bytes: 1024 };
    assert_eq!(table.memzones, [zone("RG_low", 0x1000), zone("MP_high", 0x2000)]);
    assert_eq!(
        (table.banner.version.as_str(), table.peer.pid),
        ("DPDK 22.11.11", std::process::id())
    );
    assert_eq!((table.vanished, table.cut), (0, false));
}

#[test]
fn memzones_that_vanished_and_cut_lists_are_told() {
    let ids: Vec<_> = (0..512).map(|id| id.to_string()).collect();
    let list = format!(r#"{{"/eal/memzone_list":[{}]}}"#, ids.join(","));
    let table = fetch(&two_zones().with("/eal/memzone_list", &list)).unwrap();
    assert_eq!((table.memzones.len(), table.vanished, table.cut), (2, 510, true));
}

/// An id that is not on the list crashes the app: nothing is requested after a reply about something else.
#[test]
fn a_reply_about_another_memzone_ends_the_questions() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let recording = two_zones().with("/eal/memzone_info,1", &zone(9, "MP_high", 0x2000));
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            log.lock().unwrap().push(request.to_owned());
            recording.answer(request)
        });
    });
    let error = MemzoneTable::fetch(app.dir(), &app.socket(), Deadline::after(LONG)).unwrap_err();
    assert!(matches!(&error, TelemetryError::Mismatch { got } if got == "memzone 9"), "{error}");
    assert_eq!(*asked.lock().unwrap(), ["/eal/memzone_list", "/eal/memzone_info,1"]);
}

#[test]
fn nothing_is_asked_while_another_tool_asks() {
    let app = FakeApp::start(|_| {});
    let lock = AppLock::open(app.dir()).unwrap();
    let _held = lock.hold(Deadline::after(LONG)).unwrap();
    let error = MemzoneTable::fetch(app.dir(), &app.socket(), Deadline::after(SOON)).unwrap_err();
    assert!(matches!(error, TelemetryError::Locked), "{error}");
}
