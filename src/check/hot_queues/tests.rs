use pmdscope_telemetry::FleetEvent;
use pmdscope_telemetry::finding::{Finding, Severity};
use pmdscope_telemetry::model::{Model, QueueRates};
use pmdscope_telemetry::sample::{LibrarySample, PortSample, QueueDirection, Sample};

use super::*;
use crate::netstat::fixture::{counts, end, flow};

/// Conversations of so many received packets, of which one in four was sampled.
fn counted(packets: &[u64]) -> FlowSnapshot {
    let remotes = 40_000..;
    let flow = |(port, packets): (u16, &u64)| {
        flow(6, end("10.0.0.1", 443), end("192.0.2.8", port), *packets, 0)
    };
    let all = packets.iter().sum::<u64>();
    FlowSnapshot {
        flows: remotes.zip(packets).map(flow).collect(),
        total: counts(all, all * 100),
        looked_at: all / 4,
        sample: 4,
        ..FlowSnapshot::default()
    }
}

#[test]
fn the_conversation_with_most_packets_is_named_with_its_share() {
    let text = cause(&counted(&[1_000, 14_268, 1_132]));
    assert_eq!(
        text,
        "most of it tcp 10.0.0.1:443 <-> 192.0.2.8:40001, 87 % of 4,100 sampled packets"
    );
}

#[test]
fn many_conversations_are_not_blamed_on_one() {
    let even = cause(&counted(&[400; 33]));
    assert_eq!(even, "no single conversation: the largest has 3 % of 3,300 sampled packets");
    let tiny = cause(&counted(&[4; 1000]));
    assert!(tiny.contains("the largest has less than 1 % of 1,000"), "{tiny}");
}

#[test]
fn what_the_capture_missed_is_told() {
    let lossy = cause(&FlowSnapshot { lost: 1_234, ..counted(&[4_000]) });
    assert!(lossy.ends_with("100 % of 1,000 sampled packets (1,234 more were lost)"), "{lossy}");
    assert_eq!(cause(&FlowSnapshot::default()), "no conversation in 0 sampled packets");
}

/// A port whose queue 1 is hot, in that run of the app.
fn fleet(pid: u32) -> FleetState {
    let port = PortSample { device: "net0".to_owned(), ..PortSample::default() };
    let mut sample = Sample { ports: vec![port], ..Sample::default() };
    sample.app.pid = pid;
    sample.library = Some(LibrarySample::default());
    let rates = |queue, pps| QueueRates {
        port: 0,
        queue,
        direction: QueueDirection::Rx,
        pps: Some(pps),
        bps: None,
        refused_ps: None,
        refused_packets: None,
        polls_ps: None,
        busy_ratio: None,
        mean_burst: None,
        share: None,
        missed_ps: None,
    };
    let queues = vec![rates(0, 10.0), rates(1, 9_000.0)];
    let model = Model { sample, queues, interval_s: Some(1.0), ..Model::default() };
    let finding = |lint| Finding {
        lint,
        severity: Severity::Info,
        app: "fwd".to_owned(),
        subject: FindingSubject::Port("net0".to_owned()),
        evidence: "queue 1 is hot".to_owned(),
        threshold: String::new(),
        advice: String::new(),
        causes: Vec::new(),
        weight: 0.0,
    };
    let findings = vec![finding(LINT), finding(Lint::LinkDown)];
    let mut fleet = FleetState::default();
    fleet.apply(FleetEvent::Sampled { app: "fwd".to_owned(), model: Arc::new(model), findings });
    fleet
}

fn evidence(fleet: &FleetState) -> Vec<&str> {
    fleet.apps[0].findings.iter().map(|finding| finding.evidence.as_str()).collect()
}

fn capture_of(run: AppIdentity, found: Result<Arc<FlowSnapshot>>) -> Capture {
    Capture {
        app: "fwd".to_owned(),
        device: "net0".to_owned(),
        queue: 1,
        run,
        begun: Instant::now(),
        control: RunControl::default(),
        thread: thread::spawn(move || found),
    }
}

/// The finding about the hot queue of run 7 after a capture with this result.
fn explained(found: Result<Arc<FlowSnapshot>>, pid_at_end: u32) -> String {
    let mut queues = HotQueues::new(FleetSettings::default(), Instant::now());
    let before = fleet(7);
    queues.note(&before);
    queues.capture =
        Some(capture_of(before.apps[0].model.as_ref().unwrap().sample.app.clone(), found));
    let mut fleet = fleet(pid_at_end);
    queues.explain(&mut fleet);
    assert_eq!(evidence(&fleet)[0], "queue 1 is hot", "another finding stays as it is");
    evidence(&fleet)[1].to_owned()
}

#[test]
fn the_finding_tells_what_the_capture_found_or_why_there_was_none() {
    let found = explained(Ok(Arc::new(counted(&[4_000]))), 7);
    assert!(found.starts_with("queue 1 is hot; most of it tcp 10.0.0.1:443"), "{found}");
    let refused = explained(Err(anyhow!("no permission").context("cannot capture from fwd")), 7);
    assert_eq!(
        refused,
        "queue 1 is hot; its conversations are not known: cannot capture from fwd: no permission"
    );
    let restarted = explained(Ok(Arc::new(counted(&[4_000]))), 8);
    assert!(restarted.ends_with("not known: the app was restarted meanwhile"), "{restarted}");
}

#[test]
fn missed_packets_of_a_hot_queue_name_its_conversation() {
    let mut fleet = fleet(7);
    let missed = fleet.apps[0].findings.iter_mut().find(|finding| finding.lint != LINT).unwrap();
    missed.lint = Lint::RxMissed;
    let cause =
        |cause, evidence: &str| FindingCause { cause, share: None, evidence: evidence.into() };
    missed.causes =
        vec![cause(MissedCause::HotQueue, "queue 1"), cause(MissedCause::SlowClock, "slow")];
    let mut queues = HotQueues::new(FleetSettings::default(), Instant::now());
    queues.note(&fleet);
    let run = fleet.apps[0].model.as_ref().unwrap().sample.app.clone();
    queues.capture = Some(capture_of(run, Ok(Arc::new(counted(&[4_000])))));
    queues.explain(&mut fleet);
    let missed =
        fleet.apps[0].findings.iter().find(|finding| finding.lint == Lint::RxMissed).unwrap();
    let told = &missed.causes[0].evidence;
    assert!(told.starts_with("queue 1; most of it tcp 10.0.0.1:443"), "{told}");
    assert_eq!(missed.causes[1].evidence, "slow");
}

#[test]
fn a_queue_that_was_hot_too_late_is_no_mystery() {
    let mut fleet = fleet(7);
    let mut queues = HotQueues::new(FleetSettings::default(), Instant::now());
    queues.note(&fleet);
    queues.explain(&mut fleet);
    assert!(evidence(&fleet)[1].ends_with(NO_TIME), "{:?}", evidence(&fleet));
}
