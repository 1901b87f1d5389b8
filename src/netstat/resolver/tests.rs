use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::netstat::fixture::end;

/// More than any test waits for, unless it fails.
const LONG: Duration = Duration::from_secs(60);
const TCP: u8 = 6;

#[test]
fn names_are_shown_in_place_of_numbers_and_looked_up_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let names = NameResolver::with(move |key| {
        count.fetch_add(1, Ordering::Relaxed);
        match key {
            LookupKey::Host(addr) if addr.is_ipv4() => Some("web.example".to_owned()),
            LookupKey::Service { udp: false, port: 443 } => Some("https".to_owned()),
            _ => None,
        }
    })
    .unwrap();
    let (web, other) = (end("10.0.0.1", 443), end("2001:db8::1", 40_000));
    assert_eq!(names.endpoint(TCP, web), "10.0.0.1:443");
    for _ in 0..3 {
        names.look_up([(TCP, web), (TCP, other), (1, end("10.0.0.1", 0))].into_iter(), LONG);
    }
    assert_eq!(names.endpoint(TCP, web), "web.example:https");
    assert_eq!(names.endpoint(UDP, web), "web.example:443");
    assert_eq!(names.endpoint(1, end("10.0.0.1", 0)), "web.example");
    assert_eq!(names.endpoint(TCP, other), "[2001:db8::1]:40000");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn a_name_server_that_does_not_answer_holds_nothing_up() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let names = NameResolver::with(move |_| {
        let _ = held.lock().unwrap().recv();
        Some("late".to_owned())
    })
    .unwrap();
    let ends = (0..=u8::MAX).map(|host| (TCP, end(&format!("10.0.0.{host}"), 0)));
    names.look_up(ends, Duration::from_millis(1));
    assert_eq!(names.endpoint(TCP, end("10.0.0.1", 0)), "10.0.0.1");
    drop(release);
    names.look_up([(TCP, end("10.0.0.1", 0))].into_iter(), LONG);
    assert_eq!(names.endpoint(TCP, end("10.0.0.1", 0)), "late");
}

#[test]
fn a_screen_asks_for_what_it_shows_and_does_not_wait() {
    let (asked, requests) = mpsc::channel();
    let names = NameResolver::with(move |key| {
        asked.send(key).ok()?;
        Some("web".to_owned())
    })
    .unwrap();
    let web = end("10.0.0.1", 0);
    let first = names.endpoint_by_now(TCP, web);
    assert!(first == "10.0.0.1" || first == "web", "{first}");
    assert_eq!(requests.recv_timeout(LONG), Ok(LookupKey::Host(web.addr)));
    let begin = Instant::now();
    while names.endpoint_by_now(TCP, web) != "web" {
        assert!(begin.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(requests.try_recv().is_err(), "it is asked for once");
}

#[test]
fn what_is_kept_and_what_waits_is_bounded() {
    let names = NameResolver::with(|_| Some("host".to_owned())).unwrap();
    let all = u32::try_from(3 * CACHED).unwrap();
    let some = u32::try_from(WAITING / 2).unwrap();
    for first in (0..all).step_by(WAITING / 2) {
        let ends = (first..first + some)
            .map(|host| (TCP, FlowEndpoint { addr: Ipv4Addr::from(host).into(), port: 0 }));
        names.look_up(ends, LONG);
        assert!(names.0.lock().known.len() <= CACHED);
    }
    let (_release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let stuck = NameResolver::with(move |_| held.lock().ok()?.recv().ok().map(|()| String::new()));
    let stuck = stuck.unwrap();
    let ends =
        (0..all).map(|host| (TCP, FlowEndpoint { addr: Ipv4Addr::from(host).into(), port: 0 }));
    stuck.look_up(ends, Duration::ZERO);
    assert!(stuck.0.lock().pending.len() <= WAITING + THREADS);
}

#[test]
fn names_that_are_none_are_not_shown() {
    let hostile = ["", "a\u{1b}[2J", "a b", "two\nlines", "\u{202e}txt", &"a".repeat(254)];
    for name in hostile.map(ToOwned::to_owned) {
        let names = NameResolver::with(move |_| Some(name.clone())).unwrap();
        let web = end("10.0.0.1", 443);
        names.look_up([(TCP, web)].into_iter(), LONG);
        assert_eq!(names.endpoint(TCP, web), "10.0.0.1:443");
    }
}

/// As `/etc/hosts` and `/etc/services` have them everywhere.
#[test]
fn the_system_knows_this_host() {
    let names = NameResolver::start().unwrap();
    let this = end("127.0.0.1", 22);
    names.look_up([(TCP, this)].into_iter(), LONG);
    let shown = names.endpoint(TCP, this);
    assert!(["localhost", "127.0.0.1"].iter().any(|host| shown.starts_with(host)), "{shown}");
    assert!([":ssh", ":22"].iter().any(|port| shown.ends_with(port)), "{shown}");
}
