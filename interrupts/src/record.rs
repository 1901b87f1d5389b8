//! Parses the lines that bpftrace prints.

use std::collections::BTreeMap;

use serde_json::Value;

/// Number of buckets of a histogram: each from 2^n to 2^(n+1) nanoseconds, the last one open-ended
/// (from 9 minutes).
pub const HISTOGRAM_BUCKETS: usize = 40;

/// Histograms of one kind of event, by thread.
pub(crate) type Histograms = BTreeMap<u32, [u64; HISTOGRAM_BUCKETS]>;

/// Kind of an event, as in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    Irq,
    Timer,
    Vector,
    Softirq,
    Run,
    Sleep,
    Signal,
    PageFault,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An event with its time.
    Event(EventRecord),
    /// Counts and sums of all events of a kind so far.
    Totals(EventKind, Vec<TotalRecord>),
    /// Histograms of all events of a kind so far, by thread.
    Histograms(EventKind, Histograms),
    /// Number of switches so far of which the end was not seen.
    Unended(u64),
    /// Number of lines lost since the last such record.
    Lost(u64),
    /// All probes are attached; the monotonic clock, nanoseconds.
    Live(u64),
    /// A thread has ended.
    Exit(u32),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRecord {
    pub(crate) kind: EventKind,
    /// Monotonic clock, nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) tid: u32,
    pub(crate) id: u64,
    pub(crate) who: String,
}

/// All events of a thread with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TotalRecord {
    pub(crate) tid: u32,
    pub(crate) id: u64,
    pub(crate) who: String,
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
}

impl EventKind {
    fn of_map(name: &str) -> Option<Self> {
        Some(match name {
            "@irq" => Self::Irq,
            "@timer" => Self::Timer,
            "@vector" => Self::Vector,
            "@softirq" => Self::Softirq,
            "@run" => Self::Run,
            "@sleep" => Self::Sleep,
            "@signal" => Self::Signal,
            "@page_fault" => Self::PageFault,
            _ => return None,
        })
    }
}

/// Parses one line; `None` if it is not known.
pub(crate) fn parse(line: &str) -> Option<Record> {
    let line: Value = serde_json::from_str(line).ok()?;
    let data = line.get("data")?;
    match line.get("type")?.as_str()? {
        "value" => value(data.as_array()?),
        "lost_events" => Some(Record::Lost(data.get("events")?.as_u64()?)),
        "stats" => {
            let (name, map) = only_map(data)?;
            let kind = EventKind::of_map(name)?;
            Some(Record::Totals(kind, map.iter().filter_map(|(k, v)| total(kind, k, v)).collect()))
        }
        "hist" => {
            let (name, map) = only_map(data)?;
            let kind = EventKind::of_map(name.strip_suffix("_hist")?)?;
            let of = |(key, value): (&String, &Value)| Some((key.parse().ok()?, histogram(value)?));
            Some(Record::Histograms(kind, map.iter().filter_map(of).collect()))
        }
        "map" => counts(data.as_object()?),
        _ => None,
    }
}

fn only_map(data: &Value) -> Option<(&str, &serde_json::Map<String, Value>)> {
    let (name, map) = data.as_object()?.iter().next()?;
    Some((name, map.as_object()?))
}

fn counts(data: &serde_json::Map<String, Value>) -> Option<Record> {
    data.get("@unended")?.as_u64().map(Record::Unended)
}

fn value(fields: &[Value]) -> Option<Record> {
    let number = |index: usize| fields.get(index)?.as_u64();
    let small = |index: usize| u32::try_from(number(index)?).ok();
    let word = fields.first()?.as_str()?;
    let kind = match word {
        "live" => return number(1).map(Record::Live),
        "exit" => return small(4).map(Record::Exit),
        // The local timer of x86.
        "vector" if number(5) == Some(crate::thief::LOCAL_TIMER) => EventKind::Timer,
        _ => EventKind::of_map(&format!("@{word}"))?,
    };
    let who = fields.get(6).and_then(Value::as_str).unwrap_or_default();
    Some(Record::Event(EventRecord {
        kind,
        start_ns: number(1)?,
        duration_ns: number(2)?,
        cpu: small(3)?,
        tid: small(4)?,
        id: number(5)?,
        who: who.to_owned(),
    }))
}

/// Parses a total. The name of a thread comes last, since it may contain commas.
fn total(kind: EventKind, key: &str, value: &Value) -> Option<TotalRecord> {
    let mut parts = key.splitn(if kind == EventKind::Run { 2 } else { 3 }, ',');
    let tid = parts.next()?.parse().ok()?;
    let id = if kind == EventKind::Run { 0 } else { parts.next()?.parse().ok()? };
    Some(TotalRecord {
        tid,
        id,
        who: parts.next().unwrap_or_default().to_owned(),
        count: value.get("count")?.as_u64()?,
        total_ns: value.get("total")?.as_u64()?,
    })
}

fn histogram(value: &Value) -> Option<[u64; HISTOGRAM_BUCKETS]> {
    let mut buckets = [0; HISTOGRAM_BUCKETS];
    for bucket in value.as_array()? {
        let from = bucket.get("min").and_then(Value::as_u64).unwrap_or(0);
        let count = bucket.get("count")?.as_u64()?;
        buckets[bucket_of(from)] += count;
    }
    Some(buckets)
}

/// Returns the bucket of a duration.
pub(crate) fn bucket_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2() as usize;
    power.min(HISTOGRAM_BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_read() {
        let line =
            r#"{"type": "value", "data": ["run",36250291934073,3102,1,31477,99,"a, \"b\""]}"#;
        let Some(Record::Event(event)) = parse(line) else { panic!("{line}") };
        assert_eq!((event.kind, event.tid, event.id), (EventKind::Run, 31477, 99));
        assert_eq!((event.start_ns, event.duration_ns, event.cpu), (36_250_291_934_073, 3102, 1));
        assert_eq!(event.who, "a, \"b\"");
        let line = r#"{"type": "value", "data": ["vector",1,2,1,7,236,""]}"#;
        assert!(matches!(parse(line), Some(Record::Event(e)) if e.kind == EventKind::Timer));
        let line = r#"{"type": "value", "data": ["softirq",1,2,1,7,259]}"#;
        assert!(matches!(parse(line), Some(Record::Event(e)) if e.id == 259 && e.who.is_empty()));
    }

    #[test]
    fn totals_are_read_by_thread_and_thief() {
        let line = r#"{"type": "stats", "data": {"@run": {"17,a,b": {"count": 59, "average": 714, "total": 42155}}}}"#;
        let who = "a,b".to_owned();
        let total = TotalRecord { tid: 17, id: 0, who, count: 59, total_ns: 42155 };
        assert_eq!(parse(line), Some(Record::Totals(EventKind::Run, vec![total])));
        let line = r#"{"type": "stats", "data": {"@vector": {"17,251,": {"count": 1, "average": 7, "total": 7}, "x": {}}}}"#;
        let total = TotalRecord { tid: 17, id: 251, who: String::new(), count: 1, total_ns: 7 };
        assert_eq!(parse(line), Some(Record::Totals(EventKind::Vector, vec![total])));
        let line = r#"{"type": "stats", "data": {"@page_fault": {"17,0": {"count": 2, "average": 4, "total": 9}}}}"#;
        let total = TotalRecord { tid: 17, id: 0, who: String::new(), count: 2, total_ns: 9 };
        assert_eq!(parse(line), Some(Record::Totals(EventKind::PageFault, vec![total])));
        let line = r#"{"type": "stats", "data": {"@irq": {}}}"#;
        assert_eq!(parse(line), Some(Record::Totals(EventKind::Irq, vec![])));
    }

    #[test]
    fn histograms_and_counts_are_read() {
        let line = r#"{"type": "hist", "data": {"@irq_hist": {"7": [{"max": -1, "count": 1}, {"min": 0, "max": 0, "count": 1}, {"min": 512, "max": 1023, "count": 30}]}}}"#;
        let Some(Record::Histograms(EventKind::Irq, map)) = parse(line) else { panic!("{line}") };
        assert_eq!((map[&7][0], map[&7][9], map[&7][10]), (2, 30, 0));
        let line = r#"{"type": "map", "data": {"@page_fault": {"7": 3}}}"#;
        assert_eq!(parse(line), None);
        let line = r#"{"type": "map", "data": {"@unended": 0}}"#;
        assert_eq!(parse(line), Some(Record::Unended(0)));
        let line = r#"{"type": "lost_events", "data": {"events": 12}}"#;
        assert_eq!(parse(line), Some(Record::Lost(12)));
        let line = r#"{"type": "value", "data": ["live",36252045203275]}"#;
        assert_eq!(parse(line), Some(Record::Live(36_252_045_203_275)));
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(bucket_of), [0, 0, 1, 1, 2, 9, 10]);
        assert_eq!(bucket_of(u64::MAX), HISTOGRAM_BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line: String, key: String, number: i64) {
            let _ = parse(&line);
            let name = serde_json::to_string(&key).unwrap();
            for kind in ["@irq", "@vector", "@run", "@sleep", "@irq_hist", "@page_fault", "@unended"] {
                for shape in ["stats", "hist", "map", "value"] {
                    let _ = parse(&format!(
                        r#"{{"type": "{shape}", "data": {{"{kind}": {{{name}: {{"count": {number}, "total": {number}}}}}}}}}"#
                    ));
                    let _ = parse(&format!(
                        r#"{{"type": "{shape}", "data": {{"{kind}": {{"{number}": [{{"min": {number}, "count": 1}}]}}}}}}"#
                    ));
                }
            }
            let _ = parse(&format!(r#"{{"type": "value", "data": ["irq", {number}, {number}, {number}, {number}, {number}, {name}]}}"#));
        }

        #[test]
        fn an_event_is_read_as_it_was_printed(
            start_ns: u64, duration_ns: u64, cpu: u32, tid: u32, id: u64, who: String
        ) {
            let name = serde_json::to_string(&who).unwrap();
            let line = format!(
                r#"{{"type": "value", "data": ["irq",{start_ns},{duration_ns},{cpu},{tid},{id},{name}]}}"#
            );
            let kind = EventKind::Irq;
            let event = EventRecord { kind, start_ns, duration_ns, cpu, tid, id, who };
            prop_assert_eq!(parse(&line), Some(Record::Event(event)));
        }
    }
}
