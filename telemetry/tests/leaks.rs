//! Tests of the leak ledger of an app, and of the only request that changes something.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pmdscope_telemetry::finding::{self, Lint};
use pmdscope_telemetry::sample::{LedgerMode, Sample, SiteKind};
use pmdscope_telemetry::{
    ArmReply, ArmTime, LintRules, ModelTracker, SampleCollector, TelemetryError,
};
use support::{FakeApp, Recording};

/// Long, since machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(5);

const LEAKS: &str = r#"{"/pmdscope/leaks":{"schema":1,"generation":3,"offset":0,"total":1,
    "name":["pool"],"size":[1000],"common":[400],"cached":[100],"rx_posted":[256],"tx_pending":[32],
    "rings":[12],"held":[90],"leaked":[110],"unplaced":[0],"lost_at_least":[0],"prearm":[10],
    "armed":[1],"mode":["auto"],"slope_milli":[5000],"exhausted_in_ms":[100000],
    "first_leak_realtime_ns":[1767323045000000000],"walks":[9],"walk_us":[40],"double_frees":[0],
    "use_after_frees":[0]}}"#;

const SITES: &str = r#"{"/pmdscope/sites":{"schema":1,"generation":3,"offset":0,"total":2,
    "pool":["pool","pool"],"site":["before arming","app.c:18"],"function":["","forward"],
    "operation":["","rx"],"kind":["leak","leak"],"id":[0,4],"count":[10,100],"events":[10,100],
    "oldest_ms":[9000,8000],"newest_ms":[8500,3],"first_realtime_ns":[1,2]}}"#;

const STAGES: &str = r#"{"/pmdscope/stages":{"schema":1,"generation":3,"offset":0,"total":1,
    "stage":["reassembly"],"held":[90],"hold":[1],"bound_ms":[0],"longest_ms":[1200]}}"#;

/// Returns the replies of an app with libpmdscope that leaks.
fn leaking() -> Recording {
    let recording = Recording::read("dpdk-22.11/pmdscope-reflector.jsonl");
    let library = recording.answer("/pmdscope");
    let library = library.replace(r#""tee"]"#, r#""tee","leaks","sites","stages"]"#);
    assert!(library.contains("stages"), "{library}");
    recording
        .with("/pmdscope", &library)
        .with("/pmdscope/leaks", LEAKS)
        .with("/pmdscope/sites", SITES)
        .with("/pmdscope/stages", STAGES)
}

fn collect(recording: &Recording) -> Sample {
    let app = FakeApp::replay(recording);
    SampleCollector::new(app.app()).collect(TIMEOUT).unwrap()
}

#[test]
fn ledger_sites_and_stages_are_collected_and_judged() {
    let sample = collect(&leaking());
    assert_eq!(sample.partial, Vec::<String>::new());
    assert_eq!((sample.ledger[0].leaked, sample.ledger[0].mode), (110, LedgerMode::Auto));
    assert_eq!(sample.sites.iter().map(|site| site.count).collect::<Vec<_>>(), [100, 10]);
    assert_eq!((sample.sites[0].kind, sample.sites[0].id), (SiteKind::Leak, 4));
    assert!(sample.stages[0].hold);
    let model = ModelTracker::default().update(sample);
    let findings = finding::evaluate(&model, &LintRules::default());
    let leaks: Vec<_> = findings.iter().filter(|f| f.lint == Lint::Leak).collect();
    let subjects: Vec<_> = leaks.iter().map(|finding| finding.subject.to_string()).collect();
    assert_eq!(subjects, ["pool app.c:18", "pool before arming"]);
}

#[test]
fn leaks_and_double_frees_of_a_pipeline_are_reported_by_line() {
    let sample = collect(&Recording::read("dpdk-22.11/pmdscope-leaking.jsonl"));
    assert_eq!(sample.partial, Vec::<String>::new());
    let [clones, packets] = &sample.ledger[..] else { panic!("{:?}", sample.ledger) };
    assert_eq!((clones.leaked, clones.sum()), (0, 8191));
    assert_eq!((packets.leaked, packets.rings, packets.double_frees), (88, 1023, 18));
    assert_eq!((packets.mode, packets.armed, packets.opaque), (LedgerMode::Always, true, false));
    let sites = sample.sites.iter().map(|site| (site.brief_place(), site.kind, site.count));
    let expected = [
        ("faults.c:115 early_return()".to_owned(), SiteKind::Leak, 59),
        ("faults.c:85 tx_reject()".to_owned(), SiteKind::Leak, 29),
        ("faults.c:203 double_free()".to_owned(), SiteKind::DoubleFree, 18),
    ];
    assert_eq!(sites.collect::<Vec<_>>(), expected);
    assert_eq!(sample.stages.iter().map(|stage| stage.held).sum::<u64>(), 27);
    let model = ModelTracker::default().update(sample);
    let findings = finding::evaluate(&model, &LintRules::default());
    let lints: Vec<_> = findings.iter().map(|finding| finding.lint).collect();
    assert_eq!(lints, [Lint::DoubleFree, Lint::Leak, Lint::Leak]);
}

#[test]
fn a_ledger_that_does_not_add_up_is_shown_and_named() {
    let wrong = LEAKS.replace(r#""held":[90]"#, r#""held":[95]"#);
    let sample = collect(&leaking().with("/pmdscope/leaks", &wrong));
    assert_eq!(sample.ledger[0].held, 95);
    assert_eq!(
        sample.partial,
        ["/pmdscope/leaks: the ledger of pool adds up to 1005 of 1000 mbufs"]
    );
}

#[test]
fn an_app_without_a_ledger_is_not_asked_for_one() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, recording) =
        (Arc::clone(&asked), Recording::read("dpdk-22.11/pmdscope-reflector.jsonl"));
    let app = FakeApp::start(move |connection| {
        connection.serve(|request| {
            log.lock().unwrap().push(request.to_owned());
            recording.answer(request)
        });
    });
    let sample = SampleCollector::new(app.app()).collect(TIMEOUT).unwrap();
    assert!(sample.ledger.is_empty() && sample.partial.is_empty(), "{:?}", sample.partial);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().any(|request| request == "/pmdscope/pools"));
    for table in ["leaks", "sites", "stages", "arm"] {
        assert!(!asked.iter().any(|request| request.contains(table)), "{table}");
    }
}

#[test]
fn arming_reports_its_result() {
    let recording = leaking()
        .with("/pmdscope/arm,60", r#"{"/pmdscope/arm":{"armed":1,"mode":"auto"}}"#)
        .with("/pmdscope/arm,0", r#"{"/pmdscope/arm":{"armed":0,"mode":"never"}}"#);
    let app = FakeApp::replay(&recording);
    let mut collector = SampleCollector::new(app.app());
    let minute = ArmTime::seconds(60).unwrap();
    let armed = collector.arm(minute, TIMEOUT).unwrap();
    assert_eq!(armed, ArmReply { armed: 1, mode: LedgerMode::Auto });
    let disarmed = collector.arm(ArmTime::NONE, TIMEOUT).unwrap();
    assert_eq!(disarmed, ArmReply { armed: 0, mode: LedgerMode::Never });
    assert_eq!(collector.collect(TIMEOUT).unwrap().ledger.len(), 1);
    let stock = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let refused = SampleCollector::new(stock.app()).arm(minute, TIMEOUT);
    assert!(matches!(refused, Err(TelemetryError::Null)), "{refused:?}");
}
