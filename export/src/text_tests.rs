//! Tests of both text formats with a separate parser.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::family::MetricSample;
use crate::{catalogue, fixture, metrics};

/// A series, as parsed.
#[derive(Clone, Debug, PartialEq)]
struct ParsedSeries {
    name: String,
    labels: Vec<(String, String)>,
    value: String,
}

/// Parses the text without code of the encoder; comments are skipped.
fn read(text: &str) -> Vec<ParsedSeries> {
    text.lines().filter(|line| !line.starts_with('#')).map(series).collect()
}

fn series(line: &str) -> ParsedSeries {
    let name_end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    while let Some(label) = rest.strip_prefix(['{', ',']) {
        let (key, quoted) = label.split_once("=\"").unwrap();
        let (value, behind) = unquote(quoted);
        labels.push((key.to_owned(), value));
        rest = behind;
    }
    let value = rest.strip_prefix('}').unwrap_or(rest).strip_prefix(' ').unwrap();
    ParsedSeries { name: name.to_owned(), labels, value: value.to_owned() }
}

/// Returns the text up to the closing quote, and the rest.
fn unquote(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next().unwrap() {
            '"' => return (value, chars.as_str()),
            '\\' => value.push(match chars.next().unwrap() {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

fn encoded(families: &[MetricFamily], format: TextFormat) -> String {
    let mut out = String::new();
    encode(families, format, &mut out);
    out
}

fn both(families: &[MetricFamily]) -> [String; 2] {
    [TextFormat::Text, TextFormat::OpenMetrics].map(|format| encoded(families, format))
}

fn one(
    metric: &'static MetricDescriptor,
    labels: &[&str],
    value: SampleValue,
) -> Vec<MetricFamily> {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    vec![MetricFamily { metric, samples: vec![MetricSample { labels, value }] }]
}

/// Returns the sample lines in text format 0.0.4.
fn lines(families: &[MetricFamily]) -> Vec<String> {
    let text = encoded(families, TextFormat::Text);
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn counters_are_exact() {
    let families = one(&catalogue::EXPORTER_COLLECTIONS, &[], SampleValue::Count(u64::MAX));
    assert_eq!(lines(&families), ["dpdk_exporter_collections_total 18446744073709551615"]);
}

#[test]
fn numbers_are_spelled_as_prometheus_reads_them() {
    for (number, spelled) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (0.0, "0"),
        (-0.25, "-0.25"),
        (1_700_000_000.25, "1700000000.25"),
        (1e-9, "1e-9"),
        (1e300, "1e300"),
    ] {
        let families = one(&catalogue::EXPORTER_SERIES, &[], SampleValue::Number(number));
        assert_eq!(lines(&families), [format!("dpdk_exporter_series {spelled}")]);
    }
}

#[test]
fn the_two_formats_differ_where_they_must() {
    let families = one(&catalogue::EXPORTER_BUILD_INFO, &["1"], SampleValue::Count(1));
    let [text, open] = both(&families);
    assert!(text.contains("# TYPE dpdk_exporter_build_info gauge\n"), "{text}");
    assert!(open.contains("# TYPE dpdk_exporter_build info\n"), "{open}");
    assert!(text.ends_with("\ndpdk_exporter_build_info{version=\"1\"} 1\n"), "{text}");
    assert!(open.ends_with("\ndpdk_exporter_build_info{version=\"1\"} 1\n# EOF\n"), "{open}");

    let families = one(&catalogue::PORT_RECEIVE_BYTES, &["a", "p"], SampleValue::Count(1));
    let [text, open] = both(&families);
    assert!(text.contains("# TYPE dpdk_port_receive_bytes_total counter\n"), "{text}");
    assert!(open.contains("# TYPE dpdk_port_receive_bytes counter\n"), "{open}");
    assert!(open.contains("# UNIT dpdk_port_receive_bytes bytes\n"), "{open}");
    assert!(!text.contains("UNIT"), "{text}");

    let [text, open] = both(&one(&catalogue::PORT_XSTAT, &["a", "p", "n"], SampleValue::Count(1)));
    assert!(text.contains("# TYPE dpdk_port_xstat untyped\n"), "{text}");
    assert!(open.contains("# TYPE dpdk_port_xstat unknown\n"), "{open}");
}

#[test]
fn a_label_without_a_value_is_left_out() {
    let families =
        one(&catalogue::PCI_DEVICE_INFO, &["fwd", "0000:03:00.0", ""], SampleValue::Count(1));
    assert_eq!(lines(&families), ["dpdk_pci_device_info{app=\"fwd\",bdf=\"0000:03:00.0\"} 1"]);
    let families = one(&catalogue::UP, &[""], SampleValue::Count(1));
    assert_eq!(lines(&families), ["dpdk_up 1"]);
}

#[test]
fn bounds_are_spelled_as_usual() {
    let buckets = [0.0, 1e-6, 1.6e-5, 0.000_128, 1.0, 1023.0, 2_097_152.0].map(|bound| (bound, 1));
    let told = Histogram { buckets: buckets.to_vec(), count: 2, sum: None };
    let families = one(&catalogue::LCORE_POLL_GAP, &["a", "1"], SampleValue::Histogram(told));
    let bounds: Vec<_> = read(&encoded(&families, TextFormat::Text))
        .into_iter()
        .map(|s| s.labels[2].1.clone())
        .collect();
    assert_eq!(
        bounds,
        ["0.0", "1e-06", "1.6e-05", "0.000128", "1.0", "1023.0", "2.097152e+06", "+Inf"]
    );
}

#[test]
fn an_unknown_sum_is_left_out() {
    let histogram =
        |sum| SampleValue::Histogram(Histogram { buckets: vec![(1.0, 2)], count: 3, sum });
    let of = |sum| {
        let families = one(&catalogue::QUEUE_BURST_PACKETS, &["a", "p", "0"], histogram(sum));
        let lines = lines(&families);
        assert_eq!(families[0].series(), lines.len());
        lines.iter().map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
    };
    let without: Vec<String> = of(None);
    assert_eq!(without, ["dpdk_queue_burst_packets_bucket"; 2]);
    let with: Vec<String> = of(Some(9.0));
    assert_eq!(with[2..], ["dpdk_queue_burst_packets_count", "dpdk_queue_burst_packets_sum"]);
}

#[test]
fn a_buffer_is_appended_to() {
    let mut out = "before\n".to_owned();
    encode(&one(&catalogue::UP, &["a"], SampleValue::Count(1)), TextFormat::Text, &mut out);
    assert!(out.starts_with("before\n# HELP dpdk_up "), "{out}");
    assert_eq!(encoded(&[], TextFormat::OpenMetrics), "# EOF\n");
}

#[test]
fn a_whole_state_as_text() {
    let (limits, expected) = (fixture::limits(), fixture::expected());
    let families = metrics::families(&fixture::fleet(), &fixture::context(&limits, &expected));
    let [text, open] = both(&families).map(|out| out.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    insta::assert_snapshot!("openmetrics", open);
    assert_eq!(read(&text), read(&open));
    assert_eq!(read(&text).len(), families.iter().map(MetricFamily::series).sum::<usize>());
}

/// Generates any text, and texts with characters that must be escaped.
fn label() -> impl Strategy<Value = String> {
    prop_oneof![".*", "[\\\\\"\n{},= ab]{0,12}"]
}

proptest! {
    #[test]
    fn any_label_reads_back(labels in [label(), label(), label()], count: u64) {
        let labels: LabelValues = labels.to_vec().into();
        let sample = MetricSample { labels: labels.clone(), value: SampleValue::Count(count) };
        let families = [MetricFamily { metric: &catalogue::PORT_XSTAT, samples: vec![sample] }];
        let names = catalogue::PORT_XSTAT.labels.iter().map(|name| (*name).to_owned());
        let expected: Vec<_> =
            names.zip(labels.iter().cloned()).filter(|(_, value)| !value.is_empty()).collect();
        for text in both(&families) {
            let line = text.split('\n').find(|line| !line.starts_with('#')).unwrap();
            let ParsedSeries { labels, value, .. } = series(line);
            prop_assert_eq!(&labels, &expected);
            prop_assert_eq!(value, count.to_string());
        }
    }

    #[test]
    fn any_number_reads_back(number: f64) {
        let families = one(&catalogue::EXPORTER_SERIES, &[], SampleValue::Number(number));
        let told = &read(&encoded(&families, TextFormat::Text))[0].value;
        let again: f64 = told.parse().unwrap();
        let same = again.to_bits() == number.to_bits() || (again.is_nan() && number.is_nan());
        prop_assert!(same, "{told}");
    }

    #[test]
    fn any_bound_reads_back(bound in 0.0_f64..1e12) {
        let buckets = vec![(bound, 1)];
        let told = SampleValue::Histogram(Histogram { buckets, count: 1, sum: None });
        let families = one(&catalogue::LCORE_POLL_GAP, &["a", "1"], told);
        let told = &read(&encoded(&families, TextFormat::Text))[0].labels[2].1;
        prop_assert_eq!(told.parse::<f64>().unwrap().to_bits(), bound.to_bits());
    }
}

#[test]
fn no_series_appears_twice() {
    let (limits, expected) = (fixture::limits(), fixture::expected());
    let families = metrics::families(&fixture::fleet(), &fixture::context(&limits, &expected));
    let mut seen = BTreeSet::new();
    for ParsedSeries { name, labels, .. } in read(&encoded(&families, TextFormat::Text)) {
        assert!(seen.insert((name.clone(), labels.clone())), "{name} {labels:?}");
    }
}
