//! Encodes families as OTLP, with one resource per app, and one for the exporter.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    self as otlp, AggregationTemporality, HistogramDataPoint, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use pmdscope_telemetry::FleetState;

use crate::catalogue;
use crate::family::{
    Histogram, MetricDescriptor, MetricFamily, MetricKind, MetricSample, SampleValue,
};

/// Identity of the exporter.
#[derive(Debug)]
pub(crate) struct ExporterIdentity {
    /// Host name.
    pub(super) host: String,
    /// Start time of the exporter, nanoseconds since 1970.
    pub(super) start_ns: u64,
}

/// Encodes all families of `fleet` as one request.
pub(super) fn request(
    families: &[MetricFamily],
    fleet: &FleetState,
    exporter: &ExporterIdentity,
) -> ExportMetricsServiceRequest {
    let mut resources = BTreeMap::<Option<&str>, Vec<otlp::Metric>>::new();
    for family in families {
        let mut parts = BTreeMap::<Option<&str>, Vec<&MetricSample>>::new();
        for sample in &family.samples {
            parts.entry(app(family.metric, sample)).or_default().push(sample);
        }
        for (app, samples) in parts {
            let times = PointTimes {
                start_ns: start(family.metric, app, fleet, exporter),
                now_ns: answered(app, fleet),
            };
            resources.entry(app).or_default().push(metric(family.metric, &samples, times));
        }
    }
    let resource_metrics = resources
        .into_iter()
        .map(|(app, metrics)| ResourceMetrics {
            resource: Some(resource(app, fleet, exporter)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics,
                ..Default::default()
            }],
            ..Default::default()
        })
        .collect();
    ExportMetricsServiceRequest { resource_metrics }
}

fn app<'a>(metric: &MetricDescriptor, sample: &'a MetricSample) -> Option<&'a str> {
    let place = metric.labels.iter().position(|label| *label == "app")?;
    sample.labels.get(place).map(String::as_str)
}

fn app_start(app: &str, fleet: &FleetState) -> Option<u64> {
    let model = fleet.find(app)?.model.as_deref()?;
    Some(model.sample.app.start_realtime_ns).filter(|start| *start > 0)
}

/// Returns the time of the values: for an app that answers, the time of its answer.
fn answered(app: Option<&str>, fleet: &FleetState) -> u64 {
    let app = app.and_then(|app| fleet.find(app)).filter(|app| !app.stale());
    let model = app.and_then(|app| app.model.as_deref());
    model.map_or(fleet.realtime_ns, |model| model.sample.realtime_ns)
}

/// Returns the start time of a counter; 0 if unknown.
fn start(
    metric: &MetricDescriptor,
    app: Option<&str>,
    fleet: &FleetState,
    exporter: &ExporterIdentity,
) -> u64 {
    match app {
        Some(app) if metric == &catalogue::QUEUE_TRANSMIT_REFUSED => {
            app_start(app, fleet).unwrap_or(0).max(exporter.start_ns)
        }
        Some(app) if metric != &catalogue::COLLECT_ERRORS => app_start(app, fleet).unwrap_or(0),
        _ => exporter.start_ns,
    }
}

fn resource(app: Option<&str>, fleet: &FleetState, exporter: &ExporterIdentity) -> Resource {
    let host = &exporter.host;
    let instance = match app {
        // A restarted app is another instance, because its counters start at 0.
        Some(app) => format!("{host}/{app}/{}", app_start(app, fleet).unwrap_or(0) / 1_000_000_000),
        None => format!("{host}/exporter/{}", exporter.start_ns / 1_000_000_000),
    };
    let attributes = vec![
        attribute("service.name", "pmdscope"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", &instance),
        attribute("host.name", host),
    ];
    Resource { attributes, ..Default::default() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "pmdscope".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    }
}

#[derive(Clone, Copy)]
struct PointTimes {
    start_ns: u64,
    now_ns: u64,
}

/// Converts a metric. Names are those of `PromQL`, which receivers that translate names do not change.
fn metric(of: &MetricDescriptor, samples: &[&MetricSample], times: PointTimes) -> otlp::Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let numbers = |times| samples.iter().filter_map(|sample| number(of, sample, times)).collect();
    let data = match of.kind {
        MetricKind::Counter => Data::Sum(otlp::Sum {
            data_points: numbers(times),
            aggregation_temporality,
            is_monotonic: true,
        }),
        MetricKind::Histogram => {
            let points = samples.iter().filter_map(|sample| histogram(of, sample, times));
            Data::Histogram(otlp::Histogram {
                data_points: points.collect(),
                aggregation_temporality,
            })
        }
        MetricKind::Gauge | MetricKind::Info | MetricKind::Unknown => {
            Data::Gauge(otlp::Gauge { data_points: numbers(PointTimes { start_ns: 0, ..times }) })
        }
    };
    otlp::Metric {
        name: of.name.to_owned(),
        description: of.help.to_owned(),
        unit: unit(of).to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

/// Returns the unit in UCUM notation.
fn unit(metric: &MetricDescriptor) -> &'static str {
    match metric.unit() {
        Some("bytes") => "By",
        Some("bytes_per_second") => "By/s",
        Some("hertz") => "Hz",
        Some("seconds") => "s",
        _ => counted(metric),
    }
}

/// Returns what is counted, as an annotation, which receivers do not append to names; empty for states.
fn counted(metric: &MetricDescriptor) -> &'static str {
    const COUNTED: [(&str, &str); 10] = [
        ("packets", "{packet}"),
        ("objects", "{object}"),
        ("mbufs", "{mbuf}"),
        ("cycles", "{cycle}"),
        ("polls", "{poll}"),
        ("errors", "{error}"),
        ("switches", "{switch}"),
        ("stalls", "{stall}"),
        ("queues", "{queue}"),
        ("descriptors", "{descriptor}"),
    ];
    let family = metric.family().trim_end_matches("_window_max");
    let named = |(word, _): &&(&str, &str)| {
        family.strip_suffix(word).is_some_and(|family| family.ends_with('_'))
    };
    COUNTED.iter().find(named).map_or("", |(_, unit)| unit)
}

fn number(
    metric: &MetricDescriptor,
    sample: &MetricSample,
    times: PointTimes,
) -> Option<NumberDataPoint> {
    let value = match &sample.value {
        SampleValue::Count(count) => match i64::try_from(*count) {
            Ok(count) => number_data_point::Value::AsInt(count),
            Err(_) => number_data_point::Value::AsDouble(*count as f64),
        },
        SampleValue::Number(number) => number_data_point::Value::AsDouble(*number),
        SampleValue::Histogram(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(metric, sample),
        start_time_unix_nano: times.start_ns,
        time_unix_nano: times.now_ns,
        value: Some(value),
        ..Default::default()
    })
}

fn histogram(
    metric: &MetricDescriptor,
    sample: &MetricSample,
    times: PointTimes,
) -> Option<HistogramDataPoint> {
    let SampleValue::Histogram(Histogram { buckets, count, sum }) = &sample.value else {
        return None;
    };
    // Buckets of OTLP are not cumulative.
    let cumulative = buckets.iter().map(|(_, count)| *count).chain([*count]);
    let bucket_counts = cumulative
        .scan(0, |below, count| Some(count.saturating_sub(std::mem::replace(below, count))))
        .collect();
    Some(HistogramDataPoint {
        attributes: attributes(metric, sample),
        start_time_unix_nano: times.start_ns,
        time_unix_nano: times.now_ns,
        count: *count,
        sum: *sum,
        bucket_counts,
        explicit_bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
        ..Default::default()
    })
}

fn attributes(metric: &MetricDescriptor, sample: &MetricSample) -> Vec<KeyValue> {
    metric.labels.iter().zip(&*sample.labels).map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(any_value::Value::StringValue(value.to_owned()));
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: PointTimes = PointTimes { start_ns: 5, now_ns: 9 };

    fn sample(labels: &[&str], value: SampleValue) -> MetricSample {
        MetricSample { labels: labels.iter().map(|label| (*label).to_owned()).collect(), value }
    }

    #[test]
    fn counters_are_monotonic_sums_since_the_start() {
        let of = sample(&["a", "p"], SampleValue::Count(7));
        let metric = metric(&catalogue::PORT_RECEIVE_BYTES, &[&of], TIMES);
        assert_eq!(
            (metric.name.as_str(), metric.unit.as_str()),
            ("dpdk_port_receive_bytes_total", "By")
        );
        let Some(Data::Sum(sum)) = metric.data else { panic!("{:?}", metric.data) };
        assert!(sum.is_monotonic);
        assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(7)));
        assert_eq!(point.attributes, [attribute("app", "a"), attribute("port", "p")]);
    }

    #[test]
    fn counts_beyond_what_otlp_holds_lose_precision_and_not_their_sign() {
        let of = sample(&["a", "p"], SampleValue::Count(u64::MAX));
        let point = number(&catalogue::PORT_RECEIVE_BYTES, &of, TIMES).unwrap();
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(u64::MAX as f64)));
    }

    #[test]
    fn buckets_are_not_cumulative() {
        let value = Histogram { buckets: vec![(1.0, 2), (2.0, 2), (4.0, 7)], count: 9, sum: None };
        let of = sample(&["a", "1"], SampleValue::Histogram(value));
        let point = histogram(&catalogue::LCORE_POLL_GAP, &of, TIMES).unwrap();
        assert_eq!(point.bucket_counts, [2, 0, 5, 2]);
        assert_eq!(point.explicit_bounds, [1.0, 2.0, 4.0]);
        assert_eq!((point.count, point.sum), (9, None));
    }

    #[test]
    fn every_unit_of_the_catalogue_has_a_spelling() {
        for metric in catalogue::all().filter(|metric| metric.unit().is_some()) {
            assert!(!unit(metric).is_empty(), "{}", metric.name);
        }
        assert_eq!(unit(&catalogue::PORT_RECEIVE_PACKETS), "{packet}");
        assert_eq!(unit(&catalogue::QUEUE_RECEIVE_DESCRIPTORS), "{descriptor}");
        assert_eq!(unit(&catalogue::PORT_LINK_UP), "");
    }
}
