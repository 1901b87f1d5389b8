//! Tests of samples with data of a tracer.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use pmdscope_telemetry::sample::{Sample, StolenCause, StolenSample, TracingSample};
use pmdscope_telemetry::{LcoreTracer, SampleCollector};
use support::{FakeApp, Recording};

#[derive(Debug)]
struct CountingTracer;

impl LcoreTracer for CountingTracer {
    fn complete(&self, sample: &mut Sample) {
        let stolen = StolenSample {
            lcore: 1,
            cause: StolenCause::Irq,
            thief: format!("of {}", sample.app.pid),
            count: u64::from(sample.requests),
            stolen_ns: None,
            longest_ns: None,
            longest_realtime_ns: None,
        };
        sample.tracing = Some(TracingSample { stolen: vec![stolen], ..TracingSample::default() });
    }
}

#[test]
fn a_tracer_sees_the_whole_sample_and_adds_to_it() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let collector = SampleCollector::new(app.app());
    let mut collector = collector.with_tracer(Some(Arc::new(CountingTracer)));
    let sample = collector.collect(Duration::from_secs(5)).unwrap();
    let stolen = &sample.tracing.as_ref().unwrap().stolen[0];
    assert_eq!(stolen.thief, format!("of {}", std::process::id()));
    assert_eq!(stolen.count, u64::from(sample.requests));
    let json = serde_json::to_string(&sample).unwrap();
    assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
}
