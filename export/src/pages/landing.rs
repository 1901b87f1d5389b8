//! The HTML page: running apps and their findings.

use std::fmt::Write;

use pmdscope_telemetry::AppState;
use pmdscope_telemetry::discover::unreadable_text;
use pmdscope_telemetry::model::PortRates;

use crate::health::AppHealth;
use crate::snapshot::ScrapeSnapshot;

/// A rate of a port.
type PortRate = fn(&PortRates) -> Option<f64>;

/// The paths of all pages.
pub(crate) const PATHS: &str =
    "/metrics, /metrics?app=NAME, /metrics/exporter, /ready, /ready?app=NAME, /healthz, /sd, /";

/// The message if there are no apps.
pub(super) const NO_APPS: &str = "no DPDK app was found on this machine; start one, or list the \
    directories that hold its runtime files in the configuration";

/// On a telephone, the cells of a row stand below each other.
const STYLE: &str = "body{font:15px sans-serif;margin:1em auto;max-width:60em;padding:0 1em}\
    td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}\
    td.number{text-align:right;white-space:nowrap}.bad{color:#b00}p.advice{margin:.2em 0 .8em}\
    @media(max-width:40em){th{display:none}td,td.number{display:block;text-align:left}\
    td[title]::before{content:attr(title)\": \"}}";

/// How often a browser asks again, seconds.
const REFRESH_S: u32 = 15;

/// Returns the page; `broken` is the reason why a changed web configuration is not used.
pub(super) fn page(snapshot: &ScrapeSnapshot, broken: Option<&str>) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = escape(&host);
    let anchor = |url: &String| format!("<a href=\"{}\">dashboards</a> · ", escape(url));
    let dashboards = snapshot.render_options.dashboards.as_ref().map(anchor).unwrap_or_default();
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_S}\">\
         <title>{host} · pmdscope</title><style>{STYLE}</style></head><body>\n\
         <h1>{host}</h1>\n\
         <p>{dashboards}<a href=\"/metrics\">metrics</a> · <a href=\"/ready\">ready</a> · \
         <a href=\"/healthz\">healthz</a> · <a href=\"/sd\">service discovery</a> · pmdscope {}</p>\n",
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
            "<p><span class=\"bad\"><b>{lint}</b> of {subject}, {severity}: {evidence}</span><br>{advice}</p>"
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
        html += "<table><tr><th>App</th><th>Now</th><th>RX pps</th><th>TX pps</th><th>Missed/s</th>\
                 <th>Findings</th></tr>\n";
        for (app, health) in apps.iter().zip(&health) {
            row(&mut html, app, health);
        }
        html += "</table>\n";
    }
    html += "</body></html>\n";
    html
}

fn row(html: &mut String, app: &AppState, health: &AppHealth<'_>) {
    let (class, now) = if health.ready { ("", "ready") } else { (" class=\"bad\"", "not ready") };
    let query: String = form_urlencoded::byte_serialize(health.app.as_bytes()).collect();
    let _ = write!(
        html,
        "<tr><td>{}<br><a href=\"/metrics?app={query}\">metrics</a> \
         <a href=\"/ready?app={query}\">ready</a></td><td{class}>{now}</td>",
        escape(health.app)
    );
    let model = app.model.as_deref().filter(|_| !app.stale());
    let rates: [(&str, PortRate); 3] = [
        ("RX pps", |rates| rates.rx_pps),
        ("TX pps", |rates| rates.tx_pps),
        ("Missed/s", |rates| rates.rx_missed_ps),
    ];
    for (title, of) in rates {
        let rate = model.and_then(|model| model.sum_of_ports(of));
        let rate = rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        let _ = write!(html, "<td class=\"number\" title=\"{title}\">{rate}</td>");
    }
    *html += "<td>";
    if health.reasons.is_empty() {
        *html += "none";
    }
    for reason in &health.reasons {
        let about = if reason.subject.is_app() { "" } else { " of " };
        let tolerated = if reason.tolerated { " (tolerated)" } else { "" };
        let (evidence, advice) = (escape(reason.evidence), escape(reason.advice));
        let subject = escape(&reason.subject.to_string());
        let _ = write!(
            html,
            "<b>{}</b>{about}{subject}, {}{tolerated}: {evidence}<p class=\"advice\">{advice}</p>",
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
    use std::sync::Arc;

    use pmdscope_telemetry::AppInventory;

    use super::*;
    use crate::metrics::ExporterCounters;
    use crate::options::ExportOptions;
    use crate::snapshot::RenderOptions;

    #[test]
    fn floods_are_shown() {
        let options = RenderOptions::default().into();
        let counters = ExporterCounters::default();
        let snapshot = ScrapeSnapshot::new(crate::fixture::fleet(), counters, options);
        let html = page(&snapshot, None);
        assert!(html.contains("<b>flood</b> of eth0, warning: 9000 of 10000 packets/s"), "{html}");
    }

    #[test]
    fn host_rates_and_dashboards_are_shown() {
        let options = ExportOptions {
            dashboards: Some("https://grafana.example.com/?a=1&b=2".to_owned()),
            ..ExportOptions::default()
        };
        let options = RenderOptions::new(&options, &AppInventory::default()).into();
        let mut fleet = crate::fixture::fleet();
        let app = fleet.apps.iter_mut().find(|app| app.name == "fwd").unwrap();
        Arc::make_mut(app.model.as_mut().unwrap()).ports[0].rx_pps = Some(1234.4);
        let html = page(&ScrapeSnapshot::new(fleet, ExporterCounters::default(), options), None);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(html.contains(&format!("<h1>{host}</h1>")), "{html}");
        assert!(
            html.contains("<a href=\"https://grafana.example.com/?a=1&amp;b=2\">dashboards</a>")
        );
        assert!(html.contains("<td class=\"number\" title=\"RX pps\">1234</td>"), "{html}");
    }

    #[test]
    fn names_cannot_add_markup() {
        assert_eq!(escape("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
    }
}
