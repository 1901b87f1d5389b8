//! The HTML page: running apps and their findings.

use std::fmt::Write;

use pmdscope_telemetry::discover::unreadable_text;

use crate::health::AppHealth;
use crate::snapshot::ScrapeSnapshot;

/// The paths of all pages.
pub(crate) const PATHS: &str =
    "/metrics, /metrics?app=NAME, /metrics/exporter, /ready, /ready?app=NAME, /healthz, /sd, /";

/// The message if there are no apps.
pub(super) const NO_APPS: &str = "no DPDK app was found on this machine; start one, or list the \
    directories that hold its runtime files in the configuration";

const STYLE: &str = "body{font:15px sans-serif;margin:2em;max-width:60em}\
    td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}.bad{color:#b00}";

/// Returns the page; `broken` is the reason why a changed web configuration is not used.
pub(super) fn page(snapshot: &ScrapeSnapshot, broken: Option<&str>) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>pmdscope</title><style>{STYLE}</style></head><body>\n\
         <h1>pmdscope {}</h1>\n\
         <p><a href=\"/metrics\">metrics</a> · <a href=\"/ready\">ready</a> · \
         <a href=\"/healthz\">healthz</a> · <a href=\"/sd\">service discovery</a></p>\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Some(broken) = broken {
        let broken = escape(broken);
        let _ = writeln!(html, "<p class=\"bad\">{broken}; the last good one stays in use</p>");
    }
    if let Some(unreadable) = unreadable_text(&snapshot.fleet.unreadable) {
        let _ = writeln!(html, "<p class=\"bad\">{}</p>", escape(&unreadable));
    }
    for finding in snapshot.fleet.interfaces.findings() {
        let [subject, evidence, advice] =
            [&finding.subject.to_string(), &finding.evidence, &finding.advice].map(|t| escape(t));
        let (lint, severity) = (finding.lint, finding.severity.word());
        let _ = writeln!(
            html,
            "<p class=\"bad\"><b>{lint}</b> of {subject}, {severity}: {evidence}<br>{advice}</p>"
        );
    }
    if let Some(error) = &snapshot.fleet.interfaces.error {
        let _ = writeln!(html, "<p class=\"bad\">interfaces: {}</p>", escape(error));
    }
    let apps = &snapshot.fleet.apps;
    let health: Vec<_> =
        apps.iter().map(|app| AppHealth::of(app, &snapshot.render_options.tolerate)).collect();
    if health.is_empty() {
        let _ = writeln!(html, "<p class=\"bad\">{NO_APPS}</p>");
    } else {
        html += "<table><tr><th>App</th><th>Now</th><th>What is wrong</th></tr>\n";
        for health in &health {
            row(&mut html, health);
        }
        html += "</table>\n";
    }
    html += "</body></html>\n";
    html
}

fn row(html: &mut String, health: &AppHealth<'_>) {
    let (class, now) = if health.ready { ("", "ready") } else { (" class=\"bad\"", "not ready") };
    let query: String = form_urlencoded::byte_serialize(health.app.as_bytes()).collect();
    let _ = write!(
        html,
        "<tr><td>{}<br><a href=\"/metrics?app={query}\">metrics</a> \
         <a href=\"/ready?app={query}\">ready</a></td><td{class}>{now}</td><td>",
        escape(health.app)
    );
    if health.reasons.is_empty() {
        *html += "nothing";
    }
    for reason in &health.reasons {
        let about = if reason.subject.is_app() { "" } else { " of " };
        let tolerated = if reason.tolerated { " (tolerated)" } else { "" };
        let (evidence, advice) = (escape(reason.evidence), escape(reason.advice));
        let subject = escape(&reason.subject.to_string());
        let _ = write!(
            html,
            "<b>{}</b>{about}{subject}, {}{tolerated}: {evidence}<br>{advice}<br>",
            reason.reason,
            reason.severity.word()
        );
    }
    *html += "</td></tr>\n";
}

/// Escapes text for HTML. Names come from directories, which anybody may create in `/tmp`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_shown() {
        let options = crate::snapshot::RenderOptions::default().into();
        let counters = crate::metrics::ExporterCounters::default();
        let snapshot = ScrapeSnapshot::new(crate::fixture::fleet(), counters, options);
        let html = page(&snapshot, None);
        assert!(html.contains("<b>flood</b> of eth0, warning: 9000 of 10000 packets/s"), "{html}");
    }

    #[test]
    fn names_cannot_add_markup() {
        assert_eq!(escape("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
    }
}
