//! Tests that `docs/metrics.md` lists the current catalogue.

use std::fs;
use std::path::Path;

use pmdscope_export::catalogue::GROUPS;
use pmdscope_export::family::{MetricDescriptor, MetricKind};

/// Start of the generated part.
const MARK: &str = "<!-- Generated from export/src/catalogue;";

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info",
        MetricKind::Unknown => "unknown",
    }
}

fn tables() -> String {
    let mut lines = Vec::new();
    for group in GROUPS {
        lines.push(format!("\n## {}\n\n| name | type | labels | meaning |", group.title));
        lines.push("|---|---|---|---|".to_owned());
        lines.extend(group.metrics.iter().map(|metric| row(metric)));
    }
    lines.join("\n") + "\n"
}

fn row(MetricDescriptor { name, kind: of, labels, help }: &MetricDescriptor) -> String {
    format!("| `{name}` | {} | {} | {help} |", kind(*of), labels.join(", "))
}

#[test]
fn the_document_lists_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let document = fs::read_to_string(&path).unwrap();
    let mark = document.find(MARK).expect("docs/metrics.md has a generated part");
    let begin = mark + document[mark..].find('\n').unwrap() + 1;
    let expected = tables();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, document[..begin].to_owned() + &expected).unwrap();
        return;
    }
    assert!(
        document[begin..] == expected,
        "docs/metrics.md is stale: run UPDATE_DOCS=1 cargo test -p pmdscope-export --test document"
    );
}
