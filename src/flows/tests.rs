//! Tests of when captures begin and end, without apps.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// All apps that run.
const RUN: AppRun = AppRun { pid: 7, start_ticks: 1000 };

/// Publishes the access that it has for an app; if that is armed, runs until it is asked to end.
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

    fn answer(&self, job: &SamplerJob) {
        let app = &job.running.app;
        let access = match self.find(app) {
            CaptureAccess::Offered if job.attach == Some(RUN) => {
                CaptureAccess::Armed { via: Some("pdump") }
            }
            other => other,
        };
        job.tell(access.clone());
        let is_armed =
            || matches!(self.find(app), CaptureAccess::Armed { .. } | CaptureAccess::Offered);
        while matches!(access, CaptureAccess::Armed { .. }) && is_armed() {
            if job.control.stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        job.tell(self.find(app));
    }

    fn captures(&self) -> AppCaptures {
        let apps = self.clone();
        AppCaptures::with(Arc::new(move |job: SamplerJob| apps.answer(&job)))
    }
}

fn wanting(apps: &[&str], attach: &[&str]) -> FlowRequest {
    let running = |app: &&str| RequestedApp { app: (*app).to_owned(), run: RUN, pps: None };
    FlowRequest {
        shown: true,
        apps: apps.iter().map(running).collect(),
        attach: attach.iter().map(|app| ((*app).to_owned(), RUN)).collect(),
        over: false,
    }
}

/// Waits until the app is accessed in that way.
fn becomes(captures: &mut AppCaptures, app: &str, access: &CaptureAccess) {
    let is =
        |captures: &mut AppCaptures| captures.traffic().find(app).map(|tap| tap.access.clone());
    let end = Instant::now() + 5 * SECOND;
    while is(captures).as_ref() != Some(access) {
        assert!(Instant::now() < end, "{app}: {:?}", is(captures));
        thread::sleep(Duration::from_millis(1));
    }
}

fn settles(captures: &mut AppCaptures, request: &FlowRequest, now: Instant) {
    let end = Instant::now() + 5 * SECOND;
    while !captures.leaving.is_empty() {
        assert!(Instant::now() < end, "a capture goes on");
        thread::sleep(Duration::from_millis(1));
        captures.apply(request, now);
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
    captures.apply(&FlowRequest { shown: false, ..wanting(&["fwd"], &[]) }, start);
    assert!(captures.is_idle(), "nobody looks");
    let shown = wanting(&["fwd"], &[]);
    captures.apply(&shown, start);
    becomes(&mut captures, "fwd", &ARMED);
    let away = FlowRequest { shown: false, ..shown.clone() };
    captures.apply(&away, start + SECOND);
    captures.apply(&away, start + 5 * SECOND);
    assert!(!captures.is_idle());
    captures.apply(&shown, start + 5 * SECOND);
    captures.apply(&away, start + 7 * SECOND);
    captures.apply(&away, start + 11 * SECOND);
    assert!(!captures.is_idle(), "somebody was there again meanwhile");
    captures.apply(&away, start + 12 * SECOND);
    assert!(captures.is_idle());
    settles(&mut captures, &away, start + 12 * SECOND);
}

#[test]
fn captures_end_at_once_with_the_display() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.apply(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &ARMED);
    let over = FlowRequest { over: true, ..FlowRequest::default() };
    captures.apply(&over, start);
    assert!(captures.is_idle());
    captures.stop();
    assert!(captures.leaving.iter().all(SamplerThread::is_over));
}

#[test]
fn what_was_counted_stays_when_reports_end() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let mut captures = apps.captures();
    captures.apply(&wanting(&["fwd"], &[]), Instant::now());
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
    captures.apply(&request, start);
    becomes(&mut captures, "fwd", &refused());
    wait_until(|| captures.apps["fwd"].sampler.as_ref().is_none_or(SamplerThread::is_over));
    captures.update(start);
    apps.set("fwd", ARMED);
    captures.apply(&request, start + 2 * SECOND);
    assert!(captures.apps["fwd"].sampler.is_none(), "too early");
    captures.apply(&request, start + 9 * SECOND);
    becomes(&mut captures, "fwd", &ARMED);

    apps.set("fwd", CaptureAccess::Ended);
    becomes(&mut captures, "fwd", &CaptureAccess::Ended);
    captures.apply(&wanting(&[], &[]), start + 10 * SECOND);
    assert!(!captures.is_idle(), "its conversations are still shown");
    apps.set("fwd", ARMED);
    wait_until(|| captures.apps["fwd"].sampler.as_ref().is_none_or(SamplerThread::is_over));
    captures.update(start + 10 * SECOND);
    captures.apply(&request, start + 20 * SECOND);
    becomes(&mut captures, "fwd", &ARMED);
    captures.stop();
}

#[test]
fn an_app_that_is_gone_is_listed_no_more() {
    let apps = Apps::default();
    apps.set("fwd", refused());
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.apply(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &refused());
    wait_until(|| captures.apps["fwd"].sampler.as_ref().is_none_or(SamplerThread::is_over));
    captures.apply(&wanting(&[], &[]), start);
    assert!(captures.is_idle());
}

#[test]
fn a_capture_outlives_telemetry_that_does_not_answer() {
    let apps = Apps::default();
    apps.set("fwd", ARMED);
    let (mut captures, start) = (apps.captures(), Instant::now());
    captures.apply(&wanting(&["fwd"], &[]), start);
    becomes(&mut captures, "fwd", &ARMED);
    captures.apply(&wanting(&[], &[]), start + SECOND);
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
    captures.apply(&asked, start);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    wait_until(|| captures.apps["testpmd"].sampler.as_ref().is_none_or(SamplerThread::is_over));
    captures.apply(&asked, start + 20 * SECOND);
    assert!(captures.apps["testpmd"].sampler.is_none(), "nobody has pressed the key");

    captures.apply(&wanting(&names, &["testpmd"]), start + 20 * SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Armed { via: Some("pdump") });
    becomes(&mut captures, "fwd", &ARMED);
    captures.apply(&asked, start + 21 * SECOND);
    assert_eq!(captures.apps["testpmd"].access, CaptureAccess::Offered);
    assert_eq!(captures.apps["fwd"].access, ARMED, "the others go on");
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
    captures.apply(&request, start);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    wait_until(|| captures.apps["testpmd"].sampler.as_ref().is_none_or(SamplerThread::is_over));
    captures.apply(&request, start + SECOND);
    assert!(captures.apps["testpmd"].sampler.is_none(), "it was asked once");

    captures.apply(&wanting(&["testpmd"], &["testpmd"]), start + SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Armed { via: Some("pdump") });
    captures.apply(&request, start + SECOND);
    becomes(&mut captures, "testpmd", &CaptureAccess::Offered);
    settles(&mut captures, &request, start + SECOND);
    captures.stop();
}

#[test]
fn reports_start_no_helper_and_say_so() {
    let tap = AppTraffic {
        app: "testpmd".into(),
        access: CaptureAccess::Offered,
        counted: Arc::default(),
    };
    let traffic = without_helpers(CapturedTraffic { realtime_ns: 0, taps: vec![tap] });
    let CaptureAccess::Refused { reason } = &traffic.taps[0].access else { panic!("{traffic:?}") };
    assert!(reason.contains("netstat -a testpmd"), "{reason}");
}
