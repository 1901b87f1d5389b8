//! Small samples for the tests of this crate, and serialisation of a sample and back.

use proptest::prelude::*;

use super::*;
pub(crate) use crate::fixture::{pool, port, queue};

pub(crate) fn empty_sample() -> Sample {
    Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: 1_700_000_000_000_000_000,
        monotonic_ns: 1,
        duration_ns: 100_000,
        requests: 3,
        app: AppIdentity { name: "app".into(), pid: 7, start_ticks: 70, ..Default::default() },
        ..Sample::default()
    }
}

proptest! {
    #[test]
    fn a_sample_survives_json(
        counters: [u64; 3],
        names in prop::collection::vec(".*", 0..4),
        link: Option<bool>,
    ) {
        let mut sample = empty_sample();
        sample.ports = vec![port(1, counters[0])];
        sample.ports[0].link_up = link;
        sample.pools = names.iter().map(|name| pool(name, counters[1], counters[2])).collect();
        sample.ports[0].xstats = names.iter().map(|n| (n.clone(), counters[2])).collect();
        sample.library = link.map(|_| LibrarySample::default());
        sample.partial = names;
        let json = serde_json::to_string(&sample).unwrap();
        prop_assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
    }

    #[test]
    fn any_text_reads_as_a_sample_or_fails(text: String) {
        let _ = serde_json::from_str::<Sample>(&text);
    }
}
