//! Tests with shell scripts as helpers: they communicate over standard input, as the real one does.

use std::fmt::Write;
use std::time::Instant;

use super::*;
use crate::layout::{QueueSelect, TEE_ACCEPT, TEE_END, TEE_REFUSE};
use crate::pdump::script::script;
use crate::pdump::{PdumpPort, remaining_state_files};
use crate::producer::message;
use crate::session::SessionEvent;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A `stop` that is never true.
static GO: AtomicBool = AtomicBool::new(false);

/// Command that receives the request.
const LISTEN: &str = "dd bs=8192 count=1 of=\"$0.request\" 2>/dev/null\n";

/// Command that waits until the consumer has closed its end.
const LEAVE: &str = "cat >/dev/null\n";

fn request() -> CaptureRequest {
    let selects = vec![QueueSelect { port: 0, queue: 0, dirs: 3 }];
    CaptureRequest { selects, ..CaptureRequest::default() }
}

/// Returns a command that sends one message.
fn send(kind: u16, value: i32, text: &str) -> String {
    let bytes = message(kind, value.cast_unsigned(), text);
    let octal = bytes.iter().fold(String::new(), |mut octal, byte| {
        let _ = write!(octal, "\\{byte:03o}");
        octal
    });
    format!("printf '{octal}' >&0\n")
}

fn accept() -> String {
    LISTEN.to_owned() + &send(TEE_ACCEPT, 7, "")
}

/// Returns a transport with such a helper, for an app that no other test uses.
fn transport(pid: u32, body: &str) -> (tempfile::TempDir, Transport) {
    let (dir, program) = script(body);
    let port = |id| PdumpPort { id, device: format!("net_null{id}"), rx_queues: 2, tx_queues: 1 };
    let pdump = PdumpOptions {
        program,
        file_prefix: "fwd".into(),
        runtime_root: dir.path().into(),
        pid,
        cpus: "0,2-3".into(),
        crowded: false,
        ports: vec![port(0), port(1)],
        other_pids: false,
        force: true,
    };
    (dir, Transport::Pdump(Box::new(pdump)))
}

fn open(pid: u32, body: &str) -> Result<(tempfile::TempDir, CaptureSession), TransportError> {
    let (dir, transport) = transport(pid, body);
    assert_eq!(transport.via(), Some("pdump"));
    Ok((dir, transport.open(&request(), TIMEOUT, &GO)?))
}

fn wait_for_exits(pid: u32, timeout: Duration) -> Vec<u32> {
    helper::wait_for_exits(Some(pid), timeout, &GO)
}

/// Waits for the first event of a session.
fn first_event(session: &mut CaptureSession) -> SessionEvent {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        match session.next_event().unwrap() {
            Some(event) => return event,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("nothing happened");
}

#[test]
fn a_helper_gets_its_arguments_and_the_request() {
    let tell = "echo \"$@\" >\"$0.arguments\"; echo \"$RUNTIME_DIRECTORY\" >>\"$0.arguments\"\n";
    let (dir, mut session) = open(101, &format!("{tell}{}{LEAVE}", accept())).unwrap();
    assert_eq!(session.id(), 7);
    assert!(session.next_event().unwrap().is_none());
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(Some(read("pmdscope-pdump.request")), request().encode());
    let told = String::from_utf8(read("pmdscope-pdump.arguments")).unwrap();
    let expected = "--fd=0 --file-prefix=fwd --pid=101 --cpus=0,2-3 --port=0,2,1,net_null0 \
                    --port=1,2,1,net_null1 --force";
    assert_eq!(told, format!("{expected}\n{}\n", dir.path().display()));
}

#[test]
fn a_refusal_has_the_last_line_of_the_helper() {
    let refuse = send(TEE_REFUSE, 1, "no such hook: call rte_pdump_init()");
    let error = open(102, &format!("{LISTEN}{refuse}echo one >&2; echo two >&2")).unwrap_err();
    let expected = "pmdscope-pdump: no such hook: call rte_pdump_init() (two)";
    assert_eq!(error.to_string(), expected);
    let error = open(102, &format!("{LISTEN}{}", send(TEE_REFUSE, 1, ""))).unwrap_err();
    assert!(error.to_string().contains("Operation not permitted"), "{error}");
    let same = "echo 'pmdscope-pdump: no such hook: call rte_pdump_init()' >&2";
    let error = open(110, &format!("{LISTEN}{refuse}{same}")).unwrap_err();
    assert_eq!(error.to_string(), "pmdscope-pdump: no such hook: call rte_pdump_init()");
}

#[test]
fn a_helper_that_dies_before_it_answers_is_not_a_refusal() {
    let error = open(103, "echo 'EAL: cannot do that' >&2; exit 3").unwrap_err().to_string();
    assert!(error.contains("ended with code 3: EAL: cannot do that"), "{error}");
    let error = open(103, "echo wrong >&2; exit 2").unwrap_err().to_string();
    assert!(error.contains("ended with code 2: wrong"), "{error}");
    let error = open(103, &format!("{LISTEN}kill -9 $$")).unwrap_err().to_string();
    assert!(error.contains("was killed by signal 9"), "{error}");
}

#[test]
fn a_missing_program_is_named() {
    let (dir, mut transport) = transport(104, "");
    if let Transport::Pdump(pdump) = &mut transport {
        pdump.program = dir.path().join("absent");
    }
    let error = transport.open(&request(), TIMEOUT, &GO).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.to_string().ends_with("/absent") && source.contains("No such file"), "{error}");
}

#[test]
fn the_death_of_a_helper_is_not_the_end_of_the_app() {
    let die = format!("{}echo oops >&2; kill -9 $$", accept());
    let (_dir, mut session) = open(105, &die).unwrap();
    let SessionEvent::Ended(reason) = first_event(&mut session) else { panic!() };
    assert_eq!(reason, "pmdscope-pdump was killed by signal 9: oops");
    let end = |value, text| format!("{}{}{LEAVE}", accept(), send(TEE_END, value, text));
    let shutdown = Errno::SHUTDOWN.raw_os_error();
    let (_dir, mut session) = open(106, &end(shutdown, "")).unwrap();
    assert!(matches!(first_event(&mut session), SessionEvent::Gone));
    let (_dir, mut session) = open(107, &end(5, "too slow")).unwrap();
    assert!(
        matches!(first_event(&mut session), SessionEvent::Ended(reason) if reason == "too slow")
    );
}

#[test]
fn notes_of_a_helper_are_events_of_a_session_that_goes_on() {
    let notes = "echo 'pmdscope-pdump: note: port 1 (net_null1) was removed' >&2; echo more >&2\n";
    let end = send(TEE_END, 5, "over");
    let (_dir, mut session) =
        open(110, &format!("{}{notes}sleep 0.2\n{end}{LEAVE}", accept())).unwrap();
    let SessionEvent::Note(note) = first_event(&mut session) else { panic!() };
    assert_eq!(note, "port 1 (net_null1) was removed");
    assert!(matches!(first_event(&mut session), SessionEvent::Ended(reason) if reason == "over"));
}

#[test]
fn endless_standard_error_is_read_in_bounded_memory() {
    let flood = "yes 'a line that nobody wants' | head -c 8000000 >&2; echo last >&2\n";
    let (_dir, mut session) = open(108, &format!("{flood}{}exit 4", accept())).unwrap();
    let SessionEvent::Ended(reason) = first_event(&mut session) else { panic!() };
    assert_eq!(reason, "pmdscope-pdump ended with code 4: last");
}

#[test]
fn a_helper_of_a_dropped_session_is_awaited_and_not_killed() {
    let (dir, session) =
        open(109, &format!("{}{LEAVE}sleep 0.3; echo >\"$0.left\"", accept())).unwrap();
    drop(session);
    assert_eq!(wait_for_exits(109, Duration::from_millis(1)).len(), 1);
    assert!(wait_for_exits(109, TIMEOUT).is_empty());
    assert!(dir.path().join("pmdscope-pdump.left").exists());
}

#[test]
fn remaining_state_files_are_listed_until_removed() {
    // In a container, the helper has another process id.
    for (app, other_pids, id) in [(115, false, "$$"), (116, true, "7")] {
        let leave = format!(
            "mkdir -p \"$RUNTIME_DIRECTORY/dpdk/fwd\"; cd \"$RUNTIME_DIRECTORY/dpdk/fwd\"\n\
             echo >pmdscope-pdump.{id}; echo >pmdscope-pdump-new.9; exit 1"
        );
        let (dir, mut transport) = transport(app, &format!("{}{LEAVE}{leave}", accept()));
        if let Transport::Pdump(pdump) = &mut transport {
            pdump.other_pids = other_pids;
        }
        let session = transport.open(&request(), TIMEOUT, &GO).unwrap();
        check_remaining_state_files(app, &dir, session);
    }
}

fn check_remaining_state_files(app: u32, dir: &tempfile::TempDir, session: CaptureSession) {
    let files =
        || remaining_state_files().into_iter().filter(|state| state.starts_with(dir.path()));
    assert_eq!(files().count(), 0);
    drop(session);
    assert!(wait_for_exits(app, TIMEOUT).is_empty());
    let states = files().collect::<Vec<_>>();
    assert_eq!(states.len(), 1);
    std::fs::remove_file(&states[0]).unwrap();
    assert_eq!(files().count(), 0);
}

#[test]
fn the_next_helper_of_an_app_waits_for_the_one_before() {
    let slow = format!(
        "test -e \"$0.in\" && exit 1; touch \"$0.in\"\n{}{LEAVE}sleep 0.2; rm \"$0.in\"",
        accept()
    );
    let (_dir, transport) = transport(110, &slow);
    drop(transport.open(&request(), TIMEOUT, &GO).unwrap());
    assert!(transport.open(&request(), TIMEOUT, &GO).is_ok());
}

#[test]
fn a_helper_that_hangs_is_abandoned_at_the_timeout() {
    let (_dir, transport) =
        transport(111, &format!("echo 'waiting for the app' >&2\n{LISTEN}{LEAVE}"));
    let Transport::Pdump(pdump) = &transport else { panic!() };
    let error = attach(pdump, &request(), Duration::from_millis(300), &GO).unwrap_err().to_string();
    assert!(error.contains("did not get into the app") && error.contains("waiting"), "{error}");
    assert!(wait_for_exits(111, TIMEOUT).is_empty());
}

#[test]
fn attaching_ends_on_stop() {
    let (dir, transport) = transport(113, &format!("{LISTEN}touch \"$0.in\"\n{LEAVE}"));
    let (begin, stop) = (Instant::now(), AtomicBool::new(false));
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !dir.path().join("pmdscope-pdump.in").exists() && begin.elapsed() < TIMEOUT {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // Nothing else ends the wait.
        transport.open(&request(), Duration::from_secs(3600), &stop).unwrap_err()
    });
    assert!(matches!(error, TransportError::Session(SessionError::Stopped)), "{error}");
    assert!(wait_for_exits(113, TIMEOUT).is_empty());
}

#[test]
fn no_helper_is_started_after_stop() {
    let (dir, transport) = transport(114, "touch \"$0.in\"");
    let error = transport.open(&request(), TIMEOUT, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, TransportError::Session(SessionError::Stopped)), "{error}");
    assert!(wait_for_exits(114, TIMEOUT).is_empty());
    assert!(!dir.path().join("pmdscope-pdump.in").exists());
}

#[test]
fn signals_of_the_terminal_do_not_reach_a_helper() {
    let tell = "ps -o pgid= -p $$ >\"$0.group\"\n";
    let (dir, _session) = open(112, &format!("{tell}{}{LEAVE}", accept())).unwrap();
    let group = std::fs::read_to_string(dir.path().join("pmdscope-pdump.group")).unwrap();
    let ours = rustix::process::getpgrp().as_raw_nonzero().to_string();
    assert_ne!(group.trim(), ours);
}
