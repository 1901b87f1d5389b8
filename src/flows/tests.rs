//! Tests of when captures begin and end, without apps.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// All apps that run.
const RUN: AppRun = AppRun { pid: 7, start_ticks: 1000 };

/// Does what it finds for an app: says so, and if that is armed, goes on until it is told to end.
#[derive(Clone, Default)]
struct Apps(Arc<Mutex<Vec<(String, CaptureAccess)>>>);

impl Apps {
    fn set(&self, app: &str, access: CaptureAccess) {
        let mut apps = self.0.lock().unwrap();
        apps.retain(|(name, _)| name != app);
        apps.push((app.to_owned(), access));
    }

    fn find(&self, app: &str) -> CaptureAccess {
        let apps = self.0.lock().unwrap();
        apps.iter().find(|(name, _)| name == app).unwrap().1.clone()
    }

    fn answer(&self, errand: &Errand) {
        let app = &errand.running.app;
        let access = match self.find(app) {
            CaptureAccess::Offered if errand.attach == Some(RUN) => {
                CaptureAccess::Armed { via: Some("pdump") }
            }
            other => other,
        };
        errand.tell(access.clone());
        let is_armed =
            || matches!(self.find(app), CaptureAccess::Armed { .. } | CaptureAccess::Offered);
        while matches!(access, CaptureAccess::Armed { .. }) && is_armed() {
            if errand.control.stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        errand.tell(self.find(app));
    }

    fn captures(&self) -> Captures {
        let apps = self.clone();
        Captures::with(Arc::new(move |errand: Errand| apps.answer(&errand)))
    }
}

fn wanting(apps: &[&str], attach: &[&str]) -> FlowRequest {
    let running = |app: &&str| RunningApp { app: (*app).to_owned(), run: RUN, pps: None };
    FlowRequest {
        shown: true,
        apps: apps.iter().map(running).collect(),
        attach: attach.iter().map(|app| ((*app).to_owned(), RUN)).collect(),
        over: false,
    }
}

/// Waits until the app is accessed in that way.
fn becomes(captures: &mut Captures, app: &str, access: &CaptureAccess) {
    let is = |captures: &mut Captures| captures.traffic().find(app).map(|tap| tap.access.clone());
    let end = Instant::now() + 5 * SECOND;
    while is(captures).as_ref() != Some(access) {
        assert!(Instant::now() < end, "{app}: {:?}", is(captures));
        thread::sleep(Duration::from_millis(1));
    }
}

fn settles(captures: &mut Captures, request: &FlowRequest, now: Instant) {
    let end = Instant::now() + 5 * SECOND;
    while !captures.leaving.is_empty() {
        assert!(Instant::now() < end, "a capture goes on");
        thread::sleep(Duration::from_millis(1));
        captures.obey(request, now);
    }
}

fn refused() -> CaptureAccess {
    CaptureAccess::Refused { reason: "not now".to_owned() }
}

#[test]
fn captures_end_a_while_after_the_page_was_left() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.obey(&FlowRequest { shown: false, ..wanting(&["fwd"], &[]) }, start);
    assert!(captures.is_idle(), "nobody looks");
    let shown = wanting(&["fwd"], &[]);
    captures.obey(&shown, start);
    becomes(&mut captures, "fwd", &ARMED);
    let away = FlowRequest { shown: false, ..shown.clone() };
    captures.obey(&away, start + SECOND);
    captures.obey(&away, start + 5 * SECOND);
    assert!(!captures.is_idle());
    captures.obey(&shown, start + 5 * SECOND);
    captures.obey(&away, start + 7 * SECOND);
    captures.obey(&away, start + 11 * SECOND);
    assert!(!captures.is_idle(), "somebody was there again meanwhile");
    captures.obey(&away, start + 12 * SECOND);
    assert!(captures.is_idle());
    settles(&mut captures, &away, start + 12 * SECOND);
}

#[test]
fn captures_end_at_once_with_the_display() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.obey(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &ARMED);
    let over = FlowRequest { over: true, ..FlowRequest::default() };
    captures.obey(&over, start);
    assert!(captures.is_idle());
    captures.stop();
    assert!(captures.leaving.iter().all(Probe::is_over));
}

#[test]
fn what_was_counted_stays_when_reports_end() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let mut captures = apps.captures();
    captures.obey(&wanting(&["fwd"], &[]), Instant::now());
    becomes(&mut captures, "fwd", &ARMED);
    captures.stop();
    assert_eq!(captures.traffic().find("fwd").unwrap().access, ARMED);
}

#[test]
fn an_app_that_refuses_or_has_ended_is_asked_again() {
    let apps = Apps::default();
    apps.set("fwd", refused());
    let (mut captures, start) = (apps.captures(), Instant::now());
    let request = wanting(&["fwd"], &[]);
    captures.obey(&request, start);
    becomes(&mut captures, "fwd", &refused());
    wait_until(|| captures.seats["fwd"].probe.as_ref().is_none_or(Probe::is_over));
    captures.hear(start);
    apps.set("fwd", ARMED);
    captures.obey(&request, start + 2 * SECOND);
    assert!(captures.seats["fwd"].probe.is_none(), "too early");
    captures.obey(&request, start + 9 * SECOND);
    becomes(&mut captures, "fwd", &ARMED);

    apps.set("fwd", CaptureAccess::Ended);
    becomes(&mut captures, "fwd", &CaptureAccess::Ended);
    captures.obey(&wanting(&[], &[]), start + 10 * SECOND);
    assert!(!captures.is_idle(), "its conversations are still shown");
    apps.set("fwd", ARMED);
    wait_until(|| captures.seats["fwd"].probe.as_ref().is_none_or(Probe::is_over));
    captures.hear(start + 10 * SECOND);
    captures.obey(&request, start + 20 * SECOND);
    becomes(&mut captures, "fwd", &ARMED);
    captures.stop();
}

#[test]
fn an_app_that_is_gone_is_listed_no_more() {
    let apps = Apps::default();
    apps.set("fwd", refused());
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.obey(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &refused());
    wait_until(|| captures.seats["fwd"].probe.as_ref().is_none_or(Probe::is_over));
    captures.obey(&wanting(&[], &[]), start);
    assert!(captures.is_idle());
}

#[test]
fn a_capture_outlives_telemetry_that_does_not_answer() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.obey(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &ARMED);
    captures.obey(&wanting(&[], &[]), start + SECOND);
    assert_eq!(captures.traffic().find("fwd").unwrap().access, ARMED);
    captures.stop();
}

#[test]
fn a_helper_waits_for_the_user_and_leaves_with_his_consent() {
    let apps = Apps::default();
    apps.set("testpmd", CaptureAccess::Offered);
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    let names = ["fwd", "testpmd"];
    let asked = wanting(&names, &[]);
    captures.obey(&asked, start);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    wait_until(|| captures.seats["testpmd"].probe.as_ref().is_none_or(Probe::is_over));
    captures.obey(&asked, start + 20 * SECOND);
    assert!(captures.seats["testpmd"].probe.is_none(), "nobody has pressed the key");

    captures.obey(&wanting(&names, &["testpmd"]), start + 20 * SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Armed { via: Some("pdump") });
    becomes(&mut captures, "fwd", &ARMED);
    captures.obey(&asked, start + 21 * SECOND);
    assert_eq!(captures.seats["testpmd"].access, CaptureAccess::Offered);
    assert_eq!(captures.seats["fwd"].access, ARMED, "the others go on");
    settles(&mut captures, &asked, start + 21 * SECOND);
    captures.stop();
}

#[test]
fn a_helper_for_an_earlier_run_is_none_for_this_one() {
    let apps = Apps::default();
    apps.set("testpmd", CaptureAccess::Offered);
    let (mut captures, start) = (apps.captures(), Instant::now());
    let mut request = wanting(&["testpmd"], &["testpmd"]);
    let earlier = AppRun { start_ticks: 999, ..RUN };
    request.attach.insert("testpmd".to_owned(), earlier);
    captures.obey(&request, start);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    wait_until(|| captures.seats["testpmd"].probe.as_ref().is_none_or(Probe::is_over));
    captures.obey(&request, start + SECOND);
    assert!(captures.seats["testpmd"].probe.is_none(), "it was asked once");

    captures.obey(&wanting(&["testpmd"], &["testpmd"]), start + SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Armed { via: Some("pdump") });
    captures.obey(&request, start + SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    settles(&mut captures, &request, start + SECOND);
    captures.stop();
}

#[test]
fn reports_start_no_helper_and_say_so() {
    let tap = CapturedApp {
        app: "testpmd".into(),
        access: CaptureAccess::Offered,
        counted: Arc::default(),
    };
    let traffic = without_helpers(CapturedTraffic { realtime_ns: 0, taps: vec![tap] });
    let CaptureAccess::Refused { reason } = &traffic.taps[0].access else { panic!("{traffic:?}") };
    assert!(reason.contains("netstat -a testpmd"), "{reason}");
}
